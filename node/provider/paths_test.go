package provider

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gauge counts what runs at once, and its peak.
type gauge struct{ now, peak, total atomic.Int64 }

func (g *gauge) enter() {
	g.total.Add(1)
	now := g.now.Add(1)
	for old := g.peak.Load(); now > old && !g.peak.CompareAndSwap(old, now); old = g.peak.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// misbehave answers one request in one of the ways that servers have; it returns
// false when the connection is over. busy is left before the connection is closed
// or the answer complete, as an engine does.
// giveUp makes the client of the request leave.
func misbehave(way int, conn *net.TCPConn, busy *gauge, giveUp func()) bool {
	busy.enter()
	long := strings.Repeat(oneEvent, 200)
	switch way {
	case 0, 1: // a whole answer
		busy.leave()
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		return err == nil
	case 2, 3: // a whole stream
		_, _ = io.WriteString(conn, eventHead+long)
		busy.leave()
		_, err := io.WriteString(conn, "0\r\n\r\n")
		return err == nil
	case 4: // a truncated stream
		_, _ = io.WriteString(conn, eventHead+long)
	case 5: // a reset
		_, _ = io.WriteString(conn, eventHead+oneEvent)
		_ = conn.SetLinger(0)
	case 6: // nothing at all
	case 7: // works until its client goes
		_, _ = io.WriteString(conn, eventHead+oneEvent)
		giveUp()
		_, _ = io.Copy(io.Discard, conn)
	case 8: // silent until its client goes
		giveUp()
		_, _ = io.Copy(io.Discard, conn)
	}
	busy.leave()
	return false
}

// TestCase_B07_EveryPathReturnsTheSlotOnce runs requests that end in every way against
// a server that behaves in every way, while the configuration changes, and then
// asks whether the server ever held more than the gate lets through.
func TestCase_B07_EveryPathReturnsTheSlotOnce(t *testing.T) {
	const capacity, clients, each = 3, 5, 100
	var busyNow gauge
	var way atomic.Int64
	var cancels sync.Map // of context.CancelFunc, by request body
	url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			id, _ := io.ReadAll(req.Body)
			cancel, known := cancels.Load(string(id))
			if !known || !misbehave(int(way.Add(1)%9), conn, &busyNow, cancel.(context.CancelFunc)) {
				return
			}
		}
	})
	p := described("vllm", url)
	p.Capacity, p.GateWaitMs = capacity, 20_000
	s := newSet(t, clockwork.NewRealClock(), p)
	var outcomes [8]atomic.Int64
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				body := fmt.Sprint(c, "/", i)
				cancels.Store(body, cancel)
				left := random.IntN(6)
				a := &answer{t: t, hook: func(f *Frame) error {
					if left--; left < 0 {
						cancel()
					}
					return nil
				}}
				if random.IntN(8) == 0 {
					go cancel() // at the gate, in the dial, anywhere
				}
				assert.NoError(t, s.Run(ctx, begin(body), []byte(body), a))
				assert.True(t, a.end != (a.failure != nil), "exactly one final frame")
				outcomes[a.code()].Add(1)
				cancel()
			}
		})
	}
	stop := make(chan struct{})
	var configuring sync.WaitGroup
	configuring.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				next := described([]string{"vllm", "openai", "llamacpp"}[i/50%3], url)
				next.Capacity, next.GateWaitMs = capacity, 20_000
				s.Apply(list(next))
				runtime.Gosched()
			}
		}
	})
	running.Wait()
	close(stop)
	configuring.Wait()
	assert.LessOrEqual(t, busyNow.peak.Load(), int64(capacity))
	assert.Greater(t, busyNow.total.Load(), int64(100))
	assert.Positive(t, outcomes[cancelled].Load())
	assert.Positive(t, outcomes[disconnected].Load())
	assert.Positive(t, outcomes[0].Load(), "whole answers")
	assert.Zero(t, s.Usage()[0].InUse)
}

// TestOverTLS shows that half-close and pooling see through the TLS layer.
func TestOverTLS(t *testing.T) {
	var connections atomic.Int64
	asked, left := make(chan struct{}, 1), make(chan struct{}, 1)
	stub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != "stream" {
			_, _ = w.Write(body)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	stub.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	stub.StartTLS()
	t.Cleanup(stub.Close)
	s := newSet(t, clockwork.NewFakeClock(), described("openai", stub.URL))
	assert.Equal(t, unreachable, ask(t, s, "x").code(), "an unknown authority is not trusted")
	roots := x509.NewCertPool()
	roots.AddCert(stub.Certificate())
	s.instances["p"].transport.TLSClientConfig.RootCAs = roots
	connections.Store(0)
	for range 3 {
		assert.Equal(t, "hello", ask(t, s, "hello").whole())
	}
	assert.EqualValues(t, 1, connections.Load())
	ctx, cancel := context.WithCancel(t.Context())
	a, done := start(t, ctx, s, begin("stream"), "stream")
	await(t, asked, "the request")
	cancel()
	await(t, left, "the server to notice")
	require.NoError(t, await(t, done, "the end, without any grace passing"))
	assert.Equal(t, cancelled, a.code())
}
