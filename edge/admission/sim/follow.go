package sim

import (
	"math/bits"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// permit is the set of effect kinds that a command may have on requests other
// than its own.
type permit uint8

func permits(kinds ...admission.EffectKind) (p permit) {
	for _, k := range kinds {
		p |= 1 << k
	}
	return p
}

// follow judges one effect on a request that is not the command's own, and
// takes it into the books.
func (c *checker) follow(e *admission.Effect, may permit) {
	r := c.rec(e.Seq)
	switch {
	case c.err != nil:
		return
	case r == nil:
		c.fail(OneOutcome, "%s for request %d, which never was", kindName(e.Kind), e.Seq)
	case may&(1<<e.Kind) == 0:
		c.fail(Independence, "the command does %s to request %d", kindName(e.Kind), e.Seq)
	case e.Kind == admission.Granted:
		c.grant(r, e)
	case e.Kind == admission.Rejected:
		c.reject(r, e)
	case e.Kind == admission.Requeued:
		if r.state != recReserved || e.Lease != 0 && e.Lease != r.lease {
			c.fail(OneOutcome, "request %d waits again, but its lease is not reserved", r.seq)
			return
		}
		c.unlease(r)
		c.requeued(r, e)
	case e.Kind == admission.Revoked:
		c.revoke(r, e)
	}
}

// grant judges a grant at the moment when it happens: all effects before it are
// in the books.
func (c *checker) grant(r *rec, e *admission.Effect) {
	i, known := c.ids[e.Resource]
	if !known {
		c.fail(Eligibility, "grant on %s, which never was", e.Resource)
		return
	}
	res := &c.res[i]
	n := &c.nodes[res.node]
	switch {
	case r.state != recNone && r.state != recWaiting:
		c.fail(OneOutcome, "request %d is granted, but does not wait", r.seq)
	case e.Lease <= c.lastLease:
		c.fail(EndsOnce, "lease id %d after %d", e.Lease, c.lastLease)
	case !n.connected || n.gen != e.Gen:
		c.fail(CurrentGen, "request %d is granted %s on generation %d; connected %t, current %d", r.seq, e.Resource, e.Gen, n.connected, n.gen)
	case !r.mask.has(i):
		c.fail(Eligibility, "request %d is granted %s, which is no candidate of it; refused by it before: %t", r.seq, e.Resource, r.refused.has(i))
	case !c.live.has(i):
		c.fail(Eligibility, "request %d is granted %s, which is excluded", r.seq, e.Resource)
	case res.inFlight >= res.cfg.Capacity:
		c.fail(Capacity, "request %d is granted %s at %d of %d", r.seq, e.Resource, res.inFlight, res.cfg.Capacity)
	case !c.free[r.class].has(i):
		c.fail(LongSlots, "long request %d is granted %s at %d of %d long", r.seq, e.Resource, res.long, res.cfg.LongCapacity)
	case e.Target != c.groups[r.group].targets[i]:
		c.fail(Eligibility, "request %d is granted %s as %q, served there as %q", r.seq, e.Resource, e.Target, c.groups[r.group].targets[i])
	default:
		c.inOrder(r, i)
	}
	if c.err != nil {
		return
	}
	if r.state == recWaiting {
		c.leave(r)
	}
	r.state, r.lease, r.gen, r.res, r.granted = recReserved, e.Lease, e.Gen, i, c.now
	c.lastLease = e.Lease
	c.granted++
	c.liveLease++
	n.leases++
	res.inFlight++
	if r.class == admission.Long {
		res.long++
	}
	c.touch(i)
}

// inOrder fails if an older waiter could have gone, or if another candidate was
// to be chosen.
func (c *checker) inOrder(r *rec, chosen int) {
	for _, w := range c.waiters {
		if w.seq >= r.seq {
			break
		}
		if i, ok := c.meets(&w.mask, &c.free[w.class]); ok {
			c.fail(Order, "request %d is granted %s while older request %d could have %s", r.seq, c.res[chosen].key, w.seq, c.res[i].key)
			return
		}
	}
	free := &c.free[r.class]
	for w := range c.w {
		for left := r.mask[w] & free[w]; left != 0; left &= left - 1 {
			if i := w<<6 + bits.TrailingZeros64(left); i != chosen && c.better(i, chosen) {
				c.fail(Selection, "request %d is granted %s, but %s is better", r.seq, c.res[chosen].key, c.res[i].key)
				return
			}
		}
	}
}

// reject judges the end of a wait.
func (c *checker) reject(r *rec, e *admission.Effect) {
	if r.state != recWaiting {
		c.fail(OneOutcome, "request %d is rejected as %s, but does not wait", r.seq, e.Result)
		return
	}
	at, configured := c.deadline(r)
	i, live := c.meets(&r.mask, &c.live)
	switch {
	case e.Result == admission.ResultTimeout && configured && at > c.now:
		c.fail(DeadlineRule, "request %d ends as timeout %d ns before its deadline", r.seq, at-c.now)
	case e.Result == admission.ResultUnavailable && live:
		c.fail(LiveCandidate, "request %d ends as unavailable though %s is a live candidate", r.seq, c.res[i].key)
	case e.Result == admission.ResultUnavailable && (e.Reason < admission.ReasonNoModel || e.Reason > admission.ReasonDraining):
		c.fail(ReasonRule, "request %d ends as unavailable because %q", r.seq, e.Reason)
	case e.Result != admission.ResultTimeout && e.Result != admission.ResultUnavailable:
		c.fail(OneOutcome, "request %d ends as %s", r.seq, e.Result)
	}
	c.retryAfter(e)
	c.leave(r)
	r.state = recEnded
}

// retryAfter judges the advice that goes with a rejection: none unless waiting
// could have helped, and no more than everybody there before the command one after
// another, and one more, each as slow as the slowest so far.
func (c *checker) retryAfter(e *admission.Effect) {
	most := c.longest * int64(c.before+2)
	if e.Result != admission.ResultFull && e.Result != admission.ResultTimeout {
		most = 0
	}
	if e.RetryAfter < 0 || int64(e.RetryAfter) > most {
		c.fail(ReasonRule, "request %d, rejected as %s, is told to come back after %s; no more than %s is to be expected", e.Seq, e.Result, e.RetryAfter, time.Duration(most))
	}
}

// requeued puts a request back among the waiters; its lease has been returned.
func (c *checker) requeued(r *rec, e *admission.Effect) {
	r.refused.add(r.res)
	c.enter(r)
	if at, ok := c.deadline(r); ok && nanos(e.Deadline) != at {
		c.fail(DeadlineRule, "request %d waits again until %d, not until %d", r.seq, nanos(e.Deadline), at)
	}
}

// revoke judges the end of a tracked lease by a fence.
func (c *checker) revoke(r *rec, e *admission.Effect) {
	if r.state != recTracked || r.lease != e.Lease || r.gen != e.Gen || c.res[r.res].key != e.Resource {
		c.fail(EndsOnce, "lease %d on %s is revoked from request %d, which does not hold it", e.Lease, e.Resource, r.seq)
		return
	}
	c.unlease(r)
	r.state = recEnded
}

// unlease returns a lease in the books.
func (c *checker) unlease(r *rec) {
	res := &c.res[r.res]
	res.inFlight--
	if r.class == admission.Long {
		res.long--
	}
	c.nodes[res.node].leases--
	c.liveLease--
	c.released++
	c.longest = max(c.longest, c.now-r.granted)
	c.touch(r.res)
}

// fence judges the end of a node's connection and returns the effects of the
// re-evaluation after it.
func (c *checker) fence(i int, effects []admission.Effect) []admission.Effect {
	n := &c.nodes[i]
	n.connected, n.draining = false, false
	c.touchNode(i)
	for len(effects) > 0 && effects[0].Kind != admission.Granted {
		if r, e := c.rec(effects[0].Seq), &effects[0]; r != nil && (e.Kind == admission.Revoked || e.Kind == admission.Requeued) && c.res[r.res].node != i {
			c.fail(Independence, "the fence of %s does %s to request %d, which is not there", n.id, kindName(e.Kind), e.Seq)
		}
		c.follow(&effects[0], permits(admission.Revoked, admission.Requeued, admission.Rejected))
		effects = effects[1:]
	}
	if n.leases != 0 {
		c.fail(CurrentGen, "%d leases of %s outlive its generation %d", n.leases, n.id, n.gen)
	}
	return effects
}

// settle checks what must hold of the waiters after every command.
func (c *checker) settle() {
	if c.err != nil {
		return
	}
	for _, r := range c.waiters {
		free, live := &c.free[r.class], uint64(0)
		for w := range c.w {
			if fits := r.mask[w] & free[w]; fits != 0 {
				c.fail(NoIdleSlot, "request %d waits though %s could take it", r.seq, c.res[w<<6+bits.TrailingZeros64(fits)].key)
				return
			}
			live |= r.mask[w] & c.live[w]
		}
		if live == 0 {
			c.fail(LiveCandidate, "request %d waits without a live candidate", r.seq)
			return
		}
	}
}
