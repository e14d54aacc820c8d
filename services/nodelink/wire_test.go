package nodelink

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	nodesession "github.com/iop-dev/iop/node/session"
)

func TestARequestGoesThereAndItsAnswerComesBack(t *testing.T) {
	e := newEdge(t)
	got := make(chan *runtimev1.RequestBegin, 1)
	e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		got <- begin
		head := &runtimev1.ResponseHead{Status: 201, Headers: []*runtimev1.Header{{Name: "Content-Type", Value: "text/plain"}}}
		if err := out.Frame(&provider.Frame{Head: head, Body: body}); err != nil {
			return err
		}
		return out.Frame(&provider.Frame{Body: []byte("!"), End: true})
	})
	h := e.take()
	require.NoError(t, h.Send(&dispatch.RequestFrame{
		Begin: &dispatch.Begin{
			Provider: "vllm", Path: "/v1/embeddings", ContentLength: 6, RequestID: "req-1",
			Header: []dispatch.Header{{Name: "Accept", Value: "application/json"}}, IdleTimeout: time.Second, TotalTimeout: time.Nanosecond,
		},
		Parts: [][]byte{[]byte("ab"), []byte("c")},
	}))
	require.NoError(t, h.Send(&dispatch.RequestFrame{Parts: [][]byte{[]byte("def")}, End: true}))
	begin := await(e, got)
	require.Equal(t, "vllm", begin.ProviderId)
	require.Equal(t, "/v1/embeddings", begin.Path)
	require.EqualValues(t, 6, begin.ContentLength)
	require.EqualValues(t, 1000, begin.IdleTimeoutMs)
	require.EqualValues(t, 1, begin.TotalTimeoutMs, "a limit is never rounded to none")
	require.Equal(t, "Accept", begin.Headers[0].Name)
	require.Equal(t, "req-1", begin.RequestId)

	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.Equal(t, &dispatch.Head{Status: 201, Header: []dispatch.Header{{Name: "Content-Type", Value: "text/plain"}}}, f.Head)
	require.Equal(t, "abcdef", string(f.Body))
	require.NoError(t, h.Receive(&f))
	require.Nil(t, f.Head)
	require.Equal(t, "!", string(f.Body))
	require.True(t, f.End)
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost, "nothing follows the final frame")
	h.Park()
	h.Discard() // after Park it is nobody's
	require.Equal(t, "again!", e.exchange("again"))
}

func TestStreamsAreReusedLastInFirstOut(t *testing.T) {
	e := newEdge(t)
	e.connect("one", echo)
	first := e.take()
	id := first.stream.id
	first.Park() // nothing was sent: the stream is as good as new
	for i := range 200 {
		body := fmt.Sprintf("request %d", i)
		h := e.take()
		require.Equal(t, id, h.stream.id)
		require.NoError(t, h.begin(body))
		var f dispatch.Frame
		require.NoError(t, h.Receive(&f))
		require.Equal(t, body, string(f.Body))
		h.Park()
	}
	require.LessOrEqual(t, e.svc.Nodes()[0].ParkedStreams, 8)
}

