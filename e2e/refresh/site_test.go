package refresh

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/noded"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const apiKey, adminToken, readToken, nodeToken = "refresh-api-key", "refresh-admin-token", "refresh-read-token", "refresh-node-token"

// object is a piece of a configuration file.
type object = map[string]any

// backend is a provider that counts what runs on it. A request ends when the
// test lets it, or at once while the gate is open.
type backend struct {
	*httptest.Server
	running, peak atomic.Int64
	gate          chan struct{} // nil = open
}

func newBackend(t *testing.T, gate chan struct{}) *backend {
	b := &backend{gate: gate}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := b.running.Add(1)
		defer b.running.Add(-1)
		for p := b.peak.Load(); n > p && !b.peak.CompareAndSwap(p, n); p = b.peak.Load() {
		}
		if b.gate != nil {
			select {
			case <-b.gate:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"x","object":"chat.completion","model":"served","choices":[]}`)
	}))
	t.Cleanup(b.Close)
	return b
}

// site is an Edge and a node "n", in this process.
type site struct {
	t       *testing.T
	file    string
	edge    *edged.Edge
	url     string
	client  *http.Client
	admin   adminv1connect.AdminServiceClient
	control controlv1connect.ControlServiceClient
	stop    func() // the Edge
	watch   bool
}

// config is edge.yaml with one provider at the backend; change may do anything
// to it.
func config(listen, stateDir string, backend string, change func(object)) object {
	f := object{
		"edge": object{
			"id": "refresh", "listen": listen, "state_dir": stateDir, "stop_grace_ms": 0,
			"admin_tokens": []object{{"name": "me", "sha256": auth.HashToken(adminToken)}},
			"read_tokens":  []object{{"name": "reader", "sha256": auth.HashToken(readToken)}},
		},
		"openai":        object{"api_keys": []object{{"name": "client", "sha256": auth.HashToken(apiKey)}}},
		"provider_pool": object{"max_queue": 1000, "queue_timeout_ms": 60000},
		"nodes": []object{{"id": "n", "token_sha256": auth.HashToken(nodeToken), "providers": []object{
			{"id": "p", "type": "openai", "base_url": backend, "capacity": 2},
		}}},
		"models": []object{{"id": "m", "providers": []object{{"node": "n", "provider": "p"}}}},
	}
	if change != nil {
		change(f)
	}
	return f
}

func start(t *testing.T, watch bool, file object) *site {
	t.Helper()
	s := &site{t: t, file: filepath.Join(t.TempDir(), "edge.yaml"), watch: watch}
	transport := &http.Transport{MaxIdleConnsPerHost: 200}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	s.write(file)
	s.startEdge()
	s.startNode()
	s.eventually("the node is connected", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetNodes()[0].GetConnected() })
	return s
}

func (s *site) write(file object) {
	s.t.Helper()
	text, err := yaml.Marshal(file)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.file+"~", text, 0o600))
	require.NoError(s.t, os.Rename(s.file+"~", s.file))
}

func (s *site) startEdge() {
	s.t.Helper()
	var err error
	s.edge, err = edged.New(edged.Options{ConfigPath: s.file, Watch: s.watch, Logger: slog.New(slog.DiscardHandler), Version: "test"})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.edge.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-ended)
	})
	s.t.Cleanup(s.stop)
	s.url = "http://" + s.edge.Addr()
	s.admin = adminv1connect.NewAdminServiceClient(s.client, s.url)
	s.control = controlv1connect.NewControlServiceClient(s.client, s.url)
}

func (s *site) startNode() {
	s.t.Helper()
	c, err := nodeconfig.Parse("node.yaml", fmt.Appendf(nil,
		"node: {id: n, edge_url: %q, token_env: REFRESH_UNUSED}\nreconnect: {interval_sec: 0.1, max_attempts: 0}\n", s.url))
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- noded.Run(ctx, noded.Options{Config: c, Token: nodeToken, Logger: slog.New(slog.DiscardHandler), Version: "test"})
	}()
	s.t.Cleanup(func() {
		cancel()
		require.NoError(s.t, <-ended)
	})
}

// with is a call's context with a token.
func (s *site) with(token string) context.Context {
	ctx, call := connect.NewClientContext(context.Background())
	call.RequestHeader().Set("Authorization", "Bearer "+token)
	return ctx
}

func (s *site) snapshot() *controlv1.EdgeNodeSnapshot {
	s.t.Helper()
	res, err := s.control.GetEdgeNodeSnapshot(s.with(readToken), &controlv1.GetEdgeNodeSnapshotRequest{})
	require.NoError(s.t, err)
	return res.GetSnapshot()
}

func (s *site) provider() *controlv1.ProviderSnapshot {
	s.t.Helper()
	return s.snapshot().GetNodes()[0].GetProviders()[0]
}

func (s *site) eventually(what string, cond func(*controlv1.EdgeNodeSnapshot) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return cond(s.snapshot()) }, 30*time.Second, 5*time.Millisecond, what)
}

// idle waits until nothing runs or waits, and checks that the books balance.
func (s *site) idle() {
	s.t.Helper()
	s.eventually("idle", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetInFlightTotal() == 0 && s.GetQueueTotal() == 0
	})
	c := s.snapshot().GetCounters()
	require.Equal(s.t, c.GetGranted(), c.GetReleased())
	require.Zero(s.t, c.GetDoubleReleases())
}

// answer is how a request ended: its status and error code.
type answer struct {
	status int
	code   string
	err    error
}

// ask sends one chat request and reads the answer to its end.
func (s *site) ask(key, model string) answer {
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model)))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var envelope struct {
		Error struct{ Code string }
	}
	if err == nil {
		err = json.Unmarshal(text, &envelope)
	}
	return answer{res.StatusCode, envelope.Error.Code, err}
}

func (s *site) background(model string) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- s.ask(apiKey, model) }()
	return done
}

// anyPort is for an Edge that does not come back.
const anyPort = "127.0.0.1:0"

// freePort is a loopback address that nobody listens on, below those that the
// kernel gives away by itself: it is free again while an Edge restarts.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000))); err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	require.FailNow(t, "no free port")
	return ""
}
