package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/iop-dev/iop/edge/auth"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// site is an Edge and a node of this process, with a provider of one slot whose
// answers end when the test says so.
type site struct {
	*testing.T
	url      string
	release  chan struct{}
	stopNode func()
}

func newSite(t *testing.T) *site {
	s := &site{T: t, release: make(chan struct{})}
	provider := httptest.NewServer(http.HandlerFunc(s.serve))
	address, dir := freePort(t), t.TempDir()
	s.url = "http://" + address
	edgeFile, nodeFile := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "node.yaml")
	files := map[string]string{
		edgeFile: `edge:
  id: see
  listen: ` + address + `
  state_dir: ` + filepath.ToSlash(filepath.Join(dir, "state")) + `
  admin_tokens: [{name: me, sha256: "` + auth.HashToken(adminSecret) + `"}]
  read_tokens: [{name: reader, sha256: "` + auth.HashToken(readSecret) + `"}]
openai: {api_keys: [{name: laptop, sha256: "` + auth.HashToken("key") + `"}]}
nodes:
  - id: n
    token_sha256: "` + auth.HashToken("node") + `"
    providers: [{id: p, type: openai, base_url: "` + provider.URL + `", capacity: 1}]
models: [{id: m, providers: [{node: n, provider: p, target: served}]}]
`,
		nodeFile:                         "node: {id: n, edge_url: '" + s.url + "', token_file: '" + filepath.ToSlash(filepath.Join(dir, "node.token")) + "'}\nreconnect: {interval_sec: 1, max_attempts: 0}\n",
		filepath.Join(dir, "node.token"): "node",
	}
	for file, text := range files {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	stopEdge := s.start("edge", "-c", edgeFile)
	s.stopNode = s.start("node", "-c", nodeFile)
	t.Cleanup(func() {
		close(s.release)
		s.stopNode()
		stopEdge()
		provider.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	t.Setenv(edgeEnv, s.url)
	t.Setenv(readTokenEnv, readSecret)
	t.Setenv(tokenEnv, adminSecret)
	s.until("status", `n/p +openai +available +0/1`)
	return s
}

// start runs a command until the function that it returns is called.
func (s *site) start(args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var logged bytes.Buffer
	go func() { ended <- execute(ctx, args, &logged, &logged) }()
	return func() {
		if ctx.Err() == nil {
			cancel()
			require.Equal(s, exitDone, <-ended, logged.String())
			require.NotContains(s, logged.String(), adminSecret)
		}
	}
}

// serve is the provider: one event, and the rest once it may.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-s.release:
		fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n")
	case <-r.Context().Done():
	}
}

// ask sends a request under an id; what the client got comes when it has ended.
func (s *site) ask(id string) <-chan string {
	got := make(chan string, 1)
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	require.NoError(s, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer key")
	req.Header.Set("X-Request-Id", id)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		got <- res.Status + " " + string(text)
	}()
	return got
}

// until repeats a command until its output matches, and returns that.
func (s *site) until(line, want string) (stdout string) {
	s.Helper()
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		var code int
		var stderr string
		code, stdout, stderr = iop(s.T, strings.Fields(line)...)
		require.Equal(c, exitDone, code, stderr)
		require.Regexp(c, want, stdout)
	}, 30*time.Second, 20*time.Millisecond)
	return stdout
}

// snapshot is what the control API says.
func (s *site) snapshot() *controlv1.EdgeNodeSnapshot {
	ctx, call := connect.NewClientContext(s.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+readSecret)
	res, err := controlv1connect.NewControlServiceClient(http.DefaultClient, s.url).GetEdgeNodeSnapshot(ctx, &controlv1.GetEdgeNodeSnapshotRequest{})
	require.NoError(s, err)
	return res.GetSnapshot()
}

