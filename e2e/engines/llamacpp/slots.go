package llamacpp

import "sync"

// slots are the places that run requests. Who finds none waits in a queue whose
// last comes first: the real one promises no order either.
type slots struct {
	mu         sync.Mutex
	busy       []bool
	waiting    []chan int
	peakBusy   int
	peakQueued int
}

func newSlots(n int) *slots { return &slots{busy: make([]bool, n)} }

// acquire returns the id of a slot of the caller's own, or ok false when gone is
// closed first.
func (s *slots) acquire(gone <-chan struct{}) (id int, ok bool) {
	s.mu.Lock()
	for id, busy := range s.busy {
		if !busy {
			s.busy[id] = true
			s.peakBusy = max(s.peakBusy, s.running())
			s.mu.Unlock()
			return id, true
		}
	}
	turn := make(chan int, 1)
	s.waiting = append(s.waiting, turn)
	s.peakQueued = max(s.peakQueued, len(s.waiting))
	s.mu.Unlock()
	select {
	case id := <-turn:
		return id, true
	case <-gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.waiting {
		if w == turn {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return 0, false
		}
	}
	s.next(<-turn) // it was given one at the same moment
	return 0, false
}

// release gives the slot to the last who waits.
func (s *slots) release(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next(id)
}

// next passes a slot on. The caller holds mu.
func (s *slots) next(id int) {
	if last := len(s.waiting) - 1; last >= 0 {
		s.waiting[last] <- id
		s.waiting = s.waiting[:last]
		return
	}
	s.busy[id] = false
}

// running counts the busy ones. The caller holds mu.
func (s *slots) running() int {
	n := 0
	for _, busy := range s.busy {
		if busy {
			n++
		}
	}
	return n
}

// state is which slots are busy, and how many requests wait.
func (s *slots) state() (busy []bool, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]bool(nil), s.busy...), len(s.waiting)
}
