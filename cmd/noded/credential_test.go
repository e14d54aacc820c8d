package noded

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/proto/framecodec"
)

// replacer is an Edge that offers each node a next credential.
type replacer struct {
	next  string
	shown chan string // at registrations and as proofs
}

func (r replacer) Session(_ context.Context, s *connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]) error {
	r.shown <- s.RequestHeader().Get("Authorization")
	for {
		m, err := s.Receive()
		switch {
		case err != nil, m.GetDrain() != nil:
			return nil
		case m.GetCredentialTaken() != nil:
			r.shown <- m.GetCredentialTaken().GetCredential()
		case m.GetRegister() != nil:
			if err := s.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{
				GenerationToken: "generation-token", ProtocolVersion: framecodec.ProtocolVersion,
				HeartbeatIntervalMs: 5000, HeartbeatTimeoutMs: 15000, BodyLimitBytes: 1 << 20,
			}}}); err != nil {
				return err
			}
			if !m.GetRegister().GetTakesCredential() {
				r.shown <- "takes none"
			}
			if err := s.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_NextCredential{
				NextCredential: &runtimev1.NextCredential{Credential: r.next},
			}}); err != nil {
				return err
			}
		}
	}
}

func (replacer) Work(ctx context.Context, _ *connect.BidiStream[runtimev1.WorkRequest, runtimev1.WorkResponse]) error {
	<-ctx.Done()
	return nil
}

func (r replacer) serve(t *testing.T) (url string) {
	_, handler := runtimev1connect.NewNodeLinkServiceHandler(r)
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// run runs a node until what it shows was taken n times.
func (r replacer) run(t *testing.T, o Options, n int) (shown []string) {
	t.Helper()
	node, err := New(o)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	for range n {
		select {
		case s := <-r.shown:
			shown = append(shown, s)
		case <-ctx.Done():
			t.Error("it shows nothing")
		}
	}
	stop()
	require.NoError(t, <-done)
	return shown
}

// A next credential is on the disk when the node shows it, and comes with the next
// start.
func TestU04_ANodeKeepsItsNextCredential(t *testing.T) {
	r := replacer{next: "iop-node-second-credential", shown: make(chan string, 10)}
	file := write(t, "credential", "iop-node-first-credential\n")
	config := parse(t, "node: {id: a, edge_url: %q, credential_file: %q}\n", r.serve(t), file)
	require.Equal(t, []string{"Bearer iop-node-first-credential", r.next}, r.run(t, options(config, clockwork.NewFakeClock()), 2))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, r.next+"\n", string(text))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.Equal(t, []string{"Bearer " + r.next, r.next}, r.run(t, options(config, clockwork.NewFakeClock()), 2))
}

// What cannot be written is not shown, and the present credential stays.
func TestANodeWhoseDiskIsFullGoesOn(t *testing.T) {
	r := replacer{next: "iop-node-second-credential", shown: make(chan string, 10)}
	file := write(t, "credential", "iop-node-first-credential\n")
	require.NoError(t, os.MkdirAll(filepath.Join(file+".next", "in the way"), 0o700))
	config := parse(t, "node: {id: a, edge_url: %q, credential_file: %q}\n", r.serve(t), file)
	require.Equal(t, []string{"Bearer iop-node-first-credential"}, r.run(t, options(config, clockwork.NewFakeClock()), 1))
	require.Equal(t, []string{"Bearer iop-node-first-credential"}, r.run(t, options(config, clockwork.NewFakeClock()), 1))
	require.Empty(t, r.shown)
}

// A token file is the operator's: the node does not write to it.
func TestATokenFileIsNeverWritten(t *testing.T) {
	r := replacer{next: "iop-node-second-credential", shown: make(chan string, 10)}
	file := write(t, "token", "token\n")
	config := parse(t, "node: {id: a, edge_url: %q, token_file: %q}\n", r.serve(t), file)
	require.Equal(t, []string{"Bearer token", "takes none"}, r.run(t, options(config, clockwork.NewFakeClock()), 2))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "token\n", string(text))
}
