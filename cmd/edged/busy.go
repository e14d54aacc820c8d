package edged

import (
	"context"
	"net/http"
	"sync"
)

// busy counts the requests inside a handler, so that a stop can wait for them.
// Requests may go on coming while it waits: those that the handler refuses.
type busy struct {
	http.Handler

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed once running is 0; nil until somebody waits
}

// ServeHTTP serves the request and counts it meanwhile.
func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.add(1)
	defer b.add(-1)
	b.Handler.ServeHTTP(w, r)
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

// wait returns true once no request is inside, or false when ctx ends first. It
// is called once, for a handler that has begun to refuse.
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
