package admission

import (
	"cmp"
	"slices"
	"time"
)

// Core holds all admission state of one Edge. It is not safe for concurrent
// use; see the package comment for the contract with its caller.
type Core struct {
	selection Selection
	resources []*resource // in configured order; removed ones that still hold leases come last
	groups    map[GroupKey]*group
	scopes    []*scope
	nodes     map[NodeID]*node
	requests  table    // every live request, waiting or leased
	free      *request // requests to use again, by next

	lastSeq   Seq
	lastLease LeaseID
	lastGen   Generation
	now       time.Time // of the command in progress; never falls

	effects  []Effect
	dirty    []*resource // may have gained a free slot in this command
	changed  []*resource // may have another state than before this command
	newHeads []*line     // have another head than before this command
	counts   Counters

	history history
}

// Counters count what has happened since the core was made; they only rise.
type Counters struct {
	Granted        uint64
	Released       uint64 // every end of a lease, fences included
	Fenced         uint64 // leases that ended because their node's connection did
	DoubleReleases uint64 // ends of a lease that had ended; each a no-op
	Stale          uint64 // disconnects and drains of a generation not current
	Commands       uint64 // that may have changed something
}

// node is the connection of one machine.
type node struct {
	gen       Generation // current while connected
	connected bool
	draining  bool
	resources []*resource
}

type group struct {
	key   GroupKey
	scope *scope
	cands []target
	lines []*line
}

// target is a group's candidate resource and the model's name there.
type target struct {
	res  *resource
	name string
}

type requestState uint8

const (
	waiting requestState = iota + 1
	reserved
	tracked
)

// request is one request from its first admission attempt to its end.
type request struct {
	seq      Seq
	state    requestState
	class    Class
	surface  Surface
	group    *group
	enqueued time.Time
	record
	inputTokens int

	// while waiting
	line     *line
	requeued bool          // has held a lease before; waits in a private line
	reason   Reason        // last noted
	refused  []ResourceKey // candidates that must not be tried again

	// while leased
	lease LeaseID
	gen   Generation
	res   *resource

	links [2]ends  // places in lists, by listKind
	next  *request // in Core.free
}

// New returns a core with nothing connected.
func New(cfg Config) *Core {
	c := &Core{
		groups:   map[GroupKey]*group{},
		nodes:    map[NodeID]*node{},
		requests: newTable(),
	}
	c.install(cfg)
	return c
}

// begin starts a command.
func (c *Core) begin(now time.Time) {
	c.effects = c.effects[:0]
	c.counts.Commands++
	if now.After(c.now) {
		c.now = now
	}
}

// done ends a command that may have changed something.
func (c *Core) done() []Effect {
	c.review()
	return c.effects
}

func (c *Core) emit(e Effect) { c.effects = append(c.effects, e) }

// Enqueue admits a request at once, lets it wait, or rejects it. The seq names
// the request from here on.
func (c *Core) Enqueue(now time.Time, req Request) (Seq, []Effect) {
	c.begin(now)
	c.lastSeq++
	seq := c.lastSeq
	g := c.groups[req.Group]
	if g == nil {
		c.emit(Effect{Kind: Rejected, Seq: seq, Result: ResultUnknown})
		return seq, c.effects
	}
	l := g.line(req.Class, req.Surface)
	r := c.newRequest(seq, g, req)
	if to := c.choose(l); to != nil {
		c.grant(r, to)
		return seq, c.done()
	}
	reason := l.obstacle()
	switch {
	case reason.excluded():
		c.end(r, l, ResultUnavailable, reason)
	case g.scope.pending >= g.scope.maxQueue:
		c.end(r, l, ResultFull, reason)
	default:
		if l.head() != nil {
			reason = ReasonBehind
		}
		r.reason = reason
		c.wait(r, l)
		c.note(r, moment{kind: AtEnqueue, reason: reason}, l)
		c.emit(Effect{Kind: Queued, Seq: seq, Reason: reason, Deadline: r.deadline()})
	}
	return seq, c.done()
}

// Cancel ends a waiting request. It does nothing, and returns false, when the
// request is leased or has ended: a grant that came first must be released.
func (c *Core) Cancel(now time.Time, seq Seq) ([]Effect, bool) {
	c.begin(now)
	r := c.requests.get(seq)
	if r == nil || r.state != waiting {
		return nil, false
	}
	c.reject(r, ResultCancelled, ReasonNone)
	return c.done(), true
}

// Track marks a reserved lease as handed off. False means that the lease has
// ended, fenced by its node's disconnect: nothing may be handed off on it.
func (c *Core) Track(seq Seq, lease LeaseID) bool {
	r := c.leased(seq, lease)
	if r == nil || r.state != reserved {
		return false
	}
	r.state = tracked
	c.counts.Commands++
	return true
}

