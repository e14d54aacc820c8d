package gate

import (
	"container/list"
	"time"

	"github.com/jonboulle/clockwork"
)

// Owner says on whose account an execution runs. The gate only compares it.
type Owner struct {
	// Account is the count of the sender's that the execution appears in; a
	// sender that counts from zero again has another one.
	Account uint64
	// Name tells those apart that are counted separately within one account.
	Name string
}

// Claim is what a caller of Acquire asks for.
type Claim struct {
	Owner Owner
	// Patience is the longest wait while the owner itself holds all slots in use.
	// It counts anew each time that this begins; ≤ 0 does not wait then.
	Patience time.Duration
	// Limit is the longest wait in any case; 0 = none.
	Limit time.Duration
}

// waiter is one Acquire that found the gate full.
type waiter struct {
	claim   Claim         // immutable
	decided chan struct{} // closed, once, when the waiter has left the queue

	// Guarded by Gate.mu; slot may be read without it once decided is closed.
	place    *list.Element   // nil once decided
	slot     *Slot           // nil = none was given
	limit    clockwork.Timer // nil = none
	patience clockwork.Timer // nil while it does not run
}

// queueLocked puts a claim at the end of the queue.
func (g *Gate) queueLocked(c Claim) *waiter {
	w := &waiter{claim: c, decided: make(chan struct{})}
	w.place = g.waiting.PushBack(w)
	if c.Limit > 0 {
		w.limit = g.clock.AfterFunc(c.Limit, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.decideLocked(w, nil)
		})
	}
	g.timeLocked(w)
	return w
}

// reviewLocked follows every change of capacity or count: free places go to the
// longest waiting, and the patience of the others begins or ends.
func (g *Gate) reviewLocked() {
	for g.inUse < g.capacity && g.waiting.Len() > 0 {
		w := g.waiting.Front().Value.(*waiter)
		g.decideLocked(w, g.takeLocked(w.claim.Owner))
	}
	for e := g.waiting.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next() // w may leave the queue
		g.timeLocked(w)
	}
}

// timeLocked runs a waiter's patience while its own hold all slots, and only then.
func (g *Gate) timeLocked(w *waiter) {
	switch foreign := g.foreignLocked(w.claim.Owner); {
	case foreign && w.patience != nil:
		w.patience.Stop()
		w.patience = nil
	case !foreign && w.claim.Patience <= 0:
		g.decideLocked(w, nil)
	case !foreign && w.patience == nil:
		var timer clockwork.Timer
		timer = g.clock.AfterFunc(w.claim.Patience, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if w.patience == timer { // else it was stopped too late
				g.decideLocked(w, nil)
			}
		})
		w.patience = timer
	}
}

// decideLocked ends a wait with a slot, or with none. The first decision counts.
func (g *Gate) decideLocked(w *waiter, slot *Slot) {
	if w.place == nil {
		return
	}
	g.waiting.Remove(w.place)
	w.place, w.slot = nil, slot
	for _, timer := range []clockwork.Timer{w.limit, w.patience} {
		if timer != nil {
			timer.Stop()
		}
	}
	close(w.decided)
}

// withdraw takes a waiter out of the queue; it returns the slot of one that was
// let in just before.
func (g *Gate) withdraw(w *waiter) *Slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decideLocked(w, nil)
	return w.slot
}
