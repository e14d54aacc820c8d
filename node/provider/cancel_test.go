package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

const (
	eventHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	oneEvent  = "9\r\ndata: x\n\n\r\n"
)

// stuckServer sends its opening to each request and then only watches: seen
// tells what the server saw of its client, and finish lets it hang up.
type stuckServer struct {
	url string
	// asked receives once per request that has arrived.
	asked chan struct{}
	// gone receives once per client that has closed its writing side.
	gone chan struct{}
	// finish is closed to let the server close its connections.
	finish chan struct{}
}

func newStuckServer(t *testing.T, opening string) *stuckServer {
	s := &stuckServer{asked: make(chan struct{}, 64), gone: make(chan struct{}, 64), finish: make(chan struct{})}
	s.url = tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		for readRequest(r) {
			_, _ = io.WriteString(conn, opening)
			s.asked <- struct{}{}
		}
		s.gone <- struct{}{}
		<-s.finish
	})
	t.Cleanup(func() {
		select {
		case <-s.finish:
		default:
			close(s.finish)
		}
	})
	return s
}

// cancelCases are the moments in which a client may leave.
var cancelCases = map[string]string{
	"while streaming (B01)":             eventHead + oneEvent,
	"before the first token (B03)":      eventHead,
	"in prefill, before any byte (B03)": "",
	"in a short answer (B02)":           "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
}

func TestCase_B01_B02_B03_CancelHalfClosesAndHoldsTheSlotToTheEnd(t *testing.T) {
	for name, opening := range cancelCases {
		t.Run(name, func(t *testing.T) {
			stub := newStuckServer(t, opening)
			s := newSet(t, clockwork.NewFakeClock(), described("vllm", stub.url))
			ctx, cancel := context.WithCancel(t.Context())
			a, done := start(t, ctx, s, begin("{}"), "{}")
			await(t, stub.asked, "the request")
			cancel()
			await(t, stub.gone, "the half-close")
			select {
			case <-done:
				t.Fatal("ended while the provider was still busy")
			default:
			}
			assert.Equal(t, 1, s.Usage()[0].InUse, "the slot is held until the provider has hung up")
			close(stub.finish)
			require.NoError(t, await(t, done, "the end"))
			assert.Equal(t, cancelled, a.code())
			assert.Zero(t, s.Usage()[0].InUse)
		})
	}
}

func TestCase_B11_SlotIsFreeAfterTheGraceIfTheProviderHangs(t *testing.T) {
	for name, opening := range cancelCases {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			stub := newStuckServer(t, opening)
			s := newSet(t, clock, described("vllm", stub.url))
			ctx, cancel := context.WithCancel(t.Context())
			a, done := start(t, ctx, s, begin("{}"), "{}")
			await(t, stub.asked, "the request")
			cancel()
			await(t, stub.gone, "the half-close")
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(1999 * time.Millisecond)
			assert.Equal(t, 1, s.Usage()[0].InUse)
			clock.Advance(time.Millisecond)
			require.NoError(t, await(t, done, "the end of the grace"))
			assert.Equal(t, cancelled, a.code())
			assert.Zero(t, s.Usage()[0].InUse)
			if opening == eventHead {
				assert.Nil(t, a.head, "a head of no more use was sent")
			}
		})
	}
}

func TestGraceOf0ClosesAtOnce(t *testing.T) {
	stub := newStuckServer(t, eventHead+oneEvent)
	p := described("vllm", stub.url)
	p.CancelGraceMs = 0
	s := newSet(t, clockwork.NewFakeClock(), p)
	ctx, cancel := context.WithCancel(t.Context())
	a, done := start(t, ctx, s, begin("{}"), "{}")
	await(t, stub.asked, "the request")
	cancel()
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, cancelled, a.code())
}

// TestServerDeafToHalfCloseIsClosedFully is for engines that notice only a failed
// write: both directions are closed, and the slot held for the grace.
func TestServerDeafToHalfCloseIsClosedFully(t *testing.T) {
	clock := clockwork.NewFakeClock()
	writeFailed := make(chan error, 1)
	url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		readRequest(r)
		_, err := io.WriteString(conn, eventHead)
		for err == nil {
			_, err = io.WriteString(conn, oneEvent)
		}
		writeFailed <- err
	})
	s := newSet(t, clock, described("mlx", url))
	ctx, cancel := context.WithCancel(t.Context())
	a := &answer{t: t, hook: func(*Frame) error { cancel(); return nil }}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, begin("{}"), []byte("{}"), a) }()
	require.Error(t, await(t, writeFailed, "the server's write to fail"))
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	assert.Equal(t, 1, s.Usage()[0].InUse, "its engine may not have noticed yet")
	clock.Advance(2 * time.Second)
	require.NoError(t, await(t, done, "the end of the grace"))
	assert.Equal(t, cancelled, a.code())
}

