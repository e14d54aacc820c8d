package openai

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

// byHand is a provider whose frames the test gives out.
func byHand(steps <-chan dispatch.Frame) doFunc {
	return func(_ context.Context, _ *dispatch.Request, s dispatch.Sink) error {
		g := grant
		for f := range steps {
			if err := s.Frame(&g, &f); err != nil || f.End {
				return err
			}
		}
		return nil
	}
}

// Over HTTP/2, too, a provider's silence is not the client's: nothing waits to be written.
func TestCase_A20_SilenceOfTheProviderIsNoStall(t *testing.T) {
	steps := make(chan dispatch.Frame)
	over(t, byHand(steps), settings(), func(r *rig) {
		clock := clockwork.NewFakeClock()
		r.handler.clock = clock
		go func() {
			steps <- dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta)}
			steps <- dispatch.Frame{Body: []byte(delta)}
		}()
		res, err := r.client.Do(r.request("POST", "/v1/chat/completions", streamed))
		require.NoError(r, err)
		defer res.Body.Close()
		body := bufio.NewReader(res.Body)
		for range 5 {
			for range 4 { // two events
				line(r, body)
			}
			for range 3 {
				require.NoError(r, clock.BlockUntilContext(r.Context(), 1))
				clock.Advance(DefaultStallTimeout)
			}
			require.NoError(r, clock.BlockUntilContext(r.Context(), 1))
			steps <- dispatch.Frame{Body: []byte(delta + delta)}
		}
		steps <- dispatch.Frame{Body: []byte(finish), End: true}
		rest, err := io.ReadAll(body)
		require.NoError(r, err)
		require.Equal(r, asked(delta+delta+finish), string(rest))
	})
}

// toldDeadlines is a writer that keeps what it is told.
type toldDeadlines struct {
	http.ResponseWriter
	set chan time.Time
}

func (d *toldDeadlines) SetWriteDeadline(t time.Time) error { d.set <- t; return nil }

// A write may take its time in full, whenever it began; the one that takes longer fails, and the connection is left without a deadline.
func TestAStallIsCutAfterItsTime(t *testing.T) {
	clock := clockwork.NewFakeClock()
	w := &toldDeadlines{set: make(chan time.Time, 2)}
	s := watchStall(http.NewResponseController(w), clock, DefaultStallTimeout)
	pass := func(d time.Duration) {
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(d)
	}
	s.begin()
	pass(40 * time.Second)
	s.done()
	s.begin()
	pass(20 * time.Second) // the watch looks back: 20 s of the present write have gone by
	pass(40*time.Second - 1)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	require.Empty(t, w.set)
	pass(1)
	require.False(t, (<-w.set).IsZero(), "the write fails")
	s.done()
	s.end()
	require.True(t, (<-w.set).IsZero())

	s = watchStall(http.NewResponseController(w), clock, DefaultStallTimeout)
	pass(DefaultStallTimeout)
	s.end()
	clock.Advance(DefaultStallTimeout)
	require.Empty(t, w.set, "nothing was under way")
}
