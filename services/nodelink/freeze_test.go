package nodelink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// takes begins a Take and returns once it waits for a stream.
func (e *testEdge) takes() <-chan error {
	e.t.Helper()
	done := make(chan error, 1)
	go func() {
		s, err := e.svc.Take(e.ctx, nodeID, 1)
		if err == nil {
			s.Discard()
		}
		done <- err
	}()
	e.patient()
	return done
}

// patient waits for the three timers: heartbeats, silence, and the Take's patience.
func (e *testEdge) patient() {
	e.t.Helper()
	require.NoError(e.t, e.clock.BlockUntilContext(e.ctx, 3))
}

// A frozen node opens no streams; its silence burns nothing while it may still
// come back.
func TestCase_G04_ATakeOutlastsANodeThatIsFrozen(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	took := e.takes()
	for frozen := time.Duration(0); frozen < 12*time.Second; frozen += 2 * time.Second {
		e.clock.Advance(2 * time.Second)
		e.patient()
		require.Empty(t, took)
	}
	_ = p.work(p.accepted.GetGenerationToken(), "1") // it thaws
	require.NoError(t, await(e, took))
}

// A node that is frozen for longer is fenced at the heartbeat timeout, and the
// Take ends with its generation: the lease was reserved, and its request waits
// again (S12).
func TestS12_ATakeEndsWithItsGeneration(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	took := e.takes()
	for frozen := time.Duration(0); frozen < silence; frozen += takePatience {
		require.Empty(t, took)
		e.patient()
		e.clock.Advance(takePatience)
	}
	require.ErrorIs(t, await(e, took), dispatch.ErrLinkLost)
	require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1"}, e.broker.history())
}

// A node that lives and opens no stream is not waited for: patience runs from
// its first sign of life.
func TestATakeDoesNotWaitForANodeThatLivesAndOpensNoStream(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	took := e.takes()
	e.clock.Advance(4 * time.Second)
	p.send(heartbeat)
	e.heard(p)
	e.clock.Advance(time.Second) // takePatience after the Take began
	e.patient()
	e.clock.Advance(3*time.Second - 1)
	e.patient()
	require.Empty(t, took, "a node that has just thawed has its time")
	p.send(heartbeat) // once heard, more of them change nothing
	e.heard(p)
	e.clock.Advance(time.Second + 1)
	require.ErrorIs(t, await(e, took), dispatch.ErrNoStream)
	require.True(t, e.svc.Nodes()[0].Connected)
}

// A node that opens a stream for one of many has not stopped: the others wait on.
func TestS15_ATakeWaitsWhileOthersGetTheirStreams(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	first := e.takes()
	second := make(chan error, 1)
	go func() {
		s, err := e.svc.Take(e.ctx, nodeID, 1)
		if err == nil {
			s.Discard()
		}
		second <- err
	}()
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 4))
	p.send(heartbeat)
	e.heard(p)
	e.clock.Advance(4 * time.Second)
	_ = p.work(p.accepted.GetGenerationToken(), "1")
	var other <-chan error
	select {
	case err := <-first:
		require.NoError(t, err)
		other = second
	case err := <-second:
		require.NoError(t, err)
		other = first
	}
	for range 2 { // past takePatience from the sign of life
		e.clock.Advance(takePatience/2 - 1)
		e.patient()
		select {
		case err := <-other:
			t.Fatalf("given up: %v", err)
		default:
		}
	}
	_ = p.work(p.accepted.GetGenerationToken(), "2")
	require.NoError(t, await(e, other))
}

// A hand-off to a frozen node is asked for after 3 s and given up by nobody: the
// node answers when it has thawed.
func TestCase_G04_AQuietHandOffIsNotBurntByItsQuery(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, h.begin("late"))
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3))
	e.clock.Advance(silentHandOff)
	query := p.receive().GetQuery()
	require.NotNil(t, query)
	e.clock.Advance(6 * time.Second) // frozen on, without an answer
	request, err := stream.Receive()
	require.NoError(t, err)
	p.told(query.GetStreamId(), query.GetRequestNumber(), true)
	require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: request.GetRequestNumber(), Head: &runtimev1.ResponseHead{Status: 200}, Body: []byte("thawed"), End: true}))
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	require.Equal(t, "thawed", string(f.Body))
	h.Park()
}

// An Edge that was stopped for about the heartbeat timeout reads what its nodes
// have sent meanwhile before it fences them; once.
func TestCase_G04_AnEdgeThatWasStoppedListensBeforeItFences(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	e.event("connected gx10")
	both := func() { require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2)) } // heartbeats and silence
	both()
	e.clock.Advance(silence + stopped + 1) // in one leap
	both()
	require.Empty(t, e.events)
	p.send(heartbeat)
	e.heard(p)
	e.clock.Advance(wakePatience)
	both()
	require.Empty(t, e.events)
	e.clock.Advance(silence + 10*time.Second)
	both()
	require.Empty(t, e.events)
	e.clock.Advance(wakePatience)
	e.event("disconnected gx10: heartbeat timeout")
}
