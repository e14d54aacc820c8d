package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
)

const (
	nativeChat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	nativeLine = `{"model":"served","created_at":"2026-11-30T14:28:58.2Z","message":{"role":"assistant","content":" 98"},"done":false}` + "\n"
	nativeLast = `{"model":"served","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":300,"eval_count":4}` + "\n"
	nativeNDJ  = "application/x-ndjson"
)

func lines(parts ...string) []dispatch.Frame {
	frames := events(parts...)
	frames[0].Head = head(200, nativeNDJ)
	return frames
}

func (r *rig) native(path, body string, header ...string) reply {
	r.Helper()
	return r.do(r.request(http.MethodPost, path, body, header...))
}

// requireOllamaError checks Ollama's envelope: words, and nothing besides.
func (r *rig) requireOllamaError(got reply, status int, words string) {
	r.Helper()
	require.NoError(r, got.err)
	require.Equal(r, status, got.StatusCode, got.body)
	require.Equal(r, "application/json", got.Header.Get("Content-Type"))
	var e map[string]string
	require.NoError(r, json.Unmarshal([]byte(got.body), &e), got.body)
	require.Len(r, e, 1)
	require.Contains(r, e["error"], words)
	require.NotEmpty(r, got.Header.Get("X-Request-Id"))
}

func TestOllamaStreamIsSplicedLineByLine(t *testing.T) {
	var asked dispatch.Request
	answered := answer(ended(lines(nativeLine, nativeLine[:11], nativeLine[11:14], nativeLine[14:]+nativeLast[:5], nativeLast[5:]))...)
	d := doFunc(func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
		asked = *r
		err := answered(ctx, r, s)
		require.True(t, s.Complete(), "the last line is the end")
		return err
	})
	over(t, d, settings(), func(r *rig) {
		body := ` {"messages":[{"role":"user","content":"hi"}], "model" : "m","keep_alive":"5m","options":{"num_ctx":8192}}`
		got := r.native("/api/chat", body)
		require.NoError(r, got.err)
		require.Equal(r, 200, got.StatusCode)
		require.Equal(r, strings.ReplaceAll(nativeLine+nativeLine+nativeLast, "served", "m"), got.body)
		require.Equal(r, nativeNDJ, got.Header.Get("Content-Type"))
		require.Equal(r, "no-cache", got.Header.Get("Cache-Control"))
		require.Equal(r, "gx10", got.Header.Get("X-Iop-Node"))
		require.Equal(r, body, string(asked.Body))
		require.Equal(r, `"m"`, string(asked.Body[asked.ModelStart:asked.ModelEnd]))
		require.Equal(r, "/api/chat", asked.Path)
		require.Equal(r, admission.SurfaceOllama, asked.Surface)
	})
}

func TestOllamaAnswersThatAreNoStream(t *testing.T) {
	for path, body := range map[string]string{
		"/api/chat":       `{"model":"served","message":{"role":"assistant","content":"served"},"done":true,"done_reason":"stop"}`,
		"/api/generate":   `{"model":"served","created_at":"x","response":"","done":true,"done_reason":"load"}`,
		"/api/embed":      `{"model":"served","embeddings":[[0.1,-2e-3]],"prompt_eval_count":3}`,
		"/api/embeddings": `{"embedding":[0.1]}`,
	} {
		over(t, answer(whole(200, "application/json; charset=utf-8", body)), settings(), func(r *rig) {
			for _, asked := range []string{`{"model":"m","stream":false,"prompt":"x"}`, `{"model":"m"}`, `{"model":"m","prompt":"","messages":[],"keep_alive":0}`} {
				got := r.native(path, asked)
				require.Equal(r, 200, got.StatusCode, got.body)
				require.Equal(r, strings.Replace(body, `"model":"served"`, `"model":"m"`, 1), got.body)
			}
		})
	}
}