func TestStreamsAreOpenedOnDemand(t *testing.T) {
	e := newEdge(t)
	e.connect("one", echo)
	held := make([]*handOff, 40)
	var wg sync.WaitGroup
	for i := range held {
		wg.Go(func() {
			held[i] = e.take()
			if err := held[i].begin("x"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, h := range held {
		var f dispatch.Frame
		require.NoError(t, h.Receive(&f))
		h.Park()
	}
	// All are parked; nobody needs so many: each heartbeat ends some.
	s := e.svc.owners()[0]
	s.trim() // what was least before counts as needed
	for range 20 {
		s.trim()
	}
	require.LessOrEqual(t, e.svc.Nodes()[0].ParkedStreams, spareStreams)
	require.Equal(t, "still there", e.exchange("still there"))
}

func TestACancelledRequestEndsAndItsStreamIsUsedAgain(t *testing.T) {
	e := newEdge(t)
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		if string(body) == "quick" {
			return echo(ctx, begin, body, out)
		}
		if err := out.Frame(&provider.Frame{Head: &runtimev1.ResponseHead{Status: 200}}); err != nil {
			return err
		}
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return out.Frame(&provider.Frame{Failure: &runtimev1.Failure{Code: runtimev1.FailureCode_FAILURE_CODE_CANCELLED}})
	})
	var id uint32
	for i := range 20 {
		h := e.take()
		if i > 0 {
			require.Equal(t, id, h.stream.id)
		}
		id = h.stream.id
		require.NoError(t, h.begin("slow"))
		await(e, started)
		h.Cancel()
		h.Cancel()
		await(e, ended)
		var f dispatch.Frame
		for f.Failure == nil {
			require.NoError(t, h.Receive(&f))
		}
		require.Equal(t, dispatch.Cancelled, f.Failure.Code)
		h.Park()
		h.Cancel() // late: must not hit the stream's next request
		require.Equal(t, "quick", e.exchange("quick"))
	}
}

func TestSessionLossEndsEverythingOfItsGeneration(t *testing.T) {
	e := newEdge(t)
	started, release := make(chan struct{}), make(chan struct{})
	n := e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		<-release
		return ctx.Err()
	})
	e.event("connected gx10")
	h := e.take()
	require.NoError(t, h.begin("x"))
	await(e, started)

	// A Take that waits for a stream ends, too.
	parked := []*handOff{}
	for range e.svc.Nodes()[0].ParkedStreams {
		parked = append(parked, e.take())
	}
	received := make(chan error, 1)
	go func() { var f dispatch.Frame; received <- h.Receive(&f) }()
	e.svc.end(e.svc.owners()[0], "the test ends it", abrupt)
	require.ErrorIs(t, await(e, received), dispatch.ErrLinkLost)
	e.event("disconnected gx10: the test ends it")
	require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1"}, e.broker.history())
	_, err := e.svc.Take(e.ctx, nodeID, 1)
	require.ErrorIs(t, err, dispatch.ErrLinkLost)
	h.Discard()
	for _, p := range parked {
		require.ErrorIs(t, p.begin("y"), dispatch.ErrNeverSeen)
		p.Discard()
	}

	select {
	case err := <-n.done:
		require.Fail(t, "Run returned while a request ran", "%v", err)
	default:
	}
	close(release)
	require.Error(t, await(e, n.done))
}

func TestS12_ANodesStopFencesAtOnce(t *testing.T) {
	e := newEdge(t)
	n := e.connect("one", echo)
	e.event("connected gx10")
	n.stop()
	require.NoError(t, await(e, n.done))
	e.event("disconnected gx10") // and no time has passed on the clock
	status := e.svc.Nodes()[0]
	require.False(t, status.Connected)
	require.Equal(t, "test", status.SoftwareVersion)
}

func TestANodesDrainLetsRunningWorkFinish(t *testing.T) {
	e := newEdge(t)
	started, release := make(chan struct{}), make(chan struct{})
	n := e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return echo(ctx, begin, body, out)
	}, func(c *nodesession.Config) { c.Grace = func() time.Duration { return time.Minute } })
	h := e.take()
	require.NoError(t, h.begin("work"))
	await(e, started)
	n.stop()
	await(e, e.broker.drained)
	require.True(t, e.svc.Nodes()[0].Connected)
	close(release)
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.Equal(t, "work", string(f.Body))
	h.Park()
	require.NoError(t, await(e, n.done))
	require.Equal(t, []string{"connect gx10 1", "drain gx10 1", "disconnect gx10 1"}, e.broker.history())
}

func TestTheGraceOfADrainIsBounded(t *testing.T) {
	e := newEdge(t)
	started := make(chan struct{})
	n := e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}, func(c *nodesession.Config) { c.Grace = func() time.Duration { return 3 * time.Second } })
	h := e.take()
	require.NoError(t, h.begin("work"))
	await(e, started)
	n.stop()
	await(e, e.broker.drained)
	e.clock.Advance(3 * time.Second)
	require.NoError(t, await(e, n.done))
	var f dispatch.Frame
	for f.Failure == nil {
		if err := h.Receive(&f); err != nil {
			require.ErrorIs(t, err, dispatch.ErrLinkLost)
			break
		}
	}
	h.Discard()
}

