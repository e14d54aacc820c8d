//go:build linux

package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// verdict collects what was broken. It is safe for concurrent use.
type verdict struct {
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	breaches int
	notes    map[string]int // what could not be judged, by kind
}

// maxShown is how many breaches are printed; all are counted.
const maxShown = 40

func newVerdict(out io.Writer) *verdict {
	return &verdict{out: out, began: time.Now(), notes: map[string]int{}}
}

// breach records that a promise was broken.
func (v *verdict) breach(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breaches++
	if v.breaches <= maxShown {
		fmt.Fprintf(v.out, "BREACH at %s (%s): %s\n", v.since(), time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// note counts something that is no breach but worth a line in the report.
func (v *verdict) note(kind string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.notes[kind]++
}

func (v *verdict) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.breaches
}

func (v *verdict) since() time.Duration { return time.Since(v.began).Round(time.Millisecond) }

// lag is how late this program itself is at the moment: bounds that depend on
// its own goroutines being scheduled are widened by it.
type lag struct {
	mu     sync.Mutex
	recent [20]time.Duration // the worst of each tenth of a second
	at     int
	worst  time.Duration
}

// watch measures until stop is closed.
func (l *lag) watch(stop <-chan struct{}) {
	const tick = 10 * time.Millisecond
	for i := 1; ; i++ {
		before := time.Now()
		select {
		case <-stop:
			return
		case <-time.After(tick):
		}
		late := time.Since(before) - tick
		l.mu.Lock()
		if i%10 == 0 {
			l.at = (l.at + 1) % len(l.recent)
			l.recent[l.at] = 0
		}
		l.recent[l.at] = max(l.recent[l.at], late)
		l.worst = max(l.worst, late)
		l.mu.Unlock()
	}
}

// now is the worst delay of the last two seconds.
func (l *lag) now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var w time.Duration
	for _, r := range l.recent {
		w = max(w, r)
	}
	return w
}

func (l *lag) max() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst
}
