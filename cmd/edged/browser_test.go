package edged

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
)

const snapshotPath = "/iop.control.v1.ControlService/GetEdgeNodeSnapshot"

// The dashboard is where the control and admin services are, and needs no token;
// what it calls does (I11).
func TestCase_I11_TheDashboardIsOpenAndItsDataIsNot(t *testing.T) {
	apart := strings.Replace(small, `{listen: "127.0.0.1:0"}`, `{listen: "127.0.0.1:0", admin_listen: "localhost:0", id: home,
  read_tokens: [{name: me, sha256: "`+auth.HashToken("reader-4711")+`"}]}
openai: {api_keys: [{name: laptop, sha256: "`+auth.HashToken("client-4711")+`"}]}`, 1)
	e := serveText(t, apart)
	require.NotContains(t, e.Dashboard(), e.Addr(), "on the admin listener")
	require.Contains(t, e.Dashboard(), "/dashboard/")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status, body := fetch(t, client, "GET", e.Dashboard(), "")
	require.Equal(t, 200, status)
	require.Contains(t, body, "<!doctype html>")
	status, body = fetch(t, client, "GET", e.Dashboard()+"site.json", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"kind":"edge","name":"home"}`, body)
	status, _ = fetch(t, client, "GET", "http://"+e.Addr()+"/dashboard/", "client-4711")
	require.Equal(t, 404, status, "clients of the API get none")

	data := strings.TrimSuffix(e.Dashboard(), "/dashboard/") + snapshotPath
	for token, want := range map[string]int{"": 401, "client-4711": 401, "wrong": 401, "reader-4711": 200} {
		status, body = fetch(t, client, "POST", data, token)
		require.Equal(t, want, status, "%q: %s", token, body)
	}
}

// Origins are asked for at each request, so that a refresh counts.
func TestCase_K14_OriginsOfTheTypedAPIsFollowARefresh(t *testing.T) {
	const origin = "https://chat.example.org"
	file := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(small), 0o600))
	e, err := New(Options{ConfigPath: file, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer e.close()
	preflight := func(path string) *http.Response {
		r := httptest.NewRequest(http.MethodOptions, path, nil)
		r.Host = "127.0.0.1:8484"
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,connect-protocol-version,connect-timeout-ms")
		w := httptest.NewRecorder()
		e.servers[0].http.Handler.ServeHTTP(w, r)
		return w.Result()
	}
	paths := []string{snapshotPath, "/iop.admin.v1.AdminService/SetOverride", "/iop.inference.v1.InferenceService/Run"}
	for _, path := range paths {
		require.Equal(t, 403, preflight(path).StatusCode, path)
	}
	require.NoError(t, os.WriteFile(file, []byte(small+"openai: {cors: {allowed_origins: ["+origin+"]}}\n"), 0o600))
	_, err = e.Reload()
	require.NoError(t, err)
	for _, path := range paths {
		got := preflight(path)
		require.Equal(t, 204, got.StatusCode, path)
		require.Equal(t, origin, got.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, got.Header.Get("Access-Control-Allow-Headers"), "connect-timeout-ms")
	}
}

// serveText runs an Edge of a configuration until the test ends.
func serveText(t *testing.T, text string) *Edge {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edge.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	e, err := New(Options{ConfigPath: file, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return e
}

func fetch(t *testing.T, client *http.Client, method, url, token string) (int, string) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("{}")
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := client.Do(r)
	require.NoError(t, err)
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return got.StatusCode, string(all)
}
