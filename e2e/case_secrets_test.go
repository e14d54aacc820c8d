package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
)

// I01, I07, I12: the client's key, cookies, origin and host stay here; a provider that asks for a key gets its own, which lives on the node, and one
// that refuses foreign origins and hosts has nothing to refuse. Whatever then goes wrong, no secret is in a log, the status, a configuration shown or
// another's answer.
func TestCase_I01_I07_I12_SecretsStayWhereTheyBelong(t *testing.T) {
	const clientMark, providerMark, wrongMark = "MARK-of-the-client", "MARK-of-the-provider", "MARK-of-nobody"
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch target := asked(t, body); {
		case r.Header.Get("Origin") != "" || r.Host != r.Context().Value(http.LocalAddrContextKey).(net.Addr).String():
			w.WriteHeader(http.StatusForbidden)
		case r.Header.Get("Authorization") != "Bearer "+providerMark:
			w.WriteHeader(http.StatusUnauthorized)
		case target == "breaks":
			reset(w)
		case target == "refuses":
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		case target == "lost":
			_ = sse(w, chunk(target, "x"))
		default:
			complete(w, target, "ok")
		}
	})
	file := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1), provider("gone", "http://"+freePort(t), 1))},
		[]object{model("m", "n/p=served"), model("breaks", "n/p=breaks"), model("refuses", "n/p=refuses"), model("lost", "n/p=lost"), model("gone", "n/gone=x")},
		object{"openai": object{"api_keys": []object{{"name": "test", "sha256": hash(clientMark)}}}})
	r := site(t, file)
	dir := t.TempDir()
	token, key, nodeYAML := filepath.Join(dir, "token"), filepath.Join(dir, "key"), filepath.Join(dir, "node.yaml")
	require.NoError(t, os.WriteFile(token, []byte(nodeToken+"n\n"), 0o600))
	require.NoError(t, os.WriteFile(key, []byte(providerMark+"\n"), 0o600))
	writeYAML(t, nodeYAML, object{
		"node":                 object{"id": "n", "edge_url": r.url, "token_file": token},
		"provider_credentials": []object{{"provider": "p", "key_file": key}},
	})
	node := startProcess(t, "node n", "node", "-c", nodeYAML, "--log-level", "debug")
	r.connected("n")

	var seen strings.Builder // what clients were told
	for _, c := range []struct {
		model, key string
		status     int
	}{
		{"m", clientMark, 200}, {"breaks", clientMark, 502}, {"refuses", clientMark, 429}, {"lost", clientMark, 200}, {"gone", clientMark, 502},
		{"m", wrongMark, 401}, {"nope", clientMark, 404},
	} {
		for _, header := range []string{"Authorization", "X-Api-Key"} {
			value := c.key
			if header == "Authorization" {
				value = "Bearer " + c.key
			}
			a := r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody(c.model, c.model == "lost", "")),
				"Authorization", "", header, value, "Cookie", "session="+clientMark, "Origin", "https://evil.example", "Referer", "https://evil.example/"+clientMark,
				"X-Forwarded-For", "10.1.1.1", "X-Forwarded-Host", "evil.example")
			require.NoError(t, a.err)
			require.Equal(t, c.status, a.status, "%s: %s", c.model, a.body)
			seen.WriteString(a.body)
			for name, values := range a.header {
				seen.WriteString(name + ": " + strings.Join(values, " ") + "\n")
			}
		}
	}
	r.quiet()
	s.mu.Lock()
	for _, h := range s.headers {
		for name, values := range h {
			require.NotContains(t, strings.Join(values, " "), clientMark, name)
			require.NotContains(t, strings.Join(values, " "), "evil", name)
		}
	}
	s.mu.Unlock()
	status, err := protojson.Marshal(r.snapshot())
	require.NoError(t, err)
	shown := map[string]string{"answers": seen.String(), "status": string(status), "log of the edge": r.edge.log(), "log of the node": node.log()}
	for _, path := range []string{r.edgeYAML, nodeYAML} {
		out, err := exec.Command(binary, "config", "check", "-c", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		shown["config check of "+filepath.Base(path)] = string(out)
	}
	for where, text := range shown {
		require.NotEmpty(t, text, where)
		require.NotContains(t, text, "MARK-", where)
		require.NotContains(t, text, hash(clientMark), where)
		require.NotContains(t, text, nodeToken, where)
	}
}

// I04, I05, I08, I09, I14: a page of a configured origin may send what the official client adds, and read why it was refused; asking first takes no key,
// no slot and no line in the log. Health needs no key, and tells nothing.
func TestCase_I04_I05_I08_I09_I14_I15_PagesAndProbes(t *testing.T) {
	const page = "https://chat.example.org"
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "ok") })
	file := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1)), nodeConfig("away", provider("p", s.URL, 1))},
		[]object{model("m", "n/p=served"), model("away", "away/p=x")}, object{"openai": object{"cors": object{"allowed_origins": []string{page}}}})
	r := site(t, file, "n")
	logged := r.edge.log()
	const sdk = "authorization,content-type,x-stainless-arch,x-stainless-async,x-stainless-helper-method,x-stainless-lang,x-stainless-os," +
		"x-stainless-package-version,x-stainless-poll-helper,x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout"
	for path, method := range map[string]string{
		"/v1/chat/completions": "POST", "/v1/completions": "POST", "/v1/responses": "POST", "/v1/embeddings": "POST", "/v1/models": "GET", "/v1/models/m": "GET",
	} {
		a := r.fetch(t.Context(), http.MethodOptions, path, nil, "Authorization", "", "Origin", page,
			"Access-Control-Request-Method", method, "Access-Control-Request-Headers", sdk)
		require.NoError(t, a.err)
		require.Equal(t, http.StatusNoContent, a.status, path)
		require.Empty(t, a.body)
		require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, a.header.Get("Access-Control-Allow-Methods"), method)
		for name := range strings.SplitSeq(sdk, ",") {
			require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), name)
		}
		a = r.fetch(t.Context(), http.MethodOptions, path, nil, "Authorization", "", "Origin", "https://evil.example", "Access-Control-Request-Method", method)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), path)
	}
	require.Equal(t, logged, r.edge.log(), "nothing to say of it")
	require.Zero(t, r.snapshot().GetCounters().GetGranted())

	for want, body := range map[int]string{200: chatBody("m", false, ""), 404: chatBody("nope", false, ""), 503: chatBody("away", false, ""), 400: "{"} {
		a := r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body), "Origin", page)
		require.Equal(t, want, a.status)
		require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"), want)
		require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), "X-Request-Id")
	}
	for _, bad := range []string{"Bearer ", "Bearer wrong", "Basic x", apiKey} {
		a := r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("m", false, "")), "Origin", page, "Authorization", bad)
		require.Equal(t, http.StatusUnauthorized, a.status, bad)
		require.Equal(t, "invalid_api_key", a.code(t))
		require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	}
	for _, good := range []string{"Bearer " + apiKey, "bearer " + apiKey, "BEARER  " + apiKey} {
		require.Equal(t, http.StatusOK, r.fetch(t.Context(), http.MethodGet, "/v1/models", nil, "Authorization", good).status, good)
	}
	for _, key := range []string{"", "Bearer wrong"} {
		for _, path := range []string{"/healthz", "/readyz"} {
			a := r.fetch(t.Context(), http.MethodGet, path, nil, "Authorization", key)
			require.Equal(t, http.StatusOK, a.status)
			require.JSONEq(t, `{"status":"ok"}`, a.body)
		}
	}
	r.quiet()
}