func TestDrainReadsTheAnswerToItsEnd(t *testing.T) {
	for name, opening := range map[string]string{"before the head": "", "in the stream": eventHead + oneEvent} {
		t.Run(name, func(t *testing.T) {
			asked, finish, rest := make(chan struct{}), make(chan struct{}), strings.TrimPrefix(eventHead+oneEvent, opening)
			written := make(chan error, 1)
			var connections atomic.Int64
			url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
				connections.Add(1)
				if !readRequest(r) {
					return
				}
				_, _ = io.WriteString(conn, opening)
				asked <- struct{}{}
				<-finish
				_, err := io.WriteString(conn, rest+strings.Repeat(oneEvent, 50_000)+"0\r\n\r\n")
				written <- err
				if readRequest(r) {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain")
				}
			})
			p, clock := described("vllm", url), clockwork.NewFakeClock()
			p.Cancel = "drain"
			s := newSet(t, clock, p)
			ctx, cancel := context.WithCancel(t.Context())
			frames := make(chan struct{}, 4)
			a := &answer{t: t, hook: func(*Frame) error { frames <- struct{}{}; return nil }}
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx, begin("{}"), []byte("{}"), a) }()
			await(t, asked, "the request")
			if opening != "" {
				await(t, frames, "the first event")
			}
			cancel()
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1), "the cancel arms the bound of the drain")
			assert.Equal(t, 1, s.Usage()[0].InUse)
			close(finish)
			require.NoError(t, await(t, written, "the whole answer to be read"))
			require.NoError(t, await(t, done, "the end"))
			assert.Equal(t, cancelled, a.code())
			assert.LessOrEqual(t, a.body.Len(), 2*len(oneEvent), "what came after the cancel is of no use to anyone")
			assert.Equal(t, "again", ask(t, s, "{}").whole())
			assert.EqualValues(t, 1, connections.Load(), "the server must not notice that its client has gone")
		})
	}
}

func TestDrainIsBoundedByTheRequestsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		opening string
		begin   func(*runtimev1.RequestBegin)
		advance time.Duration
	}{
		"silence":        {eventHead + oneEvent, func(b *runtimev1.RequestBegin) { b.IdleTimeoutMs = 60_000 }, time.Minute},
		"whole exchange": {"", func(b *runtimev1.RequestBegin) { b.TotalTimeoutMs = 60_000 }, time.Minute},
		"no other limit": {eventHead + oneEvent, func(*runtimev1.RequestBegin) {}, drainLimit},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			stub := newStuckServer(t, c.opening)
			p := described("vllm", stub.url)
			p.Cancel = "drain"
			s := newSet(t, clock, p)
			b := begin("{}")
			c.begin(b)
			ctx, cancel := context.WithCancel(t.Context())
			a := &answer{t: t}
			frames := make(chan struct{}, 4)
			a.hook = func(*Frame) error { frames <- struct{}{}; return nil }
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx, b, []byte("{}"), a) }()
			await(t, stub.asked, "the request")
			timers := 1
			if c.opening != "" {
				await(t, frames, "the first event")
			}
			cancel()
			if c.opening != "" {
				awaitRead(s)
			}
			if name != "no other limit" {
				timers++
			}
			require.NoError(t, clock.BlockUntilContext(t.Context(), timers))
			clock.Advance(c.advance)
			await(t, stub.gone, "the half-close")
			close(stub.finish)
			require.NoError(t, await(t, done, "the end"))
			assert.Equal(t, cancelled, a.code())
		})
	}
}

func TestCancelAtTheGateOpensNothing(t *testing.T) {
	stub := newStuckServer(t, eventHead+oneEvent)
	s := newSet(t, clockwork.NewFakeClock(), described("vllm", stub.url))
	ctxA, cancelA := context.WithCancel(t.Context())
	_, doneA := start(t, ctxA, s, begin("{}"), "{}")
	await(t, stub.asked, "the first request")
	ctxB, cancelB := context.WithCancel(t.Context())
	b, doneB := start(t, ctxB, s, begin("{}"), "{}")
	for s.Usage()[0].Waiting == 0 {
		runtime.Gosched()
	}
	cancelB()
	require.NoError(t, await(t, doneB, "the second request's end"))
	assert.Equal(t, neverOpened, b.code())
	cancelA()
	close(stub.finish)
	await(t, doneA, "the first request's end")
	assert.Empty(t, stub.asked)
}

