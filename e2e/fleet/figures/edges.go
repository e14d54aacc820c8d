package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// kind is how a simulated Edge behaves.
type kind string

const (
	well  kind = "well"
	hung  kind = "hung"     // takes connections and never answers
	flaky kind = "flapping" // is away for every other period
)

// flapping is how long a flapping Edge stays or is away.
const flapping = 7 * time.Second

// edge is one simulated Edge, on a listener of its own.
type edge struct {
	controlv1connect.UnimplementedControlServiceHandler

	id     string
	kind   kind
	nodes  int
	begun  time.Time
	pulls  atomic.Int64
	server *httptest.Server
}

func newEdge(id string, k kind, nodes int) *edge {
	e := &edge{id: id, kind: k, nodes: nodes, begun: time.Now()}
	_, h := controlv1connect.NewControlServiceHandler(e)
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case e.kind == hung:
			<-r.Context().Done()
		case e.kind == flaky && (time.Since(e.begun)/flapping)%2 == 1:
			panic(http.ErrAbortHandler) // as a process that is gone
		default:
			h.ServeHTTP(w, r)
		}
	}))
	return e
}

// GetEdgeNodeSnapshot is a busy Edge: two providers a node, four requests running
// on each node, 64 waiting.
func (e *edge) GetEdgeNodeSnapshot(context.Context, *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	revision := e.pulls.Add(1)
	now := timestamppb.Now()
	s := &controlv1.EdgeNodeSnapshot{
		EdgeId: e.id, InstanceId: "simulated-" + e.id, At: now, Revision: uint64(revision), QueueTotal: 64,
		InFlightTotal: uint32(4 * e.nodes), OldestWaitMs: 41_000, HeartbeatIntervalMs: 5000, HeartbeatTimeoutMs: 15000,
	}
	for i := range e.nodes {
		n := &controlv1.NodeSnapshot{Id: fmt.Sprintf("node-%02d", i), Connected: true, State: "connected", ConnectedSince: now, LastSeen: now, Platform: "linux/amd64"}
		for p := range 2 {
			n.Providers = append(n.Providers, &controlv1.ProviderSnapshot{
				Id: fmt.Sprintf("provider-%d", p), Type: "simulator", Status: "available", Health: "healthy",
				ConfiguredCapacity: 4, EffectiveCapacity: 4, InFlight: 2, LongContextCapacity: 2, Queued: 64,
			})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for seq := range 4*e.nodes + 64 {
		r := &controlv1.RequestSnapshot{
			EnqueueSeq: uint64(seq), RequestId: fmt.Sprintf("request-%08d", seq), Client: "laptop", Model: "qwen3-32b", Endpoint: "/v1/chat/completions",
			ContextClass: "normal", EstimatedInputTokens: 1200, State: "streaming", EnqueuedAt: now, GrantedAt: now, Node: "node-00", Provider: "provider-0",
		}
		if seq >= 4*e.nodes {
			r.State, r.Reason, r.Sentence = "waiting", "full", "Every slot of its candidates is taken."
		}
		s.Requests = append(s.Requests, r)
	}
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: s}, nil
}

// GetHistory is the hour before, and since.
func (e *edge) GetHistory(context.Context, *controlv1.GetHistoryRequest) (*controlv1.GetHistoryResponse, error) {
	res := &controlv1.GetHistoryResponse{IntervalMs: 10_000}
	last := time.Now().Truncate(10 * time.Second)
	for i := range 360 {
		res.Points = append(res.Points, &controlv1.HistoryPoint{
			At: timestamppb.New(last.Add(time.Duration(i-359) * 10 * time.Second)), Slots: 160, InFlight: 80, Queued: 64, Granted: 12,
			WaitP50Ms: 2000, WaitP95Ms: 38_000, Outcomes: map[string]uint32{"completed": 11, "cancelled": 1}, OutputTokens: 6000,
		})
	}
	return res, nil
}
