package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// probeLimit is when a session that is probed gives up, at the intervals of the
// puppet edge.
const probeLimit = 5*time.Second*3/2 + probeSlack

// probing is a session that has sent the heartbeat of a probe and waits.
func probing(t *testing.T) (*puppetEdge, *running) {
	e, _ := newPuppetEdge(t, false)
	probe := make(chan struct{}, 1)
	r := e.connect(mustNotRun(t), func(c *Config) { c.Probe = probe })
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2)) // heartbeat, timeout
	e.clock.Advance(time.Second)
	probe <- struct{}{}
	require.NotNil(t, r.receive().GetHeartbeat(), "at once")
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 3))
	return e, r
}

// G04: after a wake the session is not given the whole heartbeat timeout.
func TestCase_G04_AnEdgeThatGivesNoSignAfterAProbeIsLeftBeforeTheTimeout(t *testing.T) {
	e, r := probing(t)
	e.clock.Advance(probeLimit - 1)
	require.NotNil(t, r.receive().GetHeartbeat(), "the ordinary one")
	require.Empty(t, r.done)
	e.clock.Advance(1)
	require.ErrorIs(t, await(e, r.done), ErrNoSign)
}

func TestCase_G04_AProbeDoesNotDisturbALiveSession(t *testing.T) {
	e, r := probing(t)
	e.clock.Advance(time.Second)
	r.send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}})
	require.True(t, r.seen(99, 1)) // it is read
	e.clock.Advance(probeLimit - time.Second)
	require.NotNil(t, r.receive().GetHeartbeat(), "the ordinary one")
	require.NoError(t, e.clock.BlockUntilContext(e.ctx, 2)) // the probe's is over
	require.True(t, r.seen(99, 2))
	require.Empty(t, r.done)
}
