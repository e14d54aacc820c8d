package admission

// resource is one provider resource: its configuration, its counters, and the
// lines that wait for it. Its state is derived, never stored.
type resource struct {
	cfg          Resource
	node         *node
	removed      bool // no longer configured; lives until its last lease ends
	dirty        bool // in Core.dirty
	changed      bool // in Core.changed
	inFlight     int
	longInFlight int
	leases       list
	waiting      [2]heap   // by class
	pressure     [2]int    // waiters of the lines in waiting
	shown        [2]Reason // obstacle when the heads of waiting were last reviewed
	service      serviceTime
}

// excluded says why the resource is no live candidate, or ReasonNone.
func (r *resource) excluded() Reason {
	switch {
	case r.removed || !r.cfg.Enabled:
		return ReasonDisabled
	case r.cfg.Capacity == 0:
		return ReasonCapacityZero
	case r.cfg.Health == Unhealthy:
		return ReasonUnhealthy
	case !r.node.connected:
		return ReasonOffline
	case r.node.draining || r.cfg.Drain:
		return ReasonDraining
	}
	return ReasonNone
}

// obstacle says why a request of the class cannot start here now, or ReasonNone.
func (r *resource) obstacle(class Class) Reason {
	if reason := r.excluded(); reason != ReasonNone {
		return reason
	}
	switch {
	case class == Long && !r.longFree():
		return ReasonLongFull // first: a normal slot alone would not help
	case r.inFlight > r.cfg.Capacity:
		return ReasonOverCapacity
	case r.inFlight == r.cfg.Capacity:
		return ReasonFull
	}
	return ReasonNone
}

func (r *resource) longFree() bool {
	return r.cfg.LongCapacity == 0 || r.longInFlight < r.cfg.LongCapacity
}

// next is the line with the smallest seq that could start here now, or nil.
func (r *resource) next() *link {
	if r.excluded() != ReasonNone || r.inFlight >= r.cfg.Capacity {
		return nil
	}
	first := r.waiting[Normal].top()
	if r.longFree() {
		if long := r.waiting[Long].top(); long != nil && (first == nil || long.key < first.key) {
			first = long
		}
	}
	return first
}

// choose is the best candidate of the line that is free now, or nil.
func (c *Core) choose(l *line) *link {
	var best *link
	for i := range l.links {
		k := &l.links[i]
		if k.res.obstacle(l.class) == ReasonNone && (best == nil || c.better(k.res, best.res)) {
			best = k
		}
	}
	return best
}

// better reports whether a is to be chosen over b. Balanced: lower load, then
// higher priority, then fewer in flight, then the key; with PriorityFirst the
// priority comes first.
func (c *Core) better(a, b *resource) bool {
	if c.selection == PriorityFirst && a.cfg.Priority != b.cfg.Priority {
		return a.cfg.Priority > b.cfg.Priority
	}
	// in_flight ÷ capacity, compared without division.
	if x, y := a.inFlight*b.cfg.Capacity, b.inFlight*a.cfg.Capacity; x != y {
		return x < y
	}
	if a.cfg.Priority != b.cfg.Priority {
		return a.cfg.Priority > b.cfg.Priority
	}
	if a.inFlight != b.inFlight {
		return a.inFlight < b.inFlight
	}
	return a.cfg.Key.less(b.cfg.Key)
}