// What Ollama says of the prompt is the whole of it, what a cache had included, and so teaches the estimate; of an answer that broke, nothing does.
func TestL04_OllamaCountsTeachTheEstimate(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("Explain how the gate keeps two long prompts apart. ", 60) + `"}]}`
	for name, c := range map[string]struct {
		answer func(last string) doFunc
		learns bool
	}{
		"stream":      {func(last string) doFunc { return answer(ended(lines(nativeLine, last))...) }, true},
		"whole":       {func(last string) doFunc { return answer(whole(200, "application/json; charset=utf-8", last)) }, true},
		"cut in it":   {func(last string) doFunc { return answer(ended(lines(nativeLine, last[:len(last)-2]))...) }, false},
		"of an error": {func(last string) doFunc { return answer(whole(500, "application/json", last)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked *dispatch.Request
			counted := 0
			d := doFunc(func(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
				asked = r
				return c.answer(strings.Replace(nativeLast, "300", strconv.Itoa(counted), 1))(ctx, r, s)
			})
			s := settings()
			s.Models[0].Targets = []string{grant.Target}
			over(t, d, s, func(r *rig) {
				counted = 0
				r.native("/api/chat", body)
				plain := asked.Input
				counted = plain.Tokens * 7 / 10
				for range 51 {
					r.native("/api/chat", body)
				}
				if !c.learns {
					require.Equal(r, plain.Tokens, asked.Input.Tokens)
					return
				}
				require.Less(r, asked.Input.Tokens, plain.Tokens*8/10)
				require.GreaterOrEqual(r, asked.Input.Tokens, counted)
			})
		})
	}
}

func TestCase_A10_A14_OllamaStreamThatBreaks(t *testing.T) {
	lost := &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Started: true, HandedOff: true, Grant: grant}
	told := `{"error":"The connection to the provider was lost before the answer was complete."}` + "\n"
	own := `{"error":"an error was encountered while running the model: unexpected EOF"}` + "\n"
	spliced := strings.ReplaceAll(nativeLine, "served", "m")
	cut := nativeLast[:len(nativeLast)-3]
	for name, c := range map[string]struct {
		do   doFunc
		want string
	}{
		"ends neatly without done":          {answer(ended(lines(nativeLine))...), spliced + told},
		"is lost":                           {answer(lines(nativeLine)...).then(lost), spliced + told},
		"is lost in a line":                 {answer(lines(nativeLine, `{"model":"served","mess`)...).then(lost), spliced + `{"model":"m","mess` + "\n" + told},
		"is lost in its last line":          {answer(lines(cut)...).then(lost), strings.ReplaceAll(cut, "served", "m") + "\n" + told},
		"the provider reports it by itself": {answer(ended(lines(nativeLine, own))...), spliced + own},
		"is lost after the provider's word": {answer(lines(nativeLine, own)...).then(lost), spliced + own},
		"is lost after done":                {answer(lines(nativeLast)...).then(lost), strings.ReplaceAll(nativeLast, "served", "m")},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, c.do, settings(), func(r *rig) {
				got := r.native("/api/chat", nativeChat)
				require.NoError(r, got.err)
				require.Equal(r, 200, got.StatusCode)
				require.Equal(r, c.want, got.body)
			})
		})
	}
	t.Run("an answer that is no stream is cut off", func(t *testing.T) {
		over(t, answer(dispatch.Frame{Head: head(200, "application/json"), Body: []byte(`{"model":"served",`)}).then(lost), settings(), func(r *rig) {
			require.Error(r, r.native("/api/chat", nativeChat).err)
		})
	})
}

