package sim

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// command notes a command with what it returned, before its effects are judged.
func (c *checker) command(now time.Time, e entry, effects []admission.Effect) {
	c.before = len(c.waiters)
	e.step, e.at = c.step, nanos(now)
	if e.op != "track" { // which the core is not told the time of
		c.now = max(c.now, e.at)
	}
	t := &c.trace
	*t.slot() = e
	t.mixString(e.op)
	t.mix(uint64(e.at))
	t.mix(uint64(e.seq)<<1 ^ uint64(e.gen)<<32)
	if e.ok {
		t.mix(uint64(e.lease) + 1)
	}
	for i := range effects {
		f := &effects[i]
		*t.slot() = entry{effect: *f}
		t.mix(uint64(f.Kind) | uint64(f.Result)<<8 | uint64(f.Reason)<<16 | uint64(f.Seq)<<24)
		if f.Lease != 0 {
			t.mix(uint64(f.Lease)<<32 ^ uint64(f.Gen))
			t.mixString(string(f.Resource.Node))
			t.mixString(string(f.Resource.Provider))
			t.mixString(f.Target)
		}
		if f.RetryAfter != 0 {
			t.mix(uint64(f.RetryAfter))
		}
		if !f.Deadline.IsZero() {
			t.mix(uint64(f.Deadline.UnixNano()))
		}
	}
}

// rec returns the books on a request, or nil.
func (c *checker) rec(seq admission.Seq) *rec {
	if seq == 0 || int(seq) > len(c.recs) {
		return nil
	}
	return c.recs[seq-1]
}

func (c *checker) holds(seq admission.Seq, lease admission.LeaseID) *rec {
	r := c.rec(seq)
	if r == nil || r.state != recReserved && r.state != recTracked || r.lease != lease {
		return nil
	}
	return r
}

// enqueue judges [admission.Core.Enqueue].
func (c *checker) enqueue(now time.Time, req admission.Request, seq admission.Seq, effects []admission.Effect) {
	c.command(now, entry{op: "enqueue", seq: seq, ok: true, note: string(req.Group) + " " + req.Class.String()}, effects)
	if int(seq) <= len(c.recs) || int(seq) > len(c.recs)+1000 {
		c.fail(Order, "enqueue_seq %d after %d", seq, len(c.recs))
		return
	}
	for len(c.recs) < int(seq)-1 {
		c.recs = append(c.recs, nil)
	}
	r := &rec{}
	if n := len(c.spare); n > 0 {
		r, c.spare = c.spare[n-1], c.spare[:n-1]
	}
	*r = rec{seq: seq, class: req.Class, surface: surfaceBit(req.Surface), enqueued: c.now, group: -1}
	c.recs = append(c.recs, r)
	if len(effects) != 1 || effects[0].Seq != seq {
		c.fail(Independence, "an arrival has %d effects, and its own is not the only one", len(effects))
		return
	}
	e := &effects[0]
	gi, known := c.groupIDs[req.Group]
	if !known || !c.groups[gi].present {
		if e.Kind != admission.Rejected || e.Result != admission.ResultUnknown {
			c.fail(Eligibility, "a request for a group that is not configured was not refused as such")
		}
		r.state = recEnded
		return
	}
	g := &c.groups[gi]
	r.group, r.mask = gi, g.masks[r.surface]
	switch e.Kind {
	case admission.Granted:
		c.grant(r, e)
	case admission.Queued:
		c.queued(r, e)
	case admission.Rejected:
		c.refused(r, e)
	default:
		c.fail(OneOutcome, "an arrival's effect is %s", kindName(e.Kind))
	}
	c.settle()
}

func surfaceBit(s admission.Surface) int8 {
	for i := range int8(8) {
		if s>>i&1 != 0 {
			return i
		}
	}
	return 0
}

// queued judges the beginning of a wait.
func (c *checker) queued(r *rec, e *admission.Effect) {
	s := &c.scopes[c.groups[r.group].scope]
	if s.pending >= s.cfg.MaxQueue {
		c.fail(QueueLimit, "request %d waits as number %d of %d in scope %s", r.seq, s.pending+1, s.cfg.MaxQueue, s.cfg.Key)
	}
	behind := false
	for _, w := range c.waiters {
		behind = behind || w.group == r.group && w.class == r.class && w.surface == r.surface && w.refused == set{}
	}
	want := c.weakest(r)
	if behind {
		want = admission.ReasonBehind
	}
	if e.Reason != want {
		c.fail(ReasonRule, "request %d waits because %q, but the reason is %q", r.seq, e.Reason, want)
	}
	c.enter(r)
	if at, _ := c.deadline(r); nanos(e.Deadline) != at {
		c.fail(DeadlineRule, "request %d waits until %d, not until %d", r.seq, nanos(e.Deadline), at)
	}
}

