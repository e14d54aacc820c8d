package top

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/jonboulle/clockwork"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	"github.com/iop-dev/iop/services/control"
)

const (
	// silence is how long a watch may say nothing: the Edge says something every
	// second.
	silence = 4 * time.Second
	// The first and the longest pause before an Edge is called again.
	firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second
	// pollPace is how often the state is asked for where a watch does not get through.
	pollPace = time.Second
)

// errSilent ends a watch that says nothing.
var errSilent = errors.New("the Edge has gone silent")

// Follower keeps up with the state of an Edge, over its restarts.
type Follower struct {
	Client controlv1connect.ControlServiceClient
	// Context gives a call its token.
	Context func(context.Context) context.Context
	Clock   clockwork.Clock

	state    *controlv1.EdgeNodeSnapshot
	sequence uint64
}

// Update is a new state or, with Err, that the Edge does not answer just now.
type Update struct {
	State *controlv1.EdgeNodeSnapshot
	Err   error
}

// Run follows until ctx ends. tell is called from this goroutine only.
func (f *Follower) Run(ctx context.Context, tell func(Update)) {
	pause := firstPause
	watch := f.watch
	for ctx.Err() == nil {
		told, err := watch(ctx, tell)
		if ctx.Err() != nil {
			return
		}
		if told > 0 {
			pause = firstPause
		}
		switch {
		case errors.Is(err, control.ErrGap):
			f.sequence = 0
			continue
		case errors.Is(err, errSilent) && told == 0:
			// Something between holds streams back: each answer by itself gets through.
			watch = f.poll
		default:
			watch = f.watch
			tell(Update{Err: err})
		}
		select {
		case <-ctx.Done():
		case <-f.Clock.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// watch follows one stream to its end, and returns how many states came.
func (f *Follower) watch(ctx context.Context, tell func(Update)) (told int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := f.Clock.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	request := &controlv1.WatchEdgeNodeSnapshotRequest{InstanceId: f.state.GetInstanceId(), Sequence: f.sequence}
	stream, err := f.Client.WatchEdgeNodeSnapshot(f.Context(ctx), request)
	if err != nil {
		return 0, orCause(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		quiet.Reset(silence)
		next := stream.Msg().GetFull()
		if c := stream.Msg().GetChanges(); c != nil {
			if next, err = control.Apply(f.state, f.sequence, c); err != nil {
				return told, err
			}
		}
		f.state, f.sequence = next, stream.Msg().GetSequence()
		tell(Update{State: next})
		told++
	}
	if err = stream.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return told, orCause(ctx, err)
}

// poll asks again and again, until one call fails.
func (f *Follower) poll(ctx context.Context, tell func(Update)) (told int, err error) {
	ticker := f.Clock.NewTicker(pollPace)
	defer ticker.Stop()
	for {
		res, err := f.Client.GetEdgeNodeSnapshot(f.Context(ctx), &controlv1.GetEdgeNodeSnapshotRequest{})
		if err != nil {
			return told, err
		}
		f.state, f.sequence = res.GetSnapshot(), 0
		tell(Update{State: f.state})
		told++
		select {
		case <-ctx.Done():
			return told, ctx.Err()
		case <-ticker.Chan():
		}
	}
}

// orCause is why ctx was ended, if it was, else err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
