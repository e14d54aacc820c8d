package noded

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/node/wake"
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
	require.Len(t, n.probe, 1, "the session is asked for a sign of life")
}
