package sim

import "github.com/iop-dev/iop/edge/admission"

// eventKind is what happens at a moment of virtual time.
type eventKind uint8

const (
	evArrive      eventKind = iota + 1 // a client sends a request
	evLeave                            // a client goes away
	evExpire                           // the Edge's one timer
	evDispatch                         // the Edge hands a granted request off
	evNeverSeen                        // the Edge hears that a silent hand-off was not seen
	evGrace                            // the Edge waits no longer for a cancelled request's end
	evAnswerEnd                        // the Edge gets an answer's end
	evRefusal                          // the Edge gets a refusal: nothing was opened
	evRegister                         // the Edge gets a registration
	evClose                            // the Edge gets the end of a session
	evDrain                            // the Edge gets a drain notice
	evBeat                             // the Edge looks for a session's heartbeat
	evDial                             // a node tries to connect
	evAccept                           // a node hears that it was accepted
	evConfig                           // a node gets its configuration
	evHandOff                          // a node gets a request
	evCancel                           // a node gets a cancel
	evGateTimeout                      // a request has waited long enough in a gate
	evServed                           // a provider is done
	evGiveUp                           // a node notices that its session is dead
)

// event is one entry of the calendar; which fields count depends on the kind.
type event struct {
	at      int64
	ord     uint64 // breaks ties, in the order of scheduling
	kind    eventKind
	node    int32
	seq     admission.Seq
	lease   admission.LeaseID
	session *session
	run     *execution
}

// background events come whether anything goes on or not.
func (e *event) background() bool {
	return e.kind == evExpire || e.kind == evBeat || e.kind == evDial || e.kind == evRegister || e.kind == evAccept || e.kind == evConfig || e.kind == evGiveUp
}

// calendar is a binary heap of events by time, then order.
type calendar struct {
	heap    []event
	ord     uint64
	pending int // events that are not background
}

func (c *calendar) before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.ord < b.ord }

func (c *calendar) schedule(e event) {
	c.ord++
	e.ord = c.ord
	if !e.background() {
		c.pending++
	}
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(&e, &c.heap[parent]) {
			break
		}
		c.heap[i] = c.heap[parent]
		i = parent
	}
	c.heap[i] = e
}

func (c *calendar) pop() event {
	first, last := c.heap[0], len(c.heap)-1
	e := c.heap[last]
	c.heap[last] = event{}
	c.heap = c.heap[:last]
	i := 0
	for last > 0 {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && c.before(&c.heap[child+1], &c.heap[child]) {
			child++
		}
		if !c.before(&c.heap[child], &e) {
			break
		}
		c.heap[i] = c.heap[child]
		i = child
	}
	if last > 0 {
		c.heap[i] = e
	}
	if !first.background() {
		c.pending--
	}
	return first
}
