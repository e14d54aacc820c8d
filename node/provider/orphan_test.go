package provider

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// busyServer answers each request with one event, and ends the answer when told.
type busyServer struct {
	url string
	// asked receives the body of each request that arrives, in order.
	asked chan string
	// finish receives once for each answer that may end.
	finish        chan struct{}
	running, peak atomic.Int64
}

func newBusyServer(t *testing.T) *busyServer {
	s := &busyServer{asked: make(chan string, 128), finish: make(chan struct{}, 128)}
	s.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		now := s.running.Add(1)
		for old := s.peak.Load(); now > old && !s.peak.CompareAndSwap(old, now); old = s.peak.Load() {
		}
		defer s.running.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		s.asked <- string(body)
		select {
		case <-s.finish:
		case <-r.Context().Done():
		}
	}).URL
	return s
}

// orphans starts n requests and ends the session they ran for: their provider is
// drained, so they go on. It returns what to await when they have ended.
func orphans(t *testing.T, s *Set, clock *clockwork.FakeClock, stub *busyServer, n int) []chan error {
	t.Helper()
	session, lost := context.WithCancel(t.Context())
	var ends []chan error
	for range n {
		_, done := start(t, session, s, begin("o"), "o")
		require.Equal(t, "o", await(t, stub.asked, "an orphan's request"))
		ends = append(ends, done)
	}
	lost()
	require.NoError(t, clock.BlockUntilContext(t.Context(), n), "each is drained, and that is bounded")
	return ends
}

// draining is a provider of capacity n whose requests outlive their session.
func draining(url string, n uint32) *runtimev1.Provider {
	p := described("vllm", url)
	p.Cancel, p.Capacity = "drain", n
	return p
}

// queue is how many requests wait at the Edge in the tests of a queue.
const queue = 64

// The Edge of a new session counts from zero, grants the first of its queue, and
// the next one whenever a request ends, refused or served. An orphan holds the
// only slot for a minute: nobody is refused, nobody overtakes, and the provider
// never runs two.
func TestS14_AQueueBehindAnOrphanIsServedInOrder(t *testing.T) {
	clock, stub := clockwork.NewFakeClock(), newBusyServer(t)
	s := newSet(t, clock, draining(stub.url, 1))
	orphan := orphans(t, s, clock, stub, 1)
	s.ApplyAnew(list(draining(stub.url, 1)))

	for i := range queue {
		body := strconv.Itoa(i)
		a, done := start(t, t.Context(), s, begin(body), body)
		if i == 0 {
			waitForWaiting(s, 1)
			for range 30 {
				clock.Advance(2 * time.Second)
			}
			assert.Empty(t, stub.asked, "opened beside the orphan")
			stub.finish <- struct{}{}
			require.NoError(t, await(t, orphan[0], "the orphan's end"))
		}
		require.Equal(t, body, await(t, stub.asked, "the next of the queue"))
		stub.finish <- struct{}{}
		require.NoError(t, await(t, done, "its end"))
		a.whole()
	}
	assert.EqualValues(t, 1, stub.peak.Load())
}

// The same with hand-offs that the Edge sent before its refresh lowered the
// capacity from 64 to 1: all wait in the gate at once.
func TestS14_HandOffsBehindOrphansSurviveALowerCapacity(t *testing.T) {
	clock, stub := clockwork.NewFakeClock(), newBusyServer(t)
	s := newSet(t, clock, draining(stub.url, 3))
	ends := orphans(t, s, clock, stub, 3)
	s.ApplyAnew(list(draining(stub.url, 3)))
	var answers []*answer
	var done []chan error
	for i := range queue {
		body := strconv.Itoa(i)
		a, d := start(t, t.Context(), s, begin(body), body)
		answers, done = append(answers, a), append(done, d)
		waitForWaiting(s, i+1)
	}
	s.Apply(list(draining(stub.url, 1)))
	clock.Advance(time.Minute)
	for left := len(ends); left > 0; left-- {
		assert.Equal(t, left, s.Usage()[0].InUse)
		assert.Equal(t, queue, s.Usage()[0].Waiting, "somebody was refused")
		assert.Empty(t, stub.asked, "opened beside an orphan")
		stub.finish <- struct{}{}
		for left > 1 && s.Usage()[0].InUse == left {
			runtime.Gosched()
		}
	}
	for i := range queue {
		require.Equal(t, strconv.Itoa(i), await(t, stub.asked, "the next of the queue"))
		stub.finish <- struct{}{}
		require.NoError(t, await(t, done[i], "its end"))
		answers[i].whole()
	}
	for _, end := range ends {
		require.NoError(t, await(t, end, "an orphan's end"))
	}
	assert.EqualValues(t, 3, stub.peak.Load(), "the orphans' own number")
}

