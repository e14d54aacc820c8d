package top

import (
	"fmt"
	"time"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// How far apart two counts of an answer's parts are that a rate is made of, and
// after which time without growth it is 0. The Edge tells of growth once a second.
const (
	leastApart = 800 * time.Millisecond
	standstill = 3 * time.Second
)

// rates are the events of each answer per second, from what was counted between
// updates. What a provider puts into an event is not known: they are no tokens.
type rates struct {
	last map[uint64]count
}

type count struct {
	parts uint64
	at    time.Time
	rate  float64
	known bool
}

func (c *rates) update(s *controlv1.EdgeNodeSnapshot) {
	now := s.GetAt().AsTime()
	next := map[uint64]count{}
	for _, r := range s.GetRequests() {
		if r.GetFirstByteAt() == nil {
			continue
		}
		k, ok := c.last[r.GetEnqueueSeq()]
		apart := now.Sub(k.at)
		switch grown := r.GetAnswerParts() - k.parts; {
		case !ok || r.GetAnswerParts() < k.parts:
			k = count{parts: r.GetAnswerParts(), at: now}
		case grown > 0 && apart >= leastApart || apart >= standstill:
			k = count{r.GetAnswerParts(), now, float64(grown) / apart.Seconds(), true}
		}
		next[r.GetEnqueueSeq()] = k
	}
	c.last = next
}

// of is the rate of one answer; "-" while there is none to tell.
func (c *rates) of(r *controlv1.RequestSnapshot) string {
	switch k := c.last[r.GetEnqueueSeq()]; {
	case !k.known || r.GetState() != "streaming":
		return "-"
	case k.rate < 10:
		return fmt.Sprintf("%.1f", k.rate)
	default:
		return fmt.Sprintf("%.0f", k.rate)
	}
}
