package supervisor_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/iop-dev/iop/node/supervisor"
)

func TestS17_PoliciesThatWouldNeverEndVisiblyAreRefused(t *testing.T) {
	attempt := func(context.Context, func()) error { return nil }
	for name, c := range map[string]struct {
		policy supervisor.Policy
		say    string
	}{
		"negative limit":                 {supervisor.Policy{Interval: interval, MaxAttempts: -1}, "max_attempts is -1"},
		"unlimited without an interval":  {supervisor.Policy{}, "unlimited attempts need a positive interval"},
		"unlimited, negative interval":   {supervisor.Policy{Interval: -time.Second}, "interval_sec is -1"},
		"negative limit and no interval": {supervisor.Policy{MaxAttempts: -7}, "max_attempts is -7"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := supervisor.New(supervisor.Config{Attempt: attempt, Policy: c.policy})
			require.ErrorContains(t, err, c.say)
		})
	}
}

func TestS17_AFiniteLimitWithoutAnIntervalIsPacedAtTheDefaultWithAWarning(t *testing.T) {
	for _, given := range []time.Duration{0, -time.Second} {
		r := start(t, supervisor.Policy{Interval: given, MaxAttempts: 2})
		require.Contains(t, r.log.String(), "using the default")
		r.next().end <- errRefused
		r.waiting()
		require.Equal(t, r.clock.Now().Add(supervisor.DefaultInterval), r.sup.Status().NextAttempt)
		r.stop()
		require.NoError(t, r.result())
	}
}

// Each wait is the interval × 0.5–1.5, whatever the random source gives, and
// the source is asked once for each wait.
func TestS16_Case_G10_JitterStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "interval"))
		random := rapid.Float64Range(0, 0.9999999).Draw(t, "random")
		clock := clockwork.NewFakeClock()
		asked := 0
		sup, err := supervisor.New(supervisor.Config{
			Attempt: func(context.Context, func()) error { return errRefused },
			Policy:  supervisor.Policy{Interval: interval, MaxAttempts: 2},
			Clock:   clock,
			Random:  func() float64 { asked++; return random },
			Logger:  slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		began := clock.Now()
		done := make(chan error, 1)
		go func() { done <- sup.Run(context.Background()) }()
		if err := clock.BlockUntilContext(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		wait := sup.Status().NextAttempt.Sub(began)
		low, high := time.Duration(0.5*float64(interval)), time.Duration(1.5*float64(interval))
		if wait < low || wait > high {
			t.Errorf("wait of %v for an interval of %v", wait, interval)
		}
		if want := low + time.Duration(random*float64(interval)); (wait - want).Abs() > time.Microsecond {
			t.Errorf("wait of %v for random %v of interval %v, want %v", wait, random, interval, want)
		}
		clock.Advance(wait)
		<-done
		if asked != 1 {
			t.Errorf("the random source was asked %d times for one wait", asked)
		}
	})
}
