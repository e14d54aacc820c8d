package fleet

import (
	"fmt"
	"time"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// State says how far the snapshot of an Edge can be trusted.
type State string

// The states of an Edge.
const (
	Live        State = "live"
	Stale       State = "stale"       // its age is above StaleAfter
	Unreachable State = "unreachable" // stale, and the last pull failed
	Never       State = "never"       // no pull succeeded yet
)

// View is one Edge as it is known at a moment.
type View struct {
	ID    string
	State State
	// Snapshot is the last good one, nil if there is none; nobody changes it. It
	// says how the Edge was at PulledAt at the earliest.
	Snapshot *controlv1.EdgeNodeSnapshot
	PulledAt time.Time
	Age      time.Duration
	// LastError is why the last pull failed, empty if it did not, and Failures how
	// many have in a row.
	LastError string
	Failures  int
	// Took is how long the last good pull took.
	Took    time.Duration
	Notices []string

	pulls uint64
}

// Totals are sums over the Edges that are live.
type Totals struct {
	EdgesLive, Edges        int
	NodesConnected, Nodes   int
	Slots, InFlight, Queued uint64
	OldestWait              time.Duration
}

// Now is the fleet at a moment.
type Now struct {
	At time.Time
	// Edges are in the order of the configuration.
	Edges  []View
	Totals Totals
	// Notices are what the operator should know of the Control Plane itself.
	Notices []string
}

// Now is what is known now.
func (f *Fleet) Now() Now {
	n := Now{At: f.o.Clock.Now(), Notices: f.storageNotices()}
	for _, e := range f.edges {
		n.Edges = append(n.Edges, f.view(e, n.At))
	}
	n.sum()
	return n
}

func (f *Fleet) view(e *edge, now time.Time) View {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := View{
		ID: e.id, State: Never, LastError: e.lastError, Failures: e.failures, pulls: e.pulls,
		Notices: e.notices[:len(e.notices):len(e.notices)],
	}
	if e.snapshot == nil {
		return v
	}
	v.Snapshot, v.PulledAt, v.Took, v.Age = e.snapshot, e.at, e.took, max(0, now.Sub(e.at))
	switch {
	case v.Age <= f.o.StaleAfter:
		v.State = Live
	case e.failures > 0:
		v.State = Unreachable
	default:
		v.State = Stale
	}
	return v
}

// sum adds up what is live. An Edge that is configured under two names is one
// process, and counts once.
func (n *Now) sum() {
	t := Totals{Edges: len(n.Edges)}
	first := map[string]string{} // by instance
	for i := range n.Edges {
		v := &n.Edges[i]
		if v.State != Live {
			continue
		}
		t.EdgesLive++
		s := v.Snapshot
		if instance := s.GetInstanceId(); instance != "" {
			if other, counted := first[instance]; counted {
				v.Notices = append(v.Notices, fmt.Sprintf("this is the same Edge as %q: the sums count it once", other))
				continue
			}
			first[instance] = v.ID
		}
		for _, node := range s.GetNodes() {
			t.Nodes++
			if node.GetConnected() {
				t.NodesConnected++
			}
		}
		t.Slots += uint64(slotsOf(s))
		t.InFlight += uint64(s.GetInFlightTotal())
		t.Queued += uint64(s.GetQueueTotal())
		t.OldestWait = max(t.OldestWait, time.Duration(s.GetOldestWaitMs())*time.Millisecond)
	}
	n.Totals = t
}

// slotsOf are the slots in force, as the Edge's own history counts them.
func slotsOf(s *controlv1.EdgeNodeSnapshot) (slots uint32) {
	for _, n := range s.GetNodes() {
		for _, p := range n.GetProviders() {
			if p.GetStatus() != "unavailable" {
				slots += p.GetEffectiveCapacity()
			}
		}
	}
	return slots
}