// agrees holds the CLI's JSON, and its text, against the API.
func (s *site) agrees() {
	s.Helper()
	code, stdout, stderr := iop(s.T, "status", "-o", "json")
	require.Equal(s, exitDone, code, stderr)
	cli, api := &controlv1.EdgeNodeSnapshot{}, s.snapshot()
	require.NoError(s, protojson.Unmarshal([]byte(stdout), cli))
	require.Equal(s, brief(api), brief(cli))
	_, text, _ := iop(s.T, "status")
	_, once, _ := iop(s.T, "top")
	_, list, _ := iop(s.T, "requests")
	for _, n := range api.GetNodes() {
		for _, p := range n.GetProviders() {
			require.Regexp(s, fmt.Sprintf(`%s/%s .* %d/%d `, n.GetId(), p.GetId(), p.GetInFlight(), p.GetEffectiveCapacity()), text)
		}
		require.Equal(s, n.GetState() == "offline", strings.Contains(text, "OFFLINE for "))
		require.Equal(s, n.GetState() == "offline", strings.Contains(once, "OFFLINE for "))
	}
	require.Contains(s, list, fmt.Sprintf("%d running, %d waiting\n", api.GetInFlightTotal(), api.GetQueueTotal()))
	for _, r := range api.GetRequests() {
		require.Contains(s, list, r.GetRequestId())
		require.Contains(s, once, r.GetClient())
	}
}

// brief is what does not change by itself.
func brief(s *controlv1.EdgeNodeSnapshot) (all []string) {
	all = append(all, s.GetEdgeId(), s.GetInstanceId(), fmt.Sprint(s.GetQueueTotal(), s.GetInFlightTotal(), s.GetConfigRevision()))
	for _, n := range s.GetNodes() {
		all = append(all, n.GetId(), n.GetState())
		for _, p := range n.GetProviders() {
			all = append(all, p.GetId(), p.GetStatus(), p.GetHealth(), fmt.Sprint(p.GetInFlight(), p.GetEffectiveCapacity(), p.GetQueued()))
		}
	}
	for _, r := range s.GetRequests() {
		all = append(all, r.GetRequestId(), r.GetState(), r.GetReason(), r.GetSentence(), r.GetUnblocker())
	}
	return all
}

func TestCase_J12_TheCommandsAgreeWithTheAPI(t *testing.T) {
	s := newSite(t)
	s.agrees()
	first := s.ask("first")
	s.until("requests", `#1 +first +m +laptop +streaming +n/p`)
	second := s.ask("second")
	s.until("requests", `1 waiting`)
	third := s.ask("third")
	s.until("requests", `2 waiting`)
	s.agrees()
	s.until("status", `(?s)n/p +openai +full +1/1 +- +2\n.*second +m +laptop +\d+s +full\n  All slots of n/p are taken. Next: The first slot to come back`)
	s.until("requests", `third +m +laptop +\d+s +behind\n  Request #\d`)

	code, stdout, stderr := iop(t, "explain", "second")
	require.Equal(t, exitDone, code, stderr)
	require.Regexp(t, `(?s)^#\d  second  waiting\n.*\nreason    full: All slots of n/p are taken\.\n.*\+0ms      enqueue: waits, full\n  n/p  1/1  full: All of its slots are taken\.\n.*\nNOW\n  n/p  1/1  full`, stdout)
	code, stdout, stderr = iop(t, "explain", "#1", "-o", "json")
	require.Equal(t, exitDone, code, stderr)
	x := &controlv1.ExplainRequestResponse{}
	require.NoError(t, protojson.Unmarshal([]byte(stdout), x))
	require.Equal(t, "first", x.GetRequest().GetRequestId())
	require.Equal(t, "grant", x.GetMoments()[0].GetKind())

	code, stdout, stderr = iop(t, "request", "cancel", "third")
	require.Equal(t, exitDone, code, stderr)
	require.Regexp(t, `^#\d third: cancelled while waiting\n$`, stdout)
	require.NotContains(t, <-third, "hello")
	s.until("explain third", `third  cancelled`)
	code, _, stderr = iop(t, "request", "cancel", "third")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "no request of that name waits or runs")

	s.release <- struct{}{}
	require.Contains(t, <-first, "[DONE]")
	s.until("requests --ended", `(?s)#1 +first +m +laptop +completed`)
	code, stdout, stderr = iop(t, "explain", "first")
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "#1  first  completed\n")
	require.Contains(t, stdout, "tokens    input 7, output 3, as the provider counted\n")
	require.Contains(t, stdout, "where     n/p as served\n")
	s.until("requests", `second +m +laptop +streaming`)
	s.agrees()
	s.release <- struct{}{}
	require.Contains(t, <-second, "[DONE]")

	code, stdout, stderr = iop(t, "explain", "nobody")
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, `no such request: it is neither live nor among the last that ended; "iop requests --ended" lists them`)

	// S14: an offline node has nothing.
	s.stopNode()
	s.until("status", `(?s)n/p +openai +offline +0/0 .*OFFLINE for \d+s, last seen \d+s ago; 1 slot out`)
	s.agrees()
}

