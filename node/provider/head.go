package provider

import (
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// headHold is how long the head of a stream is held back to travel with the
// first bytes. After it the head goes alone: clients give up on a server that
// sends no head for minutes, and some engines send theirs before a long prompt.
const headHold = time.Second

// heldHead is the head of a stream that waits for its first bytes. Either the
// reader of the stream takes it, or its timer sends it; never both.
type heldHead struct {
	head    *runtimev1.ResponseHead
	decided atomic.Bool
	timer   clockwork.Timer
	// sent is closed when the timer's frame is written; err is its outcome.
	sent chan struct{}
	err  error
}

// holdHead holds head back for headHold.
func (x *exchange) holdHead(head *runtimev1.ResponseHead) *heldHead {
	h := &heldHead{head: head, sent: make(chan struct{})}
	x.mu.Lock()
	defer x.mu.Unlock()
	h.timer = x.armLocked(headHold, func() { x.sendHead(h) })
	return h
}

// sendHead writes the head alone, unless it is taken or of no more use.
func (x *exchange) sendHead(h *heldHead) {
	if x.halted() || !h.decided.CompareAndSwap(false, true) {
		return
	}
	h.err = x.out.Frame(&Frame{Head: h.head})
	close(h.sent)
	if h.err != nil {
		x.stop(readerGone)
	}
}

// take returns the head if it is still to be sent, and nil after it was sent
// alone; then err is what came of that. Nothing but the caller writes frames
// afterwards.
func (h *heldHead) take() (*runtimev1.ResponseHead, error) {
	if h.decided.CompareAndSwap(false, true) {
		h.timer.Stop()
		return h.head, nil
	}
	<-h.sent
	return nil, h.err
}
