package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Bodies that somebody's proxy has changed, dropped from or refused: the provider gets each byte for byte, but for the model, and with its exact length,
// whether the client announced one or not.
func TestCase_D20_E01_E02_E04_E05_E08_E09_E10_E11_E13_E16_E17_E18_BodiesReachTheProviderAsSent(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch {
		case len(r.TransferEncoding) > 0 || r.ContentLength != int64(len(body)): // E16, E17
			w.WriteHeader(http.StatusLengthRequired)
		case strings.Contains(string(body), "stream_options"): // E12
			w.WriteHeader(http.StatusBadRequest)
		default:
			complete(w, asked(t, body), "ok")
		}
	})
	const longName = "an-alias-that-is-much-longer-than-the-name/at-the-provider/of-it"
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))},
		[]object{model("m", "n/p=org/a-served-name-that-is-much-longer-than-its-alias"), model(longName, "n/p=x")}), "n")
	for i, body := range []string{
		`{"model":"m","chat_template_kwargs":{"enable_thinking":false},"top_k":4,"min_p":0.05,"cache_prompt":true,"made_up":{"x":[{}]},"messages":[]}`,
		`{"seed":9007199254740993,"model":"m","x":[-0,1.0e+2,1E400,0.30000000000000004],"messages":[]}`,
		`{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"z":{},"a":{},"m":{}}}}}],"model":"m"}`,
		`{"model":"m","tools":[{"x":[` + strings.Repeat("0.30000000000000004,1e-7,", 10_000) + `0]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"<a href=\"x\">&amp;</a> \u003c\u0026\u003e & ` + "\u2028" + `"}]}`,
		`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`,
		`{"model":"m","messages":[{"role":"developer","content":"be brief"}]}`,
		`{"model":"m","max_completion_tokens":16,"messages":[]}`,
		`{"model":"m","stream":true,"messages":[]}`,
		`{"model":"m","tools":[],"tool_choice":"none","messages":[]}`,
		"\r\n{ \"messages\" : [ ] ,\t\"model\" : \"m\" }\n",
		`{"model":"` + longName + `","messages":[]}`,
	} {
		for _, chunked := range []bool{false, true} {
			var from io.Reader = strings.NewReader(body)
			if chunked {
				from = io.MultiReader(from) // of no known length
			}
			contentType := []string{"application/json", "application/json; charset=utf-8", ""}[i%3] // E18
			a := r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", from, "Content-Type", contentType)
			require.NoError(t, a.err)
			require.Equal(t, http.StatusOK, a.status, "%.80s: %s", body, a.body)
			want := strings.NewReplacer(`"m"`, `"org/a-served-name-that-is-much-longer-than-its-alias"`, `"`+longName+`"`, `"x"`)
			if strings.Contains(body, `"properties"`) { // has a key of that name, too
				want = strings.NewReplacer(`"model":"m"`, `"model":"org/a-served-name-that-is-much-longer-than-its-alias"`)
			}
			s.mu.Lock()
			got := string(s.bodies[len(s.bodies)-1])
			s.mu.Unlock()
			require.True(t, want.Replace(body) == got, "%.200s came as %.200s", body, got)
		}
	}
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} { // E18
		a := r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("m", false, "")), "Content-Type", contentType)
		require.Equal(t, http.StatusUnsupportedMediaType, a.status)
		require.Equal(t, "unsupported_media_type", a.code(t))
	}
	r.quiet()
}

// E14: what has no messages to speak of is the provider's to judge; its 400 comes back, and nobody breaks.
func TestCase_E14_NoMessages(t *testing.T) {
	const refusal = `{"error":{"message":"messages must be a non-empty array","type":"invalid_request_error"}}`
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, refusal)
	})
	r := single(t, s)
	for i, body := range []string{`{"model":"m","messages":[]}`, `{"model":"m"}`, `{"model":"m","messages":null}`, `{"model":"m","messages":"hi"}`} {
		a := r.chat(fmt.Sprint("e14-", i), body)
		require.NoError(t, a.err)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, refusal, a.body)
		require.Equal(t, "provider_error", r.ended(fmt.Sprint("e14-", i))["outcome"])
	}
	for _, body := range []string{"", "null", "[]", `"m"`, `{"messages":[]}`} { // nor is there a model: Edge's own answer
		a := r.chat("e14-none", body)
		require.Equal(t, http.StatusBadRequest, a.status, body)
		require.Equal(t, "invalid_request", a.code(t))
	}
	_, _, total, _ := s.counts()
	require.Equal(t, 4, total)
	r.quiet()
}

// E22: however a base URL is spelt, the path is asked for once.
func TestCase_E22_SpellingsOfABaseURL(t *testing.T) {
	var providers, models []object
	spellings := []string{"", "/", "/v1", "/v1/"}
	for i, end := range spellings {
		s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), r.URL.Path) })
		id := fmt.Sprint("p", i)
		providers = append(providers, provider(id, s.URL+end, 1))
		models = append(models, model(id, "n/"+id+"=x"))
	}
	r := site(t, edgeFile([]object{nodeConfig("n", providers...)}, models), "n")
	for i, end := range spellings {
		a := r.ask(t.Context(), chatBody(fmt.Sprint("p", i), false, ""))
		require.Equal(t, http.StatusOK, a.status, end)
		require.Contains(t, a.body, `"content":"/v1/chat/completions"`, end)
	}
}

// E23: a path that is not served says so in JSON at once; the provider is not asked and none the worse for it.
func TestCase_E23_PathsThatAreNotServed(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), r.URL.Path) })
	r := single(t, s)
	for _, path := range []string{"/v1/foo", "/v1/responses/resp_1/cancel", "/v2/chat/completions", "/chat/completions", "/v1/chat/completions/"} {
		a := r.fetch(t.Context(), http.MethodPost, path, strings.NewReader(chatBody("m", false, "")))
		require.Equal(t, http.StatusNotFound, a.status, path)
		require.Equal(t, "not_found", a.code(t))
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
	}
	require.Equal(t, http.StatusOK, r.fetch(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(`{"model":"m","input":"hi"}`)).status)
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	require.Equal(t, "available", r.snapshot().GetNodes()[0].GetProviders()[0].GetStatus())
	_, _, total, _ := s.counts()
	require.Equal(t, 2, total)
	r.quiet()
}
