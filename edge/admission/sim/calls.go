package sim

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

type callState uint8

const (
	callWaiting callState = iota + 1
	callGranted           // a lease is reserved
	callSent              // handed off
	callEnded
)

// outcome is how a request ended, as its client saw it.
type outcome uint8

const (
	outcomeServed outcome = iota + 1
	outcomeFailed
	outcomeRejected
	outcomeCancelled
	outcomeDisconnected
)

// call is one request at the Edge, as edge/dispatch carries it.
type call struct {
	seq       admission.Seq
	state     callState
	gone      bool // the client has left
	lease     admission.LeaseID
	node, res int
	grantedAt int64
	outcome   outcome
	result    admission.Result
	cancelled admission.LeaseID // whose cancel has reached the node
	run       *execution
}

// What a request waits for, at most.
const (
	takeWait    = 5 * time.Second  // a parked work stream
	silentWait  = 3 * time.Second  // a response head, before the Edge asks
	cancelGrace = 10 * time.Second // the end of a cancelled request
)

func (e *edge) call(seq admission.Seq) *call {
	if seq == 0 || int(seq) > len(e.calls) {
		return nil
	}
	return e.calls[seq-1]
}

func (e *edge) addCall(seq admission.Seq) {
	for len(e.calls) < int(seq) {
		e.calls = append(e.calls, nil)
	}
	c := &call{}
	if n := len(e.spareCalls); n > 0 {
		c, e.spareCalls = e.spareCalls[n-1], e.spareCalls[:n-1]
	}
	*c = call{seq: seq, state: callWaiting}
	e.calls[seq-1] = c
	e.live++
}

// effect gives one effect to its request.
func (e *edge) effect(f *admission.Effect) {
	c := e.call(f.Seq)
	switch f.Kind {
	case admission.Queued:
		// Some clients have less patience than the queue.
		if e.open && e.rng.IntN(4) == 0 {
			e.after(e.span(4*time.Second), event{kind: evLeave, seq: c.seq})
		}
	case admission.Granted:
		e.grants++
		c.state, c.lease, c.grantedAt = callGranted, f.Lease, e.now
		c.res = e.check.ids[f.Resource]
		c.node = c.res / e.site.perNode
		e.after(e.span(4*time.Millisecond), event{kind: evDispatch, seq: c.seq, lease: c.lease})
		if e.open && e.rng.IntN(16) == 0 {
			e.after(e.span(time.Second), event{kind: evLeave, seq: c.seq})
		}
	case admission.Requeued:
		e.remember(c.seq, c.lease)
		c.state, c.lease = callWaiting, 0
	case admission.Rejected:
		c.result = f.Result
		e.results[f.Result]++
		if f.Result == admission.ResultCancelled {
			e.finish(c, outcomeCancelled)
		} else {
			e.finish(c, outcomeRejected)
		}
	case admission.Revoked:
		e.remember(c.seq, c.lease)
		e.finish(c, outcomeDisconnected)
	}
}

// finish gives a request its one outcome.
func (e *edge) finish(c *call, o outcome) {
	if c.state == callEnded {
		e.check.fail(OneOutcome, "request %d ends a second time", c.seq)
		return
	}
	c.state, c.outcome = callEnded, o
	e.outcomes[o]++
	e.live--
}

// close returns the call's lease and ends it.
func (e *edge) close(c *call, o outcome) {
	if e.release(c.seq, c.lease) {
		e.finish(c, o)
	}
}

// arrive brings one request, or several at once.
func (e *edge) arrive() {
	n := 1
	if !e.servesAny() && e.rng.IntN(8) > 0 {
		return // the same refusal a thousand times shows nothing
	}
	if e.rng.IntN(16) == 0 {
		n += e.rng.IntN(8)
	}
	for range n {
		g := e.rng.IntN(len(e.site.groups))
		for range 6 { // mostly to one that can be served
			if e.serves(g) {
				break
			}
			g = e.rng.IntN(len(e.site.groups))
		}
		req := admission.Request{Group: e.site.groupKeys[g], Surface: admission.SurfaceChat}
		switch e.rng.IntN(24) {
		case 0, 1:
			req.Surface = admission.SurfaceEmbeddings
		case 2:
			req.Surface = admission.SurfaceMessages
		}
		if e.rng.IntN(3) == 0 {
			req.Class = admission.Long
		}
		e.enqueue(req)
	}
}

