package top

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// scripted is a control service each of whose watches is the test's.
type scripted struct {
	controlv1connect.UnimplementedControlServiceHandler
	watches chan *watching
	state   *controlv1.EdgeNodeSnapshot
}

type watching struct {
	request *controlv1.WatchEdgeNodeSnapshotRequest
	send    chan *controlv1.WatchEdgeNodeSnapshotResponse
	end     chan error
	left    <-chan struct{}
}

func (s *scripted) WatchEdgeNodeSnapshot(
	ctx context.Context, req *controlv1.WatchEdgeNodeSnapshotRequest, stream *connect.ServerStream[controlv1.WatchEdgeNodeSnapshotResponse],
) error {
	w := &watching{req, make(chan *controlv1.WatchEdgeNodeSnapshotResponse), make(chan error), ctx.Done()}
	select {
	case s.watches <- w:
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		select {
		case u := <-w.send:
			if err := stream.Send(u); err != nil {
				return err
			}
		case err := <-w.end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *scripted) GetEdgeNodeSnapshot(context.Context, *controlv1.GetEdgeNodeSnapshotRequest) (*controlv1.GetEdgeNodeSnapshotResponse, error) {
	return &controlv1.GetEdgeNodeSnapshotResponse{Snapshot: s.state}, nil
}

// following is a follower of a scripted Edge.
type following struct {
	*scripted
	clock *clockwork.FakeClock
	told  chan Update
}

func follow(t *testing.T) *following {
	f := &following{&scripted{watches: make(chan *watching), state: &controlv1.EdgeNodeSnapshot{EdgeId: "polled"}}, clockwork.NewFakeClock(), make(chan Update)}
	mux := http.NewServeMux()
	mux.Handle(controlv1connect.NewControlServiceHandler(f.scripted))
	server := httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	client := server.Client()
	go func() {
		defer close(ended)
		(&Follower{
			Client: controlv1connect.NewControlServiceClient(client, server.URL), Clock: f.clock,
			Context: func(ctx context.Context) context.Context { return ctx },
		}).Run(ctx, func(u Update) {
			select {
			case f.told <- u:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		client.CloseIdleConnections()
		server.Close()
	})
	return f
}

func full(sequence uint64, instance, id string) *controlv1.WatchEdgeNodeSnapshotResponse {
	return &controlv1.WatchEdgeNodeSnapshotResponse{Sequence: sequence, Update: &controlv1.WatchEdgeNodeSnapshotResponse_Full{
		Full: &controlv1.EdgeNodeSnapshot{InstanceId: instance, EdgeId: id},
	}}
}

func changes(from, sequence uint64, id string) *controlv1.WatchEdgeNodeSnapshotResponse {
	return &controlv1.WatchEdgeNodeSnapshotResponse{Sequence: sequence, Update: &controlv1.WatchEdgeNodeSnapshotResponse_Changes{
		Changes: &controlv1.SnapshotChanges{FromSequence: from, Rest: &controlv1.EdgeNodeSnapshot{InstanceId: "a", EdgeId: id}},
	}}
}

func TestS07_AFollowerComesBackToWhereItWas(t *testing.T) {
	f := follow(t)
	w := <-f.watches
	require.Empty(t, w.request.GetInstanceId())
	w.send <- full(7, "a", "one")
	require.Equal(t, "one", (<-f.told).State.GetEdgeId())
	w.send <- changes(7, 8, "two")
	require.Equal(t, "two", (<-f.told).State.GetEdgeId())
	w.end <- connect.NewError(connect.CodeUnavailable, errors.New("the Edge stops"))
	require.ErrorContains(t, (<-f.told).Err, "the Edge stops")

	require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1))
	f.clock.Advance(firstPause)
	w = <-f.watches
	require.Equal(t, "a", w.request.GetInstanceId())
	require.Equal(t, uint64(8), w.request.GetSequence())
	w.send <- full(1, "b", "another process")
	require.Equal(t, "another process", (<-f.told).State.GetEdgeId())

	// Changes that do not follow: it asks for everything.
	w.send <- changes(5, 6, "lost")
	w = <-f.watches
	require.Zero(t, w.request.GetSequence())
	w.send <- full(6, "b", "whole")
	require.Equal(t, "whole", (<-f.told).State.GetEdgeId())
}

func TestU12_AWatchThatFallsSilentIsLeft(t *testing.T) {
	f := follow(t)
	w := <-f.watches
	w.send <- full(1, "a", "one")
	<-f.told
	require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1)) // the limit of the silence
	f.clock.Advance(silence)
	require.ErrorIs(t, (<-f.told).Err, errSilent)
	<-w.left
	require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1))
	f.clock.Advance(firstPause)
	w = <-f.watches
	w.send <- full(2, "a", "back")
	require.Equal(t, "back", (<-f.told).State.GetEdgeId())
}

// A proxy may hold streams back: then each answer is asked for by itself.
func TestAWatchThatDoesNotGetThroughIsReplacedByCalls(t *testing.T) {
	f := follow(t)
	w := <-f.watches
	require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1))
	f.clock.Advance(silence)
	<-w.left
	require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1))
	f.clock.Advance(firstPause)
	for range 3 {
		require.Equal(t, "polled", (<-f.told).State.GetEdgeId())
		require.NoError(t, f.clock.BlockUntilContext(t.Context(), 1))
		f.clock.Advance(pollPace)
	}
}

func TestPausesGrowWhileAnEdgeIsAway(t *testing.T) {
	clock := clockwork.NewFakeClock()
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan Update), make(chan struct{})
	go func() {
		defer close(ended)
		(&Follower{
			Client:  controlv1connect.NewControlServiceClient(&http.Client{Transport: refusing{}}, "http://edge"),
			Context: func(ctx context.Context) context.Context { return ctx }, Clock: clock,
		}).Run(ctx, func(u Update) { told <- u })
	}()
	for pause := firstPause; pause <= longestPause; pause *= 2 {
		require.ErrorContains(t, (<-told).Err, "connection refused")
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(pause - time.Millisecond)
		select {
		case <-told:
			t.Fatal("too soon")
		default:
		}
		clock.Advance(time.Millisecond)
	}
	<-told
	cancel()
	<-ended
}

// refusing is a network without the Edge.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}
