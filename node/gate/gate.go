package gate

import (
	"container/list"
	"context"
	"errors"
	"sync"

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
	held     map[Owner]int // slots in use, by owner; never 0
	waiting  list.List     // of *waiter, oldest first
}

// New returns a gate for capacity executions at once; a negative capacity is 0,
// which lets none through.
func New(capacity int, clock clockwork.Clock) *Gate {
	return &Gate{clock: clock, capacity: max(capacity, 0), held: make(map[Owner]int)}
}

// Acquire takes a slot, or waits for one as long as the claim says. Callers are
// served first come, first served, and a caller that arrives while others wait
// never overtakes them. The caller must Release the slot.
//
// It returns ErrBusy when the claim's wait is over and ctx.Err() when ctx ended
// first; no slot is held then.
func (g *Gate) Acquire(ctx context.Context, c Claim) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	if g.inUse < g.capacity && g.waiting.Len() == 0 {
		slot := g.takeLocked(c.Owner)
		g.mu.Unlock()
		return slot, nil
	}
	if c.Patience <= 0 && !g.foreignLocked(c.Owner) {
		g.mu.Unlock()
		return nil, ErrBusy
	}
	w := g.queueLocked(c)
	g.mu.Unlock()

	select {
	case <-w.decided:
	case <-ctx.Done():
		if slot := g.withdraw(w); slot != nil {
			slot.Release()
		}
		return nil, ctx.Err()
	}
	if w.slot == nil {
		return nil, ErrBusy
	}
	return w.slot, nil
}

// Resize sets the capacity; a negative one is 0. Growth lets waiters in at once.
// Shrinking below what is in use ends nothing: running executions finish, and
// nobody is let in until the count has fallen below the new capacity (S08).
func (g *Gate) Resize(capacity int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.capacity = max(capacity, 0)
	g.reviewLocked()
}

// takeLocked counts one more execution.
func (g *Gate) takeLocked(o Owner) *Slot {
	g.inUse++
	g.held[o]++
	return &Slot{gate: g, owner: o}
}

// give takes the execution of a slot off the count.
func (g *Gate) give(o Owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse--
	if g.held[o]--; g.held[o] == 0 {
		delete(g.held, o)
	}
	g.reviewLocked()
}

// foreignLocked tells whether anyone but o holds a slot.
func (g *Gate) foreignLocked(o Owner) bool { return g.inUse != g.held[o] }

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
	gate  *Gate
	owner Owner
	once  sync.Once
}

// Release gives the place back and lets the longest waiting caller in. Every
// call but the first does nothing.
func (s *Slot) Release() {
	s.once.Do(func() { s.gate.give(s.owner) })
}