func TestOllamaErrorsAreInItsEnvelope(t *testing.T) {
	s := settings()
	for name, c := range map[string]struct {
		err    error
		status int
		words  string
	}{
		"queue full":     {&broker.QueueFullError{}, 429, "queue is full"},
		"no Ollama":      {&broker.UnavailableError{Reason: admission.ReasonNoModel}, 400, "serves this endpoint"},
		"nobody there":   {&broker.UnavailableError{Reason: admission.ReasonOffline}, 503, "offline"},
		"provider lost":  {&dispatch.FailedError{Code: dispatch.ProviderDisconnected}, 502, "lost"},
		"a bug of ours":  {errors.New("what"), 500, "internal error"},
		"provider slow":  {&dispatch.FailedError{Code: dispatch.ProviderTimeout}, 504, "in time"},
		"gate kept full": {&dispatch.FailedError{Code: dispatch.ProviderBusy}, 503, "free slot"},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, refuse(c.err), s, func(r *rig) {
				r.requireOllamaError(r.native("/api/generate", `{"model":"m","prompt":"x"}`), c.status, c.words)
			})
		})
	}
	over(t, refuse(errors.New("asked")), s, func(r *rig) {
		r.requireOllamaError(r.native("/api/chat", `{"model":"nope","messages":[]}`), 404, "model 'nope' not found")
		r.requireOllamaError(r.native("/api/chat", `{"model":"m",nope`), 400, "not valid JSON")
		r.requireOllamaError(r.native("/api/chat", `{"name":"m"}`), 400, `no "model"`)
		r.requireOllamaError(r.native("/api/chat", `{"model":"m","Model":"x"}`), 400, "differs")
		r.requireOllamaError(r.native("/api/nope", `{}`), 404, "nothing at this path")
		got := r.do(r.request(http.MethodGet, "/api/chat", ""))
		r.requireOllamaError(got, 405, "POST")
		require.Equal(r, "POST", got.Header.Get("Allow"))
		got = r.do(r.request(http.MethodOptions, "/api/chat", ""))
		require.Equal(r, 204, got.StatusCode)
		require.Equal(r, "POST, OPTIONS", got.Header.Get("Allow"))
	})
	over(t, answer(whole(400, "application/json; charset=utf-8", `{"error":"model \"served\" does not support tools"}`)), s, func(r *rig) {
		got := r.native("/api/chat", nativeChat)
		require.Equal(r, 400, got.StatusCode)
		require.Equal(r, `{"error":"model \"served\" does not support tools"}`, got.body, "the provider's own words pass")
	})
}

func TestOllamaNames(t *testing.T) {
	s := settings()
	s.Models = nil
	for _, id := range []string{"a", "b:latest", "c", "c:latest", "d:7b", "host:5000/e", "host:5000/f:latest"} {
		s.Models = append(s.Models, Model{ID: id, Group: admission.GroupKey(id)})
	}
	var group atomic.Value
	d := doFunc(func(_ context.Context, r *dispatch.Request, sink dispatch.Sink) error {
		group.Store(string(r.Group))
		g, f := grant, whole(200, "application/json", `{"model":"served"}`)
		return sink.Frame(&g, &f)
	})
	over(t, d, s, func(r *rig) {
		for name, want := range map[string]string{
			"a": "a", "a:latest": "a", "b": "b:latest", "b:latest": "b:latest", "c": "c", "c:latest": "c:latest", "d:7b": "d:7b",
			"host:5000/e": "host:5000/e", "host:5000/e:latest": "host:5000/e", "host:5000/f": "host:5000/f:latest",
		} {
			got := r.native("/api/chat", `{"model":"`+name+`"}`)
			require.Equal(r, `{"model":"`+name+`"}`, got.body, "the name that the client used")
			require.Equal(r, want, group.Load())
		}
		for _, name := range []string{"A", "a:7b", "d", "d:latest", "b:latest:latest", "a:Latest", "a:", ":latest", "a:latest:latest"} {
			r.requireOllamaError(r.native("/api/chat", `{"model":"`+name+`"}`), 404, "not found")
			r.requireOllamaError(r.native("/api/show", `{"model":"`+name+`"}`), 404, "not found")
		}
		r.requireError(r.chat(`{"model":"a:latest"}`), 404, "model_not_found", "invalid_request_error")
	})
}