func TestU17_ReadingCommandsPrintStableJSON(t *testing.T) {
	newSite(t)
	for line, keys := range map[string][]string{
		"status":           {"edgeId", "at", "revision", "nodes", "scopes", "queueTotal", "inFlightTotal", "oldestWaitMs", "requests", "endings", "models", "instanceId"},
		"top":              {"edgeId", "nodes", "requests"},
		"requests":         {"edgeId", "at", "revision", "inFlightTotal", "queueTotal", "requests"},
		"requests --ended": {"requests", "endings"},
	} {
		code, stdout, stderr := iop(t, append(strings.Fields(line), "-o", "json")...)
		require.Equal(t, exitDone, code, stderr)
		require.Equal(t, 1, strings.Count(stdout, "\n"), "one line")
		require.NotContains(t, stdout, "\x1b")
		var all map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(stdout), &all))
		for _, k := range keys {
			require.Contains(t, all, k, line)
			require.NotEqual(t, "null", string(all[k]))
		}
		require.Contains(t, []string{`"0"`, ""}, strings.TrimSpace(string(all["oldestWaitMs"])), "numbers of 64 bits are strings")
	}
}

func TestCLI_CompletionKnowsNamesWhereATokenIsAtHand(t *testing.T) {
	s := newSite(t)
	done := s.ask("first")
	s.until("requests", `streaming`)
	for line, want := range map[string]string{
		"provider drain":    "n/p\topenai, full\n",
		"node drain":        "n\tconnected\n",
		"explain":           "first\tstreaming m laptop\n",
		"request cancel":    "first\tstreaming m laptop\n",
		"status":            "",
		"explain something": "",
	} {
		code, stdout, _ := iop(t, append([]string{"__complete"}, append(strings.Fields(line), "")...)...)
		require.Equal(t, exitDone, code)
		require.Equal(t, want+":4\n", stdout, line)
	}
	_, stdout, _ := iop(t, "__complete", "explain", "#")
	require.Equal(t, "#1\tstreaming m laptop\n:4\n", stdout)
	_, stdout, _ = iop(t, "__complete", "explain", "--edge", "http://"+freePort(t), "")
	require.Equal(t, ":4\n", stdout, "an Edge that is away is no matter")
	s.release <- struct{}{}
	<-done
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, _ := iop(t, "completion", shell)
		require.Equal(t, exitDone, code)
		require.Contains(t, stdout, "__complete")
	}
}