// A provider that comes back under another id is counted from zero by the Edge,
// too: what runs at its server under the old one is waited out.
func TestCase_G12_RequestsOfARenamedProviderWaitOutTheOldOnes(t *testing.T) {
	clock, stub := clockwork.NewFakeClock(), newBusyServer(t)
	s := newSet(t, clock, described("vllm", stub.url))
	_, doneOld := start(t, t.Context(), s, begin("old"), "old")
	await(t, stub.asked, "the old provider's request")
	renamed := described("vllm", stub.url+"/v1")
	renamed.Id = "q"
	s.Apply(list(renamed))
	b := begin("new")
	b.ProviderId = "q"
	a, doneNew := start(t, t.Context(), s, b, "new")
	waitForWaiting(s, 1)
	clock.Advance(time.Minute)
	assert.Equal(t, 1, s.Usage()[0].Waiting)
	assert.Empty(t, stub.asked)
	stub.finish <- struct{}{}
	require.NoError(t, await(t, doneOld, "the old request's end"))
	require.Equal(t, "new", await(t, stub.asked, "the new provider's request"))
	stub.finish <- struct{}{}
	require.NoError(t, await(t, doneNew, "its end"))
	a.whole()
	assert.EqualValues(t, 1, stub.peak.Load())
}

// S05 holds beside orphans: once they have ended, what the session itself sends
// past the capacity is refused after gate_wait_ms, and opens nothing.
func TestS05_TheSessionsOwnSurplusIsRefusedAfterTheOrphans(t *testing.T) {
	for _, gateWait := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("gate_wait ", gateWait), func(t *testing.T) {
			clock, stub := clockwork.NewFakeClock(), newBusyServer(t)
			p := draining(stub.url, 1)
			p.GateWaitMs = uint32(gateWait.Milliseconds())
			s := newSet(t, clock, p)
			orphan := orphans(t, s, clock, stub, 1)
			s.ApplyAnew(list(p))
			a, doneA := start(t, t.Context(), s, begin("a"), "a")
			waitForWaiting(s, 1)
			b, doneB := start(t, t.Context(), s, begin("b"), "b")
			waitForWaiting(s, 2)
			clock.Advance(time.Minute)
			stub.finish <- struct{}{}
			require.NoError(t, await(t, orphan[0], "the orphan's end"))
			require.Equal(t, "a", await(t, stub.asked, "the first hand-off"))
			if gateWait > 0 {
				assert.Equal(t, 1, s.Usage()[0].Waiting)
				clock.Advance(gateWait)
			}
			require.NoError(t, await(t, doneB, "the refusal"))
			assert.Equal(t, busy, b.code())
			stub.finish <- struct{}{}
			require.NoError(t, await(t, doneA, "the first hand-off's end"))
			a.whole()
			assert.Empty(t, stub.asked)
			assert.EqualValues(t, 1, stub.peak.Load())
		})
	}
}

