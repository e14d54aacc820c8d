package admission

import (
	"slices"
	"time"
)

// Bounds of what is remembered.
const (
	// keptRecords is how many requests that have ended are remembered.
	keptRecords = 1024
	// keptMoments is how many moments of one request are remembered besides its
	// first: the last ones.
	keptMoments = 16
	// keptVerdicts is how many candidates of one moment are remembered.
	keptVerdicts = 64
)

// Record is the decision record of one request: what was decided about it, when,
// and why each candidate was passed over.
type Record struct {
	Seq     Seq
	Group   GroupKey
	Class   Class
	Surface Surface
	// InputTokens is the estimate that Class followed from.
	InputTokens int
	Scope       ScopeKey // whose queue policy applies
	Enqueued    time.Time
	Granted     time.Time // last grant; zero if none
	Ended       time.Time // zero while live
	// Waiting and Reason tell of a live waiter why it waits now; Verdicts of its
	// candidates, now.
	Waiting  bool
	Reason   Reason
	Verdicts []Verdict
	// Moments are what was decided, oldest first: the first one and the last
	// keptMoments others; Forgotten counts those between.
	Moments   []Moment
	Forgotten int
}

// Verdict is one candidate and why it was passed over; ReasonNone means that it
// was free.
type Verdict struct {
	Resource ResourceKey
	Reason   Reason
	Slots    Slots // as they were then
}

// Slots are what a resource has of both kinds, and what of them is taken.
type Slots struct {
	Capacity, InFlight         int32
	LongCapacity, LongInFlight int32 // LongCapacity 0 = no separate limit
}

// MomentKind says what a moment was.
type MomentKind uint8

// The kinds of moment.
const (
	AtEnqueue    MomentKind = iota + 1 // began to wait
	AtGrant                            // a lease was reserved
	AtHeadChange                       // at the head of its class, its reason changed
	AtRequeue                          // its lease ended before hand-off, or was refused
	AtEnd                              // rejected, released or revoked
)

// String is the moment's name.
func (k MomentKind) String() string {
	return [...]string{"", "enqueue", "grant", "head_change", "requeue", "end"}[k]
}

// Moment is one decision about a request.
type Moment struct {
	Kind     MomentKind
	At       time.Time
	Reason   Reason      // AtEnqueue, AtHeadChange, AtEnd: the blocking reason
	Result   Result      // AtEnd of a request that was rejected
	Lease    LeaseID     // AtGrant
	Resource ResourceKey // AtGrant: the candidate chosen
	Verdicts []Verdict   // of each candidate
	More     int         // candidates beyond those
}

// record is a Record in the making. It is a part of its request, with room for
// one that waits, is granted and ends: a request is one piece of memory, which is
// used again with the room that it has grown.
type record struct {
	granted   time.Time // last; while leased, the lease's own
	ended     time.Time
	moments   []moment
	verdicts  []verdict // of all moments, one after another
	forgotten int

	roomForMoments  [4]moment
	roomForVerdicts [6]verdict
}

type moment struct {
	kind   MomentKind
	reason Reason
	result Result
	at     time.Time
	lease  LeaseID
	chosen *resource
	n      int32 // verdicts
	more   int32
}

type verdict struct {
	res    *resource
	reason Reason
	slots  Slots
}

// slots are those of the resource now.
func (r *resource) slots() Slots {
	return Slots{int32(r.cfg.Capacity), int32(r.inFlight), int32(r.cfg.LongCapacity), int32(r.longInFlight)}
}

// history holds the requests that have ended last, in a ring. One that leaves it
// is used again.
type history struct {
	ring [keptRecords]*request
	next int
}

// find looks for a request that has ended, the last ones first; nil if it is forgotten.
func (h *history) find(seq Seq) *request {
	for i := range keptRecords {
		at := (h.next - 1 - i + keptRecords) % keptRecords
		if r := h.ring[at]; r == nil || r.seq == seq {
			return r
		}
	}
	return nil
}

// bury puts a request that has ended into the history.
func (c *Core) bury(r *request) {
	r.ended = c.now
	at := &c.history.ring[c.history.next]
	c.history.next = (c.history.next + 1) % keptRecords
	if old := *at; old != nil {
		old.next, c.free = c.free, old
	}
	*at = r
}

