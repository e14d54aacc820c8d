//go:build engines

package engines

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// snapshot is what the Edge shows of itself.
func snapshot(t *testing.T) *controlv1.EdgeNodeSnapshot {
	t.Helper()
	call, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+running.readToken)
	edge := controlv1connect.NewControlServiceClient(http.DefaultClient, "http://"+running.edgeAddr)
	res, err := edge.GetEdgeNodeSnapshot(call, &controlv1.GetEdgeNodeSnapshotRequest{})
	require.NoError(t, err)
	return res.GetSnapshot()
}

// requireIdle waits until neither the engine, by its own log, nor the Edge, by
// its counters, has anything running or waiting.
func requireIdle(t *testing.T) {
	t.Helper()
	require.Eventually(t, running.engine.idle, soon, tick, "the engine's own count goes back to none")
	requireFree(t)
}

// requireFree waits until the Edge has nothing running or waiting and has got
// back each lease, once.
func requireFree(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return snapshot(t).GetInFlightTotal() == 0 }, soon, tick, "the slot comes back")

	s := snapshot(t)
	assert.Zero(t, s.GetQueueTotal())
	assert.Equal(t, s.GetCounters().GetGranted(), s.GetCounters().GetReleased(), "each lease is returned")
	assert.Zero(t, s.GetCounters().GetDoubleReleases(), "and once")
	require.Len(t, s.GetNodes(), 1)
	for _, p := range s.GetNodes()[0].GetProviders() {
		assert.Equal(t, "available", p.GetStatus(), p.GetId())
		assert.Equal(t, uint32(1), p.GetEffectiveCapacity(), p.GetId())
		assert.Zero(t, p.GetInFlight(), p.GetId())
		assert.Zero(t, p.GetQueued(), p.GetId())
	}
}
