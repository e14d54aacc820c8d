package llamacpp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	soon = 10 * time.Second
	tick = time.Millisecond
)

// dialled is one connection of a client that does as it is told.
type dialled struct {
	*net.TCPConn
	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, s *Server) *dialled {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(2*soon)))
	return &dialled{c.(*net.TCPConn), t, bufio.NewReader(c)}
}

// ask sends a chat request and does not wait.
func (c *dialled) ask(prompt string, stream bool) {
	c.t.Helper()
	body := fmt.Sprintf(`{"stream":%t,"messages":[{"role":"user","content":%q}]}`, stream, prompt)
	_, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(c.t, err)
}

func (c *dialled) answer() (res *http.Response, body string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	return res, string(text)
}

func TestPlainAnswersKeepTheConnection(t *testing.T) {
	s := start(t, Options{})
	c := dial(t, s)
	for range 3 {
		c.ask("go 97", false)
		res, body := c.answer()
		assert.Equal(t, "timeout=5, max=100", res.Header.Get("Keep-Alive"))
		assert.Contains(t, body, `" 98 99 100"`)
	}
	assert.Len(t, s.Conns(), 1)
	assert.Equal(t, 3, s.Conns()[0].Requests)
	assert.Zero(t, s.Conns()[0].Closed)
}

func TestAStreamEndsTheConnectionItPromisedToKeep(t *testing.T) {
	s := start(t, Options{})
	c := dial(t, s)
	c.ask("go 97", true)
	res, body := c.answer()
	assert.Equal(t, "timeout=5, max=100", res.Header.Get("Keep-Alive"))
	assert.False(t, res.Close)
	assert.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"))
	_, err := c.in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool { return !s.Conns()[0].Closed.IsZero() }, soon, tick)
	assert.False(t, s.Conns()[0].ByClient)
	assert.True(t, s.Requests()[0].Streamed)
}

func TestAnErrorEndsTheConnectionAndSaysSo(t *testing.T) {
	s := start(t, Options{})
	c := dial(t, s)
	_, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{")
	require.NoError(t, err)
	res, _ := c.answer()
	assert.Equal(t, http.StatusInternalServerError, res.StatusCode)
	assert.True(t, res.Close)
	_, err = c.in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// A queued request gets nothing, not even a header, and the one that came last
// runs first.
func TestQueued(t *testing.T) {
	s := start(t, Options{Slots: 1, Context: 1 << 14, Pace: time.Millisecond})
	holder := dial(t, s)
	holder.ask("go 500", true)
	require.Eventually(t, func() bool { return s.Running() == 1 }, soon, tick)
	first, second := dial(t, s), dial(t, s)
	first.ask("go 500", true)
	require.Eventually(t, func() bool { return s.Waiting() == 1 }, soon, tick)
	second.ask("go 97", true)
	require.Eventually(t, func() bool { return s.Waiting() == 2 }, soon, tick)
	require.NoError(t, holder.Close())
	_, body := second.answer()
	assert.Contains(t, body, "[DONE]")
	require.Eventually(t, func() bool { return s.Running() == 1 && s.Waiting() == 0 }, soon, tick)
	assert.Equal(t, Peak{Running: 1, Queued: 2, Connections: 3}, s.Peak())
	seen := s.Requests()
	require.Len(t, seen, 3)
	assert.True(t, seen[0].Gone)
	assert.False(t, seen[1].Ended())
	assert.Equal(t, http.StatusOK, seen[2].Status)
}

// Who gives up in the queue leaves it, and a half-closed connection counts as
// given up.
func TestGivenUp(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			s := start(t, Options{Slots: 1, Context: 1 << 14, Pace: time.Millisecond, Poll: 5 * time.Millisecond})
			holder, waiter := dial(t, s), dial(t, s)
			holder.ask("go 500", stream)
			require.Eventually(t, func() bool { return s.Running() == 1 }, soon, tick)
			waiter.ask("go 500", stream)
			require.Eventually(t, func() bool { return s.Waiting() == 1 }, soon, tick)
			require.NoError(t, waiter.CloseWrite())
			require.Eventually(t, func() bool { return s.Waiting() == 0 }, soon, tick)
			require.NoError(t, holder.CloseWrite())
			require.Eventually(t, func() bool { return s.Running() == 0 }, soon, tick)
			for _, c := range []*dialled{holder, waiter} {
				_, err := io.Copy(io.Discard, c)
				require.NoError(t, err, "closed in its turn")
			}
			require.Eventually(t, func() bool { return s.Requests()[0].Ended() && s.Requests()[1].Ended() }, soon, tick)
			for _, r := range s.Requests() {
				assert.True(t, r.Gone)
			}
		})
	}
}

func TestCutLeavesAStreamUnfinished(t *testing.T) {
	s := start(t, Options{Context: 1 << 14, Pace: time.Millisecond})
	c := dial(t, s)
	c.ask("go 500", true)
	res, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	s.Cut()
	_, err = io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestFailNext(t *testing.T) {
	s := start(t, Options{})
	s.FailNext(1, http.StatusTooManyRequests, "1")
	c := dial(t, s)
	c.ask("go 97", false)
	res, body := c.answer()
	assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	assert.Equal(t, "1", res.Header.Get("Retry-After"))
	assert.Contains(t, body, `"code":429`)
	c = dial(t, s)
	c.ask("go 97", false)
	res, _ = c.answer()
	assert.Equal(t, http.StatusOK, res.StatusCode)
}
