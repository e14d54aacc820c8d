package nodelink

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// S12: what a work stream shows at its opening is judged in one place, and each
// kind of refusal is counted by itself.
func TestS12_StaleUnknownAndMissingTokensAreRefusedAndCounted(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	token := p.accepted.GetGenerationToken()
	_ = p.work(token, "1")
	e.take().Park()
	e.svc.end(e.svc.owners()[0], "over", abrupt)

	q := e.puppet() // another transport: nothing of the old connection is left
	for _, shown := range []string{token, "", "guess", token + "x"} {
		_, err := q.work(shown, "2").Receive()
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), "%v", err)
	}
	c := e.svc.Counters()
	require.Equal(t, [4]uint64{1, 2, 1, 0}, [4]uint64{c.StaleTokens, c.UnknownTokens, c.MissingTokens, c.ReplayedTokens})
	require.EqualValues(t, 4, c.TokensRefused())
	require.NotContains(t, e.logs.String(), token)

	// The owner that came back is not disturbed by its former token.
	q.register(nodeToken, nil)
	_, err := q.work(token, "1").Receive()
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err))
	require.EqualValues(t, 2, e.svc.Counters().StaleTokens)
	_ = q.work(q.accepted.GetGenerationToken(), "1")
	e.take().Park()
}

// S12: an opening that was used before is a replay, whether its stream lives or
// has ended.
func TestS12_AReplayedOpeningIsRefusedAndCounted(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	token := p.accepted.GetGenerationToken()
	_ = p.work(token, "7")
	h := e.take()
	_, err := e.puppet().work(token, "7").Receive()
	require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(err))
	h.Discard() // the stream is over
	_, err = e.puppet().work(token, "7").Receive()
	require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(err))
	require.EqualValues(t, 2, e.svc.Counters().ReplayedTokens)
}

func TestStreamIdsMustBeNumbers(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	for _, id := range []string{"0", "-1", "x", "", "4294967296"} {
		_, err := p.work(p.accepted.GetGenerationToken(), id).Receive()
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "id %q: %v", id, err)
	}
	require.Zero(t, e.svc.Counters().TokensRefused())
}

func TestUsedIDsAreKnownInBoundedMemory(t *testing.T) {
	var u usedIDs
	for _, id := range []uint32{2, 1, 3, 5} {
		require.True(t, u.take(id))
	}
	for _, id := range []uint32{1, 2, 3, 5} {
		require.False(t, u.take(id), "%d was used", id)
	}
	require.EqualValues(t, 3, u.upTo)
	require.True(t, u.take(4))
	require.Empty(t, u.above)
	for id := range uint32(10 * maxGaps) {
		require.True(t, u.take(100+2*id)) // each odd one is never used
	}
	require.LessOrEqual(t, len(u.above), maxGaps)
	require.False(t, u.take(100))
}

func TestPastTokensAreKnownInBoundedMemory(t *testing.T) {
	k := tokens{live: map[tokenHash]*session{}, past: map[tokenHash]struct{}{}}
	hash := func(i int) (h tokenHash) { h[0], h[1], h[2] = byte(i), byte(i>>8), byte(i>>16); return h }
	for i := range 2 * keptPast {
		k.live[hash(i)] = &session{}
		k.retire(hash(i))
		k.retire(hash(i)) // once is enough
	}
	require.Empty(t, k.live)
	require.Len(t, k.past, keptPast)
	require.Len(t, k.order, keptPast)
	require.Contains(t, k.past, hash(2*keptPast-1))
}

// S12: what still comes on the streams of a generation that is over is dropped
// and counted: no byte of it reaches a client, no message the core.
func TestS12_FramesOfAStaleGenerationAreDroppedAndCounted(t *testing.T) {
	e := newEdge(t)
	p := e.puppet()
	p.register(nodeToken, nil)
	stream := p.work(p.accepted.GetGenerationToken(), "1")
	h := e.take()
	require.NoError(t, h.begin("x"))
	_, err := stream.Receive()
	require.NoError(t, err)
	for range 2 { // both are here before the fence
		require.NoError(t, stream.Send(&runtimev1.WorkRequest{RequestNumber: 1, Head: &runtimev1.ResponseHead{Status: 200}}))
	}
	var f dispatch.Frame
	require.NoError(t, h.Receive(&f))
	// The fence, without the end of the streams that follows it.
	s := e.svc.owners()[0]
	s.node.mu.Lock()
	require.True(t, s.node.fenceLocked(e.broker))
	s.node.mu.Unlock()
	require.ErrorIs(t, h.Receive(&f), dispatch.ErrLinkLost)
	require.Nil(t, f.Head)
	require.EqualValues(t, 1, e.svc.Counters().StaleFrames)

	p.send(drain) // of the old connection, about the new one's node
	require.Eventually(t, func() bool { return e.svc.Counters().StaleFrames == 2 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"connect gx10 1", "disconnect gx10 1"}, e.broker.history())
	s.close(abrupt)
	h.Discard()
}
