package admission

import (
	"cmp"
	"slices"
	"time"
)

// Reconfigure puts a new configuration into force. Leases and running work stay
// as they are; every waiter is re-evaluated under it at once: overdue ones end,
// those without a live candidate end, those that fit somewhere are granted.
func (c *Core) Reconfigure(now time.Time, cfg Config) []Effect {
	c.begin(now)
	queue := c.takeQueue()
	c.install(cfg)
	c.restoreQueue(queue)
	c.expire()
	for _, res := range c.resources {
		c.touch(res)
		c.alter(res)
	}
	c.pump()
	return c.done()
}

// takeQueue takes every waiter out of the queue, in the order of their seqs.
func (c *Core) takeQueue() []*request {
	var queue []*request
	for _, s := range c.scopes {
		for r := s.oldest(); r != nil; r = s.oldest() {
			c.unwait(r)
			queue = append(queue, r)
		}
	}
	slices.SortFunc(queue, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	return queue
}

// restoreQueue puts the waiters back under the new configuration. A smaller
// queue limit keeps those who wait.
func (c *Core) restoreQueue(queue []*request) {
	for _, r := range queue {
		g := c.groups[r.group.key]
		if g == nil {
			c.end(r, nil, ResultUnavailable, ReasonNoModel)
			continue
		}
		r.group = g
		var l *line
		if len(r.refused) > 0 {
			l = r.group.privateLine(r)
		} else {
			l = r.group.line(r.class, r.surface)
		}
		if reason := l.obstacle(); reason.excluded() {
			c.end(r, l, ResultUnavailable, reason)
			continue
		}
		c.wait(r, l)
	}
}

// install replaces the configuration while nothing waits.
func (c *Core) install(cfg Config) {
	c.selection = cfg.Selection

	scopes := map[ScopeKey]*scope{}
	c.scopes = c.scopes[:0:0]
	for _, sc := range cfg.Scopes {
		s := newScope(sc.Key)
		s.maxQueue, s.timeout = sc.MaxQueue, sc.Timeout
		scopes[sc.Key] = s
		c.scopes = append(c.scopes, s)
	}

	known := map[ResourceKey]*resource{}
	for _, res := range c.resources {
		known[res.cfg.Key] = res
		res.removed = true
	}
	old := c.resources
	c.resources = make([]*resource, 0, len(cfg.Resources))
	for _, rc := range cfg.Resources {
		res := known[rc.Key]
		if res == nil {
			res = &resource{node: c.node(rc.Key.Node), leases: list{kind: byOrder}}
			known[rc.Key] = res
		}
		res.cfg, res.removed, res.waiting = rc, false, [2]heap{}
		c.resources = append(c.resources, res)
	}
	for _, res := range old {
		if res.removed && res.inFlight > 0 {
			res.waiting = [2]heap{}
			c.resources = append(c.resources, res)
		}
	}
	for _, n := range c.nodes {
		n.resources = nil
	}
	for _, res := range c.resources {
		res.node.resources = append(res.node.resources, res)
	}

	c.groups = make(map[GroupKey]*group, len(cfg.Groups))
	for _, gc := range cfg.Groups {
		g := &group{key: gc.Key, scope: scopes[gc.Scope]}
		for _, cand := range gc.Candidates {
			g.cands = append(g.cands, target{known[cand.Resource], cand.Target})
		}
		c.groups[gc.Key] = g
	}
}

// drop forgets a removed resource whose last lease has ended.
func (c *Core) drop(res *resource) {
	gone := func(r *resource) bool { return r == res }
	c.resources = slices.DeleteFunc(slices.Clone(c.resources), gone)
	res.node.resources = slices.DeleteFunc(slices.Clone(res.node.resources), gone)
}
