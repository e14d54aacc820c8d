package provider

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func TestShortAnswerIsOneFrame(t *testing.T) {
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Openai-Processing-Ms", "7")
		w.Header().Set("X-Ratelimit-Remaining", "3")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Etag", "x")
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, `{"echo":%q}`, body)
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
	a := ask(t, s, `{"model":"m"}`)
	assert.Equal(t, `{"echo":"{\"model\":\"m\"}"}`, a.whole())
	assert.Equal(t, 1, a.frames)
	assert.EqualValues(t, http.StatusTeapot, a.head.GetStatus(), "the provider's own answer passes, errors included")
	assert.Equal(t, "application/json; charset=utf-8", a.header("Content-Type"))
	assert.Equal(t, "7", a.header("Openai-Processing-Ms"))
	assert.Equal(t, "3", a.header("X-Ratelimit-Remaining"))
	assert.Len(t, a.head.GetHeaders(), 3, "anything else passed: %v", a.head.GetHeaders())
}

func TestAnswersOfEverySizeArriveUnaltered(t *testing.T) {
	for _, size := range []int{0, 1, readSize - 1, readSize, readSize + 1, wholeLimit - 1, wholeLimit, wholeLimit + 1, 3 * wholeLimit} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d chunked %v", size, chunked), func(t *testing.T) {
				want := make([]byte, size)
				_, _ = rand.Read(want)
				stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					if !chunked {
						w.Header().Set("Content-Length", fmt.Sprint(size))
					} else {
						_ = http.NewResponseController(w).Flush()
					}
					_, _ = w.Write(want)
				})
				s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
				for range 2 {
					a := ask(t, s, "{}")
					assert.True(t, bytes.Equal(want, []byte(a.whole())))
					if size <= wholeLimit {
						assert.Equal(t, 1, a.frames)
					} else {
						assert.Greater(t, a.frames, 1)
					}
				}
			})
		}
	}
}

func TestCase_E16_RequestHasItsExactLengthAndBytes(t *testing.T) {
	for _, size := range []int{0, 10, 100 << 10, 1 << 20} {
		want := strings.Repeat("x", size)
		stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			assert.Equal(t, int64(size), r.ContentLength)
			assert.Empty(t, r.TransferEncoding)
			assert.True(t, want == string(body))
			assert.Equal(t, http.MethodPost, r.Method)
			assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		})
		s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
		assert.Equal(t, "{}", ask(t, s, want).whole())
	}
}

func TestCase_I07_OnlyAllowedHeadersReachTheProvider(t *testing.T) {
	var got http.Header
	var host string
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) { got, host = r.Header.Clone(), r.Host })
	s := NewSet(Config{Clock: clockwork.NewRealClock(), Log: quiet(), Credential: func(id string) string { return "key-of-" + id }})
	s.Apply(list(described("ollama", stub.URL)))
	defer closeSet(t, s)
	b := begin("{}")
	for name, value := range map[string]string{
		"authorization": "Bearer client", "Origin": "https://evil.example", "Referer": "x", "Host": "outer.example", "Cookie": "a=b",
		"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "User-Agent": "sdk/1", "Accept-Encoding": "zstd, gzip", "Idempotency-Key": "k",
		"accept": "text/event-stream", "Content-Type": "application/json; charset=utf-8", "Anthropic-Version": "2023-06-01",
		"Anthropic-Beta": "b", "OpenAI-Beta": "o", "X-Request-Id": "id", "X-Session-Id": "s", "X-Stainless-Lang": "js",
	} {
		b.Headers = append(b.Headers, &runtimev1.Header{Name: name, Value: value})
	}
	require.NoError(t, s.Run(t.Context(), b, []byte("{}"), &answer{t: t}))
	assert.Equal(t, strings.TrimPrefix(stub.URL, "http://"), host)
	assert.Equal(t, http.Header{
		"Accept": {"text/event-stream"}, "Content-Type": {"application/json; charset=utf-8"}, "Anthropic-Version": {"2023-06-01"},
		"Anthropic-Beta": {"b"}, "Openai-Beta": {"o"}, "X-Request-Id": {"id"}, "X-Session-Id": {"s"},
		"Accept-Encoding": {"identity"}, "User-Agent": {"iop-node"}, "Authorization": {"Bearer key-of-p"}, "Content-Length": {"2"},
	}, got)
}

