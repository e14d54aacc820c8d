//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// load is the clients: each asks, reads, thinks and asks again.
type load struct {
	site     *site
	outcomes *tally
	kinds    *tally
	begun    atomic.Int64
	ended    atomic.Int64
	slowest  atomic.Int64 // nanoseconds
	stopping chan struct{}
	clients  sync.WaitGroup
}

func newLoad(s *site) *load {
	return &load{site: s, outcomes: newTally(), kinds: newTally(), stopping: make(chan struct{})}
}

// start starts n clients, whose requests are drawn from the seed; name is part of
// the requests' ids.
func (l *load) start(name string, seed uint64, n int) {
	for i := range n {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)+1))
		l.clients.Go(func() {
			for j := 1; ; j++ {
				select {
				case <-l.stopping:
					return
				case <-time.After(time.Duration(rnd.IntN(250)) * time.Millisecond):
				}
				l.one(makeCall(rnd, fmt.Sprintf("%s-%d-%d", name, i, j)))
			}
		})
	}
}

// one sends one request and books its one outcome.
func (l *load) one(c call) reply {
	l.begun.Add(1)
	began := time.Now()
	r := l.site.do(c)
	took := time.Since(began)
	for old := l.slowest.Load(); int64(took) > old && !l.slowest.CompareAndSwap(old, int64(took)); old = l.slowest.Load() {
	}
	l.kinds.add(string(c.behaviour))
	l.outcomes.add(r.class)
	if r.bad != "" {
		l.site.verdict.breach("request %s (model %s, stream %t, %s) after %s: %s", c.order.ID, c.model, c.stream, c.behaviour, took.Round(time.Millisecond), r.bad)
	}
	l.ended.Add(1)
	return r
}

// stop lets every client finish its request.
func (l *load) stop() {
	close(l.stopping)
	l.clients.Wait()
}
