package nodelink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/events/eventstest"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	nodesession "github.com/iop-dev/iop/node/session"
	"github.com/iop-dev/iop/proto/framecodec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeID    = "gx10"
	nodeToken = "node-token-of-gx10"
	beat      = 5 * time.Second
	silence   = 15 * time.Second
)

// testBroker records the calls in order and checks that a former owner is
// fenced before the next one connects.
type testBroker struct {
	t       testing.TB
	clock   clockwork.Clock
	drained chan admission.Generation

	mu      sync.Mutex
	calls   []string
	last    admission.Generation
	current admission.Generation // 0 = offline
	lostAt  time.Time
}

func (b *testBroker) Connect(node admission.NodeID) admission.Generation {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current != 0 {
		b.t.Errorf("connect while generation %d is current", b.current)
	}
	b.last++
	b.current = b.last
	b.calls = append(b.calls, fmt.Sprintf("connect %s %d", node, b.last))
	return b.last
}

func (b *testBroker) Disconnect(node admission.NodeID, gen admission.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf("disconnect %s %d", node, gen))
	if gen != b.current {
		return false
	}
	b.current, b.lostAt = 0, b.clock.Now()
	return true
}

func (b *testBroker) Drain(node admission.NodeID, gen admission.Generation) bool {
	b.mu.Lock()
	b.calls = append(b.calls, fmt.Sprintf("drain %s %d", node, gen))
	ok := gen == b.current
	b.mu.Unlock()
	select {
	case b.drained <- gen:
	default:
	}
	return ok
}

func (b *testBroker) history() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.calls...)
}

// testAuth is a configuration's node tokens.
type testAuth struct {
	mu     sync.Mutex
	tokens map[string]string
}

func (a *testAuth) Node(id, secret string) (known, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, known := a.tokens[id]
	return known, known && token == secret
}

func (a *testAuth) set(id, token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[id] = token
}

// busEvents puts what the link tells on a bus, as an Edge does.
type busEvents struct{ bus *events.Bus }

func (b busEvents) NodeConnected(n admission.NodeID) {
	b.bus.Publish(events.Event{Kind: "connected", Subject: string(n)})
}

func (b busEvents) NodeDisconnected(n admission.NodeID, cause string) {
	b.bus.Publish(events.Event{Kind: "disconnected", Subject: string(n), Detail: ": " + cause})
}

// logBuffer is a log to search.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testEdge is a Service behind a real HTTP/2 server on loopback.
type testEdge struct {
	t      testing.TB
	ctx    context.Context // of the test: bounded
	svc    *Service
	broker *testBroker
	auth   *testAuth
	clock  *clockwork.FakeClock
	events <-chan events.Event // as the test's own subscriber hears them
	logs   *logBuffer
	url    string

	mu        sync.Mutex
	providers *runtimev1.ProviderSet
	tokens    map[string]bool // generation tokens that work streams brought
}

func newEdge(t testing.TB) *testEdge {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	e := &testEdge{
		t: t, ctx: ctx,
		clock:     clockwork.NewFakeClock(),
		auth:      &testAuth{tokens: map[string]string{nodeID: nodeToken}},
		logs:      &logBuffer{},
		providers: &runtimev1.ProviderSet{Providers: []*runtimev1.Provider{{Id: "vllm", Type: "vllm", Capacity: 4}}},
		tokens:    map[string]bool{},
	}
	bus := &events.Bus{}
	eventstest.Saturate(bus)
	e.events = bus.Subscribe(100).C
	e.broker = &testBroker{t: t, clock: e.clock, drained: make(chan admission.Generation, 10)}
	var err error
	e.svc, err = New(Config{
		Broker: e.broker, Authenticator: e.auth, Events: busEvents{bus}, Clock: e.clock, Logger: e.logger(),
		Providers:         func(admission.NodeID) *runtimev1.ProviderSet { return e.providerSet() },
		HeartbeatInterval: beat, HeartbeatTimeout: silence,
		EdgeID: "home", SoftwareVersion: "test", BodyLimit: 32 << 20,
	})
	require.NoError(t, err)

	mux := http.NewServeMux()
	path, handler := e.svc.Handler()
	mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get(framecodec.HeaderGenerationToken); token != "" {
			e.mu.Lock()
			e.tokens[token] = true
			e.mu.Unlock()
		}
		handler.ServeHTTP(w, r)
	}))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, HTTP2: ServerHTTP2Config(), ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e.url = "http://" + listener.Addr().String()
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		e.svc.Close()
		_ = server.Close()
		<-served
	})
	return e
}

