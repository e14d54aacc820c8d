package edged

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnlyAHastyStopShortensTheGrace(t *testing.T) {
	const configured = 30 * time.Second
	for cause, want := range map[error]time.Duration{
		nil:                                configured, // context.Canceled
		StopWithin(closeLimit + 1):         1,
		StopWithin(closeLimit / 2):         0,
		StopWithin(configured + time.Hour): configured,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		child, stop := context.WithCancel(ctx)
		require.Equal(t, want, graceOf(child, configured), "%v", cause)
		stop()
	}
}