// serves reports whether the group has a live candidate now.
func (e *edge) serves(g int) bool {
	i, ok := e.check.groupIDs[e.site.groupKeys[g]]
	if !ok || !e.check.groups[i].present {
		return false
	}
	_, ok = e.check.meets(&e.check.groups[i].masks[0], &e.check.live)
	return ok
}

func (e *edge) servesAny() bool {
	for g := range e.site.groups {
		if e.serves(g) {
			return true
		}
	}
	return false
}

// leave is a client going away.
func (e *edge) leave(c *call) {
	switch {
	case c.state == callEnded:
		if e.faulty && e.rng.IntN(8) == 0 {
			e.faults[FaultLateCancel]++
			e.cancel(c.seq)
		}
	case c.state == callWaiting:
		e.cancel(c.seq)
	case !c.gone:
		if e.fault(4, FaultLateCancel) {
			e.cancel(c.seq) // after the grant: it must be refused
		}
		c.gone = true
		if c.state == callSent {
			e.toNode(c, evCancel)
			e.after(cancelGrace, event{kind: evGrace, seq: c.seq, lease: c.lease})
		}
	}
}

// dispatch hands a granted request off, if its lease still holds.
func (e *edge) dispatch(c *call, lease admission.LeaseID) {
	if c.state != callGranted || c.lease != lease {
		// Fenced meanwhile, or ended: the hand-off must be refused.
		if e.track(c.seq, lease) {
			e.check.fail(CurrentGen, "request %d is handed off on lease %d, which has ended", c.seq, lease)
		}
		return
	}
	s := e.current[c.node]
	switch {
	case c.gone:
		e.close(c, outcomeCancelled) // the grant lost to the cancel
	case e.fault(256, FaultBuild):
		e.close(c, outcomeFailed)
	case !s.ready && e.now-c.grantedAt >= int64(takeWait), e.fault(256, FaultNoStream):
		e.refuse(c.seq, lease)
	case !s.ready:
		e.after(20*time.Millisecond+e.span(200*time.Millisecond), event{kind: evDispatch, seq: c.seq, lease: lease})
	case !e.track(c.seq, lease):
	case !e.core.IsCurrent(e.site.nodes[c.node], s.gen):
		e.check.fail(CurrentGen, "request %d is handed off on generation %d of %s, which is not current", c.seq, s.gen, e.site.nodes[c.node])
	case e.fault(128, FaultSend):
		e.close(c, outcomeFailed)
	default:
		c.state = callSent
		if e.fault(64, FaultSecondHandOff) {
			e.track(c.seq, lease) // must be refused: it is out already
		}
		if e.fault(256, FaultSilent) {
			e.after(silentWait, event{kind: evNeverSeen, seq: c.seq, lease: lease})
			return
		}
		e.toNode(c, evHandOff)
	}
}

// toNode sends a message about the call over the current session.
func (e *edge) toNode(c *call, kind eventKind) {
	e.after(e.latency(), event{kind: kind, node: int32(c.node), seq: c.seq, lease: c.lease, session: e.current[c.node]})
}

// answerEnd is the end of an answer, whole or not.
func (e *edge) answerEnd(c *call, ev *event) {
	if c.state != callSent || c.lease != ev.lease {
		// A late or duplicate message.
		e.faults[FaultLateEnd]++
		e.release(c.seq, ev.lease)
		return
	}
	o := outcomeServed
	if c.gone {
		o = outcomeCancelled
	}
	e.close(c, o)
	if e.fault(64, FaultDuplicateEnd) {
		e.after(e.latency(), *ev)
	}
}

// refusal is the node's word that nothing was opened.
func (e *edge) refusal(c *call, ev *event) {
	switch {
	case c.state != callSent || c.lease != ev.lease:
		e.faults[FaultLateRefusal]++
		e.refuse(c.seq, ev.lease)
		return
	case c.gone:
		e.close(c, outcomeCancelled)
	default:
		e.refusals++
		e.refuse(c.seq, ev.lease)
	}
	if e.fault(32, FaultDuplicateRefusal) {
		e.after(e.latency(), *ev)
	}
}
