package nodelink

import (
	"time"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// Cancel implements dispatch.Stream. The slot is held until the node confirms by
// the final frame. A node that lives and never does, whatever is wrong with it,
// holds it no longer than the contract gives it.
func (h *handOff) Cancel() {
	if h.cancelled.Swap(true) {
		return
	}
	s := h.stream.session
	s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Cancel{
		Cancel: &runtimev1.Cancel{StreamId: h.stream.id, RequestNumber: h.number},
	}})
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.letGo == 0 { // nothing of the request is sent yet
		h.letGo = 2*s.service.cfg.HeartbeatTimeout + drainPatience
	}
	if h.stream.held == h {
		h.unsure = s.service.cfg.Clock.AfterFunc(h.letGo, h.overstay)
	}
}

// bound notes how long a cancel of this request may take by what the node was told
// of its provider: its grace, after an answer that may have to be read to its end.
// A node may besides be frozen for as long as its silence is borne, before the
// cancel reaches it and again before its confirmation leaves it.
func (h *handOff) bound(provider string) {
	s := h.stream.session
	s.mu.Lock()
	defer s.mu.Unlock()
	h.letGo = 2 * s.service.cfg.HeartbeatTimeout
	for _, p := range s.providers.GetProviders() {
		if p.GetId() != provider {
			continue
		}
		h.letGo += time.Duration(p.GetCancelGraceMs()) * time.Millisecond
		if p.GetCancel() == "drain" {
			h.letGo += drainPatience
		}
	}
}

// overstay ends the stream of a request whose cancel was never confirmed: its
// holder's reads and writes fail, and the node's gate goes on counting what it
// still runs.
func (h *handOff) overstay() {
	s := h.stream.session
	s.mu.Lock()
	late := h.stream.held == h
	if late {
		h.stream.broken = true // no other request is given it
	}
	s.mu.Unlock()
	if late {
		h.stream.transport.sever()
		s.service.cfg.Logger.Warn("a node did not confirm a cancel: the stream is ended and the slot given back",
			"node", s.node.id, "stream", h.stream.id, "waited", h.letGo)
	}
}

// rest ends the watch on a cancel. Called with session.mu.
func (h *handOff) rest() {
	if h.unsure != nil {
		h.unsure.Stop()
	}
}
