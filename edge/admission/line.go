package admission

import (
	"cmp"
	"slices"
	"time"
)

// listKind names a place that a request can have in a list.
type listKind uint8

const (
	byOrder  listKind = iota // a line's FIFO while waiting, a resource's leases while leased
	byExpiry                 // a scope's waiters in the order of their deadlines
)

// ends are a request's neighbours in one list.
type ends struct{ prev, next *request }

// list is an intrusive list of requests: adding and removing cost O(1) and
// allocate nothing.
type list struct {
	first, last *request
	kind        listKind
}

func (l *list) push(r *request) { l.insertAfter(l.last, r) }

// insertAfter puts r behind prev, or first when prev is nil.
func (l *list) insertAfter(prev, r *request) {
	next := l.first
	if prev != nil {
		next = prev.links[l.kind].next
		prev.links[l.kind].next = r
	} else {
		l.first = r
	}
	if next != nil {
		next.links[l.kind].prev = r
	} else {
		l.last = r
	}
	r.links[l.kind] = ends{prev, next}
}

func (l *list) remove(r *request) {
	e := r.links[l.kind]
	if e.prev != nil {
		e.prev.links[l.kind].next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.links[l.kind].prev = e.prev
	} else {
		l.last = e.prev
	}
	r.links[l.kind] = ends{}
}

// insertBySeq puts r before the first request with a higher seq, looking from
// the end.
func (l *list) insertBySeq(r *request) {
	at := l.last
	for at != nil && at.seq > r.seq {
		at = at.links[l.kind].prev
	}
	l.insertAfter(at, r)
}

// scope is a queue policy and the requests that wait under it. Its timeout is
// one for all of them, so a list in the order of enqueue is one in the order of
// deadlines; requests that went back to the queue are older than those behind
// them and stand in a list of their own.
type scope struct {
	key      ScopeKey
	maxQueue int
	timeout  time.Duration
	pending  int
	fresh    list
	again    list
}

func newScope(key ScopeKey) *scope {
	return &scope{key: key, fresh: list{kind: byExpiry}, again: list{kind: byExpiry}}
}

// oldest is the waiter whose deadline comes first, or nil.
func (s *scope) oldest() *request {
	a, b := s.fresh.first, s.again.first
	if a == nil || b != nil && b.seq < a.seq {
		return b
	}
	return a
}

// deadline is when the request's wait ends; a changed timeout moves it at once.
func (r *request) deadline() time.Time { return r.enqueued.Add(r.group.scope.timeout) }

// line is one eligibility class: waiters of one group, context class and
// endpoint family, all dispatchable on the same resources. A private line is
// for one request that may no longer try every candidate.
type line struct {
	class   Class
	surface Surface
	private bool
	waiters list
	n       int
	links   []link
	without Reason // the obstacle of the candidates that have no link
}

// link joins a line to one of its candidate resources; it is what the
// resource's heap holds.
type link struct {
	line   *line
	res    *resource
	target string
	key    Seq // at most the seq of the line's head
	pos    int // in the resource's heap; -1 = not in it
}

func (l *line) head() *request { return l.waiters.first }

// line returns the group's line for a class and an endpoint family.
func (g *group) line(class Class, surface Surface) *line {
	for _, l := range g.lines {
		if l.class == class && l.surface == surface {
			return l
		}
	}
	l := g.newLine(class, surface, nil)
	g.lines = append(g.lines, l)
	return l
}

// privateLine makes a line for one request alone, without the candidates that
// refused it.
func (g *group) privateLine(r *request) *line {
	l := g.newLine(r.class, r.surface, r.refused)
	l.private = true
	return l
}

func (g *group) newLine(class Class, surface Surface, refused []ResourceKey) *line {
	l := &line{class: class, surface: surface, links: make([]link, 0, len(g.cands)), without: ReasonNoModel}
	for _, t := range g.cands {
		switch {
		case t.res.cfg.Surfaces&surface == 0:
		case slices.Contains(refused, t.res.cfg.Key):
			// One that was fenced is told from one that refused.
			l.without = max(l.without, ReasonRefused, t.res.excluded())
		default:
			l.links = append(l.links, link{line: l, res: t.res, target: t.name, pos: -1})
		}
	}
	return l
}

// obstacle is why the line's head cannot go: of its candidates' obstacles the
// weakest, or ReasonNone when one has none. An excluded reason means that no
// live candidate is left.
func (l *line) obstacle() Reason {
	reason := l.without
	for i := range l.links {
		here := l.links[i].res.obstacle(l.class)
		if here == ReasonNone {
			return ReasonNone
		}
		reason = max(reason, here)
	}
	return reason
}

// wait puts the request at the end of the line and under its scope's policy.
func (c *Core) wait(r *request, l *line) {
	r.state, r.line, r.requeued = waiting, l, l.private
	l.waiters.push(r)
	l.n++
	for i := range l.links {
		l.links[i].res.pressure[l.class]++
	}
	if l.n == 1 {
		c.newHeads = append(c.newHeads, l)
		for i := range l.links {
			if k := &l.links[i]; k.pos < 0 {
				k.key = r.seq
				k.res.waiting[l.class].add(k)
			}
		}
	}
	s := r.group.scope
	s.pending++
	if r.requeued {
		s.again.insertBySeq(r)
	} else {
		s.fresh.push(r)
	}
}

// unwait takes the request out of the queue.
func (c *Core) unwait(r *request) {
	l := r.line
	if l.head() == r {
		c.newHeads = append(c.newHeads, l)
	}
	l.waiters.remove(r)
	l.n--
	for i := range l.links {
		l.links[i].res.pressure[l.class]--
	}
	if l.private {
		for i := range l.links {
			k := &l.links[i]
			k.res.waiting[l.class].remove(k)
		}
	}
	s := r.group.scope
	s.pending--
	if r.requeued {
		s.again.remove(r)
	} else {
		s.fresh.remove(r)
	}
	r.line, r.state = nil, 0
}

// Expire ends every wait whose deadline has come.
func (c *Core) Expire(now time.Time) []Effect {
	c.begin(now)
	c.expire()
	return c.done()
}

func (c *Core) expire() {
	first := len(c.effects)
	for _, s := range c.scopes {
		for r := s.oldest(); r != nil && !r.deadline().After(c.now); r = s.oldest() {
			c.reject(r, ResultTimeout, r.line.obstacle())
		}
	}
	sortEffects(c.effects[first:])
}

// NextDeadline is when the first wait ends; false when nothing waits.
func (c *Core) NextDeadline() (next time.Time, ok bool) {
	for _, s := range c.scopes {
		if r := s.oldest(); r != nil && (!ok || r.deadline().Before(next)) {
			next, ok = r.deadline(), true
		}
	}
	return next, ok
}

// sortEffects puts the effects of one transition over many requests into the
// order of their seqs.
func sortEffects(es []Effect) {
	slices.SortStableFunc(es, func(a, b Effect) int { return cmp.Compare(a.Seq, b.Seq) })
}