func TestCase_A16_EachEventIsAFrameOfItsOwn(t *testing.T) {
	next := make(chan struct{})
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		for i := range 3 {
			<-next
			fmt.Fprintf(w, "data: %d\r\n\r\n", i)
			_ = http.NewResponseController(w).Flush()
		}
		<-next
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	a := &answer{t: t}
	arrived := make(chan string, 4)
	a.hook = func(f *Frame) error {
		arrived <- string(f.Body)
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), begin("{}"), []byte("{}"), a) }()
	for i := range 3 {
		next <- struct{}{}
		assert.Equal(t, fmt.Sprintf("data: %d\r\n\r\n", i), await(t, arrived, "an event, before the next one is written"))
	}
	next <- struct{}{}
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, "data: 0\r\n\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", a.whole())
	assert.Empty(t, a.header("Cache-Control"), "the Edge sets its own on event streams")
	assert.Equal(t, "text/event-stream", a.header("Content-Type"))
}

// TestHeadOfASilentStreamGoesAlone has an engine that sends its head before a
// prompt which takes long.
func TestHeadOfASilentStreamGoesAlone(t *testing.T) {
	clock := clockwork.NewFakeClock()
	next := make(chan struct{})
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, "data: x\n\n")
	})
	s := newSet(t, clock, described("vllm", stub.URL))
	a := &answer{t: t}
	frames := make(chan Frame, 4)
	a.hook = func(f *Frame) error { frames <- *f; return nil }
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), begin("{}"), []byte("{}"), a) }()
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	assert.Empty(t, frames)
	clock.Advance(headHold)
	f := await(t, frames, "the head")
	assert.NotNil(t, f.Head)
	assert.Empty(t, f.Body)
	close(next)
	f = await(t, frames, "the first bytes")
	assert.Nil(t, f.Head)
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, "data: x\n\n", a.whole())
}

// TestHeadThatCannotBeWrittenEndsTheRequest is the same with a reader that is gone.
func TestHeadThatCannotBeWrittenEndsTheRequest(t *testing.T) {
	clock := clockwork.NewFakeClock()
	stub := newStuckServer(t, eventHead)
	close(stub.finish)
	s := newSet(t, clock, described("vllm", stub.url))
	lost := errors.New("link lost")
	a := &answer{t: t, hook: func(*Frame) error { return lost }}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context(), begin("{}"), []byte("{}"), a) }()
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(headHold)
	await(t, stub.gone, "the half-close")
	require.ErrorIs(t, await(t, done, "the end"), lost)
}