// refused judges a rejection on arrival.
func (c *checker) refused(r *rec, e *admission.Effect) {
	r.state = recEnded
	if i, ok := c.meets(&r.mask, &c.free[r.class]); ok {
		c.fail(NoIdleSlot, "request %d was refused (%s) though %s could take it", r.seq, e.Result, c.res[i].key)
	}
	_, live := c.meets(&r.mask, &c.live)
	s := &c.scopes[c.groups[r.group].scope]
	switch {
	case e.Result == admission.ResultUnavailable && live, e.Result == admission.ResultFull && !live:
		c.fail(LiveCandidate, "request %d was refused as %s; live candidates: %t", r.seq, e.Result, live)
	case e.Result == admission.ResultFull && s.pending < s.cfg.MaxQueue:
		c.fail(QueueLimit, "request %d was refused as full at %d of %d in scope %s", r.seq, s.pending, s.cfg.MaxQueue, s.cfg.Key)
	case e.Result != admission.ResultUnavailable && e.Result != admission.ResultFull:
		c.fail(OneOutcome, "an arrival was refused as %s", e.Result)
	}
	if want := c.weakest(r); e.Reason != want {
		c.fail(ReasonRule, "request %d was refused because %q, but the reason is %q", r.seq, e.Reason, want)
	}
	c.retryAfter(e)
}

// weakest is a newcomer's reason: the weakest obstacle among its candidates.
func (c *checker) weakest(r *rec) admission.Reason {
	reason := admission.ReasonNoModel
	for _, i := range c.groups[r.group].cands {
		reason = max(reason, c.obstacle(i, r.class, r.surface))
	}
	return reason
}

// cancel judges [admission.Core.Cancel].
func (c *checker) cancel(now time.Time, seq admission.Seq, effects []admission.Effect, ok bool) {
	c.command(now, entry{op: "cancel", seq: seq, ok: ok}, effects)
	r := c.rec(seq)
	if waits := r != nil && r.state == recWaiting; waits != ok {
		c.fail(OneOutcome, "cancel of request %d answers %t, but waiting is %t", seq, ok, waits)
		return
	}
	if ok && (len(effects) != 1 || effects[0].Seq != seq) || !ok && len(effects) != 0 {
		c.fail(Independence, "cancel of request %d has effects of others", seq)
		return
	}
	if ok {
		if e := &effects[0]; e.Kind != admission.Rejected || e.Result != admission.ResultCancelled {
			c.fail(OneOutcome, "cancel of request %d ends it as %s %s", seq, kindName(e.Kind), e.Result)
		}
		c.leave(r)
		r.state = recEnded
	}
	c.settle()
}

// track judges [admission.Core.Track]; now is for the trace alone.
func (c *checker) track(now time.Time, seq admission.Seq, lease admission.LeaseID, ok bool) {
	c.command(now, entry{op: "track", seq: seq, lease: lease, ok: ok}, nil)
	r := c.holds(seq, lease)
	if reserved := r != nil && r.state == recReserved; reserved != ok {
		c.fail(CurrentGen, "hand-off of request %d on lease %d answers %t, but the lease is reserved: %t", seq, lease, ok, reserved)
		return
	}
	if ok {
		r.state = recTracked
	}
}

// release judges [admission.Core.Release].
func (c *checker) release(now time.Time, seq admission.Seq, lease admission.LeaseID, effects []admission.Effect, ok bool) {
	c.command(now, entry{op: "release", seq: seq, lease: lease, ok: ok}, effects)
	if r := c.ends(seq, lease, effects, ok); r != nil {
		c.unlease(r)
		r.state = recEnded
		for i := range effects {
			c.follow(&effects[i], permits(admission.Granted))
		}
	}
	c.settle()
}

// refuse judges [admission.Core.Refuse].
func (c *checker) refuse(now time.Time, seq admission.Seq, lease admission.LeaseID, effects []admission.Effect, ok bool) {
	c.command(now, entry{op: "refuse", seq: seq, lease: lease, ok: ok}, effects)
	if r := c.ends(seq, lease, effects, ok); r != nil {
		c.unlease(r)
		if len(effects) == 0 || effects[0].Kind != admission.Requeued || effects[0].Seq != seq {
			c.fail(OneOutcome, "refused request %d neither waits again nor ends", seq)
			return
		}
		c.requeued(r, &effects[0])
		for i := range effects[1:] {
			e := &effects[1+i]
			if e.Kind == admission.Rejected && e.Seq != seq {
				c.fail(Independence, "the refusal of request %d ends request %d", seq, e.Seq)
			}
			c.follow(e, permits(admission.Granted, admission.Rejected))
		}
	}
	c.settle()
}

