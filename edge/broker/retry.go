package broker

import "time"

// The bounds of every Retry-After that the broker computes.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 60 * time.Second
)

// serviceTime is a moving average of how long leases are held: each new one
// counts for an eighth.
type serviceTime struct {
	mean time.Duration
	any  bool
}

func (s *serviceTime) add(d time.Duration) {
	if !s.any {
		s.mean, s.any = d, true
		return
	}
	s.mean += (d - s.mean) / 8
}

// retryAfterLocked estimates when a slot may be free: the time for everybody
// who runs or waits to be served by the slots there are, within bounds.
func (b *Broker) retryAfterLocked() time.Duration {
	waiting, slots := b.core.Pressure()
	if slots == 0 {
		return maxRetryAfter
	}
	d := b.service.mean * time.Duration(waiting+slots) / time.Duration(slots)
	return min(max(d, minRetryAfter), maxRetryAfter)
}
