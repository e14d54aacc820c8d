package edged

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serveFor serves an answer of one word with a allowance of its own.
func serveFor(t *testing.T, p allowance) (address string) {
	t.Helper()
	e := &Edge{log: slog.New(slog.DiscardHandler), life: context.Background(), allowance: p}
	s, err := e.open(part{address: "127.0.0.1:0", name: "test"}, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.serve() }()
	t.Cleanup(func() {
		s.close()
		require.NoError(t, <-ended)
	})
	return s.listener.Addr().String()
}

func dial(t *testing.T, address, say string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, say)
	require.NoError(t, err)
	return c
}

const long = 10 * time.Minute // never reached by a test

// A head that comes slowly costs its client the connection, over HTTP/1 and
// HTTP/2, and hundreds of such clients do not stop an honest one.
func TestSlowHeadsEndAndStopNobody(t *testing.T) {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		headers  = "\x00\x00\x10\x01\x04\x00\x00\x00\x01half" // four of 16 bytes
	)
	for name, c := range map[string]struct {
		allowance allowance
		say       string
	}{
		"a head without an end":          {allowance{head: 300 * time.Millisecond, idle: long}, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		"one byte":                       {allowance{head: 300 * time.Millisecond, idle: long}, "G"},
		"half of HTTP/2's preface":       {allowance{head: 300 * time.Millisecond, idle: long}, preface[:10]},
		"HTTP/2 and no request":          {allowance{head: long, idle: 300 * time.Millisecond}, preface + settings},
		"half of a frame with a head":    {allowance{head: long, idle: 300 * time.Millisecond}, preface + settings + headers},
		"a connection that says nothing": {allowance{head: 300 * time.Millisecond, idle: 600 * time.Millisecond}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveFor(t, c.allowance)
			const slow = 200
			var conns []net.Conn
			for range slow {
				conns = append(conns, dial(t, address, c.say))
			}
			honest := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := honest.Get("http://" + address)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, "served", string(text))
			for _, conn := range conns {
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
				_, err := io.Copy(io.Discard, conn) // settings, a 408 or nothing, and the end
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")
			}
		})
	}
}

// A connection that was opened ahead may stay silent for as long as any idle one,
// and serves a request then.
func TestAConnectionOpenedAheadServesItsFirstRequestLate(t *testing.T) {
	ahead, _ := net.Pipe()
	defer ahead.Close()
	limit := &deadlines{Conn: ahead}
	s := &silent{Conn: limit, allowance: usual}
	begin := time.Now()
	require.NoError(t, s.SetReadDeadline(begin.Add(usual.head))) // as net/http does when a connection begins
	require.WithinDuration(t, begin.Add(usual.idle), limit.last, time.Second)

	n, err := s.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.WithinDuration(t, time.Now().Add(usual.head), limit.last, time.Second, "its head has the time of a head from then on")
	require.NoError(t, s.SetReadDeadline(begin.Add(usual.head)))
	require.Equal(t, begin.Add(usual.head), limit.last, "and later ones are what they are")
	require.NoError(t, s.SetReadDeadline(time.Time{}))
	require.True(t, limit.last.IsZero())

	address := serveFor(t, allowance{head: 100 * time.Millisecond, idle: long})
	c := dial(t, address, "")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout", "it is open still")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "HTTP/1.1 200 "), line)
}

// deadlines is a connection that reads at once and tells of its limit.
type deadlines struct {
	net.Conn
	last time.Time
}

func (d *deadlines) Read(p []byte) (int, error) { return len(p), nil }

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.last = t
	return nil
}
