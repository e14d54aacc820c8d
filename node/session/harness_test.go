package session

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/proto/framecodec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	edgeSession = connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]
	edgeWork    = connect.BidiStream[runtimev1.WorkRequest, runtimev1.WorkResponse]
)

// puppetEdge does only what a test makes it do, with the standard protobuf
// codec. Its handlers wait for the test's end, because the test writes to their
// streams.
type puppetEdge struct {
	t        *testing.T
	ctx      context.Context
	over     chan struct{}
	sessions chan *edgeSession
	works    chan *edgeWork
	url      string
	clock    *clockwork.FakeClock
	endFirst map[string]chan struct{} // closed to end the streams of that id
}

func (e *puppetEdge) Session(ctx context.Context, s *edgeSession) error {
	select {
	case e.sessions <- s:
	case <-e.over:
	}
	<-e.over
	return nil
}

func (e *puppetEdge) Work(ctx context.Context, s *edgeWork) error {
	if err := s.Send(nil); err != nil {
		return err
	}
	select {
	case e.works <- s:
	case <-e.over:
	}
	select {
	case <-e.over:
	case <-e.endFirst[s.RequestHeader().Get(framecodec.HeaderStreamID)]:
	}
	return nil
}

func newPuppetEdge(t *testing.T, useTLS bool) (*puppetEdge, *httptest.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	e := &puppetEdge{
		t: t, ctx: ctx, over: make(chan struct{}), clock: clockwork.NewFakeClock(),
		sessions: make(chan *edgeSession, 1), works: make(chan *edgeWork, 100),
		endFirst: map[string]chan struct{}{"1": make(chan struct{})},
	}
	_, handler := runtimev1connect.NewNodeLinkServiceHandler(e)
	server := httptest.NewUnstartedServer(handler)
	if useTLS {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
	}
	e.url = server.URL
	t.Cleanup(func() {
		close(e.over)
		server.CloseClientConnections()
		server.Close()
		cancel()
	})
	return e, server
}

func await[T any](e *puppetEdge, ch <-chan T) T {
	e.t.Helper()
	select {
	case v := <-ch:
		return v
	case <-e.ctx.Done():
		require.FailNow(e.t, "timed out")
		panic("unreachable")
	}
}

type runFunc func(context.Context, *runtimev1.RequestBegin, []byte, provider.Writer) error

type testProviders struct {
	run     runFunc
	applied chan []*runtimev1.Provider
}

func (p *testProviders) ApplyAnew(set *runtimev1.ProviderSet) { p.applied <- set.GetProviders() }

func (p *testProviders) Apply(set *runtimev1.ProviderSet) { p.applied <- set.GetProviders() }

func (p *testProviders) Run(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
	return p.run(ctx, begin, body, out)
}

func mustNotRun(t *testing.T) runFunc {
	return func(context.Context, *runtimev1.RequestBegin, []byte, provider.Writer) error {
		t.Error("a request was run")
		return nil
	}
}

type running struct {
	e         *puppetEdge
	session   *edgeSession
	providers *testProviders
	ready     chan struct{}
	stop      context.CancelFunc
	done      chan error
}

// start runs a session up to its Register, which it returns.
func (e *puppetEdge) start(run runFunc, changes ...func(*Config)) (*running, *runtimev1.Register) {
	e.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{
		e: e, providers: &testProviders{run: run, applied: make(chan []*runtimev1.Provider, 10)},
		ready: make(chan struct{}), stop: stop, done: make(chan error, 1),
	}
	cfg := Config{
		EdgeURL: e.url, NodeID: "gx10", InstanceID: "instance-1", Token: "secret-token", SoftwareVersion: "v1",
		Providers: r.providers, Clock: e.clock, Logger: slog.New(slog.DiscardHandler), OnReady: func() { close(r.ready) },
	}
	for _, change := range changes {
		change(&cfg)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); r.done <- Run(ctx, cfg) }()
	e.t.Cleanup(func() { stop(); await(e, exited) })
	r.session = await(e, e.sessions)
	first, err := r.session.Receive()
	require.NoError(e.t, err)
	return r, first.GetRegister()
}

func (r *running) send(m *runtimev1.SessionResponse) {
	r.e.t.Helper()
	require.NoError(r.e.t, r.session.Send(m))
}

func (r *running) receive() *runtimev1.SessionRequest {
	r.e.t.Helper()
	m, err := r.session.Receive()
	require.NoError(r.e.t, err)
	return m
}

func accept() *runtimev1.SessionResponse {
	return &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{
		GenerationToken: "generation-token", ProtocolVersion: framecodec.ProtocolVersion,
		HeartbeatIntervalMs: 5000, HeartbeatTimeoutMs: 15000, BodyLimitBytes: 1 << 20,
		Providers: &runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "vllm"}}},
	}}}
}

// connect runs a session until it is ready.
func (e *puppetEdge) connect(run runFunc, changes ...func(*Config)) *running {
	e.t.Helper()
	r, _ := e.start(run, changes...)
	r.send(accept())
	await(e, r.ready)
	return r
}

func request(number uint64, body string, end bool) *runtimev1.WorkResponse {
	return &runtimev1.WorkResponse{
		RequestNumber: number, Body: []byte(body), End: end,
		Begin: &runtimev1.RequestBegin{ProviderId: "vllm", Path: "/v1/chat/completions", ContentLength: uint64(len(body))},
	}
}

func cancelMessage(stream uint32, number uint64) *runtimev1.SessionResponse {
	return &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Cancel{Cancel: &runtimev1.Cancel{StreamId: stream, RequestNumber: number}}}
}

func queryMessage(stream uint32, number uint64) *runtimev1.SessionResponse {
	return &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Query{Query: &runtimev1.Query{StreamId: stream, RequestNumber: number}}}
}

// seen asks a Query; the answer also shows that all messages before it were
// handled.
func (r *running) seen(stream uint32, number uint64) bool {
	r.e.t.Helper()
	r.send(queryMessage(stream, number))
	result := r.receive().GetQueryResult()
	require.Equal(r.e.t, stream, result.GetStreamId())
	require.Equal(r.e.t, number, result.GetRequestNumber())
	return result.GetSeen()
}

func streamID(t *testing.T, w *edgeWork) uint32 {
	t.Helper()
	require.Equal(t, "generation-token", w.RequestHeader().Get(framecodec.HeaderGenerationToken))
	id := w.RequestHeader().Get(framecodec.HeaderStreamID)
	require.Len(t, id, 1)
	return uint32(id[0] - '0')
}

func echo(_ context.Context, _ *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
	return out.Frame(&provider.Frame{Head: &runtimev1.ResponseHead{Status: 200}, Body: body, End: true})
}

// config is a second registration at the same Edge.
func (r *running) config(e *puppetEdge, change func(*Config)) Config {
	c := Config{
		EdgeURL: e.url, NodeID: "gx10", InstanceID: "instance-1", Token: "secret-token",
		Providers: r.providers, Clock: e.clock, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	return c
}
