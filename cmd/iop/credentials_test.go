package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
)

// joiningEdge is a running Edge with keys asked for, and a node without a token.
func joiningEdge(t *testing.T) (file, url string) {
	t.Helper()
	file, url = runningEdge(t)
	replaceIn(t, file, "  id: cli\n", "  id: cli\n  auth: {mode: keys}\n", "models:", "  - {id: mac, providers: [{id: p, type: simulator}]}\nmodels:")
	code, _, stderr := iop(t, "config", "reload", "--edge", url)
	require.Equal(t, exitDone, code, stderr)
	return file, url
}

func statusOf(t *testing.T, url, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/models", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

func TestAKeyIsMadeListedAndRevoked(t *testing.T) {
	_, url := joiningEdge(t)
	code, stdout, stderr := iop(t, "key", "create", "laptop", "--model", "m", "--max-concurrent", "2", "--edge", url)
	require.Equal(t, exitDone, code, stderr)
	secret, _, _ := strings.Cut(stdout, "\n")
	require.Regexp(t, "^iop-key-.{43}$", secret)
	require.Equal(t, http.StatusOK, statusOf(t, url, secret))
	code, stdout, _ = iop(t, "key", "list", "--edge", url)
	require.Equal(t, exitDone, code)
	require.Regexp(t, `laptop +state .* me +0 +2 +m\n`, stdout)
	require.NotContains(t, stdout, secret)

	for line, want := range map[string]string{
		"key create laptop":                "already",
		"key create x --model nonesuch":    "no model or route",
		"key revoke x":                     `no API key "x"`,
		"node token create gx10":           "edit the file",
		"node token create maac":           `did you mean "mac"`,
		"node token revoke gx10":           "edit the file",
		"node token create mac --life 25h": "life",
	} {
		code, _, stderr = iop(t, append(strings.Fields(line), "--edge", url)...)
		require.Equal(t, exitFailed, code, line)
		require.Contains(t, stderr, want, line)
	}
	code, _, _ = iop(t, "key", "create", "--edge", url)
	require.Equal(t, exitUsage, code)

	code, stdout, stderr = iop(t, "key", "revoke", "laptop", "--edge", url)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "laptop: revoked")
	require.Empty(t, stderr, "it is durable")
	require.Equal(t, http.StatusUnauthorized, statusOf(t, url, secret))
	t.Setenv(tokenEnv, readSecret)
	code, _, _ = iop(t, "key", "list", "--edge", url)
	require.Equal(t, exitRefused, code, "reading is not enough")
	http.DefaultClient.CloseIdleConnections()
}

func TestU04_AJoinTokenIsMadeUsedOnceAndRevoked(t *testing.T) {
	file, url := joiningEdge(t)
	code, _, stderr := iop(t, "config", "check", "-c", file)
	require.Equal(t, exitDone, code)
	require.Contains(t, stderr, `node "mac" has no token here and has not joined yet`)
	code, stdout, stderr := iop(t, "node", "token", "create", "mac", "--life", "1h", "--edge", url, "-o", "json")
	require.Equal(t, exitDone, code, stderr)
	var made struct{ Secret string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &made))
	require.Regexp(t, "^iop-join-.{43}$", made.Secret)
	code, stdout, _ = iop(t, "node", "token", "list", "--edge", url)
	require.Equal(t, exitDone, code)
	require.Regexp(t, `gx10 +file .*\nmac +not joined`, stdout)
	require.Regexp(t, `JOIN TOKEN .*\n[0-9a-f]{8} +mac `, stdout)

	client := runtimev1connect.NewJoinServiceClient(http.DefaultClient, url)
	req := &runtimev1.JoinRequest{JoinToken: made.Secret, NodeId: "mac", InstanceId: "instance-1", ProtocolVersion: 1}
	joined, err := client.Join(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "cli", joined.GetEdgeId())
	_, err = client.Join(t.Context(), req)
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err))
	require.ErrorContains(t, err, "was used at")
	_, _, stderr = iop(t, "config", "check", "-c", file)
	require.NotContains(t, stderr, "not joined")
	code, stdout, _ = iop(t, "node", "token", "list", "--edge", url)
	require.Equal(t, exitDone, code)
	require.Regexp(t, `mac +state `, stdout)
	require.NotContains(t, stdout, "JOIN TOKEN")

	code, stdout, stderr = iop(t, "node", "token", "revoke", "mac", "--edge", url)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "mac: revoked its credential, join tokens: 0")
	kept, err := os.ReadFile(filepath.Join(filepath.Dir(file), "state", "credentials.json"))
	require.NoError(t, err)
	require.NotContains(t, string(kept), auth.HashToken(joined.GetCredential()))
	http.DefaultClient.CloseIdleConnections()
}

// A key can be made without an Edge: what is printed is what edge.yaml takes.
func TestAKeyIsMadeOffline(t *testing.T) {
	t.Setenv(tokenEnv, "")
	code, stdout, stderr := iop(t, "key", "create", `lau"ra: #1`, "--model", "m", "--model", "n", "--max-concurrent", "3", "--offline", "--edge", "http://127.0.0.1:1")
	require.Equal(t, exitDone, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	secret, line := lines[0], lines[len(lines)-1]
	require.Regexp(t, "^iop-key-.{43}$", secret)
	text := "openai:\n  api_keys:\n    " + line + "\nmodels: [{id: m}, {id: n}]\n"
	s, err := config.Parse("edge.yaml", []byte(text))
	require.NoError(t, err, text)
	key, ok := auth.NewKeyring(s.Credentials).APIKey(secret)
	require.True(t, ok)
	require.Equal(t, `lau"ra: #1`, key.Name())
	require.True(t, key.Allows("n"))
	require.False(t, key.Allows("o"))
	require.Equal(t, 3, key.Limit())

	var out strings.Builder
	require.Equal(t, exitDone, execute(context.Background(), []string{"key", "create", "x", "--offline", "-o", "json"}, &out, &out))
	var k offlineKey
	require.NoError(t, json.Unmarshal([]byte(out.String()), &k))
	require.Equal(t, auth.HashToken(k.Secret), k.SHA256)
	require.Equal(t, `- {name: "x", sha256: "`+k.SHA256+`"}`, k.Line)
}
