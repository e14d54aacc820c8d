package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stop that can wait no longer ends requests: one that may have reached a
// provider has failed, one that has not may be repeated elsewhere.
func TestAStopTellsWhoMayBeRepeated(t *testing.T) {
	r := newRig(t)
	r.connect("n")
	ctx, cut := context.WithCancelCause(t.Context())
	s := sink{got: make(chan struct{}, 4)}
	running := r.do(ctx, request(), &s)
	stream := <-r.taken
	stream.answers <- Frame{Head: &Head{Status: 200}, Body: []byte("one")}
	<-s.got
	waiting := r.do(ctx, request(), &sink{})
	require.Eventually(t, func() bool { return r.broker.Snapshot().QueueTotal == 1 }, 10*time.Second, time.Millisecond)

	cut(ErrStopped)
	err := <-waiting
	require.ErrorIs(t, err, ErrStopped)
	var failed *FailedError
	require.False(t, errors.As(err, &failed))
	<-stream.cancels
	stream.answers <- errors.New("the link was closed")
	require.ErrorAs(t, <-running, &failed)
	require.Equal(t, ProviderDisconnected, failed.Code)
	require.True(t, failed.Started)
	require.True(t, failed.HandedOff)
	require.True(t, failed.Stopped)
	require.Equal(t, "discarded", stream.end)
	r.idle()
	require.Contains(t, r.logs.String(), "outcome=draining")
}