func TestOllamaBodiesOfAnyTypeButNotFromAPage(t *testing.T) {
	var sent atomic.Value
	d := doFunc(func(_ context.Context, r *dispatch.Request, sink dispatch.Sink) error {
		for _, h := range r.Header {
			if h.Name == "content-type" {
				sent.Store(h.Value)
			}
		}
		g, f := grant, whole(200, "application/json", `{"model":"served"}`)
		return sink.Frame(&g, &f)
	})
	s := settings()
	s.AllowedOrigins = []string{"https://chat.example"}
	over(t, d, s, func(r *rig) {
		for _, path := range []string{"/api/chat", "/api/show"} {
			for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain; charset=utf-8", "", "nonsense", "application/json"} {
				require.Equal(r, 200, r.native(path, nativeChat, "Content-Type", kind).StatusCode, kind)
				require.Equal(r, "application/json", sent.Load())
				if kind == "application/json" {
					continue
				}
				for _, origin := range []string{"https://evil.example", "null", "https://chat.example"} {
					r.requireOllamaError(r.native(path, nativeChat, "Content-Type", kind, "Origin", origin), 415, "JSON")
				}
			}
		}
		got := r.native("/api/chat", nativeChat, "Origin", "https://chat.example")
		require.Equal(r, 200, got.StatusCode)
		require.Equal(r, "https://chat.example", got.Header.Get("Access-Control-Allow-Origin"))
		r.requireOllamaError(r.native("/api/chat", nativeChat, "Content-Encoding", "gzip"), 415, "encoded")
	})
}

func TestOllamaManagementReachesNoProvider(t *testing.T) {
	d := doFunc(func(context.Context, *dispatch.Request, dispatch.Sink) error { t.Error("asked"); return nil })
	over(t, d, settings(), func(r *rig) {
		for _, c := range []struct{ method, path string }{
			{"POST", "/api/pull"}, {"POST", "/api/push"}, {"POST", "/api/create"}, {"POST", "/api/copy"}, {"DELETE", "/api/delete"},
			{"POST", "/api/blobs/sha256:29fdb92e57cf0827ded04ae6461b5931d01fa595843f55d36f5b275a52087dd2"},
		} {
			r.requireOllamaError(r.do(r.request(c.method, c.path, `{"model":"m"}`)), 501, "not managed through IOP")
		}
		require.Equal(r, 501, r.do(r.request(http.MethodHead, "/api/blobs/sha256:0", "")).StatusCode)
		require.Equal(r, 404, r.do(r.request(http.MethodPost, "/api/blobs", "{}")).StatusCode)
	})
}

func TestOllamaSurfaceAsksForKeys(t *testing.T) {
	s := settings()
	hash, err := auth.ParseHash(auth.HashToken("secret"))
	require.NoError(t, err)
	s.Keys = auth.NewKeyring(auth.Credentials{Keys: []auth.Key{{Name: "k", Hash: hash, Models: []string{"m"}}}})
	over(t, answer(ended(lines(nativeLast))...), s, func(r *rig) {
		for _, c := range []struct{ method, path string }{
			{"POST", "/api/chat"}, {"POST", "/api/generate"}, {"POST", "/api/embed"}, {"POST", "/api/embeddings"}, {"POST", "/api/show"}, {"GET", "/api/tags"},
			{"GET", "/api/ps"}, {"GET", "/api/version"}, {"POST", "/api/pull"},
		} {
			r.requireOllamaError(r.do(r.request(c.method, c.path, "{}")), 401, "key")
		}
		require.Equal(r, 200, r.do(r.request("GET", "/", "")).StatusCode, "probes need none")
		require.Equal(r, 200, r.native("/api/chat", nativeChat, "Authorization", "Bearer secret").StatusCode)
		require.Equal(r, 200, r.native("/api/chat", nativeChat, "X-Api-Key", "secret").StatusCode)
		r.requireOllamaError(r.native("/api/chat", `{"model":"tiny"}`, "X-Api-Key", "secret"), 403, "may not use")
		r.requireOllamaError(r.native("/api/show", `{"model":"tiny"}`, "X-Api-Key", "secret"), 404, "not found")
		got := r.do(r.request("GET", "/api/tags", "", "X-Api-Key", "secret"))
		require.Equal(r, 1, strings.Count(got.body, `"name"`), got.body)
	})
}
