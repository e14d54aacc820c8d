package sim

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// Fault is a class of what goes wrong in the first phase of an episode.
type Fault uint8

// The classes of fault.
const (
	FaultBuild Fault = iota
	FaultNoStream
	FaultSend
	FaultSilent
	FaultSecondHandOff
	FaultDuplicateEnd
	FaultLateEnd
	FaultDuplicateRefusal
	FaultLateRefusal
	FaultLateCancel
	FaultSecondEnd
	FaultStaleClose
	FaultDuplicateClose
	FaultStaleDrain
	FaultClose
	FaultDrain
	FaultCrash
	FaultPowerLoss
	FaultBlackHole
	FaultEdgeClose
	FaultHeartbeatTimeout
	FaultTakeover
	FaultReconnect
	FaultDuplicateRegister
	FaultPause
	FaultClockJump
	FaultClockBack
	FaultLateTimer
	FaultRefresh
	FaultIdenticalRefresh
	FaultFailedRefresh
	FaultUnknownGroup
	FaultDroppedEvent
	faultCount
)

var faultNames = [faultCount]string{
	"build failure", "no work stream", "send failure", "silent hand-off", "second hand-off", "duplicate end", "late end", "duplicate refusal", "late refusal",
	"late cancel", "second end of a lease", "stale close", "duplicate close", "stale drain", "session closed by its node", "drain", "crash",
	"power loss", "black hole", "session closed by the Edge", "heartbeat timeout", "takeover", "disconnect, then reconnect", "duplicate registration",
	"paused node", "clock jump", "clock behind", "late timer", "refresh", "identical refresh", "failed refresh", "unknown group", "dropped event",
}

// String is the class's name.
func (f Fault) String() string { return faultNames[f] }

// fault decides whether a fault of the class happens here, once in so many times.
func (w *world) fault(oneIn int, f Fault) bool {
	if !w.faulty || w.rng.IntN(oneIn) != 0 {
		return false
	}
	w.faults[f]++
	return true
}

// chaos does one thing that nobody expects.
func (e *edge) chaos() {
	n := e.rng.IntN(len(e.machines))
	m := &e.machines[n]
	switch f := chaosTable[e.rng.IntN(len(chaosTable))]; f {
	case FaultRefresh:
		e.changeSite()
	case FaultIdenticalRefresh:
		e.identicalRefresh()
	case FaultSecondEnd:
		e.secondEnd()
	case FaultStaleClose, FaultStaleDrain:
		e.stale(n, f)
	case FaultClose:
		e.nodeCloses(n)
	case FaultDrain:
		if m.session != nil {
			e.faults[f]++
			e.after(e.latency(), event{kind: evDrain, node: int32(n), session: m.session})
			quits := e.span(3 * time.Second)
			e.after(quits, event{kind: evGiveUp, node: int32(n), session: m.session})
			e.after(quits+e.latency(), event{kind: evClose, node: int32(n), session: m.session})
		}
	case FaultCrash, FaultPowerLoss:
		if m.session != nil {
			e.faults[f]++
			e.lose(n, f == FaultPowerLoss)
		}
	case FaultBlackHole:
		if s := m.session; s != nil {
			e.faults[f]++
			s.dead = true
			e.after(beatLimit+e.span(beatLimit), event{kind: evGiveUp, node: int32(n), session: s})
		}
	case FaultEdgeClose:
		if s := e.current[n]; s != nil {
			e.faults[f]++
			e.disconnect(n, s.gen)
		}
	case FaultDuplicateRegister:
		// Another instance registers; the current one is alive, so it is refused
		// and closes again.
		e.faults[f]++
		e.after(e.latency(), event{kind: evRegister, node: int32(n)})
		e.after(2*e.latency(), event{kind: evClose, node: int32(n), session: &session{node: n, gen: admission.Generation(e.rng.IntN(4))}})
	case FaultPause:
		e.faults[f]++
		m.until = e.now + int64(e.span(12*time.Second))
	case FaultClockJump:
		e.faults[f]++
		e.now += int64(e.span(20 * time.Second))
	case FaultUnknownGroup:
		e.faults[f]++
		e.enqueue(admission.Request{Group: "nobody", Surface: admission.SurfaceChat})
	case FaultLateTimer:
		e.faults[f]++
		e.expire() // and one that finds nothing to do
	}
}

