// Package control serves iop.control.v1: one consistent cut of an Edge's state,
// for the Control Plane and for status commands. It only reads; snapshots never
// decide admission.
package control

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/state"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// State is all that a snapshot is made of.
type State struct {
	At        time.Time
	Admission admission.Snapshot
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
	// LongThreshold in tokens.
	LongThreshold int
	// Scales are what the input estimate has learned.
	Scales []estimate.Scale
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
	LastSeen       time.Time // zero if never
	Software       string
	Platform       string
}

// Service implements controlv1connect.ControlServiceHandler.
type Service struct {
	controlv1connect.UnimplementedControlServiceHandler
	EdgeID   string
	Software string
	// State returns the present state.
	State func() State
}

// GetEdgeNodeSnapshot returns the present state.
func (s *Service) GetEdgeNodeSnapshot(context.Context, *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: s.snapshot(s.State())}, nil
}

func (s *Service) snapshot(st State) *controlv1.EdgeNodeSnapshot {
	a := st.Admission
	out := &controlv1.EdgeNodeSnapshot{
		EdgeId: s.EdgeID, SoftwareVersion: s.Software,
		At: timestamppb.New(st.At), Revision: a.Counters.Commands,
		QueueTotal: uint32(a.QueueTotal), InFlightTotal: uint32(a.InFlight), OldestWaitMs: uint64(a.OldestWait.Milliseconds()),
		ConfigRevision: st.ConfigRevision, LastRefreshError: st.LastRefreshError,
		LongContextThresholdTokens: uint32(min(st.LongThreshold, math.MaxUint32)), NeedsRestart: st.NeedsRestart, OverridesNotDurable: st.OverridesLost,
		Counters: &controlv1.Counters{
			Granted: a.Counters.Granted, Released: a.Counters.Released,
			DoubleReleases: a.Counters.DoubleReleases, StaleRefused: a.Counters.Stale + st.StaleRefused,
		},
	}
	for _, sc := range a.Scopes {
		out.Scopes = append(out.Scopes, &controlv1.ScopeSnapshot{
			Key: string(sc.Key), Pending: uint32(sc.Pending), MaxQueue: uint32(sc.MaxQueue), QueueTimeoutMs: uint64(sc.Timeout.Milliseconds()),
		})
	}
	for _, h := range a.Heads {
		out.QueueHeads = append(out.QueueHeads, &controlv1.QueueHead{
			EnqueueSeq: uint64(h.Seq), Model: string(h.Group), ContextClass: h.Class.String(), EstimatedInputTokens: uint64(h.InputTokens),
			Reason: h.Reason.String(), WaitedMs: uint64(h.Waited.Milliseconds()), Behind: uint32(h.Behind),
		})
	}
	for _, s := range st.Scales {
		out.EstimateScales = append(out.EstimateScales, &controlv1.EstimateScale{Target: s.Target, Kind: s.Kind, Answers: uint32(s.Answers), Factor: s.Factor})
	}
	for _, r := range st.Refreshes {
		out.Refreshes = append(out.Refreshes, &controlv1.Refresh{
			At: timestamp(r.At), Source: r.Source, By: r.By, ConfigRevision: r.Revision,
			Changes: r.Changes, ChangeCount: uint32(r.ChangeCount), Error: r.Error,
		})
	}
	for _, n := range st.Nodes {
		node := &controlv1.NodeSnapshot{
			Id: string(n.ID), Connected: n.Connected, Draining: n.Draining, SoftwareVersion: n.Software, Platform: n.Platform,
			ConnectedSince: timestamp(n.ConnectedSince), LastSeen: timestamp(n.LastSeen),
		}
		for _, r := range a.Resources {
			if r.Key.Node == n.ID && !r.Removed {
				// Of the same cut as the counters, whatever the link says by now.
				node.Connected, node.Draining = r.Connected, r.Draining
				p := provider(r, st.ProviderTypes[r.Key])
				p.Override = override(st.Overrides, n.ID, r.Key.Provider)
				node.Providers = append(node.Providers, p)
			}
		}
		node.Override = override(st.Overrides, n.ID, "")
		node.Draining = node.Draining || node.GetOverride().GetMode() == string(state.Draining)
		if !node.Connected {
			node.ConnectedSince = nil
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// provider shows one resource. While its node is offline nothing of it is
// available, and every effective number is 0 (S14).
func provider(r admission.ResourceState, kind string) *controlv1.ProviderSnapshot {
	p := &controlv1.ProviderSnapshot{
		Id: string(r.Key.Provider), Type: kind, ExcludedReason: r.Excluded.String(),
		ConfiguredCapacity: uint32(r.Capacity), ConfiguredLongContextCapacity: uint32(r.LongCapacity),
	}
	if !r.Connected {
		p.Status, p.Health = "unavailable", "offline"
		if r.Excluded == admission.ReasonNone {
			p.ExcludedReason = admission.ReasonOffline.String()
		}
		return p
	}
	p.Health = r.Health.String()
	p.EffectiveCapacity, p.LongContextCapacity = uint32(r.Capacity), uint32(r.LongCapacity)
	p.InFlight, p.LongInFlight = uint32(r.InFlight), uint32(r.LongInFlight)
	p.Queued, p.LongQueued = uint32(r.Queued), uint32(r.LongQueued)
	switch {
	case r.Excluded != admission.ReasonNone:
		p.Status = "unavailable"
	case r.InFlight > r.Capacity:
		p.Status = "over_capacity"
	case r.InFlight == r.Capacity:
		p.Status = "full"
	default:
		p.Status = "available"
	}
	return p
}

func override(all state.Overrides, node admission.NodeID, provider admission.ProviderID) *controlv1.Override {
	o, ok := all.Of(node, provider)
	if !ok {
		return nil
	}
	return &controlv1.Override{Mode: string(o.Mode), Since: timestamp(o.Since), By: o.By}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
