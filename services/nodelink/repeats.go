package nodelink

import (
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

const (
	// repeatInterval is how often a warning that keeps coming is logged.
	repeatInterval = 10 * time.Minute
	// maxRepeats bounds how many warnings are told apart; peers choose them.
	maxRepeats = 1024
)

// repeats logs warnings about peers that try again and again: each at once, then
// at most once in repeatInterval with the number of those kept back.
type repeats struct {
	clock clockwork.Clock
	log   *slog.Logger

	mu   sync.Mutex
	told map[string]*repeat
}

type repeat struct {
	at   time.Time // last logged
	more int       // since then
}

// warn logs msg unless the same key has been logged lately.
func (r *repeats) warn(key, msg string, attrs ...any) {
	now := r.clock.Now()
	r.mu.Lock()
	last := r.told[key]
	if last != nil && now.Sub(last.at) < repeatInterval {
		last.more++
		r.mu.Unlock()
		r.log.Debug(msg, attrs...) //nolint:sloglint // the callers' are constants
		return
	}
	if last == nil {
		if len(r.told) >= maxRepeats {
			clear(r.told)
		}
		last = &repeat{}
		r.told[key] = last
	}
	more := last.more
	last.at, last.more = now, 0
	r.mu.Unlock()
	if more > 0 {
		attrs = append(attrs, "repeated", more)
	}
	r.log.Warn(msg, attrs...) //nolint:sloglint // the callers' are constants
}