func TestLongStreamArrivesInOrderAtASlowReader(t *testing.T) {
	const events = 10_000
	var want strings.Builder
	for i := range events {
		fmt.Fprintf(&want, "data: {\"n\":%d}\n\n", i)
	}
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range events {
			fmt.Fprintf(w, "data: {\"n\":%d}\n\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	a := &answer{t: t}
	frames := 0
	a.hook = func(f *Frame) error {
		assert.LessOrEqual(t, len(f.Body), readSize, "more than one read was held back")
		if frames++; frames%7 == 0 {
			for range 200 {
				_ = fmt.Sprint(frames) // a reader that takes its time
			}
		}
		return nil
	}
	require.NoError(t, s.Run(t.Context(), begin("{}"), []byte("{}"), a))
	assert.True(t, want.String() == a.whole())
}

func TestLineOf2MiBPassesUnchanged(t *testing.T) {
	line := "data: " + strings.Repeat("ä€x", 350_000) + "\n\n"
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, line)
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	assert.True(t, line == ask(t, s, "{}").whole())
}

// TestShortBodyNeverPassesForAWholeOne breaks answers off in every way that a
// server can, and then lets one end cleanly.
func TestShortBodyNeverPassesForAWholeOne(t *testing.T) {
	json := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	events := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for name, c := range map[string]struct {
		raw         string
		reset, head bool
	}{
		"json, length":               {raw: json + "Content-Length: 20\r\n\r\n{\"a\":"},
		"json, chunked":              {raw: json + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n"},
		"json, inside a chunk":       {raw: json + "Transfer-Encoding: chunked\r\n\r\n50\r\n{\"a\":"},
		"json, reset":                {raw: json + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", reset: true},
		"events, no last chunk":      {raw: events + "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n", head: true},
		"events, no end of last one": {raw: events + "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n", head: true},
		"events, malformed chunk":    {raw: events + "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\nzz\r\n", head: true},
		"no answer":                  {raw: ""},
		"half a head":                {raw: "HTTP/1.1 200 OK\r\nContent-Ty"},
		"something other than HTTP":  {raw: "SSH-2.0-secret\r\n\r\n"},
		"two different lengths":      {raw: json + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"},
		"an endless head":            {raw: json + "X: " + strings.Repeat("a", 2*headLimit) + "\r\n\r\n{}"},
		"an informational answer":    {raw: "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
				if !readRequest(r) {
					return
				}
				_, _ = io.WriteString(conn, c.raw)
				if c.reset {
					_ = conn.SetLinger(0)
				}
			})
			s := newSet(t, clockwork.NewRealClock(), described("openai", url))
			a := ask(t, s, `{"a":1}`)
			assert.False(t, a.end)
			assert.Equal(t, disconnected, a.code())
			assert.NotContains(t, a.failure.GetMessage(), "secret", "messages quote nothing of what a server sent")
			assert.Equal(t, c.head, a.head != nil)
			if c.head {
				assert.Equal(t, "data: 1\n\n", a.body.String(), "what came before the loss is passed on")
			}
			assert.Zero(t, s.Usage()[0].InUse)
		})
	}
	t.Run("clean end without a last event", func(t *testing.T) {
		url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
			readRequest(r)
			_, _ = io.WriteString(conn, events+"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n")
		})
		s := newSet(t, clockwork.NewRealClock(), described("ollama", url))
		assert.Equal(t, "data: 1\n\n", ask(t, s, "{}").whole(), "the transport was complete; the meaning is not judged here")
	})
	t.Run("end by close", func(t *testing.T) {
		url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
			readRequest(r)
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
		})
		s := newSet(t, clockwork.NewRealClock(), described("mlx", url))
		assert.Equal(t, "{}", ask(t, s, "{}").whole())
	})
}

func TestEncodedAnswerPassesVerbatim(t *testing.T) {
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 0, 1, 2})
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
	a := ask(t, s, "{}")
	assert.Equal(t, "\x1f\x8b\x00\x01\x02", a.whole())
	assert.Equal(t, "gzip", a.header("Content-Encoding"))
}

func TestRedirectIsNotFollowed(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("a redirect was followed") })
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", stub.URL))
	a := ask(t, s, "{}")
	assert.Equal(t, disconnected, a.code())
	assert.Contains(t, a.failure.GetMessage(), "redirects are not followed")
}

// TestEarlyAnswerToALargeUpload answers before the body is read, and hangs up.
func TestEarlyAnswerToALargeUpload(t *testing.T) {
	url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, r)
	})
	s := newSet(t, clockwork.NewRealClock(), described("openai", url))
	a := ask(t, s, strings.Repeat("x", 8<<20))
	assert.Equal(t, "{}", a.whole())
	assert.EqualValues(t, 413, a.head.GetStatus())
}
