package sim

import (
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// session is one accepted registration, as both ends see it.
type session struct {
	node  int
	gen   admission.Generation
	open  bool  // the Edge's end
	ready bool  // the node has heard of it
	dead  bool  // a black hole: nothing arrives any more, and nobody is told
	beat  int64 // when the Edge last heard of the node
}

// machine is one node: its daemon and its providers.
type machine struct {
	session *session
	gates   []gate
	until   int64 // paused until then
	dialing bool
	gen     admission.Generation // highest accepted
}

// gate is the node's own limit for one provider. It counts every execution until
// the provider has let go, whatever has become of the session.
type gate struct {
	capacity int
	running  []*execution
	waiting  []*execution
}

// execution is one hand-off at a node.
type execution struct {
	seq     admission.Seq
	lease   admission.LeaseID
	session *session
	res     int
	running bool
	over    bool
	ends    int64 // when its provider is done; an earlier event is not its end
}

// What nodes wait for.
const (
	beatEvery     = 2 * time.Second
	beatLimit     = 6 * time.Second
	redialEvery   = 200 * time.Millisecond
	providerGrace = 300 * time.Millisecond
)

// paused reports whether the node does nothing now; the event comes again when
// it does.
func (w *world) paused(ev *event) bool {
	m := &w.machines[ev.node]
	if m.until <= w.now {
		return false
	}
	w.after(time.Duration(m.until-w.now)+w.latency(), *ev)
	return true
}

// dial is a node's attempt to register.
func (w *world) dial(n int) {
	m := &w.machines[n]
	m.dialing = false
	if m.session != nil {
		return
	}
	w.after(w.latency(), event{kind: evRegister, node: int32(n)})
	w.redial(n)
}

// redial makes the node try later.
func (w *world) redial(n int) {
	if m := &w.machines[n]; !m.dialing {
		m.dialing = true
		w.after(redialEvery+w.span(time.Second), event{kind: evDial, node: int32(n)})
	}
}

// register is a registration reaching the Edge.
func (e *edge) register(n int) {
	old := e.current[n]
	switch {
	case !e.site.configured(n):
		return // refused; the node tries again
	case old == nil:
	case e.machines[n].session == old && !old.dead:
		return // sent before it heard that an earlier one was accepted: a duplicate, refused
	case e.rng.IntN(2) == 0:
		e.faults[FaultTakeover]++ // the same instance is back before its loss was noticed
	default:
		e.faults[FaultReconnect]++
		e.disconnect(n, old.gen)
	}
	s := e.connect(n)
	e.after(e.latency(), event{kind: evAccept, node: int32(n), session: s})
	e.after(beatEvery, event{kind: evBeat, node: int32(n), session: s})
}

// accept is the Edge's acceptance reaching the node.
func (w *world) accept(ev *event) {
	m := &w.machines[ev.node]
	s := ev.session
	if m.session != nil || !s.open || s.dead {
		return // given up meanwhile; the Edge will miss the heartbeats
	}
	if s.gen <= m.gen {
		w.check.fail(CurrentGen, "node %d accepts generation %d after %d", ev.node, s.gen, m.gen)
	}
	m.session, m.gen, s.ready = s, s.gen, true
	w.configureNode(int(ev.node))
}

// configureNode gives the node the provider configuration in force.
func (w *world) configureNode(n int) {
	m := &w.machines[n]
	for j := range m.gates {
		r := &w.site.res[n*w.site.perNode+j]
		m.gates[j].capacity = 0
		if r.present {
			m.gates[j].capacity = r.cfg.Capacity
		}
		w.admit(&m.gates[j])
	}
}

// beat is the Edge looking whether a session's node has been heard.
func (e *edge) beat(ev *event) {
	s := ev.session
	if !s.open {
		return
	}
	if m := &e.machines[s.node]; m.session == s && !s.dead && m.until <= e.now {
		s.beat = e.now
	}
	if e.now-s.beat > int64(beatLimit) {
		e.faults[FaultHeartbeatTimeout]++
		e.disconnect(s.node, s.gen)
		return
	}
	e.after(beatEvery, *ev)
}

// handOff is a request reaching its node.
func (w *world) handOff(ev *event) {
	m := &w.machines[ev.node]
	s := ev.session
	if m.session != s || s.dead {
		return // the stream has gone with its session
	}
	c := w.calls[ev.seq-1]
	if c.cancelled == ev.lease {
		w.toEdge(evRefusal, ev.seq, ev.lease, s) // the cancel was faster
		return
	}
	x := w.newExecution()
	*x = execution{seq: ev.seq, lease: ev.lease, session: s, res: c.res}
	c.run = x
	g := &m.gates[c.res%w.site.perNode]
	g.waiting = append(g.waiting, x)
	w.admit(g)
	if !x.running {
		w.gateWaits++
		w.after(w.gateWait, event{kind: evGateTimeout, node: ev.node, run: x, lease: x.lease})
	}
}

// admit lets the longest waiting into the gate.
func (w *world) admit(g *gate) {
	for len(g.waiting) > 0 && len(g.running) < g.capacity {
		x := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.running = append(g.running, x)
		x.running = true
		w.ends(x, w.serviceTime())
		w.checkGate(x, g)
	}
}

// checkGate counts what really runs at the provider, orphans included.
func (w *world) checkGate(x *execution, g *gate) {
	orphans := 0
	for _, r := range g.running {
		if r.session != w.machines[x.session.node].session {
			orphans++
		}
	}
	w.orphanRuns += orphans
	if n := len(g.running); n > g.capacity {
		w.check.fail(ProviderGate, "%s runs %d executions, %d of them orphans, at capacity %d", w.site.keys[x.res], n, orphans, g.capacity)
	}
}

// ends sets when the execution's provider is done.
func (w *world) ends(x *execution, in time.Duration) {
	x.ends = w.now + int64(in)
	w.after(in, event{kind: evServed, node: int32(x.session.node), run: x, lease: x.lease})
}

// served is a provider letting go of an execution.
func (w *world) served(ev *event) {
	x := ev.run
	if x.over || x.lease != ev.lease || x.ends > w.now {
		return
	}
	w.leaveGate(x)
	if w.machines[x.session.node].session == x.session {
		w.toEdge(evAnswerEnd, x.seq, x.lease, x.session)
	}
}

// leaveGate gives an execution's place in its gate back.
func (w *world) leaveGate(x *execution) {
	g := &w.machines[x.session.node].gates[x.res%w.site.perNode]
	x.over = true
	list := &g.waiting
	if x.running {
		list = &g.running
	}
	if i := slices.Index(*list, x); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	w.admit(g)
	w.spareRuns = append(w.spareRuns, x)
}

// gateTimeout ends a wait in a gate: nothing was opened.
func (w *world) gateTimeout(ev *event) {
	if x := ev.run; !x.over && !x.running && x.lease == ev.lease {
		w.leaveGate(x)
		w.toEdge(evRefusal, x.seq, x.lease, x.session)
	}
}

// cancelAtNode is a cancel reaching the node, perhaps before its request.
func (w *world) cancelAtNode(ev *event) {
	m := &w.machines[ev.node]
	if m.session != ev.session || ev.session.dead {
		return
	}
	c := w.calls[ev.seq-1]
	x := c.run
	switch {
	case x == nil || x.lease != ev.lease:
		c.cancelled = ev.lease
	case x.over:
	case x.running:
		w.ends(x, w.span(providerGrace))
	default:
		w.leaveGate(x)
		w.toEdge(evRefusal, x.seq, x.lease, x.session)
	}
}

// toEdge sends a message about a request from its node.
func (w *world) toEdge(kind eventKind, seq admission.Seq, lease admission.LeaseID, s *session) {
	if s.dead {
		return
	}
	w.after(w.latency(), event{kind: kind, node: int32(s.node), seq: seq, lease: lease, session: s})
}

// lose ends a session at the node's end. What waited in its gates is gone; what
// ran is orphaned and ends when its provider has noticed, or, if the machine lost
// power, at once.
func (w *world) lose(n int, power bool) {
	m := &w.machines[n]
	m.session = nil
	for j := range m.gates {
		g := &m.gates[j]
		for len(g.waiting) > 0 {
			w.leaveGate(g.waiting[0])
		}
		for i := len(g.running) - 1; i >= 0; i-- {
			if x := g.running[i]; power {
				w.leaveGate(x)
			} else if w.rng.IntN(2) == 0 {
				w.ends(x, w.span(2*providerGrace))
			}
		}
	}
	w.redial(n)
}

func (w *world) newExecution() *execution {
	if n := len(w.spareRuns); n > 0 {
		x := w.spareRuns[n-1]
		w.spareRuns = w.spareRuns[:n-1]
		return x
	}
	return &execution{}
}
