package sim

import (
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// timer judges [admission.Core.NextDeadline].
func (c *checker) timer(next time.Time, ok bool) {
	if ok != (len(c.waiters) > 0) {
		c.fail(NothingLeft, "a deadline is pending: %t; %d requests wait", ok, len(c.waiters))
		return
	}
	if !ok {
		return
	}
	first := int64(1<<63 - 1)
	for _, r := range c.waiters {
		if at, _ := c.deadline(r); at < first {
			first = at
		}
	}
	if nanos(next) != first {
		c.fail(DeadlineRule, "the next deadline is %d, not %d", nanos(next), first)
	}
}

// snapshot judges [admission.Core.Snapshot] against the books.
func (c *checker) snapshot(now time.Time, s *admission.Snapshot) {
	switch k := &s.Counters; {
	case c.err != nil:
		return
	case k.Granted != c.granted || k.Released != c.released || int(k.Granted-k.Released) != s.InFlight || s.InFlight != c.liveLease:
		c.fail(Balance, "granted %d − released %d, in flight %d; by the books %d − %d, %d", k.Granted, k.Released, s.InFlight, c.granted, c.released, c.liveLease)
	case k.DoubleReleases != c.doubles:
		c.fail(EndsOnce, "%d second ends counted, %d seen", k.DoubleReleases, c.doubles)
	case k.Stale != c.stale:
		c.fail(StaleClose, "%d stale closes counted, %d seen", k.Stale, c.stale)
	case s.QueueTotal != len(c.waiters) || s.QueueTotal != sum(s.WaitingBy[:]):
		c.fail(SnapshotIsTrue, "queue total %d, by reason %v, %d wait", s.QueueTotal, s.WaitingBy, len(c.waiters))
	case len(s.Scopes) != len(c.scopes) || len(s.Resources) < len(c.order):
		c.fail(SnapshotIsTrue, "%d scopes and %d resources, configured are %d and %d", len(s.Scopes), len(s.Resources), len(c.scopes), len(c.order))
	default:
		c.snapshotParts(s)
	}
	oldest := time.Duration(0)
	for _, r := range c.waiters {
		oldest = max(oldest, time.Duration(nanos(now)-r.enqueued))
	}
	if s.OldestWait != oldest {
		c.fail(SnapshotIsTrue, "the oldest wait is %s, not %s", s.OldestWait, oldest)
	}
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

func (c *checker) snapshotParts(s *admission.Snapshot) {
	for i := range s.Scopes {
		if want := (admission.ScopeState{Scope: c.scopes[i].cfg, Pending: c.scopes[i].pending}); s.Scopes[i] != want {
			c.fail(SnapshotIsTrue, "scope %+v, want %+v", s.Scopes[i], want)
		}
	}
	removed := 0
	for i := range c.res {
		if !c.res[i].present && c.res[i].inFlight > 0 {
			removed++
		}
	}
	if len(s.Resources) != len(c.order)+removed {
		c.fail(SnapshotIsTrue, "%d resources shown, %d configured and %d removed with leases", len(s.Resources), len(c.order), removed)
		return
	}
	for at := range s.Resources {
		c.snapshotResource(at, &s.Resources[at])
	}
}

func (c *checker) snapshotResource(at int, st *admission.ResourceState) {
	var i int
	if at < len(c.order) {
		i = c.order[at]
	} else {
		i = c.ids[st.Key]
	}
	r := &c.res[i]
	n := &c.nodes[r.node]
	queued, long := r.waiting[0]+r.waiting[1], r.waiting[1]
	if !c.live.has(i) {
		queued, long = 0, 0
	}
	switch {
	case st.InFlight != r.inFlight || st.LongInFlight != r.long:
		c.fail(Balance, "%s counts %d/%d leases, holds %d/%d", st.Key, st.InFlight, st.LongInFlight, r.inFlight, r.long)
	case st.Resource != r.cfg || st.Removed == r.present || st.Connected != n.connected:
		c.fail(SnapshotIsTrue, "%s is shown as %+v, configured as %+v; configured now %t, connected %t", r.key, *st, r.cfg, r.present, n.connected)
	case (st.Excluded == admission.ReasonNone) != c.live.has(i):
		c.fail(SnapshotIsTrue, "%s is excluded as %q, live is %t", r.key, st.Excluded, c.live.has(i))
	case st.Queued != queued || st.LongQueued != long:
		c.fail(SnapshotIsTrue, "%s shows pressure %d/%d, has %d/%d", r.key, st.Queued, st.LongQueued, queued, long)
	case !n.connected && (st.InFlight != 0 || st.LongInFlight != 0 || st.Queued != 0):
		c.fail(SnapshotIsTrue, "offline %s shows %+v", r.key, *st)
	}
}

// nothingLeft judges the core and the books when all has ended.
func (c *checker) nothingLeft(s *admission.Snapshot, timer bool) {
	if s.InFlight != 0 || s.QueueTotal != 0 || timer || len(s.Resources) != len(c.order) {
		c.fail(NothingLeft, "in flight %d, waiting %d, timer %t, resources %d of %d configured", s.InFlight, s.QueueTotal, timer, len(s.Resources), len(c.order))
	}
	for i := range s.Resources {
		if st := &s.Resources[i]; st.InFlight != 0 || st.LongInFlight != 0 || st.Queued != 0 || st.LongQueued != 0 {
			c.fail(NothingLeft, "%s is left with %+v", st.Key, *st)
		}
	}
	for _, r := range c.recs {
		if r != nil && r.state != recEnded {
			c.fail(OneOutcome, "request %d has had no outcome", r.seq)
		}
	}
}

// same judges an identical refresh by the snapshots before and after it.
func (c *checker) same(before, after *admission.Snapshot) {
	b, a := *before, *after
	b.Counters.Commands, a.Counters.Commands = 0, 0
	if !slices.Equal(b.Resources, a.Resources) || !slices.Equal(b.Scopes, a.Scopes) || b.Counters != a.Counters ||
		b.QueueTotal != a.QueueTotal || b.InFlight != a.InFlight || b.OldestWait != a.OldestWait {
		c.fail(RefreshNoop, "an identical refresh changes the snapshot")
	}
}

// record judges the decision record of a waiter.
func (c *checker) record(r *rec, d *admission.Record, ok bool) {
	g := &c.groups[r.group]
	switch {
	case !ok || d.Seq != r.seq || !d.Waiting || !d.Ended.IsZero() || nanos(d.Enqueued) != r.enqueued:
		c.fail(SnapshotIsTrue, "request %d waits; its record: %+v", r.seq, d)
	case d.Scope != c.scopes[g.scope].cfg.Key || d.Group != g.key || d.Class != r.class:
		c.fail(SnapshotIsTrue, "request %d waits for %s %s in %s; its record: %+v", r.seq, g.key, r.class, c.scopes[g.scope].cfg.Key, d)
	case len(d.Moments) == 0 || len(d.Moments) > recordMoments:
		c.fail(SnapshotIsTrue, "the record of request %d has %d moments", r.seq, len(d.Moments))
	default:
		c.recordReason(r, d)
	}
}

// recordMoments is the most that a record may remember: the first moment and the
// last 16.
const recordMoments = 17

// recordReason judges why the record says that a request waits.
func (c *checker) recordReason(r *rec, d *admission.Record) {
	weakest := admission.ReasonNone
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		id, known := c.ids[v.Resource]
		obstacle := c.obstacle(id, r.class, r.surface)
		if r.refused.has(id) && (obstacle == admission.ReasonNone || obstacle > admission.ReasonDraining) {
			obstacle = admission.ReasonRefused // unless it is excluded for everybody
		}
		if !known || !r.mask.has(id) && !r.refused.has(id) || v.Reason != obstacle {
			c.fail(ReasonRule, "request %d is said to pass over %s because %q", r.seq, v.Resource, v.Reason)
			return
		}
		weakest = max(weakest, v.Reason)
	}
	behind := false
	for _, w := range c.waiters {
		if w == r {
			break
		}
		behind = behind || r.refused == set{} && w.refused == set{} && w.group == r.group && w.class == r.class && w.surface == r.surface
	}
	if behind {
		weakest = admission.ReasonBehind
	}
	if d.Reason != weakest {
		c.fail(ReasonRule, "request %d is said to wait because %q, but the reason is %q", r.seq, d.Reason, weakest)
	}
}

// ended judges the record of a request that has ended: the core must not hold it
// for live.
func (c *checker) ended(seq admission.Seq, d *admission.Record, ok bool) {
	if ok && (d.Waiting || d.Ended.IsZero()) {
		c.fail(NothingLeft, "request %d has ended, and is still live in its record: %+v", seq, d)
	}
}
