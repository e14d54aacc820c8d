package sim

import (
	"math/rand/v2"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// world is all that is around the core in one episode.
type world struct {
	calendar
	rng      *rand.Rand
	bus      *rand.Rand // of the event bus alone: dropping must not move the rest
	drop     float64    // share of events dropped
	site     *site
	check    *checker
	now      int64 // virtual ns since epoch
	faulty   bool
	open     bool          // clients come, and may leave before they are served
	load     time.Duration // between two arrivals
	gateWait time.Duration // of a hand-off that finds its gate full

	machines []machine
	calls    []*call // by seq − 1
	live     int     // calls that have not ended

	spareCalls []*call
	spareRuns  []*execution

	tally
}

// tally counts what happened; Result adds it up over episodes.
type tally struct {
	commands   int
	grants     int
	refusals   int
	gateWaits  int
	orphanRuns int // executions that started beside an orphan
	published  int
	faults     [faultCount]int
	results    [8]int
	outcomes   [8]int
}

func (w *world) after(d time.Duration, e event) {
	e.at = w.now + int64(d)
	w.schedule(e)
}

// span draws a duration up to most.
func (w *world) span(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)) + 1)
}

func (w *world) latency() time.Duration {
	if w.rng.IntN(32) == 0 {
		return w.span(time.Second)
	}
	return w.span(2 * time.Millisecond)
}

func (w *world) serviceTime() time.Duration {
	if w.faulty && w.rng.IntN(32) == 0 {
		return w.span(15 * time.Second)
	}
	return 5*time.Millisecond + w.span(400*time.Millisecond)
}

// newEdge makes the world of an episode around a core. Memory of an earlier one
// is used again.
func newEdge(old *edge, rng, bus *rand.Rand, check *checker, makeCore func(admission.Config) core) *edge {
	s := newSite(rng)
	w := &world{rng: rng, bus: bus, site: s, check: check}
	if old != nil {
		w.heap = old.heap[:0]
		w.spareCalls, w.spareRuns = old.spareCalls, old.spareRuns
		for _, c := range old.calls {
			if c != nil {
				w.spareCalls = append(w.spareCalls, c)
			}
		}
		w.calls = old.calls[:0]
	}
	check.reset(s.keys)
	cfg := s.build()
	e := &edge{world: w, current: make([]*session, len(s.nodes)), past: make([]pastLease, 32)}
	e.core = makeCore(*cfg)
	check.configure(cfg)
	w.machines = make([]machine, len(s.nodes))
	slots := 0
	for n := range w.machines {
		w.machines[n].gates = make([]gate, s.perNode)
		w.machines[n].dialing = true
		w.after(w.span(200*time.Millisecond), event{kind: evDial, node: int32(n)})
	}
	for i := range s.res {
		if s.res[i].present && s.res[i].cfg.Enabled {
			slots += s.res[i].cfg.Capacity
		}
	}
	// Requests come at half to twice the rate at which they can be served.
	w.load = 440 * time.Millisecond / time.Duration(max(slots, 1)) * 4 / time.Duration(2+rng.IntN(7))
	w.gateWait = time.Duration(1+rng.IntN(3)*rng.IntN(1000)) * time.Millisecond
	return e
}

// step takes the next event of the calendar.
func (e *edge) step() {
	ev := e.pop()
	e.now = max(e.now, ev.at)
	switch ev.kind {
	case evArrive:
		if e.open {
			e.arrive()
			e.after(e.span(2*e.load), ev)
		}
	case evLeave:
		e.leave(e.calls[ev.seq-1])
	case evExpire:
		if e.fault(16, FaultLateTimer) {
			e.after(e.span(100*time.Millisecond), ev)
			return
		}
		e.armed = 0
		e.expire()
	case evDispatch:
		e.dispatch(e.calls[ev.seq-1], ev.lease)
	case evNeverSeen, evGrace, evAnswerEnd, evRefusal:
		e.fromNode(&ev)
	case evRegister:
		e.register(int(ev.node))
	case evClose:
		e.disconnect(int(ev.node), ev.session.gen)
	case evDrain:
		e.drain(int(ev.node), ev.session.gen)
	case evBeat:
		e.beat(&ev)
	default:
		if !e.paused(&ev) {
			e.atNode(&ev)
		}
	}
}

// fromNode is news of a handed-off request reaching the Edge.
func (e *edge) fromNode(ev *event) {
	c := e.calls[ev.seq-1]
	if s := ev.session; s != nil && !s.open && (!e.faulty || e.rng.IntN(4) != 0) {
		return // lost with its session; some arrive late all the same
	}
	holds := c.state == callSent && c.lease == ev.lease
	switch ev.kind {
	case evNeverSeen:
		if holds {
			e.refusal(c, ev)
		}
	case evGrace:
		if holds {
			e.close(c, outcomeCancelled)
		}
	case evAnswerEnd:
		e.answerEnd(c, ev)
	case evRefusal:
		e.refusal(c, ev)
	}
}

// atNode is what happens at a node that is not paused.
func (w *world) atNode(ev *event) {
	switch ev.kind {
	case evDial:
		w.dial(int(ev.node))
	case evAccept:
		w.accept(ev)
	case evConfig:
		if w.machines[ev.node].session == ev.session {
			w.configureNode(int(ev.node))
		}
	case evHandOff:
		w.handOff(ev)
	case evCancel:
		w.cancelAtNode(ev)
	case evGateTimeout:
		w.gateTimeout(ev)
	case evServed:
		w.served(ev)
	case evGiveUp:
		if w.machines[ev.node].session == ev.session {
			w.lose(int(ev.node), false)
		}
	}
}