func (e *testEdge) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (e *testEdge) providerSet() *runtimev1.ProviderSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.providers
}

func (e *testEdge) setProviders(set *runtimev1.ProviderSet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.providers = set
}

func (e *testEdge) event(want string) {
	e.t.Helper()
	got := await(e, e.events)
	require.Contains(e.t, string(got.Kind)+" "+got.Subject+got.Detail, want)
}

// await receives from ch, or fails the test when its time is over.
func await[T any](e *testEdge, ch <-chan T) T {
	e.t.Helper()
	select {
	case v := <-ch:
		return v
	case <-e.ctx.Done():
		require.FailNow(e.t, "timed out", "log:\n%s", e.logs.String())
		panic("unreachable")
	}
}

// testProviders run requests by a function.
type testProviders struct {
	run     func(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error
	applied chan []*runtimev1.Provider
	// revisions of the lists in applied.
	revisions chan uint64
}

func (p *testProviders) ApplyAnew(set *runtimev1.ProviderSet) { p.Apply(set) }

func (p *testProviders) Apply(set *runtimev1.ProviderSet) {
	p.applied <- set.GetProviders()
	p.revisions <- set.GetRevision()
}

func (p *testProviders) Run(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
	return p.run(ctx, begin, body, out)
}

// echo answers 200 with the request's body, in one frame.
func echo(_ context.Context, _ *runtimev1.RequestBegin, body []byte, out provider.Writer) error {
	return out.Frame(&provider.Frame{Head: &runtimev1.ResponseHead{Status: 200}, Body: body, End: true})
}

// testNode is a real node session.
type testNode struct {
	e         *testEdge
	providers *testProviders
	ready     chan struct{}
	stop      context.CancelFunc
	done      chan error
}

func (e *testEdge) startNode(instance string, run func(context.Context, *runtimev1.RequestBegin, []byte, provider.Writer) error, changes ...func(*nodesession.Config)) *testNode {
	ctx, stop := context.WithCancel(context.Background())
	n := &testNode{
		e: e, ready: make(chan struct{}), stop: stop, done: make(chan error, 1),
		providers: &testProviders{run: run, applied: make(chan []*runtimev1.Provider, 100), revisions: make(chan uint64, 100)},
	}
	cfg := nodesession.Config{
		EdgeURL: e.url, NodeID: nodeID, InstanceID: "instance-" + instance, Token: nodeToken, SoftwareVersion: "test",
		Providers: n.providers, Clock: e.clock, Logger: e.logger(), OnReady: func() { close(n.ready) },
	}
	for _, change := range changes {
		change(&cfg)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); n.done <- nodesession.Run(ctx, cfg) }()
	e.t.Cleanup(func() { stop(); e.svc.Close(); await(e, exited) })
	return n
}

// connect starts a node and waits until it is ready.
func (e *testEdge) connect(instance string, run func(context.Context, *runtimev1.RequestBegin, []byte, provider.Writer) error, changes ...func(*nodesession.Config)) *testNode {
	e.t.Helper()
	n := e.startNode(instance, run, changes...)
	select {
	case <-n.ready:
	case err := <-n.done:
		require.FailNow(e.t, "node ended", "%v\nlog:\n%s", err, e.logs.String())
	case <-e.ctx.Done():
		require.FailNow(e.t, "timed out", "log:\n%s", e.logs.String())
	}
	return n
}

// take takes a stream of the present generation.
func (e *testEdge) take() *handOff {
	e.t.Helper()
	e.broker.mu.Lock()
	gen := e.broker.current
	e.broker.mu.Unlock()
	s, err := e.svc.Take(e.ctx, nodeID, gen)
	require.NoError(e.t, err)
	h := s.(*handOff)
	e.t.Cleanup(h.Discard) // Close waits for held streams; a test that fails must end, too
	return h
}

// begin sends a whole one-frame request.
func (h *handOff) begin(body string) error {
	return h.Send(&dispatch.RequestFrame{
		Begin: &dispatch.Begin{Provider: "vllm", Path: "/v1/chat/completions", ContentLength: len(body)},
		Parts: [][]byte{[]byte(body)}, End: true,
	})
}

// exchange carries a request to its final frame and parks the stream.
func (e *testEdge) exchange(body string) (answer string) {
	e.t.Helper()
	h := e.take()
	defer h.Park()
	require.NoError(e.t, h.begin(body))
	for {
		var f dispatch.Frame
		require.NoError(e.t, h.Receive(&f))
		answer += string(f.Body)
		if f.Failure != nil {
			return f.Failure.Code.String()
		}
		if f.End {
			return answer
		}
	}
}
