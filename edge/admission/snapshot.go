package admission

import (
	"cmp"
	"slices"
	"time"
)

// keptHeads is how many heads of the queue a snapshot has.
const keptHeads = 64

// Snapshot is one consistent cut of the core.
type Snapshot struct {
	Resources  []ResourceState // as configured, in that order; removed ones that still hold leases come last
	Scopes     []ScopeState    // as configured
	QueueTotal int             // requests waiting, each counted once
	InFlight   int             // leases
	OldestWait time.Duration   // of the waiters; 0 when none waits
	Heads      []Head          // the waiters that nobody stands before, oldest first; the first keptHeads of them
	Counters   Counters
}

// ResourceState is one resource at the moment of the cut.
type ResourceState struct {
	Resource
	Connected    bool   // its node
	Draining     bool   // its node
	Removed      bool   // no longer configured
	Excluded     Reason // why it is no live candidate, or ReasonNone
	InFlight     int
	LongInFlight int
	Queued       int // candidate pressure: waiters that could run here; never a queue depth
	LongQueued   int // the long ones of them
}

// ScopeState is one queue policy scope at the moment of the cut.
type ScopeState struct {
	Scope
	Pending int
}

// Head is a waiter that goes first of those with its group, class and endpoint
// family, and what keeps it.
type Head struct {
	Seq         Seq
	Group       GroupKey
	Class       Class
	InputTokens int
	Reason      Reason
	Waited      time.Duration
	Behind      int // how many wait for it to go
}

// heads lists those of all lines.
func (c *Core) heads(now time.Time) []Head {
	var list []Head
	for _, g := range c.groups {
		for _, l := range g.lines {
			if r := l.head(); r != nil {
				list = append(list, Head{r.seq, g.key, r.class, r.inputTokens, l.obstacle(), now.Sub(r.enqueued), l.n - 1})
			}
		}
	}
	slices.SortFunc(list, func(a, b Head) int { return cmp.Compare(a.Seq, b.Seq) })
	return list[:min(len(list), keptHeads)]
}

// Snapshot returns the state as of now.
func (c *Core) Snapshot(now time.Time) Snapshot {
	s := Snapshot{
		Resources: make([]ResourceState, 0, len(c.resources)),
		Scopes:    make([]ScopeState, 0, len(c.scopes)),
		Counters:  c.counts,
		Heads:     c.heads(now),
	}
	for _, res := range c.resources {
		st := ResourceState{
			Resource: res.cfg, Connected: res.node.connected, Draining: res.node.draining, Removed: res.removed, Excluded: res.excluded(),
			InFlight: res.inFlight, LongInFlight: res.longInFlight,
		}
		if st.Excluded == ReasonNone {
			st.LongQueued = res.pressure[Long]
			st.Queued = st.LongQueued + res.pressure[Normal]
		}
		s.InFlight += res.inFlight
		s.Resources = append(s.Resources, st)
	}
	for _, sc := range c.scopes {
		s.Scopes = append(s.Scopes, ScopeState{Scope{sc.key, sc.maxQueue, sc.timeout}, sc.pending})
		s.QueueTotal += sc.pending
		if r := sc.oldest(); r != nil {
			s.OldestWait = max(s.OldestWait, now.Sub(r.enqueued))
		}
	}
	return s
}