// chaosTable weighs the faults that come unasked.
var chaosTable = [...]Fault{
	FaultRefresh, FaultRefresh, FaultRefresh, FaultRefresh, FaultRefresh, FaultRefresh, FaultIdenticalRefresh,
	FaultSecondEnd, FaultSecondEnd, FaultSecondEnd, FaultSecondEnd, FaultStaleClose, FaultStaleClose, FaultStaleDrain,
	FaultClose, FaultClose, FaultDrain, FaultCrash, FaultCrash, FaultPowerLoss, FaultBlackHole, FaultEdgeClose,
	FaultDuplicateRegister, FaultDuplicateRegister, FaultPause, FaultClockJump, FaultUnknownGroup, FaultLateTimer,
}

// changeSite makes a refresh of one to three changes. Nodes hear of it later.
func (e *edge) changeSite() {
	e.faults[FaultRefresh]++
	what := e.site.change()
	for range e.rng.IntN(3) {
		e.site.change()
		what = "several fields"
	}
	if !e.servesAny() && e.rng.IntN(2) == 0 {
		e.site.repair()
		what = "repair"
	}
	e.refresh(what, false)
	for n, s := range e.current {
		switch {
		case s == nil || e.check.err != nil:
		case !e.site.configured(n) && e.rng.IntN(2) == 0:
			e.disconnect(n, s.gen)
		case s.ready:
			e.after(e.latency(), event{kind: evConfig, node: int32(n), session: s})
		}
	}
}

// identicalRefresh hands in what is in force, once nothing is overdue.
func (e *edge) identicalRefresh() {
	e.faults[FaultIdenticalRefresh]++
	e.expireAt(e.time())
	before := e.core.Snapshot(e.time())
	e.refresh("identical", true)
	after := e.core.Snapshot(e.time())
	e.check.same(&before, &after)
}

// secondEnd ends a lease that has ended, hands off on it, or cancels its request.
func (e *edge) secondEnd() {
	p := e.past[e.rng.IntN(len(e.past))]
	if p.seq == 0 {
		return
	}
	e.faults[FaultSecondEnd]++
	switch e.rng.IntN(4) {
	case 0, 1:
		e.release(p.seq, p.lease)
	case 2:
		e.refuse(p.seq, p.lease)
	case 3:
		e.track(p.seq, p.lease)
	}
}

// stale closes or drains a generation that is not current.
func (e *edge) stale(n int, f Fault) {
	gen := admission.Generation(0)
	if top := e.check.nodes[n].gen; top > 0 {
		gen = admission.Generation(e.rng.Uint64N(uint64(top)))
	}
	if e.current[n] == nil && e.rng.IntN(2) == 0 {
		gen = e.check.nodes[n].gen // it was current until lately
	}
	e.faults[f]++
	if f == FaultStaleDrain {
		e.drain(n, gen)
	} else {
		e.disconnect(n, gen)
	}
}

// nodeCloses is a node's orderly end of its session; the close may come twice,
// the second time after its successor is there.
func (e *edge) nodeCloses(n int) {
	s := e.machines[n].session
	if s == nil {
		return
	}
	e.faults[FaultClose]++
	e.lose(n, false)
	e.after(e.latency(), event{kind: evClose, node: int32(n), session: s})
	if e.fault(2, FaultDuplicateClose) {
		e.after(e.span(4*time.Second), event{kind: evClose, node: int32(n), session: s})
	}
}
