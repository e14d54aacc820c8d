//go:build linux

package main

import (
	"sync"
	"time"
)

// outages are the times in which the Edge was not there for its clients.
type outages struct {
	mu  sync.Mutex
	all []outage
}

type outage struct {
	begin   time.Time
	end     time.Time // zero while it lasts
	orderly bool      // the Edge was asked to stop: what runs is to be finished
}

// begin is called before the Edge is told or killed; the caller calls what it
// returns once the Edge serves again.
func (o *outages) begin(orderly bool) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(o.all)
	o.all = append(o.all, outage{begin: time.Now(), orderly: orderly})
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all[i].end = time.Now()
	}
}

// excuse reports whether an outage may have cost a request its connection: one
// that began at that time and had (or had not) seen the head of its answer. An
// orderly stop excuses only those which the Edge may not have had yet: slack is
// how long before the stop they may have begun.
func (o *outages) excuse(began time.Time, head bool, slack time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.all {
		if !x.end.IsZero() && x.end.Before(began) {
			continue
		}
		if !x.orderly || !head && x.begin.Add(-slack).Before(began) {
			return true
		}
	}
	return false
}
