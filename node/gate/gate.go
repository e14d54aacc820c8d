package gate

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// ErrBusy says that the gate stayed full for as long as the caller would wait.
// Nothing was let in.
var ErrBusy = errors.New("gate: full")

// Gate lets at most its capacity of executions through at once and queues the
// rest in order of arrival. All methods may be called from any goroutine.
type Gate struct {
	clock clockwork.Clock

	mu       sync.Mutex
	capacity int
	inUse    int
	waiting  list.List // of *waiter, oldest first
}

// waiter is one Acquire that found the gate full.
type waiter struct {
	// admitted is closed, once, by whoever gives the waiter its place.
	admitted chan struct{}
}

// New returns a gate for capacity executions at once; a negative capacity is 0,
// which lets none through.
func New(capacity int, clock clockwork.Clock) *Gate {
	return &Gate{clock: clock, capacity: max(capacity, 0)}
}

// Acquire takes a place, waiting at most wait for one; wait ≤ 0 never waits.
// Callers are served first come, first served, and a caller that arrives while
// others wait never overtakes them. The caller must Release the slot.
//
// It returns ErrBusy when wait is over and ctx.Err() when ctx ended first; no
// place is held then.
func (g *Gate) Acquire(ctx context.Context, wait time.Duration) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	if g.inUse < g.capacity && g.waiting.Len() == 0 {
		g.inUse++
		g.mu.Unlock()
		return &Slot{gate: g}, nil
	}
	if wait <= 0 {
		g.mu.Unlock()
		return nil, ErrBusy
	}
	w := &waiter{admitted: make(chan struct{})}
	place := g.waiting.PushBack(w)
	g.mu.Unlock()

	timer := g.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.admitted:
		return &Slot{gate: g}, nil
	case <-timer.Chan():
		if g.leave(w, place) {
			return nil, ErrBusy
		}
		// The place came in the same instant: it is taken rather than wasted.
		return &Slot{gate: g}, nil
	case <-ctx.Done():
		if !g.leave(w, place) {
			(&Slot{gate: g}).Release()
		}
		return nil, ctx.Err()
	}
}

// leave takes a waiter out of the queue; false if it has a place already.
func (g *Gate) leave(w *waiter, place *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.admitted:
		return false
	default:
		g.waiting.Remove(place)
		return true
	}
}

// Resize sets the capacity; a negative one is 0. Growth lets waiters in at once.
// Shrinking below what is in use ends nothing: running executions finish, and
// nobody is let in until the count has fallen below the new capacity (S08).
func (g *Gate) Resize(capacity int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.capacity = max(capacity, 0)
	g.admitLocked()
}

// admitLocked gives free places to the longest waiting.
func (g *Gate) admitLocked() {
	for g.inUse < g.capacity && g.waiting.Len() > 0 {
		w := g.waiting.Remove(g.waiting.Front()).(*waiter)
		g.inUse++
		close(w.admitted)
	}
}

// Capacity is the number of executions the gate lets through at once.
func (g *Gate) Capacity() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.capacity
}

// InUse is the number of slots taken and not yet released. It exceeds the
// capacity only after a Resize below it.
func (g *Gate) InUse() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inUse
}

// Waiting is the number of callers waiting in Acquire.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

// Slot is one place in a gate.
type Slot struct {
	gate *Gate
	once sync.Once
}

// Release gives the place back and lets the longest waiting caller in. Every
// call but the first does nothing.
func (s *Slot) Release() {
	s.once.Do(func() {
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		s.gate.inUse--
		s.gate.admitLocked()
	})
}