// Release ends a lease and its request. Ending an ended lease changes nothing
// but a counter, and returns false.
func (c *Core) Release(now time.Time, seq Seq, lease LeaseID) ([]Effect, bool) {
	c.begin(now)
	r := c.leased(seq, lease)
	if r == nil {
		c.counts.DoubleReleases++
		return nil, false
	}
	c.touch(r.res)
	r.res.service.add(c.now.Sub(r.granted))
	c.note(r, moment{kind: AtEnd}, nil)
	c.unlease(r)
	c.forget(r)
	c.pump()
	return c.done(), true
}

// Refuse ends a lease whose hand-off was refused in a way that says that no
// upstream request was opened. The request waits again, with its seq and
// deadline, for its other candidates; with no live one left it is rejected.
// False means that the lease had ended.
func (c *Core) Refuse(now time.Time, seq Seq, lease LeaseID) ([]Effect, bool) {
	c.begin(now)
	r := c.leased(seq, lease)
	if r == nil {
		c.counts.DoubleReleases++
		return nil, false
	}
	c.touch(r.res)
	c.unlease(r)
	c.requeue(r)
	c.pump()
	return c.done(), true
}

// Connect makes a new connection the owner of a node and its resources
// eligible. A former owner is fenced first, in the same step.
func (c *Core) Connect(now time.Time, id NodeID) (Generation, []Effect) {
	c.begin(now)
	n := c.node(id)
	if n.connected {
		c.fence(n)
	}
	c.lastGen++
	n.gen, n.connected, n.draining = c.lastGen, true, false
	for _, res := range n.resources {
		c.touch(res)
		c.alter(res)
	}
	c.pump()
	return n.gen, c.done()
}

// Disconnect fences a connection: its resources are excluded, its leases
// returned and every waiter re-evaluated, in one step (S12, S13). False means
// that gen is not current: nothing has changed.
func (c *Core) Disconnect(now time.Time, id NodeID, gen Generation) ([]Effect, bool) {
	c.begin(now)
	n := c.nodes[id]
	if n == nil || !n.connected || n.gen != gen {
		c.counts.Stale++
		return nil, false
	}
	c.fence(n)
	c.pump()
	return c.done(), true
}

// Drain excludes a connected node's resources and keeps its leases. False means
// that gen is not current.
func (c *Core) Drain(now time.Time, id NodeID, gen Generation) ([]Effect, bool) {
	c.begin(now)
	n := c.nodes[id]
	if n == nil || !n.connected || n.gen != gen {
		c.counts.Stale++
		return nil, false
	}
	n.draining = true
	for _, res := range n.resources {
		c.alter(res)
		c.strand(res)
	}
	return c.done(), true
}

// IsCurrent reports whether gen owns the node now.
func (c *Core) IsCurrent(id NodeID, gen Generation) bool {
	n := c.nodes[id]
	return n != nil && n.connected && n.gen == gen
}

