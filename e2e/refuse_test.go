package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Bad input of every kind: the contract's error, nothing reaches the provider,
// and the next request is fine.
func TestBadRequestsAreToldAndHarmless(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")},
		object{"edge": object{"body_limit_bytes": 4096}}), "n")
	good := chatBody("m", false, "")
	for name, tt := range map[string]struct {
		method, path, body, key, kind string
		status                        int
		code                          string
	}{
		"bad JSON":           {body: `{"model":"m",`, status: 400, code: "invalid_request"},
		"not an object":      {body: `["model"]`, status: 400, code: "invalid_request"},
		"no model":           {body: `{"messages":[]}`, status: 400, code: "invalid_request"},
		"model is a number":  {body: `{"model":7}`, status: 400, code: "invalid_request"},
		"two models":         {body: `{"model":"m","model":"other"}`, status: 400, code: "invalid_request"},
		"model in capitals":  {body: `{"Model":"m","model":"m"}`, status: 400, code: "invalid_request"},
		"trailing data":      {body: good + "x", status: 400, code: "invalid_request"},
		"unknown model":      {body: chatBody("M", false, ""), status: 404, code: "model_not_found"},
		"oversized":          {body: chatBody("m", false, `,"x":"`+strings.Repeat("x", 8192)+`"`), status: 413, code: "request_too_large"},
		"wrong key":          {body: good, key: "not-the-key", status: 401, code: "invalid_api_key"},
		"no key":             {body: good, key: "-", status: 401, code: "invalid_api_key"},
		"not JSON by type":   {body: good, kind: "text/html", status: 415, code: "unsupported_media_type"},
		"wrong method":       {method: http.MethodGet, status: 405, code: "method_not_allowed"},
		"unknown path":       {path: "/v1/foo", body: good, status: 404},
		"a path on the node": {path: "/v1/chat/completions/../../api/delete", body: good, status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), or(tt.method, http.MethodPost), r.url+or(tt.path, "/v1/chat/completions"), strings.NewReader(tt.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", or(tt.kind, "application/json"))
			if tt.key != "-" {
				req.Header.Set("Authorization", "Bearer "+or(tt.key, apiKey))
			}
			res, err := (&http.Client{Transport: r.client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			a := answer{res.StatusCode, res.Header, readAll(t, res), nil}
			require.Equal(t, tt.status, a.status, a.body)
			if code := a.code(t); tt.code != "" {
				require.Equal(t, tt.code, code)
			}
			_, _, before, _ := s.counts()
			require.Equal(t, http.StatusOK, r.ask(t.Context(), good).status, "the next request")
			_, _, after, _ := s.counts()
			require.Equal(t, before+1, after)
			r.quiet()
		})
	}
	_, _, total, _ := s.counts()
	require.Equal(t, 15, total, "only the good ones")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// A wrong node token is final: exit code 4, and nobody is connected. A duplicate
// of a live node is not: it goes on trying and disturbs nobody (S12).
func TestS12_WrongTokenAndDuplicateNode(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	r := oneSlot(t, s)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("guessed"), 0o600))
	file := filepath.Join(dir, "node.yaml")
	writeYAML(t, file, object{"node": object{"id": "n", "edge_url": r.url, "token_file": filepath.Join(dir, "token")}})
	wrong := startProcess(t, "wrong token", "node", "-c", file)
	<-wrong.done
	require.Equal(t, 4, wrong.cmd.ProcessState.ExitCode(), wrong.log())
	require.NotContains(t, wrong.log(), "guessed")

	since := r.snapshot().GetNodes()[0].GetConnectedSince().AsTime()
	owner := r.nodes["n"]
	duplicate := r.startNode("n")
	require.Never(t, func() bool { return duplicate.ended() || owner.ended() }, time.Second, 50*time.Millisecond)
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	require.Equal(t, since, r.snapshot().GetNodes()[0].GetConnectedSince().AsTime(), "the owner was disturbed")
	owner.kill()
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
		n := s.GetNodes()[0]
		return n.GetConnected() && n.GetConnectedSince().AsTime().After(since)
	}, "the other takes over")
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
}

