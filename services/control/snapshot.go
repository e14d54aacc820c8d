package control

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/state"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func (s *Service) snapshot(st State) *controlv1.EdgeNodeSnapshot {
	a := st.Admission
	out := &controlv1.EdgeNodeSnapshot{
		EdgeId: s.EdgeID, SoftwareVersion: s.Software,
		At: timestamppb.New(st.At), Revision: a.Counters.Commands,
		QueueTotal: uint32(a.QueueTotal), InFlightTotal: uint32(a.InFlight), OldestWaitMs: uint64(a.OldestWait.Milliseconds()),
		InstanceId: s.Instance, StartedAt: timestamp(s.StartedAt),
		HeartbeatIntervalMs: uint32(st.HeartbeatInterval.Milliseconds()), HeartbeatTimeoutMs: uint32(st.HeartbeatTimeout.Milliseconds()),
		Requests: requests(&st), Endings: endings(st.Endings), Waits: st.Waits.message(), Models: models(st.Models),
		ConfigRevision: st.ConfigRevision, LastRefreshError: st.LastRefreshError,
		LongContextThresholdTokens: uint32(min(st.LongThreshold, math.MaxUint32)), NeedsRestart: st.NeedsRestart, OverridesNotDurable: st.OverridesLost,
		CredentialsProblem: st.CredentialsProblem,
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
			Id: string(n.ID), Connected: n.Connected, Draining: n.Draining, SoftwareVersion: n.Software, Platform: n.Platform, Notice: n.Notice,
			ConnectedSince: timestamp(n.ConnectedSince), OfflineSince: timestamp(n.OfflineSince), LastSeen: timestamp(n.LastSeen),
		}
		for _, r := range a.Resources {
			if r.Key.Node == n.ID && !r.Removed {
				// Of the same cut as the counters, whatever the link says by now.
				node.Connected, node.Draining = r.Connected, r.Draining
				p := provider(r, st.ProviderTypes[r.Key])
				p.Override = override(st.Overrides, n.ID, r.Key.Provider)
				p.IdleBecause = idle(&st, r)
				node.Providers = append(node.Providers, p)
			}
		}
		node.Override = override(st.Overrides, n.ID, "")
		node.Draining = node.Draining || node.GetOverride().GetMode() == string(state.Draining)
		if !node.Connected {
			node.ConnectedSince = nil
		} else {
			node.OfflineSince = nil
		}
		node.State = nodeState(&st, n, node.Connected)
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// nodeState is how a node stands: one that is connected and silent is late before
// it is offline.
func nodeState(st *State, n Node, connected bool) string {
	switch {
	case connected && st.HeartbeatInterval > 0 && st.At.Sub(n.LastSeen) > st.HeartbeatInterval*3/2:
		return "late"
	case connected:
		return "connected"
	case n.LastSeen.IsZero():
		return "never"
	default:
		return "offline"
	}
}

func models(all []Model) []*controlv1.ModelSnapshot {
	out := make([]*controlv1.ModelSnapshot, 0, len(all))
	for _, m := range all {
		shown := &controlv1.ModelSnapshot{Id: m.ID, ContextWindowTokens: uint32(m.ContextWindow), Route: m.Route}
		for _, c := range m.Candidates {
			shown.Candidates = append(shown.Candidates, &controlv1.ModelCandidate{
				Node: string(c.Resource.Node), Provider: string(c.Resource.Provider), Target: c.Target,
			})
		}
		out = append(out, shown)
	}
	return out
}

// provider shows one resource. While its node is offline nothing of it is
// available, and every effective number is 0 (S14).
func provider(r admission.ResourceState, kind string) *controlv1.ProviderSnapshot {
	p := &controlv1.ProviderSnapshot{
		Id: string(r.Key.Provider), Type: kind, ExcludedReason: r.Excluded.String(), Priority: int32(r.Priority),
		ConfiguredCapacity: uint32(r.Capacity), ConfiguredLongContextCapacity: uint32(r.LongCapacity),
	}
	p.ExcludedSentence = verdictSentence(r.Excluded)
	if !r.Connected {
		p.Status, p.Health = "unavailable", "offline"
		if r.Excluded == admission.ReasonNone {
			p.ExcludedReason = admission.ReasonOffline.String()
			p.ExcludedSentence = verdictSentence(admission.ReasonOffline)
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
