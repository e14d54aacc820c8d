package control

import (
	"context"
	"math"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

func key(node admission.NodeID) admission.ResourceKey {
	return admission.ResourceKey{Node: node, Provider: "p"}
}

func present(t *testing.T, drive func(*admission.Core, time.Time)) State {
	now := time.Unix(100, 0)
	core := admission.New(admission.Config{
		Scopes: []admission.Scope{{Key: admission.PoolScope, MaxQueue: 8, Timeout: time.Minute}},
		Resources: []admission.Resource{
			{Key: key("n"), Capacity: 2, LongCapacity: 1, Enabled: true, Surfaces: admission.SurfaceChat},
			{Key: key("m"), Capacity: 3, LongCapacity: 1, Enabled: true, Surfaces: admission.SurfaceChat},
		},
		Groups: []admission.Group{{Key: "g", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: key("n")}, {Resource: key("m")}}}},
	})
	drive(core, now)
	return State{
		At: now.Add(2 * time.Second), Admission: core.Snapshot(now.Add(2 * time.Second)),
		Nodes:         []Node{{ID: "n", Connected: true, ConnectedSince: now, LastSeen: now}, {ID: "m"}},
		ProviderTypes: map[admission.ResourceKey]string{key("n"): "vllm", key("m"): "ollama"},
	}
}

// S07: in_flight is the leases, queued is candidate pressure, and the true queue
// is told apart. S14: what is offline shows zeros, and stays in its place.
func TestS07_S14_SnapshotTellsLeasesPressureAndQueueApart(t *testing.T) {
	st := present(t, func(c *admission.Core, now time.Time) {
		c.Connect(now, "n")
		for _, class := range []admission.Class{admission.Long, admission.Normal, admission.Long, admission.Normal} {
			c.Enqueue(now, admission.Request{Group: "g", Class: class, Surface: admission.SurfaceChat})
		}
	})
	got := (&Service{EdgeID: "home"}).snapshot(st)
	require.EqualValues(t, 2, got.QueueTotal)
	require.EqualValues(t, 2, got.InFlightTotal)
	require.EqualValues(t, 2000, got.OldestWaitMs)
	want := []*controlv1.ProviderSnapshot{
		{Id: "p", Type: "vllm", Status: "full", Health: "healthy", ConfiguredCapacity: 2, EffectiveCapacity: 2, InFlight: 2, LongInFlight: 1, LongContextCapacity: 1, ConfiguredLongContextCapacity: 1, Queued: 2, LongQueued: 1},
		{Id: "p", Type: "ollama", Status: "unavailable", Health: "offline", ConfiguredCapacity: 3, ConfiguredLongContextCapacity: 1, ExcludedReason: "offline", ExcludedSentence: "Its node is not connected."},
	}
	for i, n := range got.Nodes {
		require.True(t, proto.Equal(want[i], n.Providers[0]), n.Providers[0])
	}
	require.True(t, got.Nodes[0].Connected)
	require.Nil(t, got.Nodes[1].ConnectedSince)
}

// A snapshot is of one moment: what the link says of a node a moment later does
// not contradict the counters beside it.
func TestS14_ANodesStateIsOfTheSameCutAsItsProviders(t *testing.T) {
	st := present(t, func(c *admission.Core, now time.Time) {
		gen, _ := c.Connect(now, "m")
		c.Drain(now, "m", gen)
	})
	got := (&Service{}).snapshot(st)
	require.False(t, got.Nodes[0].Connected, "the core has fenced it; the link has not noticed")
	require.Nil(t, got.Nodes[0].ConnectedSince)
	require.True(t, got.Nodes[1].Connected)
	require.True(t, got.Nodes[1].Draining)
}

func TestStatusFollowsTheCounters(t *testing.T) {
	r := admission.ResourceState{Resource: admission.Resource{Capacity: 2, Enabled: true}, Connected: true}
	for inFlight, want := range []string{"available", "available", "full", "over_capacity"} {
		r.InFlight = inFlight
		require.Equal(t, want, provider(r, "vllm").Status)
	}
	r.Excluded = admission.ReasonDraining
	require.Equal(t, "unavailable", provider(r, "vllm").Status)
	require.Equal(t, "draining", provider(r, "vllm").ExcludedReason)
	require.EqualValues(t, 3, provider(r, "vllm").InFlight, "running work is still shown")
}

// L08: why a long request waits is in the snapshot, with what the decision was made from.
func TestL08_SnapshotTellsWhyALongRequestWaits(t *testing.T) {
	st := present(t, func(c *admission.Core, now time.Time) {
		c.Connect(now, "n")
		for range 3 {
			c.Enqueue(now, admission.Request{Group: "g", Class: admission.Long, Surface: admission.SurfaceChat, InputTokens: 150000})
		}
	})
	st.LongThreshold, st.Scales = 100000, []estimate.Scale{{Target: "t", Kind: "latin", Answers: 50, Factor: 0.75}}
	got := (&Service{}).snapshot(st)
	require.Len(t, got.GetQueueHeads(), 1)
	require.True(t, proto.Equal(&controlv1.QueueHead{
		EnqueueSeq: 2, Model: "g", ContextClass: "long", EstimatedInputTokens: 150000, Reason: "long_full", WaitedMs: 2000, Behind: 1,
	}, got.GetQueueHeads()[0]), got.GetQueueHeads()[0])
	p := got.GetNodes()[0].GetProviders()[0]
	require.EqualValues(t, 1, p.GetLongContextCapacity())
	require.EqualValues(t, 1, p.GetLongInFlight())
	require.EqualValues(t, 100000, got.GetLongContextThresholdTokens())
	st.LongThreshold = 1 << 40
	require.EqualValues(t, math.MaxUint32, (&Service{}).snapshot(st).GetLongContextThresholdTokens(), "as much as fits")
	require.True(t, proto.Equal(&controlv1.EstimateScale{Target: "t", Kind: "latin", Answers: 50, Factor: 0.75}, got.GetEstimateScales()[0]))
}

// Whoever watches learns that the Edge stops, and that it may call again.
func TestTheEndOfAnEdgeEndsAWatchAsUnavailable(t *testing.T) {
	life, cut := context.WithCancelCause(t.Context())
	s := &Service{State: func() State { return State{} }}
	s.Watch(clockwork.NewFakeClock())
	_, h := controlv1connect.NewControlServiceHandler(s)
	server := httptest.NewUnstartedServer(h)
	server.Config.BaseContext = func(net.Listener) context.Context { return life }
	server.Start()
	defer server.Close()
	stream, err := controlv1connect.NewControlServiceClient(server.Client(), server.URL).WatchEdgeNodeSnapshot(t.Context(), &controlv1.WatchEdgeNodeSnapshotRequest{})
	require.NoError(t, err)
	defer func() { require.NoError(t, stream.Close()) }()
	require.True(t, stream.Receive())
	cut(dispatch.ErrStopped)
	require.False(t, stream.Receive())
	require.Equal(t, connect.CodeUnavailable, connect.CodeOf(stream.Err()), stream.Err())
}
