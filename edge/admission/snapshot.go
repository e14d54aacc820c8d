package admission

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of what a snapshot lists; its totals count everything.
const (
	keptHeads   = 64   // heads of the queue
	keptWaiters = 256  // waiters
	keptLeases  = 4096 // leases
	keptOn      = 8    // candidates that a waiter waits for
)

// Snapshot is one consistent cut of the core.
type Snapshot struct {
	Resources  []ResourceState // as configured, in that order; removed ones that still hold leases come last
	Scopes     []ScopeState    // as configured
	QueueTotal int             // requests waiting, each counted once
	InFlight   int             // leases
	OldestWait time.Duration   // of the waiters; 0 when none waits
	Heads      []Head          // the waiters that nobody stands before, oldest first; the first keptHeads of them
	Waiters    []WaiterState   // by seq, the order in which equals are dispatched; the first keptWaiters of them
	Leases     []LeaseState    // by resource as configured, then by grant; the first keptLeases of them
	// WaitingBy counts every waiter by why it waits; their sum is QueueTotal.
	WaitingBy [ReasonBehind + 1]int
	Counters  Counters
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

// WaiterState is one waiting request at the moment of the cut.
type WaiterState struct {
	Seq         Seq
	Group       GroupKey
	Class       Class
	InputTokens int
	Enqueued    time.Time
	Deadline    time.Time
	Reason      Reason
	// Behind is the request that goes first, where Reason is ReasonBehind.
	Behind Seq
	// On are the candidates that have the obstacle Reason, the first keptOn of them: the first of them to be rid of it lets the request
	// go. None where Reason is ReasonBehind.
	On []ResourceKey
}

// LeaseState is one lease at the moment of the cut.
type LeaseState struct {
	Seq         Seq
	Lease       LeaseID
	Resource    ResourceKey
	Group       GroupKey
	Class       Class
	InputTokens int
	Enqueued    time.Time
	Granted     time.Time
	HandedOff   bool // tracked; else reserved
}

// heads lists those of all lines, the private ones included: their requests are those that wait again. It counts all waiters by reason.
func (c *Core) heads(now time.Time) (list []Head, by [ReasonBehind + 1]int) {
	add := func(l *line) {
		if r := l.head(); r != nil {
			reason := l.obstacle()
			by[reason]++
			by[ReasonBehind] += l.n - 1
			list = append(list, Head{r.seq, r.group.key, r.class, r.inputTokens, reason, now.Sub(r.enqueued), l.n - 1})
		}
	}
	for _, g := range c.groups {
		for _, l := range g.lines {
			add(l)
		}
	}
	for _, s := range c.scopes {
		for r := s.again.first; r != nil; r = r.links[byExpiry].next {
			add(r.line)
		}
	}
	slices.SortFunc(list, func(a, b Head) int { return cmp.Compare(a.Seq, b.Seq) })
	return list[:min(len(list), keptHeads)], by
}

// waiters lists the first of all scopes together. Each scope has them by seq, in two lists.
func (c *Core) waiters() []WaiterState {
	var all []*request
	for _, s := range c.scopes {
		for _, first := range []*request{s.fresh.first, s.again.first} {
			n := 0
			for r := first; r != nil && n < keptWaiters; r = r.links[byExpiry].next {
				all = append(all, r)
				n++
			}
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	list := make([]WaiterState, 0, min(len(all), keptWaiters))
	for _, r := range all[:min(len(all), keptWaiters)] {
		w := WaiterState{
			Seq: r.seq, Group: r.group.key, Class: r.class, InputTokens: r.inputTokens, Enqueued: r.enqueued, Deadline: r.deadline(),
		}
		if head := r.line.head(); head != r {
			w.Reason, w.Behind = ReasonBehind, head.seq
		} else {
			w.Reason = r.line.obstacle()
			for i := range r.line.links {
				if res := r.line.links[i].res; res.obstacle(r.class) == w.Reason && len(w.On) < keptOn {
					w.On = append(w.On, res.cfg.Key)
				}
			}
		}
		list = append(list, w)
	}
	return list
}

// leasesOf appends those of one resource.
func (s *Snapshot) leasesOf(res *resource) {
	for r := res.leases.first; r != nil && len(s.Leases) < keptLeases; r = r.links[byOrder].next {
		s.Leases = append(s.Leases, LeaseState{
			Seq: r.seq, Lease: r.lease, Resource: res.cfg.Key, Group: r.group.key, Class: r.class, InputTokens: r.inputTokens,
			Enqueued: r.enqueued, Granted: r.granted, HandedOff: r.state == tracked,
		})
	}
}

// Snapshot returns the state as of now.
func (c *Core) Snapshot(now time.Time) Snapshot {
	s := Snapshot{
		Resources: make([]ResourceState, 0, len(c.resources)),
		Scopes:    make([]ScopeState, 0, len(c.scopes)),
		Counters:  c.counts,
		Waiters:   c.waiters(),
	}
	s.Heads, s.WaitingBy = c.heads(now)
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
		s.leasesOf(res)
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