// note adds a moment to the request's record, with the verdicts on the line's
// candidates as they are now; l may be nil.
func (c *Core) note(r *request, m moment, l *line) {
	rec := &r.record
	if len(rec.moments) > keptMoments {
		rec.forget(1)
	}
	m.at = c.now
	if l != nil {
		weigh := func(res *resource, reason Reason) {
			if m.n == keptVerdicts {
				m.more++
				return
			}
			rec.verdicts = append(rec.verdicts, verdict{res, reason, res.slots()})
			m.n++
		}
		for i := range l.links {
			weigh(l.links[i].res, l.links[i].res.obstacle(l.class))
		}
		r.refusers(l, weigh)
	}
	rec.moments = append(rec.moments, m)
}

// refusers calls f for the candidates that the request's line leaves out because
// they had it before, with why they are passed over.
func (r *request) refusers(l *line, f func(*resource, Reason)) {
	if !l.private {
		return
	}
	for _, t := range r.group.cands {
		if t.res.cfg.Surfaces&l.surface != 0 && slices.Contains(r.refused, t.res.cfg.Key) {
			f(t.res, max(ReasonRefused, t.res.excluded()))
		}
	}
}

// forget drops the i-th moment.
func (rec *record) forget(i int) {
	from := 0
	for _, m := range rec.moments[:i] {
		from += int(m.n)
	}
	rec.verdicts = slices.Delete(rec.verdicts, from, from+int(rec.moments[i].n))
	rec.moments = slices.Delete(rec.moments, i, i+1)
	rec.forgotten++
}

// review looks at the heads of the lines whose circumstances a command has
// changed, and notes those whose reason is now another.
func (c *Core) review() {
	for _, res := range c.changed {
		res.changed = false
		for class := range res.waiting {
			now := res.obstacle(Class(class))
			if now == res.shown[class] {
				continue
			}
			res.shown[class] = now
			for _, k := range res.waiting[class] {
				c.reviewHead(k.line)
			}
		}
	}
	c.changed = c.changed[:0]
	for _, l := range c.newHeads {
		c.reviewHead(l)
	}
	c.newHeads = c.newHeads[:0]
}

func (c *Core) reviewHead(l *line) {
	r := l.head()
	if r == nil {
		return
	}
	if reason := l.obstacle(); reason != r.reason {
		r.reason = reason
		c.note(r, moment{kind: AtHeadChange, reason: reason}, l)
	}
}

// alter notes that a resource's state may have changed in this command.
func (c *Core) alter(res *resource) {
	if !res.changed {
		res.changed = true
		c.changed = append(c.changed, res)
	}
}

// Record returns the decision record of a live request, or of one of the last
// that have ended.
func (c *Core) Record(seq Seq) (Record, bool) {
	r := c.requests.get(seq)
	if r == nil {
		if r = c.history.find(seq); r == nil {
			return Record{}, false
		}
	}
	out := r.export()
	if r.state == waiting {
		out.Waiting, out.Reason = true, ReasonBehind
		if r.line.head() == r {
			out.Reason = r.line.obstacle()
		}
		weigh := func(res *resource, reason Reason) {
			out.Verdicts = append(out.Verdicts, Verdict{res.cfg.Key, reason, res.slots()})
		}
		for i := range r.line.links {
			weigh(r.line.links[i].res, r.line.links[i].res.obstacle(r.class))
		}
		r.refusers(r.line, weigh)
	}
	return out, true
}

// export copies the record out.
func (r *request) export() Record {
	out := Record{
		Seq: r.seq, Group: r.group.key, Class: r.class, Surface: r.surface, InputTokens: r.inputTokens, Scope: r.group.scope.key,
		Enqueued: r.enqueued, Granted: r.granted, Ended: r.ended, Forgotten: r.forgotten,
	}
	left := r.verdicts
	for _, m := range r.moments {
		e := Moment{Kind: m.kind, At: m.at, Reason: m.reason, Result: m.result, Lease: m.lease, More: int(m.more)}
		if m.chosen != nil {
			e.Resource = m.chosen.cfg.Key
		}
		for _, v := range left[:m.n] {
			e.Verdicts = append(e.Verdicts, Verdict{v.res.cfg.Key, v.reason, v.slots})
		}
		left = left[m.n:]
		out.Moments = append(out.Moments, e)
	}
	return out
}
