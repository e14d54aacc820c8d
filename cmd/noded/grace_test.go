package noded

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within is the cause of a hasty stop.
type within time.Duration

func (within) Error() string              { return "hasty" }
func (w within) StopLimit() time.Duration { return time.Duration(w) }

func TestS12_AHastyStopEndsItsRequestsBeforeTheProcessIsGone(t *testing.T) {
	const configured = 30 * time.Second
	for _, c := range []struct {
		cause error
		want  time.Duration
	}{
		{nil, configured},
		{errors.New("SIGTERM"), configured},
		{within(5 * time.Second), 3 * time.Second},
		{within(time.Second), 0},
		{within(time.Hour), configured},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		child, stop := context.WithCancel(ctx)
		cancel(c.cause)
		require.Equal(t, c.want, graceOf(child, configured), "%v", c.cause)
		stop()
	}
}
