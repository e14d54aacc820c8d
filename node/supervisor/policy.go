package supervisor

import (
	"fmt"
	"time"
)

// Unlimited as Policy.MaxAttempts means that the node never gives up.
const Unlimited = 0

// DefaultInterval and DefaultMaxAttempts are what an omitted value means in
// the node's configuration.
const (
	DefaultInterval    = 10 * time.Second
	DefaultMaxAttempts = 10
)

// The actual wait is the interval times a factor in [minJitter, maxJitter), so
// that the nodes of a restarted Edge do not come back in step. The cadence is
// constant: there is no backoff at whose cap the jitter could vanish.
const (
	minJitter = 0.5
	maxJitter = 1.5
)

// Policy paces the attempts to reach the Edge.
type Policy struct {
	// Interval is the mean time between the end of one attempt and the start of
	// the next. Not positive is refused with unlimited attempts and stands for
	// DefaultInterval with a finite number.
	Interval time.Duration
	// MaxAttempts is how many attempts may fail one after another, the first
	// dial included, before the node gives up. Unlimited (0) = it never does.
	MaxAttempts int
}

// check refuses what would never end visibly or would spin.
func (p Policy) check() error {
	if p.MaxAttempts < 0 {
		return fmt.Errorf("reconnect.max_attempts is %d: write 0 for unlimited or a positive number", p.MaxAttempts)
	}
	if p.MaxAttempts == Unlimited && p.Interval <= 0 {
		return fmt.Errorf("reconnect.interval_sec is %v: unlimited attempts need a positive interval", p.Interval.Seconds())
	}
	return nil
}

// wait returns the time until the next attempt for a random number in [0, 1).
// notBefore is what the Edge asked for, 0 = nothing. It moves the span in which
// the wait lies, and never narrows it, so that nodes that were all told the same do not come back
// in step. It counts for one interval at most: an Edge that stops cannot know when
// the next one starts, and a quick restart must not become a long outage.
func (p Policy) wait(random float64, notBefore time.Duration) time.Duration {
	interval := float64(p.Interval)
	shortest := max(interval*minJitter, min(float64(notBefore), interval))
	return time.Duration(shortest + random*interval*(maxJitter-minJitter))
}

// exhausted reports whether that many consecutive failures are the last.
func (p Policy) exhausted(failures int) bool {
	return p.MaxAttempts != Unlimited && failures >= p.MaxAttempts
}
