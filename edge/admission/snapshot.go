package admission

import "time"

// Snapshot is one consistent cut of the core.
type Snapshot struct {
	Resources  []ResourceState // as configured, in that order; removed ones that still hold leases come last
	Scopes     []ScopeState    // as configured
	QueueTotal int             // requests waiting, each counted once
	InFlight   int             // leases
	OldestWait time.Duration   // of the waiters; 0 when none waits
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

// Snapshot returns the state as of now.
func (c *Core) Snapshot(now time.Time) Snapshot {
	s := Snapshot{
		Resources: make([]ResourceState, 0, len(c.resources)),
		Scopes:    make([]ScopeState, 0, len(c.scopes)),
		Counters:  c.counts,
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
