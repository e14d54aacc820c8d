package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
)

const adminSecret, readSecret = "cli-admin-token", "cli-read-token"

// runningEdge is an Edge of this process with one node, never connected.
func runningEdge(t *testing.T) (file, url string) {
	t.Helper()
	address := freePort(t)
	dir := t.TempDir()
	file = filepath.Join(dir, "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`edge:
  id: cli
  listen: `+address+`
  state_dir: `+filepath.ToSlash(filepath.Join(dir, "state"))+`
  admin_tokens: [{name: me, sha256: "`+auth.HashToken(adminSecret)+`"}]
  read_tokens: [{name: reader, sha256: "`+auth.HashToken(readSecret)+`"}]
nodes:
  - id: gx10
    token_sha256: "`+auth.HashToken("node")+`"
    providers: [{id: vllm, type: simulator, capacity: 4}]
models: [{id: m, providers: [{node: gx10, provider: vllm}]}]
`), 0o600))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var logged bytes.Buffer
	go func() { ended <- execute(ctx, []string{"edge", "-c", file}, &logged, &logged) }()
	t.Cleanup(func() {
		stop()
		require.Equal(t, exitDone, <-ended, logged.String())
		require.NotContains(t, logged.String(), adminSecret)
	})
	url = "http://" + address
	t.Setenv(tokenEnv, adminSecret)
	require.Eventually(t, func() bool {
		code, _, _ := iop(t, "provider", "reset", "gx10/vllm", "--edge", url)
		return code == exitDone
	}, 20*time.Second, 20*time.Millisecond)
	return file, url
}

func replaceIn(t *testing.T, file string, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	next := strings.NewReplacer(pairs...).Replace(string(text))
	require.NotEqual(t, string(text), next)
	require.NoError(t, os.WriteFile(file+".new", []byte(next), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func TestU19_ConfigReloadPrintsWhatHasChanged(t *testing.T) {
	file, url := runningEdge(t)
	replaceIn(t, file, "capacity: 4", "capacity: 2", "id: cli", "id: cli\n  insecure_h2c: true")
	code, stdout, stderr := iop(t, "config", "reload", "-c", file)
	require.Equal(t, exitDone, code, stderr)
	// The watch of the file may have been first: then this changes nothing more.
	require.Contains(t, stdout, "configuration revision ")
	require.Contains(t, stdout, "needs a restart:\n  edge.insecure_h2c: false -> true\n")
	if !strings.Contains(stdout, "nothing has changed") {
		require.Contains(t, stdout, "changed:\n  edge.insecure_h2c: false -> true\n  nodes[gx10].providers[vllm].capacity: 4 -> 2\n")
	}

	code, stdout, _ = iop(t, "config", "reload", "--edge", url, "-o", "json")
	require.Equal(t, exitDone, code)
	var r reloadResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Empty(t, r.Changes)
	require.Len(t, r.NeedsRestart, 1)

	t.Setenv(edgeEnv, url)
	replaceIn(t, file, "capacity: 2", "capacty: 2")
	for _, by := range [][]string{nil, {"-c", file}} {
		code, stdout, stderr = iop(t, append([]string{"config", "reload"}, by...)...)
		require.Equal(t, exitFailed, code)
		require.Empty(t, stdout)
		require.Regexp(t, `edge\.yaml:\d+:\d+: .*capacty.*did you mean "capacity"`, stderr)
	}
	replaceIn(t, file, "capacty: 2", "capacity: 2", "id: cli", "id: other")
	code, _, stderr = iop(t, "config", "reload")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "edge.id: cli -> other")
	require.Contains(t, stderr, "another Edge's file")
}

// Taking a machine out does not wait for the file to be mended.
func TestCLI_AFileThatIsWrongStillFindsItsEdge(t *testing.T) {
	file, _ := runningEdge(t)
	for _, pairs := range [][]string{
		{"capacity: 4", "capacity: x"},
		{"capacity: x", "capacity: 4", "token_sha256:", "token_file: none.token #"},
		{"models: [", "models: [["},
	} {
		replaceIn(t, file, pairs...)
		code, stdout, stderr := iop(t, "provider", "drain", "gx10/vllm", "-c", file)
		require.Equal(t, exitDone, code, stderr)
		require.Contains(t, stdout, "gx10/vllm: draining")
		code, _, stderr = iop(t, "config", "reload", "-c", file)
		require.Equal(t, exitFailed, code, stderr)
		require.Contains(t, stderr, "edge.yaml:")
	}
}

func TestCLI_AnEdgeBehindTLSIsExplained(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	t.Setenv(tokenEnv, adminSecret)
	for scheme, wants := range map[string][]string{
		"http://":  {"refuses plain HTTP", "--edge https://127.0.0.1:", "--ca-file"},
		"https://": {"is not trusted", "--ca-file FILE", "edge.tls.cert_file"},
	} {
		code, stdout, stderr := iop(t, "config", "reload", "--edge", scheme+server.Listener.Addr().String())
		require.Equal(t, exitFailed, code)
		require.Empty(t, stdout)
		for _, want := range wants {
			require.Contains(t, stderr, want)
		}
	}
}

// "iop edge" reads a changed file with nobody asking it to.
func TestS08_AnEdgeWatchesItsFile(t *testing.T) {
	file, url := runningEdge(t)
	defer http.DefaultClient.CloseIdleConnections()
	replaceIn(t, file, "models: [", "models: [{id: second, providers: [{node: gx10, provider: vllm}]}, ")
	require.Eventually(t, func() bool {
		res, err := http.Get(url + "/v1/models")
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return strings.Contains(string(text), `"second"`)
	}, 20*time.Second, 20*time.Millisecond)
}

func TestCLI_OverridesOfProvidersAndNodes(t *testing.T) {
	_, url := runningEdge(t)
	t.Setenv(edgeEnv, url)
	code, stdout, stderr := iop(t, "provider", "drain", "gx10/vllm")
	require.Equal(t, exitDone, code, stderr)
	require.Regexp(t, `^gx10/vllm: draining since \S+ by me; 0 running\n$`, stdout)
	require.Empty(t, stderr)
	code, stdout, _ = iop(t, "provider", "disable", "gx10/vllm", "-o", "json")
	require.Equal(t, exitDone, code)
	var r overrideResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Equal(t, "disabled", r.Mode)
	require.True(t, r.Durable)
	for _, line := range []string{"provider enable gx10/vllm", "node drain gx10", "node disable gx10"} {
		code, stdout, stderr = iop(t, strings.Fields(line)...)
		require.Equal(t, exitDone, code, stderr)
		require.Regexp(t, "(enabled|disabled|draining) since ", stdout)
	}
	for _, line := range []string{"provider reset gx10/vllm", "node reset gx10"} {
		code, stdout, _ = iop(t, strings.Fields(line)...)
		require.Equal(t, exitDone, code)
		require.Contains(t, stdout, ": as the file says; 0 running\n")
	}
	for line, want := range map[string]string{
		"provider drain gx1O/vllm": `no node "gx1O" is configured (did you mean "gx10"?)`,
		"provider drain gx10/vlm":  `no provider "gx10/vlm" is configured (did you mean "gx10/vllm"?)`,
		"node drain nowhere":       `no node "nowhere" is configured`,
	} {
		code, stdout, stderr = iop(t, strings.Fields(line)...)
		require.Equal(t, exitFailed, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
}

func TestCLI_AnEdgeThatIsNotThereOrRefusesIsExplained(t *testing.T) {
	file, url := runningEdge(t)
	for _, c := range []struct {
		name, token string
		args        []string
		code        int
		want        string
	}{
		{"wrong token", "wrong", []string{"config", "reload", "--edge", url}, exitRefused, "refuses the token"},
		{"read token", readSecret, []string{"provider", "drain", "gx10/vllm", "-c", file}, exitRefused, "a read token may not change anything"},
		{"no token", "", []string{"config", "reload", "--edge", url}, exitUsage, "$IOP_ADMIN_TOKEN"},
		{"no token file", "", []string{"config", "reload", "--edge", url, "--token-file", file + ".none"}, exitRefused, "--token-file"},
		{"a file that is no token", "", []string{"config", "reload", "--edge", url, "--token-file", file}, exitRefused, "one token and nothing else"},
		{"nobody", adminSecret, []string{"node", "drain", "gx10", "--edge", "http://" + freePort(t)}, exitFailed, "no Edge answers at http://127.0.0.1:"},
		{"no URL", adminSecret, []string{"config", "reload", "--edge", "127.0.0.1:8484"}, exitUsage, "expected http://host:port"},
		{"no such file", adminSecret, []string{"config", "reload", "-c", file + ".none"}, exitRefused, "to find the Edge"},
		{"TLS to plain", adminSecret, []string{"config", "reload", "--edge", strings.Replace(url, "http:", "https:", 1)}, exitFailed, "call to the Edge at https:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(tokenEnv, c.token)
			code, stdout, stderr := iop(t, c.args...)
			require.Equal(t, c.code, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.NotContains(t, stderr, adminSecret)
		})
	}
	for line, want := range map[string]string{
		"provider":                    "needs a subcommand",
		"provider drain":              "needs one NODE/PROVIDER",
		"provider drain gx10":         "expected NODE/PROVIDER",
		"node drain gx10/vllm":        `one provider is the matter of "iop provider drain"`,
		"provider bogus gx10/vllm":    "unknown command",
		"config reload -c x -o table": "text or json",
	} {
		code, _, stderr := iop(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, line)
		require.Contains(t, stderr, want)
	}
}
