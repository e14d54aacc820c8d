package provider

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawStub answers each request on a connection with raw, and leaves the connection open if keep is set.
func rawStub(t *testing.T, raw string, keep bool) string {
	return tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		for readRequest(r) {
			if _, err := io.WriteString(conn, raw); err != nil || !keep {
				return
			}
		}
	})
}

const eventsHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"

// Streams as servers write them arrive byte for byte, wherever their chunks end.
func TestCase_A04_A06_StreamsPassWhateverTheirChunks(t *testing.T) {
	for name, stream := range map[string]string{
		"two events and more": "data: {\"a\":1}\n\ndata: {\"a\":2}\n\n: ping\n\ndata: [DONE]\n\n",
		"CRLF":                "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
		"lone CR":             "data: {\"a\":1}\r\rdata: [DONE]\r\r",
		"several data lines":  "event: x\ndata: {\"a\":\ndata:1}\nid: 7\n\n\xff\xfe not UTF-8 \x00\n\n",
	} {
		for _, size := range []int{1, 2, 3, len(stream)} {
			t.Run(fmt.Sprintf("%s by %d", name, size), func(t *testing.T) {
				raw := eventsHead + "\r\n"
				for rest := stream; rest != ""; {
					n := min(size, len(rest))
					raw += fmt.Sprintf("%x;ext=1\r\n%s\r\n", n, rest[:n])
					rest = rest[n:]
				}
				s := newSet(t, clockwork.NewRealClock(), described("vllm", rawStub(t, raw+"0\r\n\r\n", true)))
				for range 2 {
					assert.Equal(t, stream, ask(t, s, "{}").whole())
				}
			})
		}
	}
}

// A provider's informational answers and trailers are not passed on; what they enclose is.
func TestInformationalAnswersAndTrailersStayBehind(t *testing.T) {
	early := "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nOpenai-Early: 1\r\n\r\n"
	for name, c := range map[string]struct{ raw, body string }{
		"events": {early + eventsHead + "Trailer: Openai-Late\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\nOpenai-Late: 1\r\n\r\n", "data: 1\n\n"},
		"json": {early + "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: Openai-Late\r\n\r\n2\r\n{}\r\n0\r\nOpenai-Late: 1\r\n\r\n",
			"{}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, clockwork.NewRealClock(), described("vllm", rawStub(t, c.raw, true)))
			for range 2 {
				a := ask(t, s, "{}")
				assert.Equal(t, c.body, a.whole())
				assert.EqualValues(t, 200, a.head.GetStatus())
				for _, h := range a.head.GetHeaders() {
					assert.Equal(t, "Content-Type", h.GetName())
				}
			}
		})
	}
}

// Answers without a body end with their head, whatever they say of a length.
func TestAnswersThatHaveNoBody(t *testing.T) {
	for _, status := range []string{"204 No Content", "205 Reset Content"} {
		for _, length := range []string{"", "Content-Length: 0\r\n"} {
			s := newSet(t, clockwork.NewRealClock(), described("vllm", rawStub(t, "HTTP/1.1 "+status+"\r\nContent-Type: application/json\r\n"+length+"\r\n", length != "")))
			a := ask(t, s, "{}")
			assert.Empty(t, a.whole())
			assert.Equal(t, status[:3], fmt.Sprint(a.head.GetStatus()))
		}
	}
	s := newSet(t, clockwork.NewRealClock(), described("vllm", rawStub(t, "HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n", true)))
	assert.Equal(t, disconnected, ask(t, s, "{}").code(), "nobody asked under a condition")
}

// A server that closes after a stream while it promises to keep the connection loses no request of the next client: none is sent there (llama.cpp).
func TestStreamsOfAServerThatBreaksItsPromise(t *testing.T) {
	stream := strings.Repeat("data: {}\n\n", 3) + "data: [DONE]\n\n"
	raw := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nKeep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(stream), stream)
	s := newSet(t, clockwork.NewRealClock(), described("llamacpp", rawStub(t, raw, false)))
	for range 20 {
		require.Equal(t, stream, ask(t, s, "{}").whole())
	}
}
