package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/noded"
	"github.com/iop-dev/iop/edge/config"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; a passing test never
// waits it out.
const patience = 30 * time.Second

const (
	apiKey     = "run-api-key"
	limitedKey = "run-key-of-one-model"
	nodeToken  = "run-node-token"
)

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// edgeYAML has one provider; %[1]s is its type and the rest of it.
const edgeYAML = `
edge: {id: run, listen: "127.0.0.1:0", auth: {mode: keys}, body_limit_bytes: 4194304}
provider_pool: {max_queue: %[2]d, queue_timeout_ms: %[3]d}
openai:
  api_keys:
    - {name: all, sha256: "` + "%[4]s" + `"}
    - {name: one, sha256: "` + "%[5]s" + `", models: [m], max_concurrent: 1}
nodes:
  - id: n
    token_sha256: "` + "%[6]s" + `"
    providers: [{id: p, capacity: 1, %[1]s}]
models:
  - {id: m, context_window_tokens: 8192, providers: [{node: n, provider: p, target: served}]}
  - {id: other, providers: [{node: n, provider: p, target: served}]}
`

// rig is an Edge with one node and its one provider.
type rig struct {
	url string
	// api is a Connect client over HTTP/1.1, with the key.
	api inferencev1connect.InferenceServiceClient
	// http1 and http2 are the transports below the clients.
	http1, http2 *http.Client
}

type options struct {
	queue     int
	timeoutMs int
}

// start starts the rig for a provider as YAML, and returns once it is connected.
func start(t *testing.T, provider string, o options) *rig {
	t.Helper()
	if o.timeoutMs == 0 {
		o.timeoutMs = 240000
	}
	text := fmt.Sprintf(edgeYAML, provider, o.queue, o.timeoutMs, hash(apiKey), hash(limitedKey), hash(nodeToken))
	snap, err := config.Parse("edge.yaml", []byte(text))
	require.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	edge, err := edged.New(edged.Options{Snapshot: snap, Logger: quiet})
	require.NoError(t, err)
	r := &rig{url: "http://" + edge.Addr()}

	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(nodeToken+"\n"), 0o600))
	nodeCfg, err := nodeconfig.Parse("node.yaml", fmt.Appendf(nil,
		"node: {id: n, edge_url: %q, token_file: %q}\nreconnect: {interval_sec: 0.1, max_attempts: 0}\n", r.url, tokenFile))
	require.NoError(t, err)
	ready := make(chan struct{}, 1)
	node, err := noded.New(noded.Options{Config: nodeCfg, Logger: quiet, Ready: func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	}})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = edge.Run(ctx) })
	running.Go(func() { _ = node.Run(ctx) })
	r.http1, r.http2 = newClient(false), newClient(true)
	t.Cleanup(func() {
		r.http1.CloseIdleConnections()
		r.http2.CloseIdleConnections()
		stop()
		running.Wait()
	})
	select {
	case <-ready:
	case <-time.After(patience):
		require.Fail(t, "the node does not connect")
	}
	r.api = r.client(r.http1)
	return r
}

func newClient(http2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{Protocols: &protocols, DisableCompression: true}}
}

// client is a client with the key that may use everything.
func (r *rig) client(h *http.Client, o ...connect.ClientOption) inferencev1connect.InferenceServiceClient {
	return r.clientWith(h, apiKey, o...)
}

func (r *rig) clientWith(h *http.Client, key string, o ...connect.ClientOption) inferencev1connect.InferenceServiceClient {
	return inferencev1connect.NewInferenceServiceClient(h, r.url, append(o, connect.WithInterceptors(bearer{key}))...)
}

// bearer sends a key.
type bearer struct{ key string }

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+b.key)
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+b.key)
		conn.RequestHeader().Set("X-Request-Id", "my-id")
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// ask is a run with one message.
func ask(text string) *inferencev1.RunRequest {
	return &inferencev1.RunRequest{Model: "m", Messages: []*inferencev1.Message{said(text)}}
}

func said(text string) *inferencev1.Message {
	return &inferencev1.Message{Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: text}}}}
}

// told is one event as text.
func told(e *inferencev1.RunResponse) string {
	switch e := e.GetEvent().(type) {
	case *inferencev1.RunResponse_Started:
		s := e.Started
		return fmt.Sprintf("started %s %s %s/%s %v", s.GetRequestId(), s.GetModel(), s.GetNodeId(), s.GetProviderId(), s.GetSimulated())
	case *inferencev1.RunResponse_Delta:
		return "text " + e.Delta.GetText()
	case *inferencev1.RunResponse_ReasoningDelta:
		return "reasoning " + e.ReasoningDelta.GetText()
	case *inferencev1.RunResponse_ToolCall:
		return "call " + e.ToolCall.GetName() + " " + e.ToolCall.GetArgumentsJson()
	case *inferencev1.RunResponse_Usage:
		return fmt.Sprintf("usage %d %d", e.Usage.GetInputTokens(), e.Usage.GetOutputTokens())
	case *inferencev1.RunResponse_Completed:
		return "completed " + strings.TrimPrefix(e.Completed.GetFinishReason().String(), "FINISH_REASON_")
	case *inferencev1.RunResponse_Failed:
		return fmt.Sprintf("failed %s %d %s", reasonOf(e.Failed), e.Failed.GetProviderStatus(), e.Failed.GetProviderBody())
	}
	return "unknown"
}

func reasonOf(f *inferencev1.Failure) string {
	return strings.TrimPrefix(f.GetReason().String(), "FAILURE_REASON_")
}

// run asks and reads to the end.
func run(ctx context.Context, c inferencev1connect.InferenceServiceClient, req *inferencev1.RunRequest) (events []string, err error) {
	stream, err := c.Run(ctx, req)
	if err != nil {
		return nil, err
	}
	for stream.Receive() {
		events = append(events, told(stream.Msg()))
	}
	err = stream.Err()
	_ = stream.Close()
	return events, err
}

// failureOf is the detail of an RPC error.
func failureOf(t *testing.T, err error) *inferencev1.Failure {
	t.Helper()
	var e *connect.Error
	require.ErrorAs(t, err, &e)
	for _, d := range e.Details() {
		m, err := d.Value()
		require.NoError(t, err)
		if f, ok := m.(*inferencev1.Failure); ok {
			return f
		}
	}
	require.Fail(t, "no Failure among the details", "%v", err)
	return nil
}

// backend is a provider under the test's control.
type backend struct {
	*httptest.Server
	mu            sync.Mutex
	current, peak int
	asked         []string      // path and body of each request
	entered       chan struct{} // one for each request
	left          chan struct{} // one for each request whose client went away
}

func newBackend(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) *backend {
	b := &backend{entered: make(chan struct{}, 1000), left: make(chan struct{}, 1000)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.current++
		b.peak = max(b.peak, b.current)
		b.asked = append(b.asked, r.URL.Path+" "+string(body))
		b.mu.Unlock()
		b.entered <- struct{}{}
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.current--
			if r.Context().Err() != nil {
				b.left <- struct{}{}
			}
		}()
		answer(w, r, string(body))
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) as(kind string) string { return fmt.Sprintf("type: %s, base_url: %q", kind, b.URL) }

func (b *backend) peaked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// write sends a piece of an answer at once.
func write(w http.ResponseWriter, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// abort ends a connection in mid-answer.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.Fail(t, "waited in vain for "+what)
	}
}
