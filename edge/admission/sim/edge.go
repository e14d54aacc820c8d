package sim

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// core is what the simulated Edge uses of [admission.Core].
type core interface {
	Enqueue(time.Time, admission.Request) (admission.Seq, []admission.Effect)
	Cancel(time.Time, admission.Seq) ([]admission.Effect, bool)
	Track(admission.Seq, admission.LeaseID) bool
	Release(time.Time, admission.Seq, admission.LeaseID) ([]admission.Effect, bool)
	Refuse(time.Time, admission.Seq, admission.LeaseID) ([]admission.Effect, bool)
	Connect(time.Time, admission.NodeID) (admission.Generation, []admission.Effect)
	Disconnect(time.Time, admission.NodeID, admission.Generation) ([]admission.Effect, bool)
	Drain(time.Time, admission.NodeID, admission.Generation) ([]admission.Effect, bool)
	Reconfigure(time.Time, admission.Config) []admission.Effect
	Expire(time.Time) []admission.Effect
	NextDeadline() (time.Time, bool)
	IsCurrent(admission.NodeID, admission.Generation) bool
	Snapshot(time.Time) admission.Snapshot
	Record(admission.Seq) (admission.Record, bool)
}

// snapshotAlways is the size of a site up to which the whole snapshot is
// compared after every command; on larger ones it is after every eighth.
const snapshotAlways = 64

// epoch is where virtual time begins.
var epoch = time.Unix(1_000_000, 0)

// edge drives the core as edge/broker does: one command at a time, its effects
// to their requests, one timer for the next deadline. Each command passes the
// checker.
type edge struct {
	*world
	core    core
	armed   int64 // when the timer will go off; 0 = not armed
	current []*session
	past    []pastLease // lately ended, to end again
	pastAt  int
	checks  int
}

// pastLease is a lease that has ended, or a connection that has.
type pastLease struct {
	seq   admission.Seq
	lease admission.LeaseID
}

func (e *edge) time() time.Time { return epoch.Add(time.Duration(e.now)) }

// skewed is the time now, or, when faults happen, sometimes a little before: the
// core's own time must not fall.
func (e *edge) skewed() time.Time {
	if e.faulty && e.rng.IntN(256) == 0 {
		e.faults[FaultClockBack]++
		return e.time().Add(-time.Duration(e.rng.IntN(1000)) * time.Millisecond)
	}
	return e.time()
}

func (e *edge) enqueue(req admission.Request) {
	now := e.skewed()
	seq, effects := e.core.Enqueue(now, req)
	e.check.enqueue(now, req, seq, effects)
	e.addCall(seq)
	e.deliver(effects)
}

func (e *edge) cancel(seq admission.Seq) {
	now := e.skewed()
	effects, ok := e.core.Cancel(now, seq)
	e.check.cancel(now, seq, effects, ok)
	e.deliver(effects)
}

func (e *edge) track(seq admission.Seq, lease admission.LeaseID) bool {
	ok := e.core.Track(seq, lease)
	e.check.track(e.time(), seq, lease, ok)
	return ok
}

func (e *edge) release(seq admission.Seq, lease admission.LeaseID) bool {
	now := e.skewed()
	effects, ok := e.core.Release(now, seq, lease)
	e.check.release(now, seq, lease, effects, ok)
	e.remember(seq, lease)
	e.deliver(effects)
	return ok
}

func (e *edge) refuse(seq admission.Seq, lease admission.LeaseID) {
	now := e.skewed()
	effects, ok := e.core.Refuse(now, seq, lease)
	e.check.refuse(now, seq, lease, effects, ok)
	e.remember(seq, lease)
	e.deliver(effects)
}

func (e *edge) remember(seq admission.Seq, lease admission.LeaseID) {
	e.past[e.pastAt] = pastLease{seq, lease}
	e.pastAt = (e.pastAt + 1) % len(e.past)
}

