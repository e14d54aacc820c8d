package wake

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"
)

const (
	// period is how often the watch looks: an event is told this late at most.
	period = time.Second
	// leap is how much more time than period must have passed to count as sleep.
	// Less is what a busy machine does to any process, and breaks no connection.
	leap = 3 * time.Second
)

// Event is what happened since the tick before; at least one field is set.
type Event struct {
	// Slept is about how long the machine or the process stood still.
	Slept time.Duration
	// NetworkChanged says that addresses have come or gone. Loopback and
	// link-local ones do not count: no Edge but one on this machine is reached
	// by them, and containers change theirs all the time.
	NetworkChanged bool
}

// Watch tells of events until ctx ends. notify is called by Watch itself, one call
// at a time, and must not block.
func Watch(ctx context.Context, clock clockwork.Clock, notify func(Event)) {
	w := watcher{
		clock:     clock,
		wall:      func() time.Time { return clock.Now().Round(0) },
		addresses: net.InterfaceAddrs,
		notify:    notify,
	}
	w.run(ctx)
}

// watcher is the state of one Watch. It is its goroutine's alone.
type watcher struct {
	clock clockwork.Clock // ticks; its differences are monotonic
	// wall reads the wall clock, without a monotonic part.
	wall      func() time.Time
	addresses func() ([]net.Addr, error)
	notify    func(Event)

	lastMonotonic, lastWall time.Time
	lastAddresses           []string
}

func (w *watcher) run(ctx context.Context) {
	w.look() // The first look has nothing to compare with.
	ticker := w.clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
			if e := w.look(); e != (Event{}) {
				w.notify(e)
			}
		}
	}
}

// look is what has happened since the last call.
func (w *watcher) look() Event { return Event{Slept: w.slept(), NetworkChanged: w.moved()} }

// slept is how much longer than a period the time since the last call was; 0 if
// that is no leap. A wall clock that is set back is no sleep.
func (w *watcher) slept() time.Duration {
	monotonic, wall := w.clock.Now(), w.wall()
	passed := max(monotonic.Sub(w.lastMonotonic), wall.Sub(w.lastWall))
	w.lastMonotonic, w.lastWall = monotonic, wall
	if passed < period+leap {
		return 0
	}
	return passed - period
}

// moved reports whether the addresses differ from those at the last call.
func (w *watcher) moved() bool {
	now, ok := w.present()
	if !ok || slices.Equal(now, w.lastAddresses) {
		return false
	}
	w.lastAddresses = now
	return true
}

// present is the addresses that count, in order; false if they cannot be read.
func (w *watcher) present() ([]string, bool) {
	all, err := w.addresses()
	if err != nil {
		return w.lastAddresses, false
	}
	var texts []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			texts = append(texts, n.String())
		}
	}
	slices.Sort(texts)
	return texts, true
}
