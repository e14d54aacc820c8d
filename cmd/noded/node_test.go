package noded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	nodeconfig "github.com/iop-dev/iop/node/config"
	"github.com/iop-dev/iop/node/supervisor"
	"github.com/iop-dev/iop/node/wake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func parse(t *testing.T, format string, args ...any) *nodeconfig.Config {
	t.Helper()
	config, err := nodeconfig.Parse("node.yaml", fmt.Appendf(nil, format, args...))
	require.NoError(t, err)
	return config
}

func options(config *nodeconfig.Config, clock clockwork.Clock) Options {
	return Options{Config: config, Clock: clock, Logger: slog.New(slog.DiscardHandler), Version: "test", Watch: uneventful}
}

// uneventful is a machine to which nothing happens, however its clock leaps.
func uneventful(ctx context.Context, _ clockwork.Clock, _ func(wake.Event)) { <-ctx.Done() }

// waits is a log handler which tells of each wait that a node begins.
type waits struct{ began chan struct{} }

func (w waits) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "cannot register with the edge, will retry" {
		w.began <- struct{}{}
	}
	return nil
}

func (waits) Enabled(context.Context, slog.Level) bool { return true }
func (w waits) WithAttrs([]slog.Attr) slog.Handler     { return w }
func (w waits) WithGroup(string) slog.Handler          { return w }

// waiting starts a node on a fake clock and returns with it a function which
// returns once the node waits for its next attempt.
func waiting(t *testing.T, ctx context.Context, config *nodeconfig.Config, changes ...func(*Options)) (n *Node, clock *clockwork.FakeClock, untilWait func(), done chan error) {
	t.Helper()
	clock = clockwork.NewFakeClock()
	w := waits{make(chan struct{}, 1)}
	o := options(config, clock)
	o.Logger = slog.New(w)
	for _, change := range changes {
		change(&o)
	}
	n, err := New(o)
	require.NoError(t, err)
	done = make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, clock, func() {
		select {
		case <-w.began:
		case err := <-done:
			t.Fatalf("the node stopped: %v", err)
		}
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	}, done
}

// nowhere is the URL of an address where nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestS17_LocalMistakesAreFinalBeforeTheFirstDial(t *testing.T) {
	token := write(t, "token", "t")
	for name, text := range map[string]string{
		"no token file":       "node: {id: a, edge_url: 'http://127.0.0.1:1', token_file: /nonexistent/token}",
		"no token variable":   "node: {id: a, edge_url: 'http://127.0.0.1:1', token_env: IOP_TEST_UNSET_VARIABLE}",
		"no certificate file": "node: {id: a, edge_url: 'https://127.0.0.1:1', token_file: " + token + ", ca_file: /nonexistent/ca}",
		"no certificate":      "node: {id: a, edge_url: 'https://127.0.0.1:1', token_file: " + token + ", ca_file: " + token + "}",
		"no provider key": "node: {id: a, edge_url: 'http://127.0.0.1:1', token_file: " + token + "}\n" +
			"provider_credentials: [{provider: vllm, key_file: /nonexistent/key}]",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(options(parse(t, "%s\n", text), nil))
			require.Error(t, err)
			require.True(t, supervisor.IsFinal(err), err)
		})
	}
}

func TestS17_OmittedMaxAttemptsMeansTen(t *testing.T) {
	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\n", nowhere(t), write(t, "token", "t"))
	n, clock, untilWait, done := waiting(t, t.Context(), config)
	for range 9 {
		untilWait()
		next := n.Status().NextAttempt
		require.WithinRange(t, next, clock.Now().Add(5*time.Second), clock.Now().Add(15*time.Second))
		clock.Advance(next.Sub(clock.Now()))
	}
	err := <-done
	var exhausted *supervisor.ExhaustedError
	require.ErrorAs(t, err, &exhausted)
	require.Equal(t, 10, exhausted.Attempts)
}

func TestS17_ATokenThatBecomesUnreadableEndsTheNode(t *testing.T) {
	token := write(t, "token", "t")
	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\nreconnect: {max_attempts: 0}\n", nowhere(t), token)
	_, clock, untilWait, done := waiting(t, t.Context(), config)
	untilWait()
	require.NoError(t, os.Remove(token))
	clock.Advance(15 * time.Second)
	err := <-done
	require.True(t, supervisor.IsFinal(err), err)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestS17_ShutdownDuringTheWaitForALateEdgeIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\nreconnect: {max_attempts: 0}\n", nowhere(t), write(t, "token", "t"))
	n, _, untilWait, done := waiting(t, ctx, config)
	untilWait()
	require.Equal(t, supervisor.Retrying, n.Status().State)
	cancel()
	require.NoError(t, <-done)
}

// A laptop that wakes, or comes into another network, does not wait for the rest of
// its reconnect interval.
func TestCase_G04_S16_AnEventOfTheMachineEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\nreconnect: {max_attempts: 0}\n", nowhere(t), write(t, "token", "t"))
	events := make(chan wake.Event)
	n, _, untilWait, done := waiting(t, ctx, config, func(o *Options) {
		o.Watch = func(ctx context.Context, _ clockwork.Clock, notify func(wake.Event)) {
			for {
				select {
				case e := <-events:
					notify(e)
				case <-ctx.Done():
					return
				}
			}
		}
	})
	for i, e := range []wake.Event{{Slept: time.Hour}, {NetworkChanged: true}} {
		untilWait()
		require.Equal(t, i+1, n.Status().Failures)
		events <- e // The clock does not move.
	}
	untilWait()
	require.Equal(t, 3, n.Status().Failures)
	cancel()
	require.NoError(t, <-done)
}

func TestTrust_PinAndFileAcceptTheirCertificateOnly(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	defer server.Close()
	certificate := server.Certificate()
	sum := sha256.Sum256(certificate.Raw)
	other := sha256.Sum256([]byte("another"))
	file := write(t, "edge.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})))
	for name, c := range map[string]struct {
		file, pin string
		refused   string
	}{
		"file":          {file: file},
		"pin":           {pin: hex.EncodeToString(sum[:])},
		"another pin":   {pin: hex.EncodeToString(other[:]), refused: "not the one of node.ca_pin"},
		"system's only": {refused: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := trust(c.file, c.pin)
			require.NoError(t, err)
			transport := &http.Transport{TLSClientConfig: config}
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get(server.URL)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		})
	}
}