// connect makes an accepted registration the owner of its node.
func (e *edge) connect(n int) *session {
	now := e.skewed()
	gen, effects := e.core.Connect(now, e.site.nodes[n])
	e.check.connect(now, e.site.nodes[n], gen, effects)
	if old := e.current[n]; old != nil {
		e.hangUp(old)
	}
	s := &session{node: n, gen: gen, open: true, beat: e.now}
	e.current[n] = s
	e.publish()
	e.deliver(effects)
	return s
}

// disconnect ends a session at the Edge, if it is current.
func (e *edge) disconnect(n int, gen admission.Generation) {
	now := e.skewed()
	effects, ok := e.core.Disconnect(now, e.site.nodes[n], gen)
	e.check.disconnect(now, e.site.nodes[n], gen, effects, ok)
	if ok {
		e.hangUp(e.current[n])
		e.current[n] = nil
	}
	e.deliver(effects)
	if ok {
		e.publish()
	}
	if e.core.IsCurrent(e.site.nodes[n], gen) {
		e.check.fail(StaleClose, "generation %d of %s is current after its disconnect", gen, e.site.nodes[n])
	}
}

// hangUp ends the Edge's end of a session. The node hears of it, or, behind a
// black hole, misses the Edge after a while.
func (e *edge) hangUp(s *session) {
	s.open = false
	if e.machines[s.node].session != s {
		return
	}
	in := e.latency()
	if s.dead {
		in = beatLimit
	}
	e.after(in, event{kind: evGiveUp, node: int32(s.node), session: s})
}

func (e *edge) drain(n int, gen admission.Generation) {
	now := e.skewed()
	effects, ok := e.core.Drain(now, e.site.nodes[n], gen)
	e.check.drain(now, e.site.nodes[n], gen, effects, ok)
	e.deliver(effects)
}

func (e *edge) expire() { e.expireAt(e.skewed()) }

func (e *edge) expireAt(now time.Time) {
	effects := e.core.Expire(now)
	e.check.expire(now, effects)
	e.deliver(effects)
}

// refresh puts the site as it is now into force.
func (e *edge) refresh(what string, identical bool) {
	cfg := e.site.build()
	effects := e.core.Reconfigure(e.time(), *cfg)
	e.check.reconfigure(e.time(), cfg, what, identical, effects)
	if e.faulty && e.rng.IntN(4) == 0 {
		e.faults[FaultFailedRefresh]++
		e.site.spoil()
	}
	e.deliver(effects)
	e.publish()
}

// deliver gives effects to their requests, arms the timer, and compares what can
// be read from the core with the books.
func (e *edge) deliver(effects []admission.Effect) {
	if e.check.err != nil {
		return
	}
	e.commands++
	for i := range effects {
		e.effect(&effects[i])
	}
	next, ok := e.core.NextDeadline()
	e.check.timer(next, ok)
	if at := nanos(next); ok && (e.armed == 0 || at < e.armed) {
		e.armed = at
		e.after(max(0, time.Duration(at-e.now)), event{kind: evExpire})
	}
	if e.checks++; len(e.site.keys) <= snapshotAlways || e.checks%8 == 0 {
		e.compareSnapshot()
	}
	if e.checks%8 == 0 && len(e.check.waiters) > 0 {
		r := e.check.waiters[e.checks/8%len(e.check.waiters)]
		rec, ok := e.core.Record(r.seq)
		e.check.record(r, &rec, ok)
	}
}

func (e *edge) compareSnapshot() {
	now := epoch.Add(time.Duration(max(e.now, e.check.now)))
	s := e.core.Snapshot(now)
	e.check.snapshot(now, &s)
}

// publish tells the subscriber that something has happened, unless the event is
// dropped. It looks the news up in the core, as a dashboard does; nothing that
// follows may depend on that.
func (e *edge) publish() {
	if e.bus.Float64() < e.drop {
		e.faults[FaultDroppedEvent]++
		return
	}
	e.published++
	e.core.Snapshot(e.time())
	e.core.NextDeadline()
	if n := len(e.calls); n > 0 {
		e.core.Record(admission.Seq(1 + e.bus.IntN(n)))
	}
}