func TestAHandOffBehindAnOrphanEnds(t *testing.T) {
	for name, c := range map[string]struct {
		limit func(*runtimev1.RequestBegin, *runtimev1.Provider)
		want  runtimev1.FailureCode
	}{
		"with its session or client":  {nil, neverOpened},
		"at the whole exchange's end": {func(b *runtimev1.RequestBegin, _ *runtimev1.Provider) { b.TotalTimeoutMs = 60_000 }, busy},
		"at request_timeout_ms":       {func(_ *runtimev1.RequestBegin, p *runtimev1.Provider) { p.RequestTimeoutMs = 60_000 }, busy},
	} {
		t.Run(name, func(t *testing.T) {
			clock, stub := clockwork.NewFakeClock(), newBusyServer(t)
			p, b := draining(stub.url, 1), begin("b")
			s := newSet(t, clock, p)
			orphan := orphans(t, s, clock, stub, 1)
			if c.limit != nil {
				c.limit(b, p)
			}
			s.ApplyAnew(list(p))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a, done := start(t, ctx, s, b, "b")
			waitForWaiting(s, 1)
			if c.limit == nil {
				cancel()
			} else {
				clock.Advance(time.Minute - time.Millisecond)
				assert.Equal(t, 1, s.Usage()[0].Waiting)
				clock.Advance(time.Millisecond)
			}
			require.NoError(t, await(t, done, "the end"))
			assert.Equal(t, c.want, a.code())
			assert.Equal(t, 1, s.Usage()[0].InUse, "the orphan keeps its slot")
			stub.finish <- struct{}{}
			require.NoError(t, await(t, orphan[0], "the orphan's end"))
			assert.Empty(t, stub.asked)
		})
	}
}

// An orphan whose provider is told of the cancel holds its slot until the
// provider has hung up, and no longer than the grace.
func TestS14_AForwardedOrphanHoldsItsSlotForTheGraceAtMost(t *testing.T) {
	clock, stub := clockwork.NewFakeClock(), newStuckServer(t, eventHead+oneEvent)
	s := newSet(t, clock, described("vllm", stub.url))
	session, lost := context.WithCancel(t.Context())
	_, orphan := start(t, session, s, begin("{}"), "{}")
	await(t, stub.asked, "the orphan's request")
	lost()
	await(t, stub.gone, "the half-close")
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1), "the grace")
	s.ApplyAnew(list(described("vllm", stub.url)))
	_, done := start(t, t.Context(), s, begin("{}"), "{}")
	waitForWaiting(s, 1)
	clock.Advance(2*time.Second - 1)
	assert.Equal(t, Usage{ProviderID: "p", InUse: 1, Waiting: 1, Capacity: 1}, s.Usage()[0])
	clock.Advance(1)
	require.NoError(t, await(t, orphan, "the orphan's end"))
	await(t, stub.asked, "the hand-off behind it")
	close(stub.finish)
	s.Apply(list())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx)
	require.NoError(t, await(t, done, "its end"))
}

// TestCancelsOfBothKinds lets clients leave at any moment, sessions end, and the
// provider change between forward and drain: it never runs two requests that hold
// it, every request ends once, and every slot comes back.
func TestCancelsOfBothKinds(t *testing.T) {
	var running, peak atomic.Int64
	stub := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		now := running.Add(1)
		for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
		}
		defer running.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 20 {
			if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			runtime.Gosched()
		}
	})
	p := described("vllm", stub.URL)
	p.GateWaitMs = 60_000
	s := newSet(t, clockwork.NewRealClock(), p)
	var answers []*answer
	var ends []chan error
	session, lost := context.WithCancel(t.Context())
	for i := range 200 {
		ctx, cancel := context.WithCancel(session)
		frames, leaves := 0, i%7
		a := &answer{t: t, hook: func(*Frame) error {
			if frames++; frames == leaves {
				cancel()
			}
			return nil
		}}
		answers = append(answers, a)
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, begin("{}"), []byte("{}"), a)
			cancel()
		}()
		ends = append(ends, done)
		if i%3 == 0 {
			next := described("vllm", stub.URL)
			next.GateWaitMs, next.Cancel = 60_000, []string{"forward", "drain"}[i/3%2]
			s.Apply(list(next))
		}
		if i == 100 { // the session is lost, and the node registers again
			lost()
			session, lost = context.WithCancel(t.Context())
			s.ApplyAnew(list(p))
		}
	}
	for _, done := range ends {
		require.NoError(t, await(t, done, "an end"))
	}
	lost()
	assert.EqualValues(t, 1, peak.Load())
	assert.Zero(t, s.Usage()[0].InUse)
	for _, a := range answers {
		assert.True(t, a.end != (a.failure != nil), "neither whole nor failed, or both")
		assert.NotEqual(t, busy, a.code())
	}
}
