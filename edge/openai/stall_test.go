package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/dispatch"
)

// Over HTTP/2, too, a provider's silence is not the client's: nothing waits to be written.
func TestCase_A20_SilenceOfTheProviderIsNoStall(t *testing.T) {
	open(t, settings(), "/v1/chat/completions", streamed, func(x *exchange) {
		x.step(dispatch.Frame{Head: head(200, "text/event-stream"), Body: []byte(delta)})
		for range 5 {
			for range 3 {
				x.pass(1, DefaultStallTimeout)
			}
			x.step(dispatch.Frame{Body: []byte(delta)})
		}
		x.last(dispatch.Frame{Body: []byte(finish), End: true})
		got := <-x.reply
		require.NoError(x, got.err)
		require.Equal(x, asked(strings.Repeat(delta, 6)+finish), got.body)
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
