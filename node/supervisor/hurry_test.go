package supervisor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/node/supervisor"
)

// hurryWindow is the supervisor's.
const hurryWindow = 30 * time.Second

func TestS16_HurryEndsTheWaitAtOnceAndIsUsedUp(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: time.Hour, MaxAttempts: 3})
	for failed := 1; failed < 3; failed++ {
		r.next().end <- errRefused
		r.waiting()
		require.Equal(t, failed, r.sup.Status().Failures)
		r.sup.Hurry() // The clock has not moved.
	}
	r.next().end <- errRefused
	require.ErrorIs(t, r.result(), supervisor.ErrExhausted, "a hurried attempt counts like any other")
	require.Equal(t, 1, r.peak, "one attempt at a time")
}

// A session that the event has broken is lost a little later: the wait that then
// begins is skipped. Only that one, and only if the event was not long ago.
func TestS16_HurryIsGoodForAWaitThatBeginsSoon(t *testing.T) {
	for name, c := range map[string]struct {
		later   time.Duration
		skipped bool
	}{
		"at once":  {0, true},
		"in time":  {hurryWindow, true},
		"too late": {hurryWindow + time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
			c1 := r.next()
			c1.ready()
			r.sup.Hurry()
			r.sup.Hurry() // Of one event or two: one wait.
			r.clock.Advance(c.later)
			c1.end <- errRefused
			if c.skipped {
				r.next().end <- errRefused
			}
			r.waiting()
			require.Equal(t, r.clock.Now().Add(interval), r.sup.Status().NextAttempt)
			r.clock.Advance(interval)
			r.next()
		})
	}
}

func TestS17_ShutdownWinsOverHurry(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
	c := r.next()
	r.sup.Hurry()
	r.stop()
	require.NoError(t, r.result())
	require.Error(t, c.ctx.Err())
	r.sup.Hurry() // After the end it is nothing.
}

// drained is how a session ends whose Edge stops.
type drained struct{ after time.Duration }

func (drained) Error() string              { return "the edge is stopping" }
func (d drained) NotBefore() time.Duration { return d.after }

// The jitter factor of the rig is 1, so the middle of each span shows.
func TestS16_TheEdgesWishMovesTheSpanOfTheWaitByHalfAnIntervalAtMost(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		0:                   interval,
		-time.Hour:          interval,
		interval / 2:        interval,
		interval * 3 / 4:    interval * 5 / 4,
		interval:            interval * 3 / 2,
		30 * time.Second:    interval * 3 / 2,
		1000000 * time.Hour: interval * 3 / 2,
	} {
		t.Run(after.String(), func(t *testing.T) {
			r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
			c := r.next()
			c.ready()
			c.end <- fmt.Errorf("session: %w", drained{after})
			r.waiting()
			require.Equal(t, r.clock.Now().Add(want), r.sup.Status().NextAttempt)
			r.clock.Advance(want)
			r.next().end <- errRefused
			r.waiting()
			require.Equal(t, r.clock.Now().Add(interval), r.sup.Status().NextAttempt, "the wish is for one wait")
		})
	}
}
