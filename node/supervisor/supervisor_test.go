package supervisor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/node/supervisor"
)

const interval = 10 * time.Second

func TestS16_Case_G10_UnlimitedOutlastsTheOldBoundAndRegistersOnce(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
	outage := 5 * supervisor.DefaultMaxAttempts
	began := r.clock.Now()
	for i := range outage {
		c := r.next()
		require.Equal(t, i, r.sup.Status().Failures)
		c.end <- errRefused
		r.waiting()
		require.Equal(t, supervisor.Retrying, r.sup.Status().State)
		r.clock.Advance(interval - time.Millisecond)
		select {
		case <-r.calls:
			t.Fatal("an attempt before its time")
		default:
		}
		r.clock.Advance(time.Millisecond)
	}
	c := r.next()
	require.Equal(t, time.Duration(outage)*interval, r.clock.Since(began), "bounded cadence")
	c.ready()
	status := r.sup.Status()
	require.Equal(t, supervisor.Connected, status.State)
	require.Zero(t, status.Failures)
	require.NoError(t, status.LastError)

	r.clock.Advance(24 * time.Hour)
	select {
	case <-r.calls:
		t.Fatal("a second attempt beside a live session")
	default:
	}
	r.stop()
	require.NoError(t, r.result())
	require.Equal(t, supervisor.Stopped, r.sup.Status().State)
	require.Equal(t, 1, r.peak, "one attempt at a time")
}

func TestS16_FirstStateIsConnectingAndTheLogSaysWhatFailedAndWhenNext(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
	c := r.next()
	require.Equal(t, supervisor.Connecting, r.sup.Status().State)
	c.end <- errRefused
	r.waiting()
	status := r.sup.Status()
	require.ErrorIs(t, status.LastError, errRefused)
	require.Equal(t, r.clock.Now().Add(interval), status.NextAttempt)
	r.clock.Advance(interval)
	r.next()
	require.Zero(t, r.sup.Status().NextAttempt)
	require.Contains(t, r.log.String(), `error="connection refused" next_attempt_in=10s failed_attempts=1`)
}

func TestS17_FiniteLimitEndsAfterExactlyThatManyAttempts(t *testing.T) {
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: limit})
			for i := range limit {
				if i > 0 {
					r.waiting()
					r.clock.Advance(interval)
				}
				r.next().end <- errRefused
			}
			err := r.result()
			require.ErrorIs(t, err, supervisor.ErrExhausted)
			require.ErrorIs(t, err, errRefused, "the last failure is told")
			var exhausted *supervisor.ExhaustedError
			require.ErrorAs(t, err, &exhausted)
			require.Equal(t, limit, exhausted.Attempts)
			require.False(t, supervisor.IsFinal(err))
			require.Equal(t, supervisor.Stopped, r.sup.Status().State)
		})
	}
}

func TestS17_Case_G10_AnAcceptedRegistrationResetsTheCount(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: 3})
	for range 4 { // Eight failures, never three in a row.
		for range 2 {
			r.next().end <- errRefused
			r.waiting()
			r.clock.Advance(interval)
		}
		c := r.next()
		c.ready()
		c.end <- errRefused
		r.waiting()
		status := r.sup.Status()
		require.Equal(t, supervisor.Retrying, status.State)
		require.Zero(t, status.Failures, "a lost session is no failed attempt")
		r.clock.Advance(interval)
	}
	for i := range 3 {
		r.next().end <- errRefused
		if i < 2 {
			r.waiting()
			r.clock.Advance(interval)
		}
	}
	require.ErrorIs(t, r.result(), supervisor.ErrExhausted)
}

func TestS17_ShutdownDuringAWaitReturnsAtOnce(t *testing.T) {
	for name, registered := range map[string]bool{"initial": false, "after a session": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, supervisor.Policy{Interval: time.Hour, MaxAttempts: 3})
			c := r.next()
			if registered {
				c.ready()
			}
			c.end <- errRefused
			r.waiting()
			r.stop()
			require.NoError(t, r.result(), "the clock has not moved")
			require.Equal(t, supervisor.Stopped, r.sup.Status().State)
		})
	}
}

func TestS17_ShutdownDuringAnAttemptEndsItAndIsNoFailure(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: 1})
	c := r.next()
	r.stop()
	require.NoError(t, r.result())
	require.ErrorIs(t, c.ctx.Err(), context.Canceled)
}

func TestS17_ShutdownBeforeTheFirstAttemptMakesNone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sup, err := supervisor.New(supervisor.Config{
		Attempt: func(context.Context, func()) error {
			t.Error("an attempt after the shutdown")
			return nil
		},
		Policy: supervisor.Policy{Interval: interval},
	})
	require.NoError(t, err)
	require.NoError(t, sup.Run(ctx))
}

func TestS17_AFinalErrorStopsWithoutAnotherAttempt(t *testing.T) {
	for name, registered := range map[string]bool{"at registration": false, "in a session": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: supervisor.Unlimited})
			c := r.next()
			if registered {
				c.ready()
			}
			refused := fmt.Errorf("registering: %w", supervisor.MarkFinal(errRefused))
			c.end <- refused
			err := r.result()
			require.Equal(t, refused, err)
			require.True(t, supervisor.IsFinal(err))
			require.ErrorIs(t, err, errRefused)
			require.NotErrorIs(t, err, supervisor.ErrExhausted)
			require.Contains(t, r.log.String(), "waiting cannot heal this")
		})
	}
}

func TestS17_AnAttemptThatEndsWithoutAnErrorIsRetriedAndCounted(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: 2})
	r.next().end <- nil
	r.waiting()
	require.ErrorContains(t, r.sup.Status().LastError, "before the edge accepted")
	r.clock.Advance(interval)
	c := r.next()
	c.ready()
	c.end <- nil
	r.waiting()
	require.ErrorContains(t, r.sup.Status().LastError, "ended the session")
	require.Zero(t, r.sup.Status().Failures)
}

func TestS16_ReadyTwiceOrTooLateChangesNothing(t *testing.T) {
	r := start(t, supervisor.Policy{Interval: interval, MaxAttempts: 2})
	first := r.next()
	first.end <- errRefused
	r.waiting()
	first.ready()
	require.Equal(t, supervisor.Retrying, r.sup.Status().State)
	require.Equal(t, 1, r.sup.Status().Failures)
	r.clock.Advance(interval)
	second := r.next()
	second.ready()
	since := r.sup.Status().Since
	r.clock.Advance(time.Second)
	second.ready()
	require.Equal(t, since, r.sup.Status().Since)
}