// fence ends a node's connection. Its leases go in the order in which they were
// granted: reserved ones wait again, tracked ones are revoked.
func (c *Core) fence(n *node) {
	n.connected, n.draining = false, false
	first := len(c.effects)
	var again []*request
	for _, res := range n.resources {
		for r := res.leases.first; r != nil; r = res.leases.first {
			was, lease := r.state, r.lease
			c.unlease(r)
			c.counts.Fenced++
			if was == reserved {
				again = append(again, r)
				continue
			}
			c.emit(Effect{Kind: Revoked, Seq: r.seq, Lease: lease, Resource: res.cfg.Key, Gen: n.gen})
			c.note(r, moment{kind: AtEnd, reason: ReasonOffline}, nil)
			c.forget(r)
		}
	}
	sortEffects(c.effects[first:])
	slices.SortFunc(again, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	for _, r := range again {
		c.requeue(r)
	}
	for _, res := range n.resources {
		c.alter(res)
		c.strand(res)
	}
}

// node returns the node, making its record on first sight.
func (c *Core) node(id NodeID) *node {
	n := c.nodes[id]
	if n == nil {
		n = &node{}
		c.nodes[id] = n
	}
	return n
}

// leased returns the request if it holds just this lease.
func (c *Core) leased(seq Seq, lease LeaseID) *request {
	r := c.requests.get(seq)
	if r == nil || r.state == waiting || r.lease != lease {
		return nil
	}
	return r
}

func (c *Core) newRequest(seq Seq, g *group, req Request) *request {
	r := c.free
	if r == nil {
		r = &request{}
		r.moments, r.verdicts = r.roomForMoments[:0], r.roomForVerdicts[:0]
	} else {
		c.free = r.next
	}
	moments, verdicts := r.moments[:0], r.verdicts[:0]
	*r = request{seq: seq, class: req.Class, surface: req.Surface, group: g, enqueued: c.now, inputTokens: req.InputTokens}
	r.moments, r.verdicts = moments, verdicts
	c.requests.put(r)
	return r
}

// forget lets go of a request that has ended.
func (c *Core) forget(r *request) {
	c.requests.drop(r.seq)
	r.state, r.line, r.res = 0, nil, nil
	c.bury(r)
}

// grant reserves a lease for the request on the candidate.
func (c *Core) grant(r *request, to *link) {
	c.lastLease++
	res := to.res
	c.note(r, moment{kind: AtGrant, lease: c.lastLease, chosen: res}, to.line)
	r.granted = c.now
	r.state, r.lease, r.gen, r.res = reserved, c.lastLease, res.node.gen, res
	res.leases.push(r)
	res.inFlight++
	if r.class == Long {
		res.longInFlight++
	}
	c.alter(res)
	c.counts.Granted++
	c.emit(Effect{Kind: Granted, Seq: r.seq, Lease: r.lease, Resource: res.cfg.Key, Gen: r.gen, Target: to.target})
}

// unlease returns the request's lease to its resource.
func (c *Core) unlease(r *request) {
	res := r.res
	res.leases.remove(r)
	res.inFlight--
	if r.class == Long {
		res.longInFlight--
	}
	c.alter(res)
	c.counts.Released++
	r.state, r.lease = 0, 0
	if res.removed && res.inFlight == 0 {
		c.drop(res)
	}
}

// requeue puts a request whose lease has just ended back into the queue, to try
// its other candidates.
func (c *Core) requeue(r *request) {
	r.refused = append(r.refused, r.res.cfg.Key)
	r.res = nil
	g := c.groups[r.group.key] // as configured now; the lease may be older
	if g != nil {
		r.group = g
	}
	c.emit(Effect{Kind: Requeued, Seq: r.seq, Deadline: r.deadline()})
	if g == nil {
		c.end(r, nil, ResultUnavailable, ReasonNoModel)
		return
	}
	l := g.privateLine(r)
	reason := l.obstacle()
	switch {
	case reason.excluded():
		c.end(r, l, ResultUnavailable, reason)
	case !r.deadline().After(c.now):
		c.end(r, l, ResultTimeout, reason)
	default:
		r.reason = reason
		c.note(r, moment{kind: AtRequeue, reason: reason}, l)
		c.wait(r, l)
		for i := range l.links {
			c.touch(l.links[i].res)
		}
	}
}

// reject takes a waiting request out of the queue and ends it.
func (c *Core) reject(r *request, result Result, reason Reason) {
	l := r.line
	c.unwait(r)
	c.end(r, l, result, reason)
}

// end ends a request that holds no lease; l is the line it stood in, or would
// have, if there is one.
func (c *Core) end(r *request, l *line, result Result, reason Reason) {
	e := Effect{Kind: Rejected, Seq: r.seq, Result: result, Reason: reason}
	if result == ResultFull || result == ResultTimeout {
		e.RetryAfter = l.retryAfter()
	}
	c.emit(e)
	c.note(r, moment{kind: AtEnd, result: result, reason: reason}, l)
	c.forget(r)
}

// strand rejects the waiters for whom res, now excluded, was the last live
// candidate.
func (c *Core) strand(res *resource) {
	if res.excluded() == ReasonNone {
		return
	}
	var doomed []*line
	for class := range res.waiting {
		for _, k := range res.waiting[class] {
			if k.line.head() != nil && k.line.obstacle().excluded() {
				doomed = append(doomed, k.line)
			}
		}
	}
	first := len(c.effects)
	for _, l := range doomed {
		reason := l.obstacle()
		for r := l.head(); r != nil; r = l.head() {
			c.reject(r, ResultUnavailable, reason)
		}
	}
	sortEffects(c.effects[first:])
}

// touch notes that a resource may have gained a free slot.
func (c *Core) touch(res *resource) {
	if !res.dirty {
		res.dirty = true
		c.dirty = append(c.dirty, res)
	}
}

// pump grants what can be granted on the touched resources, the smallest
// enqueue_seq first (S03).
func (c *Core) pump() {
	for {
		var first *link
		for i := 0; i < len(c.dirty); i++ {
			k := c.dirty[i].next()
			if k == nil {
				// Nothing fits any more, and nothing in this loop frees a slot.
				c.dirty[i].dirty = false
				c.dirty[i] = c.dirty[len(c.dirty)-1]
				c.dirty = c.dirty[:len(c.dirty)-1]
				i--
				continue
			}
			if first == nil || k.key < first.key {
				first = k
			}
		}
		if first == nil {
			return
		}
		r := first.line.head()
		to := c.choose(first.line)
		c.unwait(r)
		c.grant(r, to)
	}
}