// What answers is not always an Edge, nor is the token always the right one: each
// is one sentence with what, where, and what to do.
func TestCLI_WhateverAnswersIsExplained(t *testing.T) {
	_, target := runningEdge(t)
	edge, err := url.Parse(target)
	require.NoError(t, err)
	proxy := httptest.NewServer(httputil.NewSingleHostReverseProxy(edge)) // of HTTP/1.1 only
	defer proxy.Close()
	status := func(code int, header ...string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			http.Error(w, "no", code)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_10.0\r\n"))
			_ = conn.Close()
		}
	}()
	defer func() { <-answered }()
	defer garbage.Close()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AppData", t.TempDir())
	for _, c := range []struct {
		name, url, token string
		code             int
		want             string
	}{
		{"a proxy that speaks HTTP/1.1", proxy.URL, readSecret, exitDone, ""},
		{"a read token", target, readSecret, exitDone, ""},
		{"an admin token", target, adminSecret, exitDone, ""},
		{"a wrong token", target, "wrong", exitRefused, "refuses the token: it must be one of its edge.read_tokens or edge.admin_tokens"},
		{"no token", target, "", exitUsage, "needs a token of edge.read_tokens or edge.admin_tokens: --token-file FILE, or $IOP_READ_TOKEN or $IOP_ADMIN_TOKEN"},
		{"nobody", "http://" + freePort(t), readSecret, exitFailed, "no Edge answers at http://127.0.0.1:"},
		{"another server", status(404, "Server", "llama.cpp"), readSecret, exitFailed, "what answers (llama.cpp) at http://127.0.0.1:"},
		{"a proxy that is not let in", status(407), readSecret, exitRefused, "is no Edge and refuses the call (407 Proxy Authentication Required)"},
		{"a proxy without its Edge", status(502, "Server", "nginx"), readSecret, exitFailed, "is a proxy that does not reach the Edge (502 Bad Gateway)"},
		{"no HTTP", "http://" + garbage.Addr().String(), readSecret, exitFailed, "call to the Edge at http://127.0.0.1:"},
		{"a redirect", status(308, "Location", target), readSecret, exitFailed, "is no Edge, or a proxy before one that does not let its API through (308 Permanent Redirect)"},
		{"a page", status(200, "Content-Type", "text/html"), readSecret, exitFailed, "is no Edge, or a proxy before one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(tokenEnv, "")
			t.Setenv(readTokenEnv, c.token)
			for _, line := range []string{"status", "top", "requests", "explain x"} {
				code, stdout, stderr := iop(t, append(strings.Fields(line), "--edge", c.url)...)
				if line == "explain x" && c.code == exitDone {
					require.Equal(t, exitFailed, code, stderr)
					require.Contains(t, stderr, "no such request")
					continue
				}
				require.Equal(t, c.code, code, stderr)
				require.Contains(t, stderr, c.want)
				require.Equal(t, c.code == exitDone, stdout != "")
				if c.code != exitUsage {
					require.LessOrEqual(t, strings.Count(stderr, "\n"), 1, stderr)
				}
				require.NotContains(t, stderr, adminSecret)
			}
		})
	}
}

// The token of "iop up" is found by itself, for an Edge of this machine only.
func TestU01_TheTokenOfUpIsFound(t *testing.T) {
	_, target := runningEdge(t)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("AppData", dir)
	t.Setenv(tokenEnv, "")
	folder, err := stateFolder("")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "admin.token"), []byte(adminSecret+"\n"), 0o600))
	code, _, stderr := iop(t, "status", "--edge", target)
	require.Equal(t, exitDone, code, stderr)
	code, _, stderr = iop(t, "status", "--edge", "http://192.0.2.1:8484")
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "needs a token")
}

func TestCLI_RequestsAreNamedByIDOrNumber(t *testing.T) {
	t.Setenv(readTokenEnv, readSecret)
	for line, want := range map[string]string{
		"explain":                             "needs one REQUEST_ID or #SEQ",
		"explain a b":                         "needs one REQUEST_ID or #SEQ",
		"explain #":                           "expected a request's number",
		"explain #0":                          "expected a request's number",
		"request cancel #x":                   "expected a request's number",
		"request":                             "request needs a subcommand: cancel",
		"explain " + strings.Repeat("x", 129): "1 to 128 characters",
	} {
		code, _, stderr := iop(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, line)
		require.Contains(t, stderr, want)
	}
}
