//go:build !windows

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
)

const adminToken = "e2e-admin-token"

// cli runs a command against the rig's Edge and returns what it prints.
func (r *rig) cli(args ...string) string {
	r.t.Helper()
	c := exec.Command(binary, append(args, "--edge", r.url)...)
	c.Env = append(os.Environ(), "IOP_ADMIN_TOKEN="+adminToken)
	out, err := c.Output()
	require.NoError(r.t, err, "%v: %s", args, out)
	return string(out)
}

// U04: a node joins by a token, serves by its own credential, over a restart of the
// Edge too, and is gone the moment that is revoked: what runs on it ends as when a
// node is lost, and who waits is told. Its secrets are in nobody's log or state.
func TestU04_ANodeJoinsServesAndIsRevoked(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		_ = sse(w, chunk(asked(t, body), "begun "))
		hold.wait(r)
	})
	state := filepath.Join(t.TempDir(), "state")
	address := freePort(t)
	node := nodeConfig("joins", provider("p", s.URL, 1))
	delete(node, "token_sha256")
	r := start(t, edgeFile([]object{node}, []object{model("m", "joins/p=x")}, object{
		"edge":          object{"listen": address, "state_dir": state, "admin_tokens": []object{{"name": "me", "sha256": hash(adminToken)}}},
		"provider_pool": object{"queue_timeout_ms": 600000},
	}))
	var made struct{ Secret string }
	require.NoError(t, json.Unmarshal([]byte(r.cli("node", "token", "create", "joins", "-o", "json")), &made))
	client := runtimev1connect.NewJoinServiceClient(r.client, r.url)
	req := &runtimev1.JoinRequest{JoinToken: made.Secret, NodeId: "joins", InstanceId: "instance-1", ProtocolVersion: 1}
	joined, err := client.Join(t.Context(), req)
	require.NoError(t, err)
	_, err = client.Join(t.Context(), req)
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err))
	require.ErrorContains(t, err, "was used at")
	key, _, _ := strings.Cut(r.cli("key", "create", "made"), "\n")

	dir := t.TempDir()
	credential := filepath.Join(dir, "credential")
	require.NoError(t, os.WriteFile(credential, []byte(joined.GetCredential()+"\n"), 0o600))
	nodeYAML := filepath.Join(dir, "node.yaml")
	writeYAML(t, nodeYAML, object{
		"node":      object{"id": "joins", "edge_url": r.url, "credential_file": credential},
		"reconnect": object{"interval_sec": 0.2, "max_attempts": 0},
	})
	p := startProcess(t, "node joins", "node", "-c", nodeYAML)
	r.connected("joins")
	before := r.edge
	require.Zero(t, r.edge.stop(t))
	r.startEdge()
	r.connected("joins")

	models, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/models", nil)
	require.NoError(t, err)
	models.Header.Set("Authorization", "Bearer "+key)
	listed, err := r.client.Do(models)
	require.NoError(t, err)
	require.NoError(t, listed.Body.Close())
	require.Equal(t, http.StatusOK, listed.StatusCode, "a key outlasts the restart")

	res, err := r.post(t.Context(), chatBody("m", true, ""))
	require.NoError(t, err)
	defer res.Body.Close()
	running := bufio.NewReader(res.Body)
	_, err = running.ReadString('\n')
	require.NoError(t, err)
	waits := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)
	require.Contains(t, r.cli("node", "token", "revoke", "joins"), "its session has ended")
	a := <-waits
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "provider_unavailable", a.code(t))
	rest := new(strings.Builder)
	_, err = running.WriteTo(rest)
	require.NoError(t, err)
	require.Contains(t, rest.String(), `"provider_disconnected"`)
	<-p.done
	require.Equal(t, 4, p.cmd.ProcessState.ExitCode(), "its credential is refused for good")
	r.quiet()

	require.Zero(t, r.edge.stop(t))
	kept, err := os.ReadFile(filepath.Join(state, "credentials.json"))
	require.NoError(t, err)
	for _, secret := range []string{made.Secret, joined.GetCredential(), key} {
		for _, text := range []string{before.log(), r.edge.log(), p.log(), string(kept)} {
			require.NotContains(t, text, secret)
		}
	}
	require.Contains(t, before.log(), `"call":"create join token"`)
	require.Contains(t, r.edge.log(), `"call":"revoke node"`)
}
