package control

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/state"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// State is all that a snapshot is made of.
type State struct {
	At        time.Time
	Admission admission.Snapshot
	// Live are the requests that wait or run, by seq, from just before; one that admission knows
	// and Live does not has begun in between, and is shown without its name.
	Live map[admission.Seq]dispatch.Live
	// Endings are the last requests that ended, the newest first.
	Endings []dispatch.Ending
	Waits   Waits
	Models  []Model
	// Nodes are the configured nodes, in the order of the configuration.
	Nodes []Node
	// ProviderTypes are the configured types.
	ProviderTypes map[admission.ResourceKey]string
	// StaleRefused counts streams and messages refused at the wire.
	StaleRefused     uint64
	ConfigRevision   uint64
	LastRefreshError string
	// Refreshes are the last ones, the newest first.
	Refreshes    []Refresh
	NeedsRestart []string
	// Overrides are the operator's words that stand; OverridesLost is why they
	// would not outlast a restart, or empty.
	Overrides     state.Overrides
	OverridesLost string
	// CredentialsProblem is what is wrong with the kept credentials; empty if nothing is.
	CredentialsProblem string
	// LongThreshold in tokens.
	LongThreshold int
	// Scales are what the input estimate has learned.
	Scales []estimate.Scale
	// Of the heartbeats of nodes.
	HeartbeatInterval, HeartbeatTimeout time.Duration
}

// Refresh is one reading of the configuration, accepted or refused.
type Refresh struct {
	At          time.Time
	Source      string
	By          string // name of the admin token, if one asked for it
	Revision    uint64
	Changes     []string // the first of them
	ChangeCount int
	Error       string // why it was refused; empty if it was not
}

// Node is one configured node as its link knows it.
type Node struct {
	ID             admission.NodeID
	Connected      bool
	Draining       bool
	ConnectedSince time.Time // zero while offline
	OfflineSince   time.Time // zero while connected, or if never connected
	LastSeen       time.Time // zero if never
	Software       string
	Platform       string
	Notice         string // what the operator should know; empty = nothing
}

// Model is one entry of the catalogue.
type Model struct {
	ID            string
	ContextWindow int // tokens; 0 = not stated
	Route         bool
	Candidates    []admission.Candidate
}

// Service implements controlv1connect.ControlServiceHandler.
type Service struct {
	EdgeID    string
	Software  string
	Instance  string // random for each process
	StartedAt time.Time
	// State returns the present state.
	State func() State
	// Record returns the decision record of a request.
	Record func(admission.Seq) (admission.Record, bool)
	// Find is the newest request of an x-request-id; 0 if there is none.
	Find func(id string) admission.Seq
	// Explain is what else is known of a request: as it is, or how it ended.
	Explain func(admission.Seq) (*dispatch.Live, *dispatch.Ending)
	// History is what was kept of the last hour.
	History *History

	updates *updates
}

// Watch lets callers watch. Call it before the service is used.
func (s *Service) Watch(clock clockwork.Clock) {
	s.updates = &updates{clock: clock, make: func() *controlv1.EdgeNodeSnapshot { return s.snapshot(s.State()) }}
}

// GetEdgeNodeSnapshot returns the present state.
func (s *Service) GetEdgeNodeSnapshot(context.Context, *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: s.snapshot(s.State())}, nil
}

// WatchEdgeNodeSnapshot sends the state and its changes until the caller, or the
// Edge, ends it.
func (s *Service) WatchEdgeNodeSnapshot(
	ctx context.Context, req *controlv1.WatchEdgeNodeSnapshotRequest, stream *connect.ServerStream[controlv1.WatchEdgeNodeSnapshotResponse],
) error {
	from := req.GetSequence()
	if req.GetInstanceId() != s.Instance {
		from = 0
	}
	return rpcerr.From(s.updates.watch(ctx, from, stream.Send))
}

// ExplainRequest returns the decision record of one request.
func (s *Service) ExplainRequest(_ context.Context, req *controlv1.ExplainRequestRequest) (*controlv1.ExplainRequestResponse, error) {
	seq := admission.Seq(req.GetEnqueueSeq())
	if id := req.GetRequestId(); id != "" {
		seq = s.Find(id)
	}
	r, ok := s.explain(seq)
	if !ok {
		return nil, rpcerr.From(rpcerr.ErrRequestUnknown)
	}
	return r, nil
}

// GetHistory returns the last hour.
func (s *Service) GetHistory(context.Context, *controlv1.GetHistoryRequest) (*controlv1.GetHistoryResponse, error) {
	return &controlv1.GetHistoryResponse{Points: s.History.points(), IntervalMs: uint32(historyInterval.Milliseconds())}, nil
}
