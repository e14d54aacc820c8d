package winservice

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stop is acknowledged at once and shows progress until the program has ended
// in order; its exit code is the service's.
func TestAStopShowsProgressUntilTheProgramHasEnded(t *testing.T) {
	for _, asked := range []Control{Stop, Shutdown} {
		clock := clockwork.NewFakeClock()
		controls, told, finish := make(chan Control), make(chan Status), make(chan struct{})
		cause := make(chan error, 1)
		code := make(chan int, 1)
		go func() {
			code <- serve(controls, func(s Status) { told <- s }, clock, func(ctx context.Context) int {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				<-finish
				return 3
			})
		}()
		require.Equal(t, Status{}, <-told)
		controls <- Interrogate
		require.Equal(t, Status{}, <-told)
		require.Empty(t, cause)

		controls <- asked
		require.Equal(t, Status{Stopping: true}, <-told)
		if why := <-cause; asked == Stop {
			require.ErrorIs(t, why, context.Canceled)
		} else {
			require.ErrorContains(t, why, "within 4s")
		}
		for i := range uint32(3) {
			clock.Advance(progressEvery)
			require.Equal(t, Status{Stopping: true, Checkpoint: i + 1}, <-told)
		}
		controls <- Stop // asked again: nothing new
		require.Equal(t, Status{Stopping: true, Checkpoint: 3}, <-told)
		close(finish)
		require.Equal(t, 3, <-code)
	}
}

func TestAProgramThatEndsByItselfEndsTheService(t *testing.T) {
	told := make(chan Status, 1)
	require.Equal(t, 4, serve(nil, func(s Status) { told <- s }, clockwork.NewFakeClock(), func(context.Context) int { return 4 }))
	require.Equal(t, Status{}, <-told)
	require.Less(t, progressEvery, Hint)
	require.Less(t, ShutdownLimit, 5*time.Second, "Windows' own limit")
}

func TestEachLineOfTheLogIsAnEventOfItsLevel(t *testing.T) {
	type event struct {
		severity severity
		text     string
	}
	var events []event
	w := logWriter{func(s severity, text string) error {
		events = append(events, event{s, text})
		return nil
	}}
	for _, handler := range []func(*slog.HandlerOptions) slog.Handler{
		func(o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
		func(o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
	} {
		events = nil
		log := slog.New(handler(&slog.HandlerOptions{Level: slog.LevelDebug}))
		log.Debug("a")
		log.Info("b")
		log.Warn("c")
		log.Error("d", "level", "INFO")
		require.Len(t, events, 4)
		for i, want := range []severity{information, information, warning, failure} {
			require.Equal(t, want, events[i].severity, events[i].text)
			require.False(t, bytes.HasSuffix([]byte(events[i].text), []byte("\n")))
		}
	}
	_, _ = w.Write([]byte("iop: the configuration is refused\n"))
	require.Equal(t, event{failure, "iop: the configuration is refused"}, events[4])
}
