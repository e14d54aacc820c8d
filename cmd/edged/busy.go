package edged

import (
	"context"
	"net/http"
	"sync"
)

// busy counts the requests inside the handlers it is put around, so that a stop
// can wait for them. Requests may go on coming while it waits: those that the
// handlers refuse.
type busy struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed once running is 0; nil until somebody waits
}

// around returns h, whose requests are counted while they are inside.
func (b *busy) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.add(1)
		defer b.add(-1)
		h.ServeHTTP(w, r)
	})
}

func (b *busy) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running += n
	if b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait returns true once no request is inside, or false when ctx ends first. One
// goroutine calls it, for handlers that have begun to refuse.
func (b *busy) wait(ctx context.Context) bool {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return true
	}
	idle := make(chan struct{})
	b.idle = idle
	b.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