func TestTheEdgesDrainEndsIdleSessionsAndSaysWhenToComeBack(t *testing.T) {
	e := newEdge(t)
	n := e.connect("one", echo)
	e.svc.Drain(7 * time.Second)
	var draining *nodesession.EdgeDrainingError
	require.ErrorAs(t, await(e, n.done), &draining)
	require.Equal(t, 7*time.Second, draining.RetryAfter)

	var rejected *nodesession.RejectedError
	require.ErrorAs(t, await(e, e.startNode("one", echo).done), &rejected)
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DRAINING, rejected.Reason)
	require.False(t, rejected.Final())
}

func TestProvidersArePushedWhenTheyChange(t *testing.T) {
	e := newEdge(t)
	n := e.connect("one", echo)
	require.EqualValues(t, 4, await(e, n.providers.applied)[0].Capacity)
	e.svc.PushProviders() // nothing has changed
	e.setProviders(&runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "vllm", Type: "vllm", Capacity: 2}}})
	e.svc.PushProviders()
	require.EqualValues(t, 2, await(e, n.providers.applied)[0].Capacity)
}

// A refresh falls into a registration that has read its providers already: the
// node ends up with the new ones.
func TestARefreshDuringARegistrationReachesTheNode(t *testing.T) {
	e := newEdge(t)
	former, pushed := e.providerSet(), make(chan struct{})
	reads := 0
	e.svc.cfg.Providers = func(admission.NodeID) *runtimev1.ProviderSet {
		if reads++; reads != 2 {
			return e.providerSet()
		}
		// The second read of a registration: the session stands, and this is what it
		// pushes.
		e.setProviders(&runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "vllm", Type: "vllm", Capacity: 2}}})
		go func() { defer close(pushed); e.svc.PushProviders() }()
		for range 10_000 {
			runtime.Gosched() // the push goes as far as it can
		}
		return former
	}
	n := e.connect("one", echo)
	require.EqualValues(t, 4, await(e, n.providers.applied)[0].Capacity)
	await(e, pushed)
	require.EqualValues(t, 2, await(e, n.providers.applied)[0].Capacity)
	require.Equal(t, "hi", e.exchange("hi"))
	require.Empty(t, n.providers.applied, "nothing else was pushed")
}

func TestARevokedTokenDrainsTheNode(t *testing.T) {
	e := newEdge(t)
	n := e.connect("one", echo)
	h := e.take()
	e.auth.set(nodeID, "another")
	e.svc.PushProviders()
	require.NoError(t, h.begin("runs on"))
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.Equal(t, "runs on", string(f.Body))
	h.Park()
	require.ErrorIs(t, await(e, n.done), nodesession.ErrEdgeClosed)

	var rejected *nodesession.RejectedError
	require.ErrorAs(t, await(e, e.startNode("one", echo).done), &rejected)
	require.True(t, rejected.Final())
}

func TestALongStreamHasBackPressureAndOrder(t *testing.T) {
	const frames, ahead = 10_000, 900 // 1 KiB each; windows and buffers hold less than ahead
	e := newEdge(t)
	var written atomic.Int64
	raced := make(chan struct{})
	e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		pad := strings.Repeat("x", 1000)
		head := &runtimev1.ResponseHead{Status: 200}
		for i := range frames {
			if err := out.Frame(&provider.Frame{Head: head, Body: fmt.Appendf(nil, "%06d%s", i, pad), End: i == frames-1}); err != nil {
				return err
			}
			head = nil
			if written.Add(1) == 200 {
				close(raced)
			}
		}
		return nil
	})
	h := e.take()
	require.NoError(t, h.begin("go"))
	await(e, raced) // the provider is ahead of a receiver that has not begun
	for i := range frames {
		var f dispatch.Frame
		require.NoError(t, h.Receive(&f))
		require.Equal(t, fmt.Sprintf("%06d", i), string(f.Body[:6]))
		require.Len(t, f.Body, 1006)
		if lead := written.Load() - int64(i); lead > ahead {
			require.FailNow(t, "no back-pressure", "the provider is %d frames ahead", lead)
		}
		require.Equal(t, i == frames-1, f.End)
	}
	h.Park()
}

