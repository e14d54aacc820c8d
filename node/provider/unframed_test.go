package provider

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
)

func TestJSONBodyKnowsItsEnd(t *testing.T) {
	for text, complete := range map[string]bool{
		`{"a":"}","b":[1,{"c":"\"]"}]}`: true, " [1] \n": true, `"word"`: true, `12`: true,
		``: false, ` `: false, `{`: false, `{"a":"}`: false, `{"a":"\"}`: false, `{"a":[1,2]`: false, `"wor`: false,
	} {
		body := &jsonBody{ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))}
		got, err := io.ReadAll(body)
		require.Equal(t, text, string(got))
		require.Equal(t, complete, err == nil, "%q: %v", text, err)
		require.True(t, err == nil || errors.Is(err, io.ErrUnexpectedEOF))
	}
}

// C24: an answer without a length whose provider dies half-way is a failure, a
// short one and a long one; a whole one passes.
func TestCase_C24_UnframedAnswerThatIsCut(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", wholeLimit+1000)
	for body, whole := range map[string]bool{`{"ok":true}`: true, `{"ok":tr`: false, "": false, long + `"}`: true, long: false} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+body)
		}()
		a := ask(t, newSet(t, clockwork.NewRealClock(), described("openai", "http://"+listener.Addr().String())), "{}")
		require.Equal(t, whole, a.end, "%.20q of %d bytes", body, len(body))
		if whole {
			require.Equal(t, body, a.whole())
		} else {
			require.Equal(t, disconnected, a.code())
		}
		listener.Close()
		<-served
	}
}