// Configuration that is wrong names its place, at start, at `config check` and at
// SIGHUP; a refresh is all or nothing, and a good one reaches the running Edge.
func TestS08_Case_H06_H07_H08_H09_BadConfigChangesNothing(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "hi")
		}
	})
	good := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")})
	r := start(t, good, "n")
	text, err := os.ReadFile(r.edgeYAML)
	require.NoError(t, err)

	first := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	second := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)

	bad := strings.Replace(string(text), "capacity:", "capacty:", 1)
	require.NotEqual(t, string(text), bad)
	require.NoError(t, os.WriteFile(r.edgeYAML, []byte(bad), 0o600))
	check := exec.Command(binary, "config", "check", "-c", r.edgeYAML)
	out, err := check.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, check.ProcessState.ExitCode())
	require.Regexp(t, `edge\.yaml:\d+:\d+: .*capacty.*did you mean "capacity"`, string(out))

	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetLastRefreshError() != "" }, "the refusal shows")
	snap := r.snapshot()
	require.Contains(t, snap.GetLastRefreshError(), "capacty")
	require.EqualValues(t, 1, snap.GetConfigRevision())
	require.EqualValues(t, 1, snap.GetQueueTotal())

	writeYAML(t, r.edgeYAML, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 2))}, []object{model("m", "n/p=served"), model("new", "n/p=served")}))
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
	r.running(2) // the waiter goes, with no lease returned
	snap = r.snapshot()
	require.Empty(t, snap.GetLastRefreshError())
	require.GreaterOrEqual(t, snap.GetConfigRevision(), uint64(2), "by the signal, and perhaps by the watch of the file before it")
	require.Eventually(t, func() bool { current, _, _, _ := s.counts(); return current == 2 }, 10*time.Second, 5*time.Millisecond, "the node's gate grew too")
	g.release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, http.StatusOK, (<-second).status)
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("new", false, "")).status)
	r.quiet()
}

// A larger body limit is in force at once, nodes that are connected included.
func TestS08_ARaisedBodyLimitReachesConnectedNodes(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	limited := func(bytes int) object {
		return edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")},
			object{"edge": object{"body_limit_bytes": bytes}})
	}
	r := start(t, limited(4096), "n")
	large := chatBody("m", false, `,"x":"`+strings.Repeat("x", 100_000)+`"`)
	require.Equal(t, "request_too_large", r.ask(t.Context(), large).code(t))

	writeYAML(t, r.edgeYAML, limited(1<<20))
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetConfigRevision() >= 2 }, "the refresh is in force")
	a := r.ask(t.Context(), large)
	require.Equal(t, http.StatusOK, a.status, a.body)
}

// No call that changes or reads the Edge is answered without a token for it.
func TestControlAndAdminNeedTheirTokens(t *testing.T) {
	r := start(t, edgeFile(nil, nil))
	for _, path := range []string{"/iop.control.v1.ControlService/GetEdgeNodeSnapshot", "/iop.admin.v1.AdminService/ReloadConfig", "/iop.inference.v1.InferenceService/ListModels"} {
		for _, token := range []string{"", "wrong", nodeToken + "n"} {
			require.Equal(t, http.StatusUnauthorized, r.call(path, token), "%s with %q", path, token)
		}
	}
	require.Equal(t, http.StatusOK, r.call("/iop.control.v1.ControlService/GetEdgeNodeSnapshot", readToken))
	require.Equal(t, http.StatusUnauthorized, r.call("/iop.admin.v1.AdminService/ReloadConfig", readToken), "a reader may not change")
	require.Equal(t, http.StatusUnauthorized, r.call("/iop.control.v1.ControlService/GetEdgeNodeSnapshot", apiKey))
	require.Equal(t, http.StatusOK, r.call("/iop.inference.v1.InferenceService/ListModels", apiKey))
}

// call makes a unary call over plain HTTP and JSON and returns its status.
func (r *rig) call(path, token string) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+path, strings.NewReader("{}"))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := r.client.Do(req)
	require.NoError(r.t, err)
	res.Body.Close()
	return res.StatusCode
}
