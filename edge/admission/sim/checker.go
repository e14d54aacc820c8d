package sim

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// words bounds the resources of one episode: every name that its configuration
// ever uses has a bit.
const words = 10

// set is a set of resources, by number.
type set [words]uint64

func (s *set) add(i int)      { s[i>>6] |= 1 << (i & 63) }
func (s *set) del(i int)      { s[i>>6] &^= 1 << (i & 63) }
func (s *set) has(i int) bool { return s[i>>6]&(1<<(i&63)) != 0 }

// put adds or deletes i.
func (s *set) put(i int, in bool) {
	if in {
		s.add(i)
	} else {
		s.del(i)
	}
}

// resource is the checker's own account of one provider resource.
type resource struct {
	key      admission.ResourceKey
	cfg      admission.Resource
	present  bool // in the configuration in force
	node     int
	inFlight int
	long     int
	waiting  [2]int // waiters whose candidates include it, by class
}

// node is the checker's own account of one node's connection.
type node struct {
	id        admission.NodeID
	gen       admission.Generation
	connected bool
	draining  bool
	leases    int
	resources []int
}

type group struct {
	key     admission.GroupKey
	present bool
	scope   int
	targets []string // by resource number; "" = no candidate
	cands   []int
	masks   [8]set // by surface bit: the candidates whose type serves it
}

type scope struct {
	cfg     admission.Scope
	pending int
}

type recState uint8

const (
	recNone recState = iota
	recWaiting
	recReserved
	recTracked
	recEnded
)

// rec is the checker's own account of one request.
type rec struct {
	seq      admission.Seq
	state    recState
	class    admission.Class
	surface  int8 // bit number
	group    int
	enqueued int64
	mask     set // candidates it may run on, full and excluded ones included
	refused  set // candidates that it must not be given again

	lease   admission.LeaseID
	gen     admission.Generation
	res     int
	granted int64
}

// checker holds every effect against its own books. After a violation it
// remembers the first one and checks nothing more.
type checker struct {
	err   *Violation
	step  int
	trace trace

	w         int // words in use
	ids       map[admission.ResourceKey]int
	res       []resource
	nodeIDs   map[admission.NodeID]int
	nodes     []node
	groupIDs  map[admission.GroupKey]int
	groups    []group
	scopes    []scope
	order     []int // configured order of resources
	selection admission.Selection

	now       int64
	live      set    // not excluded
	free      [2]set // of these, with a slot for the class
	recs      []*rec // by seq − 1
	spare     []*rec
	waiters   []*rec // by seq
	liveLease int
	lastLease admission.LeaseID
	lastGen   admission.Generation
	longest   int64 // that a lease was held
	before    int   // waiters before the command

	granted, released, doubles, stale uint64
}

// newChecker knows the names that the configuration may ever use: resources in
// the order of their numbers.
func newChecker(keys []admission.ResourceKey, tail int) *checker {
	c := &checker{trace: trace{ring: make([]entry, tail)}}
	c.reset(keys)
	return c
}

// reset forgets everything but memory, for a new episode.
func (c *checker) reset(keys []admission.ResourceKey) {
	spare, recs := c.spare, c.recs
	for _, r := range recs {
		if r != nil {
			spare = append(spare, r)
		}
	}
	*c = checker{
		err: c.err, step: c.step, trace: trace{hash: hashSeed, ring: c.trace.ring},
		w: (len(keys) + 63) / 64, ids: make(map[admission.ResourceKey]int, len(keys)), res: make([]resource, len(keys)),
		nodeIDs: map[admission.NodeID]int{}, groupIDs: map[admission.GroupKey]int{},
		recs: recs[:0], spare: spare, waiters: c.waiters[:0],
	}
	for i, k := range keys {
		n := c.node(k.Node)
		c.ids[k] = i
		c.res[i] = resource{key: k, node: n}
		c.nodes[n].resources = append(c.nodes[n].resources, i)
	}
}

func (c *checker) node(id admission.NodeID) int {
	i, ok := c.nodeIDs[id]
	if !ok {
		i = len(c.nodes)
		c.nodeIDs[id] = i
		c.nodes = append(c.nodes, node{id: id})
	}
	return i
}

func (c *checker) fail(inv Invariant, format string, args ...any) {
	if c.err == nil {
		c.err = &Violation{Invariant: inv, Detail: fmt.Sprintf(format, args...), Step: c.step, Trace: c.trace.tail()}
	}
}

// nanos is virtual time, as both world and checker count it.
func nanos(t time.Time) int64 { return int64(t.Sub(epoch)) }

// touch derives a resource's places in the sets anew.
func (c *checker) touch(i int) {
	r := &c.res[i]
	n := &c.nodes[r.node]
	live := r.present && r.cfg.Enabled && !r.cfg.Drain && r.cfg.Capacity > 0 && r.cfg.Health != admission.Unhealthy && n.connected && !n.draining
	free := live && r.inFlight < r.cfg.Capacity
	c.live.put(i, live)
	c.free[admission.Normal].put(i, free)
	c.free[admission.Long].put(i, free && (r.cfg.LongCapacity == 0 || r.long < r.cfg.LongCapacity))
}

func (c *checker) touchNode(n int) {
	for _, i := range c.nodes[n].resources {
		c.touch(i)
	}
}

// meets reports whether two sets have a resource in common, and names one.
func (c *checker) meets(a, b *set) (int, bool) {
	for w := range c.w {
		if both := a[w] & b[w]; both != 0 {
			return w<<6 + bits.TrailingZeros64(both), true
		}
	}
	return 0, false
}

