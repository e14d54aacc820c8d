package nodelink

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// A node that lives and never confirms a cancel does not hold the slot for good.
func TestS02_ACancelThatIsNeverConfirmedIsBounded(t *testing.T) {
	const grace = 2 * time.Second
	for cancel, bound := range map[string]time.Duration{
		"forward": 2*silence + grace,
		"drain":   2*silence + grace + drainPatience,
	} {
		t.Run(cancel, func(t *testing.T) {
			e := newEdge(t)
			e.setProviders(&runtimev1.ProviderSet{Providers: []*runtimev1.Provider{
				{Id: "other", Type: "vllm", Capacity: 4, Cancel: "drain"},
				{Id: "vllm", Type: "vllm", Capacity: 4, Cancel: cancel, CancelGraceMs: uint32(grace.Milliseconds())},
			}})
			p := e.puppet()
			p.register(nodeToken, nil)
			stream := p.work(p.accepted.GetGenerationToken(), "1")
			h := e.take()
			require.NoError(t, h.begin("x"))
			_, err := stream.Receive()
			require.NoError(t, err)
			require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: 1, Head: &runtimev1.ResponseHead{Status: 200}}))
			var f dispatch.Frame
			require.NoError(t, h.Receive(&f))

			h.Cancel()
			received := make(chan error, 1)
			go func() { var f dispatch.Frame; received <- h.Receive(&f) }()
			live := func(d time.Duration) { // as a node whose session is well
				for ; d > 0; d -= min(d, beat) {
					e.clock.Advance(min(d, beat))
					p.send(heartbeat)
					e.heard(p)
				}
			}
			live(bound - 1)
			require.Empty(t, received, "it may still confirm")
			e.clock.Advance(1)
			require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3)) // heartbeats, silence, patience with a broken stream
			p.told(1, 1, true)
			require.ErrorIs(t, await(e, received), dispatch.ErrLinkLost)
			h.Park()
			require.Eventually(t, func() bool { return strings.Contains(e.logs.String(), "did not confirm a cancel") }, 20*time.Second, time.Millisecond,
				"it is told after the stream's end")
			require.True(t, e.svc.Nodes()[0].Connected, "the session has nothing to do with it")
			require.Zero(t, e.svc.Nodes()[0].HeldStreams)
		})
	}
}

func TestACancelThatIsConfirmedIsNotWatchedAnyLonger(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	for number := uint64(1); number <= 2; number++ {
		h := e.take()
		require.NoError(t, h.begin("x"))
		h.Cancel()
		require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: number, Failure: &runtimev1.Failure{
			Code: runtimev1.FailureCode_FAILURE_CODE_CANCELLED,
		}}))
		var f dispatch.Frame
		require.NoError(t, h.Receive(&f))
		h.Park()
		h.overstay() // a timer that was stopped too late
	}
	require.NotContains(t, e.logs.String(), "did not confirm")
	require.Equal(t, 1, e.svc.Nodes()[0].ParkedStreams)
}

// The first frame has the head, and no other: else one answer could pass for
// the continuation of another.
func TestAnAnswersHeadIsInItsFirstFrame(t *testing.T) {
	head := &runtimev1.ResponseHead{Status: 200}
	for name, frames := range map[string][]*runtimev1.WorkRequest{
		"none":  {{RequestNumber: 1, Body: []byte("x"), End: true}},
		"late":  {{RequestNumber: 1, Body: []byte("x")}},
		"twice": {{RequestNumber: 1, Head: head, Body: []byte("x")}, {RequestNumber: 1, Head: head, Body: []byte("x"), End: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			p := e.puppet()
			p.register(nodeToken, nil)
			stream := p.work(p.accepted.GetGenerationToken(), "1")
			h := e.take()
			require.NoError(t, h.begin("x"))
			var f dispatch.Frame
			for i, frame := range frames {
				require.NoError(t, stream.Send(frame))
				if err := h.Receive(&f); i < len(frames)-1 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, dispatch.ErrLinkLost)
				}
			}
			h.Park()
			require.Zero(t, e.svc.Nodes()[0].ParkedStreams, "such a stream is not used again")
		})
	}
}
