package admission

import "time"

// serviceTime is a moving average of how long a resource's leases are held, from
// grant to release; each new one counts for an eighth.
type serviceTime struct{ mean time.Duration }

func (s *serviceTime) add(d time.Duration) {
	if s.mean == 0 {
		s.mean = d
		return
	}
	s.mean += (d - s.mean) / 8
}

// retryAfter estimates how long a newcomer of the line would wait: everybody who
// is ahead at its live candidates, served at their recent pace by all the slots
// they have. 0 means that nothing is known yet.
func (l *line) retryAfter() time.Duration {
	var ahead, slots int
	var paced, pace time.Duration // slots with a known pace, and the sum of their means
	for i := range l.links {
		res := l.links[i].res
		if res.excluded() != ReasonNone {
			continue
		}
		n := res.cfg.Capacity
		if l.class == Long && res.cfg.LongCapacity > 0 {
			n = min(n, res.cfg.LongCapacity)
		}
		slots += n
		ahead = max(ahead, res.pressure[Normal]+res.pressure[Long])
		if mean := res.service.mean; mean > 0 {
			paced += time.Duration(n)
			pace += mean * time.Duration(n)
		}
	}
	if slots == 0 || paced == 0 {
		return 0
	}
	return pace / paced * time.Duration(ahead+1) / time.Duration(slots)
}
