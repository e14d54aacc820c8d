package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ollamaLine writes one line of an Ollama stream and flushes it.
func ollamaLine(w http.ResponseWriter, target, content string, done bool) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	end := ""
	if done {
		end = `,"done_reason":"stop","prompt_eval_count":16,"eval_count":4`
	}
	const line = `{"model":%q,"created_at":"2026-11-30T14:28:58.2Z","message":{"role":"assistant","content":%q},"done":%t%s}` + "\n"
	if _, err := fmt.Fprintf(w, line, target, content, done, end); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func ollamaBody(model, more string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"go 97"}]%s}`, model, more)
}

// ollamaSite has a model of an Ollama, one of another server, and one of both.
func ollamaSite(t *testing.T, s, other *stub) *rig {
	return start(t, edgeFile([]object{nodeConfig("n",
		provider("ollama", s.URL+"/v1", 1, object{"type": "ollama"}), provider("vllm", other.URL, 1, object{"type": "vllm", "priority": 9}))},
		[]object{model("qwen3:8b", "n/ollama=served:q4"), model("plain", "n/vllm=elsewhere"), model("both", "n/vllm=elsewhere", "n/ollama=served:q4")}), "n")
}

// A client of Ollama's API gets each line as it comes, under the name it asked for,
// from an Ollama and from no other type of server.
func TestOllamaClientsAreServedByOllamas(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		switch {
		case r.URL.Path != "/api/chat":
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprintf(w, `{"model":%q,"path":%q}`, target, r.URL.Path)
		case strings.Contains(string(body), `"stream":false`):
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprintf(w, `{"model":%q,"message":{"role":"assistant","content":"98"},"done":true}`, target)
		default:
			_ = ollamaLine(w, target, "98", false)
			if hold.wait(r) {
				_ = ollamaLine(w, target, strings.Repeat("x", 2<<20), false)
				_ = ollamaLine(w, target, "", true)
			}
		}
	})
	other := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		t.Error("another type of server was asked for " + r.URL.Path)
	})
	r := ollamaSite(t, s, other)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/api/chat", strings.NewReader(ollamaBody("both:latest", "")))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
	res, err := r.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "application/x-ndjson", res.Header.Get("Content-Type"))
	require.Equal(t, "ollama", res.Header.Get("X-Iop-Provider"))
	reader := bufio.NewReader(res.Body)
	line, err := reader.ReadString('\n')
	require.NoError(t, err, "the first line comes before the second is written")
	require.Equal(t, `{"model":"both:latest","created_at":"2026-11-30T14:28:58.2Z","message":{"role":"assistant","content":"98"},"done":false}`+"\n", line)
	ps := r.fetch(t.Context(), http.MethodGet, "/api/ps", nil)
	require.Equal(t, 200, ps.status)
	require.Equal(t, 1, strings.Count(ps.body, `"name"`), ps.body)
	require.Contains(t, ps.body, `"name":"both"`)
	hold.release()
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(rest), `{"model":"both:latest"`))
	require.Contains(t, string(rest), strings.Repeat("x", 2<<20))
	require.True(t, strings.HasSuffix(string(rest), `"done":true,"done_reason":"stop","prompt_eval_count":16,"eval_count":4}`+"\n"))

	a := r.fetch(t.Context(), http.MethodPost, "/api/chat", strings.NewReader(ollamaBody("qwen3:8b", `,"stream":false`)))
	require.Equal(t, `{"model":"qwen3:8b","message":{"role":"assistant","content":"98"},"done":true}`, a.body)
	for _, path := range []string{"/api/generate", "/api/embed", "/api/embeddings"} {
		a = r.fetch(t.Context(), http.MethodPost, path, strings.NewReader(`{"model":"qwen3:8b"}`))
		require.Equal(t, fmt.Sprintf(`{"model":"qwen3:8b","path":%q}`, path), a.body)
	}
	a = r.fetch(t.Context(), http.MethodPost, "/api/chat", strings.NewReader(ollamaBody("plain", "")))
	require.Equal(t, 400, a.status, a.body)
	require.Equal(t, `{"error":"No provider of this model serves this endpoint."}`, a.body)
	a = r.fetch(t.Context(), http.MethodPost, "/api/pull", strings.NewReader(`{"model":"qwen3:8b"}`))
	require.Equal(t, 501, a.status, a.body)

	s.mu.Lock()
	for _, body := range s.bodies {
		require.Equal(t, "served:q4", asked(t, body))
	}
	require.Equal(t, "application/json", s.headers[0].Get("Content-Type"))
	s.mu.Unlock()
	r.quiet()
	ps = r.fetch(t.Context(), http.MethodGet, "/api/ps", nil)
	require.JSONEq(t, `{"models":[]}`, ps.body)
}

// A10: an Ollama that ends a stream neatly without its last line, and one that
// breaks off, are lost; the client is told on a line of its own.
func TestCase_A10_OllamaStreamThatIsNotComplete(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"neatly":    func(http.ResponseWriter) {},
		"in a line": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"model":"served:q4","mess`) },
		"broken off": func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
				_ = ollamaLine(w, asked(t, body), "98", false)
				end(w)
			})
			r := ollamaSite(t, s, newStub(t, nil))
			a := r.fetch(t.Context(), http.MethodPost, "/api/chat", strings.NewReader(ollamaBody("qwen3:8b", "")))
			require.NoError(t, a.err)
			require.Equal(t, 200, a.status)
			lines := strings.Split(strings.TrimSuffix(a.body, "\n"), "\n")
			require.Regexp(t, `^\{"error":"[^"]+"\}$`, lines[len(lines)-1])
			require.NotContains(t, a.body, `"done":true`)
			r.quiet()
		})
	}
}

// B01: a client that leaves in mid-stream ends the provider's work.
func TestCase_B01_OllamaClientLeaves(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		_ = ollamaLine(w, asked(t, body), "98", false)
		<-r.Context().Done()
	})
	r := ollamaSite(t, s, newStub(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/api/chat", strings.NewReader(ollamaBody("qwen3:8b", "")))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	res, err := r.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = bufio.NewReader(res.Body).ReadString('\n')
	require.NoError(t, err)
	cancel()
	select {
	case <-s.goneNews:
	case <-time.After(20 * time.Second):
		t.Fatal("the provider goes on")
	}
	r.quiet()
}