// configure takes a configuration into the books.
func (c *checker) configure(cfg *admission.Config) {
	c.selection = cfg.Selection
	c.scopes = c.scopes[:0]
	for _, s := range cfg.Scopes {
		c.scopes = append(c.scopes, scope{cfg: s})
	}
	for i := range c.res {
		c.res[i].present = false
		c.res[i].waiting = [2]int{}
	}
	c.order = c.order[:0]
	for _, rc := range cfg.Resources {
		i := c.ids[rc.Key]
		c.res[i].cfg, c.res[i].present = rc, true
		c.order = append(c.order, i)
	}
	for i := range c.groups {
		c.groups[i].present = false
	}
	for i := range cfg.Groups {
		c.configureGroup(&cfg.Groups[i])
	}
	for i := range c.res {
		c.touch(i)
	}
	for _, r := range c.waiters {
		c.place(r)
	}
}

func (c *checker) configureGroup(gc *admission.Group) {
	i, ok := c.groupIDs[gc.Key]
	if !ok {
		i = len(c.groups)
		c.groupIDs[gc.Key] = i
		c.groups = append(c.groups, group{key: gc.Key, targets: make([]string, len(c.res))})
	}
	g := &c.groups[i]
	for _, id := range g.cands {
		g.targets[id] = ""
	}
	g.present, g.cands, g.masks = true, g.cands[:0], [8]set{}
	for s := range c.scopes {
		if c.scopes[s].cfg.Key == gc.Scope {
			g.scope = s
		}
	}
	for _, cand := range gc.Candidates {
		id := c.ids[cand.Resource]
		g.cands = append(g.cands, id)
		g.targets[id] = cand.Target
		for left := uint32(c.res[id].cfg.Surfaces) & 0xff; left != 0; left &= left - 1 {
			g.masks[bits.TrailingZeros32(left)].add(id)
		}
	}
}

// place counts a waiter under the configuration in force.
func (c *checker) place(r *rec) {
	g := &c.groups[r.group]
	r.mask = set{}
	if !g.present {
		return
	}
	c.scopes[g.scope].pending++
	for w := range c.w {
		r.mask[w] = g.masks[r.surface][w] &^ r.refused[w]
		for left := r.mask[w]; left != 0; left &= left - 1 {
			c.res[w<<6+bits.TrailingZeros64(left)].waiting[r.class]++
		}
	}
}

// enter puts a request among the waiters.
func (c *checker) enter(r *rec) {
	r.state = recWaiting
	i := len(c.waiters)
	c.waiters = append(c.waiters, r)
	for ; i > 0 && c.waiters[i-1].seq > r.seq; i-- {
		c.waiters[i] = c.waiters[i-1]
	}
	c.waiters[i] = r
	c.place(r)
}

// leave takes a request out of the waiters.
func (c *checker) leave(r *rec) {
	for i, w := range c.waiters {
		if w == r {
			c.waiters = append(c.waiters[:i], c.waiters[i+1:]...)
			break
		}
	}
	g := &c.groups[r.group]
	if !g.present {
		return
	}
	c.scopes[g.scope].pending--
	for w := range c.w {
		for left := r.mask[w]; left != 0; left &= left - 1 {
			c.res[w<<6+bits.TrailingZeros64(left)].waiting[r.class]--
		}
	}
}

// deadline is when the request's wait ends; false when its group is gone.
func (c *checker) deadline(r *rec) (int64, bool) {
	g := &c.groups[r.group]
	if !g.present {
		return 0, false
	}
	return r.enqueued + int64(c.scopes[g.scope].cfg.Timeout), true
}

// obstacle is the reason code of a candidate for a newcomer.
func (c *checker) obstacle(i int, class admission.Class, surface int8) admission.Reason {
	r := &c.res[i]
	n := &c.nodes[r.node]
	switch {
	case uint32(r.cfg.Surfaces)>>surface&1 == 0:
		return admission.ReasonNoModel
	case !r.present || !r.cfg.Enabled:
		return admission.ReasonDisabled
	case r.cfg.Capacity == 0:
		return admission.ReasonCapacityZero
	case r.cfg.Health == admission.Unhealthy:
		return admission.ReasonUnhealthy
	case !n.connected:
		return admission.ReasonOffline
	case n.draining || r.cfg.Drain:
		return admission.ReasonDraining
	case class == admission.Long && r.cfg.LongCapacity > 0 && r.long >= r.cfg.LongCapacity:
		return admission.ReasonLongFull // a normal slot alone would not help
	case r.inFlight > r.cfg.Capacity:
		return admission.ReasonOverCapacity
	case r.inFlight == r.cfg.Capacity:
		return admission.ReasonFull
	}
	return admission.ReasonNone
}

// better is the documented choice between two free candidates.
func (c *checker) better(a, b int) bool {
	x, y := &c.res[a], &c.res[b]
	loadX, loadY := x.inFlight*y.cfg.Capacity, y.inFlight*x.cfg.Capacity
	switch byPriority := x.cfg.Priority != y.cfg.Priority; {
	case byPriority && c.selection == admission.PriorityFirst:
		return x.cfg.Priority > y.cfg.Priority
	case loadX != loadY:
		return loadX < loadY
	case byPriority:
		return x.cfg.Priority > y.cfg.Priority
	case x.inFlight != y.inFlight:
		return x.inFlight < y.inFlight
	case x.key.Node != y.key.Node:
		return x.key.Node < y.key.Node
	}
	return x.key.Provider < y.key.Provider
}