// ends judges what release and refuse have in common, and returns the request
// whose lease they ended.
func (c *checker) ends(seq admission.Seq, lease admission.LeaseID, effects []admission.Effect, ok bool) *rec {
	r := c.holds(seq, lease)
	switch {
	case (r != nil) != ok:
		c.fail(EndsOnce, "the end of lease %d of request %d answers %t, but the lease lives: %t", lease, seq, ok, r != nil)
		return nil
	case ok:
		return r
	case len(effects) != 0:
		c.fail(EndsOnce, "the second end of lease %d has effects", lease)
	}
	c.doubles++
	return nil
}

// connect judges [admission.Core.Connect].
func (c *checker) connect(now time.Time, id admission.NodeID, gen admission.Generation, effects []admission.Effect) {
	c.command(now, entry{op: "connect", node: id, gen: gen, ok: true}, effects)
	i := c.node(id)
	if n := &c.nodes[i]; n.connected {
		effects = c.fence(i, effects)
	}
	n := &c.nodes[i]
	if gen <= n.gen || gen <= c.lastGen {
		c.fail(CurrentGen, "generation %d of %s after %d", gen, id, max(n.gen, c.lastGen))
	}
	c.lastGen, n.gen, n.connected, n.draining = gen, gen, true, false
	c.touchNode(i)
	for j := range effects {
		c.follow(&effects[j], permits(admission.Granted))
	}
	c.settle()
}

// disconnect judges [admission.Core.Disconnect].
func (c *checker) disconnect(now time.Time, id admission.NodeID, gen admission.Generation, effects []admission.Effect, ok bool) {
	c.command(now, entry{op: "disconnect", node: id, gen: gen, ok: ok}, effects)
	if i, current := c.current(id, gen, effects, ok); current {
		rest := c.fence(i, effects)
		for j := range rest {
			c.follow(&rest[j], permits(admission.Granted))
		}
	}
	c.settle()
}

// drain judges [admission.Core.Drain].
func (c *checker) drain(now time.Time, id admission.NodeID, gen admission.Generation, effects []admission.Effect, ok bool) {
	c.command(now, entry{op: "drain", node: id, gen: gen, ok: ok}, effects)
	if i, current := c.current(id, gen, effects, ok); current {
		c.nodes[i].draining = true
		c.touchNode(i)
		for j := range effects {
			c.follow(&effects[j], permits(admission.Rejected))
		}
	}
	c.settle()
}

// current judges the compare-and-fence of disconnect and drain.
func (c *checker) current(id admission.NodeID, gen admission.Generation, effects []admission.Effect, ok bool) (int, bool) {
	i, known := c.nodeIDs[id]
	current := known && c.nodes[i].connected && c.nodes[i].gen == gen
	switch {
	case current != ok:
		c.fail(StaleClose, "generation %d of %s: answers %t, but current is %t", gen, id, ok, current)
	case !ok && len(effects) != 0:
		c.fail(StaleClose, "a stale generation %d of %s has effects", gen, id)
	case ok:
		return i, true
	}
	c.stale++
	return 0, false
}

// expire judges [admission.Core.Expire].
func (c *checker) expire(now time.Time, effects []admission.Effect) {
	c.command(now, entry{op: "expire", ok: true}, effects)
	for i := range effects {
		if e := &effects[i]; e.Kind == admission.Rejected && e.Result != admission.ResultTimeout {
			c.fail(DeadlineRule, "expiry ends request %d as %s", e.Seq, e.Result)
		}
		c.follow(&effects[i], permits(admission.Rejected))
	}
	c.overdue()
	c.settle()
}

// overdue fails if a wait is past its deadline.
func (c *checker) overdue() {
	for _, r := range c.waiters {
		if at, ok := c.deadline(r); ok && at <= c.now {
			c.fail(DeadlineRule, "request %d waits on past its deadline", r.seq)
		}
	}
}

// reconfigure judges [admission.Core.Reconfigure]. identical says that cfg is
// what was in force and that nothing was overdue.
func (c *checker) reconfigure(now time.Time, cfg *admission.Config, what string, identical bool, effects []admission.Effect) {
	c.command(now, entry{op: "reconfigure", ok: true, note: what}, effects)
	if identical && len(effects) != 0 {
		c.fail(RefreshNoop, "an identical refresh has %d effects", len(effects))
	}
	c.configure(cfg)
	for i := range effects {
		c.follow(&effects[i], permits(admission.Rejected, admission.Granted))
	}
	c.overdue()
	c.settle()
}
