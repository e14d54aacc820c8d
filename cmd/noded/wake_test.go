package noded

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/node/wake"
	"github.com/iop-dev/iop/proto/framecodec"
)

// ended takes the frames of one answer, and says how it ended.
type ended struct{ failure *runtimev1.Failure }

func (e *ended) Frame(f *provider.Frame) error {
	e.failure = f.Failure
	return nil
}

// G21: the monotonic clock stands still in suspend, so the idle limit of a
// connection to a provider does not pass: the event drops it.
func TestCase_G21_AnEventOfTheMachineDropsIdleProviderConnections(t *testing.T) {
	idle, closed := make(chan struct{}, 1), make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateIdle:
			idle <- struct{}{}
		case http.StateClosed:
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()

	config := parse(t, "node: {id: a, edge_url: 'http://127.0.0.1:1', token_file: %q}\n", write(t, "token", "t"))
	n, err := New(options(config, nil))
	require.NoError(t, err)
	defer n.providers.Close(context.Background())
	n.providers.Apply(&runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "p", Type: "openai", BaseUrl: server.URL, Capacity: 1}}})
	var e ended
	body := []byte(`{"model":"m"}`)
	require.NoError(t, n.providers.Run(t.Context(), &runtimev1.RequestBegin{
		ProviderId: "p", Path: "/v1/chat/completions", ContentLength: uint64(len(body)),
	}, body, &e))
	require.Nil(t, e.failure)
	<-idle
	require.Empty(t, closed)

	// Once it has come back from the answer; within less than its idle limit of 4 s.
	require.Eventually(t, func() bool {
		n.happened(wake.Event{Slept: time.Hour})
		return len(closed) == 1
	}, 3*time.Second, 5*time.Millisecond, "the idle connection is still there")
}

// listener is an Edge that accepts every node and tells of its heartbeats.
type listener struct{ heard chan struct{} }

func (l listener) Session(_ context.Context, s *connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]) error {
	for {
		m, err := s.Receive()
		switch {
		case err != nil, m.GetDrain() != nil:
			return nil
		case m.GetHeartbeat() != nil:
			l.heard <- struct{}{}
		case m.GetRegister() != nil:
			if err := s.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{
				GenerationToken: "generation-token", ProtocolVersion: framecodec.ProtocolVersion,
				HeartbeatIntervalMs: 5000, HeartbeatTimeoutMs: 15000, BodyLimitBytes: 1 << 20,
			}}}); err != nil {
				return err
			}
		}
	}
}

func (listener) Work(ctx context.Context, _ *connect.BidiStream[runtimev1.WorkRequest, runtimev1.WorkResponse]) error {
	<-ctx.Done()
	return nil
}

// G04: the session that stands asks for a sign of life at once, so that a dead one
// does not last for the whole heartbeat timeout.
func TestCase_G04_AnEventOfTheMachineProbesTheSession(t *testing.T) {
	l := listener{make(chan struct{}, 10)}
	_, handler := runtimev1connect.NewNodeLinkServiceHandler(l)
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })

	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\n", server.URL, write(t, "token", "t"))
	o := options(config, clockwork.NewFakeClock())
	ready := make(chan struct{}, 1)
	o.Ready = func() { ready <- struct{}{} }
	n, err := New(o)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	<-ready
	n.happened(wake.Event{Slept: time.Hour})
	select {
	case <-l.heard: // The clock has not moved.
	case <-ctx.Done():
		t.Error("the session was not asked")
	}
	stop()
	require.NoError(t, <-done)
}
