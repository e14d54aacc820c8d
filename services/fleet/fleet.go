package fleet

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Service implements fleetv1connect.FleetServiceHandler.
type Service struct {
	Fleet    *fleet.Fleet
	Software string
	// Nearest is a configured Edge that may be meant by an id; empty = none.
	Nearest func(id string) string
}

// GetFleet returns every Edge.
func (s *Service) GetFleet(context.Context, *fleetv1.GetFleetRequest) (*fleetv1.GetFleetResponse, error) {
	now := s.Fleet.Now()
	return &fleetv1.GetFleetResponse{Fleet: &fleetv1.Fleet{
		At: timestamppb.New(now.At), Edges: views(now.Edges), Totals: totals(now.Totals), SoftwareVersion: s.Software, Notices: now.Notices,
	}}, nil
}

// WatchFleet sends every Edge, then those that have changed.
func (s *Service) WatchFleet(ctx context.Context, _ *fleetv1.WatchFleetRequest, to *connect.ServerStream[fleetv1.WatchFleetResponse]) error {
	return rpcerr.From(s.Fleet.Watch(ctx, func(u fleet.Update) error {
		return to.Send(&fleetv1.WatchFleetResponse{
			At: timestamppb.New(u.At), Full: u.Full, Edges: views(u.Edges), Totals: totals(u.Totals), Notices: u.Notices,
		})
	}))
}

// GetFleetHistory returns what was kept of an Edge, or of all.
func (s *Service) GetFleetHistory(ctx context.Context, req *fleetv1.GetFleetHistoryRequest) (*fleetv1.GetFleetHistoryResponse, error) {
	points, err := s.Fleet.History(ctx, req.GetEdgeId(), int(req.GetMinutes()))
	var unknown *fleet.UnknownEdgeError
	if errors.As(err, &unknown) {
		err = &rpcerr.NotConfiguredError{What: "Edge", Name: unknown.ID, Nearest: s.Nearest(unknown.ID)}
	}
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &fleetv1.GetFleetHistoryResponse{Points: points, IntervalMs: uint32(time.Minute.Milliseconds())}, nil
}

func views(of []fleet.View) []*fleetv1.EdgeView {
	out := make([]*fleetv1.EdgeView, 0, len(of))
	for _, v := range of {
		m := &fleetv1.EdgeView{
			Id: v.ID, State: string(v.State), Snapshot: v.Snapshot, AgeMs: milliseconds(v.Age), LastError: v.LastError,
			Failures: uint32(v.Failures), PullMs: milliseconds(v.Took), Notices: v.Notices,
		}
		if v.Snapshot != nil {
			m.PulledAt = timestamppb.New(v.PulledAt)
		}
		out = append(out, m)
	}
	return out
}

func totals(t fleet.Totals) *fleetv1.FleetTotals {
	return &fleetv1.FleetTotals{
		EdgesLive: uint32(t.EdgesLive), Edges: uint32(t.Edges),
		NodesConnected: uint32(t.NodesConnected), Nodes: uint32(t.Nodes),
		Slots: t.Slots, InFlight: t.InFlight, Queued: t.Queued, OldestWaitMs: milliseconds(t.OldestWait),
	}
}

func milliseconds(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }
