package edged

import (
	"context"
	"net/http"
	"sync"
)

// busy counts the requests inside a handler, so that a stop can wait for them.
type busy struct {
	http.Handler
	running sync.WaitGroup
}

// ServeHTTP serves the request and counts it meanwhile.
func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.running.Add(1)
	defer b.running.Done()
	b.Handler.ServeHTTP(w, r)
}

// wait returns true once no request is inside, or false when ctx ends first. It
// is for a handler that has begun to refuse, so that the count only falls.
func (b *busy) wait(ctx context.Context) bool {
	idle := make(chan struct{})
	go func() {
		b.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
