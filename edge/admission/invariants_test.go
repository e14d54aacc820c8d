package admission

import (
	"fmt"
	"iter"
)

// live ranges over every live request, in no order.
func (c *Core) live() iter.Seq2[Seq, *request] {
	return func(yield func(Seq, *request) bool) {
		for number, p := range c.requests.pages {
			for i, r := range p.at {
				if r != nil && !yield(number*pageSize+Seq(i), r) {
					return
				}
			}
		}
	}
}

// checkInvariants looks at the whole state of the core and returns the first
// thing that must never be so.
func checkInvariants(c *Core) error {
	if len(c.dirty) != 0 {
		return fmt.Errorf("%d resources left touched after a command", len(c.dirty))
	}
	leases := map[*resource][2]int{}
	pending := map[*scope]int{}
	waitingHere := map[*line]int{}
	live := 0
	for seq, r := range c.live() {
		if r.seq != seq {
			return fmt.Errorf("request %d filed under %d", r.seq, seq)
		}
		switch r.state {
		case waiting:
			if c.groups[r.group.key] != r.group {
				return fmt.Errorf("request %d waits under a configuration no longer in force", seq)
			}
			pending[r.group.scope]++
			waitingHere[r.line]++
			if to := c.choose(r.line); to != nil {
				return fmt.Errorf("request %d waits though %s could take it", seq, to.res.cfg.Key)
			}
			if reason := r.line.obstacle(); reason.excluded() {
				return fmt.Errorf("request %d waits without a live candidate (%s)", seq, reason)
			}
		case reserved, tracked:
			live++
			n := leases[r.res]
			n[0]++
			if r.class == Long {
				n[1]++
			}
			leases[r.res] = n
			if !r.res.node.connected || r.res.node.gen != r.gen {
				return fmt.Errorf("request %d holds a lease of generation %d, which is not current", seq, r.gen)
			}
		default:
			return fmt.Errorf("request %d is live in no state", seq)
		}
	}
	for _, res := range c.resources {
		n := leases[res]
		if res.inFlight != n[0] || res.longInFlight != n[1] {
			return fmt.Errorf("%s counts %d/%d leases, holds %d/%d", res.cfg.Key, res.inFlight, res.longInFlight, n[0], n[1])
		}
		delete(leases, res)
		for class, h := range res.waiting {
			for i, k := range h {
				if k.pos != i || k.res != res || k.line.class != Class(class) {
					return fmt.Errorf("%s: heap entry %d is out of place", res.cfg.Key, i)
				}
				if i > 0 && h[(i-1)/2].key > k.key {
					return fmt.Errorf("%s: heap order broken at %d", res.cfg.Key, i)
				}
				if head := k.line.head(); head != nil && k.key > head.seq {
					return fmt.Errorf("%s: key %d is past its line's head %d", res.cfg.Key, k.key, head.seq)
				} else if head == nil && k.line.private {
					return fmt.Errorf("%s: an empty private line is left", res.cfg.Key)
				}
			}
		}
		if res.removed && res.inFlight == 0 {
			return fmt.Errorf("%s is removed and idle, and still here", res.cfg.Key)
		}
	}
	if len(leases) != 0 {
		return fmt.Errorf("leases are held on %d resources that the core no longer knows", len(leases))
	}
	for _, s := range c.scopes {
		if s.pending != pending[s] {
			return fmt.Errorf("scope %s counts %d waiters, has %d", s.key, s.pending, pending[s])
		}
	}
	for l, n := range waitingHere {
		if l.n != n {
			return fmt.Errorf("a line counts %d waiters, has %d", l.n, n)
		}
		last := Seq(0)
		for r := l.head(); r != nil; r = r.links[byOrder].next {
			if r.seq <= last {
				return fmt.Errorf("line out of order: %d after %d", r.seq, last)
			}
			last = r.seq
		}
		for i := range l.links {
			if l.links[i].pos < 0 {
				return fmt.Errorf("a line with waiters is missing from the heap of %s", l.links[i].res.cfg.Key)
			}
		}
	}
	if int(c.counts.Granted-c.counts.Released) != live {
		return fmt.Errorf("granted %d − released %d ≠ %d live leases", c.counts.Granted, c.counts.Released, live)
	}
	return nil
}
