package openai

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
)

// writePiece is the most that is written at once: what a client has to take within the stall limit to count as one that reads.
const writePiece = 64 << 10

// stall ends the connection of a client that takes nothing for the limit, so that it cannot hold its lease. A deadline on the writer would
// not do: over HTTP/2 it ends a stream on which nothing waits to be written, too, and so makes the provider's silence the client's fault.
// One timer a request, which looks back, is also cheaper than a deadline an event.
type stall struct {
	rc    *http.ResponseController
	clock clockwork.Clock
	limit time.Duration
	born  time.Time
	since atomic.Int64 // when the write under way began, in nanoseconds after born, plus 1; 0 = none is

	mu    sync.Mutex
	timer clockwork.Timer
	ended bool
	cut   bool // the writer was told to fail
}

func watchStall(rc *http.ResponseController, clock clockwork.Clock, limit time.Duration) *stall {
	s := &stall{rc: rc, clock: clock, limit: limit, born: clock.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = clock.AfterFunc(limit, s.check)
	return s
}

func (s *stall) begin() { s.since.Store(int64(s.clock.Since(s.born)) + 1) }
func (s *stall) done()  { s.since.Store(0) }

func (s *stall) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // the writer is no longer ours
		return
	}
	next := s.limit
	if since := s.since.Load(); since != 0 {
		next -= s.clock.Since(s.born) - time.Duration(since-1)
	}
	if next <= 0 {
		s.cut = true
		_ = s.rc.SetWriteDeadline(time.Unix(1, 0)) // fails the write under way; unsupported only in writers that are no connection
		return
	}
	s.timer.Reset(next)
}

// end gives the writer up. No write is under way.
func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.timer.Stop()
	if s.cut { // it would outlive the request, had the write succeeded in that very moment
		_ = s.rc.SetWriteDeadline(time.Time{})
	}
}