func TestThreeStalledReceiversStopNobodyElse(t *testing.T) {
	e := newEdge(t)
	var stalled atomic.Int64
	full := make(chan struct{}, 3)
	e.connect("one", func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
		if string(body) != "flood" {
			return echo(ctx, begin, body, out)
		}
		chunk := make([]byte, 16<<10)
		for i := range 4096 { // 64 MiB, if it were read
			if i == 15 { // the stream's window of 256 KiB holds one more
				stalled.Add(1)
				full <- struct{}{}
			}
			if err := out.Frame(&provider.Frame{Body: chunk}); err != nil {
				return err
			}
		}
		return nil
	})
	var floods []*handOff
	for range 3 {
		h := e.take()
		require.NoError(t, h.begin("flood"))
		floods = append(floods, h)
	}
	for range floods {
		await(e, full)
	}
	for i := range 50 {
		body := strings.Repeat("y", i*4096)
		require.Equal(t, body, e.exchange(body))
	}
	require.EqualValues(t, 3, stalled.Load())
	for _, h := range floods {
		h.Discard()
	}
}

func TestLargeBodiesPassUnchanged(t *testing.T) {
	e := newEdge(t)
	e.connect("one", echo)
	body := make([]byte, 3<<20)
	for i := range body {
		body[i] = byte(i * 2654435761 >> 13)
	}
	h := e.take()
	begin := &dispatch.Begin{Provider: "vllm", Path: "/v1/x", ContentLength: len(body)}
	for rest := body; len(rest) > 0; begin = nil {
		n := min(len(rest), dispatch.MaxFrameBody)
		require.NoError(t, h.Send(&dispatch.RequestFrame{Begin: begin, Parts: [][]byte{rest[:n/2], rest[n/2 : n]}, End: n == len(rest)}))
		rest = rest[n:]
	}
	var got []byte
	var f dispatch.Frame
	for !f.End {
		require.NoError(t, h.Receive(&f))
		got = append(got, f.Body...)
	}
	require.Equal(t, body, got)
	h.Park()
}

func TestABodyThatIsNotAsAnnouncedIsRefused(t *testing.T) {
	e := newEdge(t)
	e.connect("one", func(context.Context, *runtimev1.RequestBegin, []byte, provider.Writer) error {
		t.Error("ran")
		return nil
	})
	for _, announced := range []int{2, 10, 33 << 20} {
		h := e.take()
		require.NoError(t, h.Send(&dispatch.RequestFrame{Begin: &dispatch.Begin{ContentLength: announced}, Parts: [][]byte{[]byte("abcd")}}))
		require.NoError(t, h.Send(&dispatch.RequestFrame{End: true}))
		var f dispatch.Frame
		require.NoError(t, h.Receive(&f))
		require.Equal(t, dispatch.NeverOpened, f.Failure.Code, f.Failure.Message)
		h.Park()
	}
}

func TestTokensAreNeverLogged(t *testing.T) {
	e := newEdge(t)
	n := e.connect("one", echo)
	require.Equal(t, "x", e.exchange("x"))
	_ = await(e, e.startNode("two", echo).done) // rejected: a duplicate
	n.stop()
	require.NoError(t, await(e, n.done))
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Len(t, e.tokens, 1)
	for token := range e.tokens {
		require.NotContains(t, e.logs.String(), token)
	}
	require.NotContains(t, e.logs.String(), nodeToken)
	require.Contains(t, e.logs.String(), "node connected")
}

// What comes while a registration is judged reaches its session all the same, which
// nobody else would let go.
func TestASessionLearnsWhatCameWhileItWasAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		comes func(*testEdge)
		want  []string
	}{
		"a stop":       {func(e *testEdge) { e.svc.Drain(7 * time.Second) }, []string{"connect gx10 1", "disconnect gx10 1"}},
		"a revocation": {func(e *testEdge) { e.auth.set(nodeID, "another"); e.svc.PushProviders() }, []string{"connect gx10 1", "drain gx10 1", "disconnect gx10 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			var once sync.Once
			e.svc.cfg.Providers = func(admission.NodeID) *runtimev1.ProviderSet {
				once.Do(func() { c.comes(e) }) // judged, and not in force yet
				return e.providerSet()
			}
			p := e.puppet()
			require.NotNil(t, p.register(nodeToken, nil).GetAccepted())
			for {
				if _, err := p.session.Receive(); err != nil {
					require.ErrorIs(t, err, io.EOF, "a clean end")
					break
				}
			}
			require.Equal(t, c.want, e.broker.history())
		})
	}
}