// TestCancelWhileConnectingOpensNothing cancels a request that waits for a
// server's TLS handshake.
func TestCancelWhileConnectingOpensNothing(t *testing.T) {
	dialed := make(chan struct{})
	url := tcpStub(t, func(conn *net.TCPConn, r *bufio.Reader) {
		dialed <- struct{}{}
		_, _ = io.Copy(io.Discard, r)
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", strings.Replace(url, "http:", "https:", 1)))
	ctx, cancel := context.WithCancel(t.Context())
	a, done := start(t, ctx, s, begin("{}"), "{}")
	await(t, dialed, "the dial")
	cancel()
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, neverOpened, a.code())
}

func TestReaderThatFailsEndsTheRequest(t *testing.T) {
	stub := newStuckServer(t, eventHead+oneEvent)
	close(stub.finish)
	s := newSet(t, clockwork.NewFakeClock(), described("vllm", stub.url))
	lost := errors.New("link lost")
	a := &answer{t: t, hook: func(*Frame) error { return lost }}
	require.ErrorIs(t, s.Run(t.Context(), begin("{}"), []byte("{}"), a), lost)
	await(t, stub.gone, "the half-close")
	assert.Zero(t, s.Usage()[0].InUse)
}

// TestGraceEndsEvenIfTheReaderIsStuck cancels while the writer is blocked: the
// provider's connection ends at once and the slot comes back at the end of the
// grace, although nobody can read the answer on.
func TestGraceEndsEvenIfTheReaderIsStuck(t *testing.T) {
	clock := clockwork.NewFakeClock()
	stub := newStuckServer(t, eventHead+oneEvent)
	s := newSet(t, clock, described("vllm", stub.url))
	ctx, cancel := context.WithCancel(t.Context())
	stuck, free := make(chan struct{}), make(chan struct{})
	a := &answer{t: t, hook: func(f *Frame) error {
		if f.Failure == nil {
			close(stuck)
			<-free
		}
		return nil
	}}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, begin("{}"), []byte("{}"), a) }()
	await(t, stuck, "the reader to be stuck")
	cancel()
	await(t, stub.gone, "the half-close")
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(2 * time.Second)
	for s.Usage()[0].InUse != 0 {
		runtime.Gosched()
	}
	close(free)
	require.NoError(t, await(t, done, "the end"))
	assert.Equal(t, cancelled, a.code())
}

// TestAbortAndResendKeepsThePeakAt1 is a client that gives up and asks again, 500
// times, at a provider of capacity 1 whose engine takes a moment to stop.
func TestAbortAndResendKeepsThePeakAt1(t *testing.T) {
	var running, peak, requests atomic.Int64
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		now := running.Add(1)
		for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
		}
		n := requests.Add(1)
		defer running.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		if n%3 != 0 {
			fmt.Fprintf(w, "data: %d\n\n", n)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		for range 100 {
			runtime.Gosched() // an engine that stops late
		}
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	var outcomes [8]atomic.Int64
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		before := requests.Load()
		a, done := start(t, ctx, s, begin("{}"), "{}")
		for i%2 == 0 && requests.Load() == before && len(done) == 0 {
			runtime.Gosched()
		}
		cancel()
		require.NoError(t, await(t, done, "the end"))
		outcomes[a.code()].Add(1)
	}
	assert.EqualValues(t, 1, peak.Load())
	assert.EqualValues(t, 500, outcomes[cancelled].Load()+outcomes[neverOpened].Load())
	assert.GreaterOrEqual(t, outcomes[cancelled].Load(), int64(250))
}

// TestOverlappingAbortsKeepThePeakAt1 does the same with clients that do not wait
// for the end of their former request.
func TestOverlappingAbortsKeepThePeakAt1(t *testing.T) {
	var running, peak atomic.Int64
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		now := running.Add(1)
		for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
		}
		defer running.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := newSet(t, clockwork.NewRealClock(), described("vllm", stub.URL))
	var ends []chan error
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		a := &answer{t: t, hook: func(f *Frame) error { cancel(); return nil }}
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, begin("{}"), []byte("{}"), a)
			cancel()
		}()
		ends = append(ends, done)
	}
	for _, done := range ends {
		require.NoError(t, await(t, done, "an end"))
	}
	assert.EqualValues(t, 1, peak.Load())
}
