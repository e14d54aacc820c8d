package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/estimate"
)

// quoted is a JSON string.
func quoted(t *testing.T, text string) string {
	t.Helper()
	s, err := json.Marshal(text)
	require.NoError(t, err)
	return string(s)
}

// longSlots is a site with one provider of capacity 2, of which so many may be long; 0 = as many as there are.
func longSlots(s *stub, long int, more ...object) object {
	m := model("m", "n/p=served")
	m["context_window_tokens"] = 262144
	limits := object{}
	if long > 0 {
		limits = object{"long_context_capacity": long, "total_context_tokens": long * 262144}
	}
	return edgeFile([]object{nodeConfig("n", provider("p", s.URL, 2, limits))}, []object{m}, more...)
}

// noise is text without a pattern, the same each time.
func noise(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = random.Read(b)
	return b
}

// The class that a request ran in is what its input makes it, whatever the input is made of; a photo is no book.
func TestCase_D01_D04_D05_D07_D08_D11_D15_D18_E10_TheInputDecidesTheClass(t *testing.T) {
	user := func(text string) string {
		return `{"model":"m","messages":[{"role":"user","content":` + quoted(t, text) + `}]}`
	}
	var rows, tools, variants strings.Builder
	for i := 0; rows.Len() < 300_000; i++ {
		fmt.Fprintf(&rows, `{"id":%d,"k":"v%d","ok":true},`, i*7919, i)
	}
	for i := 0; tools.Len() < 600_000; i++ {
		fmt.Fprintf(&tools, `,{"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}`, i)
	}
	for i := 0; variants.Len() < 500_000; i++ {
		fmt.Fprintf(&variants, `,{"title":"Variant %d","default":{"of":"a value"},"examples":["x%d"]}`, i, i)
	}
	goOn := make(chan struct{})
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		select {
		case <-goOn:
			complete(w, "served", "ok")
		case <-r.Context().Done():
		}
	})
	r := site(t, longSlots(s, 1), "n")
	photo := base64.StdEncoding.EncodeToString(noise(1_500_000)) // 2 MB of text
	for name, c := range map[string]struct{ body, class string }{
		"D01 hangul":        {user(strings.Repeat("한", 150_000)), "long"},
		"D01 han":           {user(strings.Repeat("漢", 150_000)), "long"},
		"D01 kana":          {user(strings.Repeat("か", 150_000)), "long"},
		"D04 hex":           {user(hex.EncodeToString(noise(150_000))), "long"},
		"D04 minified JSON": {user(rows.String()), "long"},
		"D04 base64":        {user(base64.StdEncoding.EncodeToString(noise(225_000))), "long"},
		"D05 photo":         {`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,` + photo + `"}}]}]}`, "normal"},
		"D07 tools":         {`{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[` + tools.String()[1:] + `]}`, "long"},
		"D08 arguments": {`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":` +
			quoted(t, strings.Repeat(`{"line":"some text"}`, 25_000)) + `}}]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`, "long"},
		"D11 keywords":       {`{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"anyOf":[` + variants.String()[1:] + `]}}}]}`, "long"},
		"D15 output length":  {`{"model":"m","max_tokens":20000,"messages":[{"role":"user","content":` + quoted(t, strings.Repeat("word ", 60_000)) + `}]}`, "normal"},
		"D18 emoji":          {user(strings.Repeat("😀", 60_000)), "long"},
		"D18 joined":         {user(strings.Repeat("👨‍👩‍👧‍👦", 15_000)), "long"},
		"E10 developer role": {`{"model":"m","messages":[{"role":"developer","content":` + quoted(t, strings.Repeat("word ", 120_000)) + `},{"role":"user","content":"hi"}]}`, "long"},
		"a question":         {user("What is a lease?"), "normal"},
	} {
		t.Run(name, func(t *testing.T) {
			id := "class-" + strings.ReplaceAll(name, " ", "-")
			done := make(chan answer, 1)
			go func() { done <- r.chat(id, c.body) }()
			r.running(1)
			long := r.snapshot().GetNodes()[0].GetProviders()[0].GetLongInFlight()
			require.Equal(t, c.class == "long", long == 1, "%d in long slots", long)
			goOn <- struct{}{}
			require.Equal(t, http.StatusOK, (<-done).status)
			require.Equal(t, c.class, r.ended(id)["context_class"])
			r.quiet()
		})
	}
}

// D12: an estimate a little over the threshold changes the class of slot and nothing else: where a provider has no long slots of their own, the
// request runs like any other.
func TestCase_D12_ALittleOverTheThreshold(t *testing.T) {
	const threshold = 2000
	body, under := "", ""
	for n := 1; ; n++ {
		body = chatBody("m", false, `,"metadata":{"x":"`+strings.Repeat("word ", n)+`"}`)
		if estimate.Of([]byte(body)).Tokens() >= threshold {
			break
		}
		under = body
	}
	for _, long := range []int{0, 1} {
		g := newGate(t)
		s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
			if g.wait(r) {
				complete(w, asked(t, body), "ok")
			}
		})
		r := site(t, longSlots(s, long, object{"long_context_threshold_tokens": threshold}), "n")
		done := make(chan answer, 2)
		go func() { done <- r.chat("d12-over", body) }()
		r.running(1)
		go func() { done <- r.chat("d12-under", under) }()
		r.running(2)
		p := r.snapshot().GetNodes()[0].GetProviders()[0]
		require.EqualValues(t, 1, p.GetLongInFlight(), "the one over the threshold")
		require.Equal(t, "full", p.GetStatus())
		g.release()
		for range 2 {
			require.Equal(t, http.StatusOK, (<-done).status)
		}
		require.Equal(t, "long", r.ended("d12-over")["context_class"])
		require.Equal(t, "normal", r.ended("d12-under")["context_class"])
		require.EqualValues(t, threshold, r.ended("d12-over")["long_context_threshold_tokens"])
		r.quiet()
	}
}

// D13, D15, E10: what a provider says of a prompt that it cannot take reaches the client as it is. Nobody else is asked, and the provider is asked again
// next time.
func TestCase_D13_D15_E10_TheProvidersRefusalIsTheAnswer(t *testing.T) {
	refusals := map[string]struct {
		status     int
		kind, body string
	}{
		"llamacpp": {400, "application/json; charset=utf-8", `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":40012,"n_ctx":32768}}`},
		"vllm":     {400, "application/json", `{"object":"error","message":"This model's maximum context length is 131072 tokens. However, you requested 110000 tokens (90000 in the messages, 20000 in the completion).","type":"BadRequestError","param":null,"code":400}`},
		"openai":   {400, "application/json", `{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		"text":     {500, "text/plain", "context size exceeded\n"},
		"template": {400, "application/json", `{"error":{"message":"Unexpected message role: developer","type":"BadRequestError"}}`}, // E10
	}
	refuse := func(w http.ResponseWriter, r *http.Request, body []byte) {
		a := refusals[asked(t, body)]
		w.Header().Set("Content-Type", a.kind)
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}
	one, two := newStub(t, refuse), newStub(t, refuse)
	var models []object
	for name := range refusals {
		models = append(models, model(name, "n/p="+name, "n/q="+name))
	}
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", one.URL, 1, object{"priority": 1}), provider("q", two.URL, 1))}, models), "n")
	for name, want := range refusals {
		for _, stream := range []bool{true, false} {
			id := fmt.Sprint("refused-", name, "-", stream)
			a := r.chat(id, fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":20000,"messages":[{"role":"developer","content":"be brief"},{"role":"user","content":"hi"}]}`, name, stream))
			require.NoError(t, a.err)
			require.Equal(t, want.status, a.status)
			require.Equal(t, want.kind, a.header.Get("Content-Type"))
			require.Equal(t, want.body, a.body)
			require.Equal(t, "p", a.header.Get("X-Iop-Provider"), "the first choice each time")
			require.EqualValues(t, 1, r.ended(id)["attempts"])
		}
	}
	_, _, total, _ := one.counts()
	require.Equal(t, 2*len(refusals), total)
	_, _, total, _ = two.counts()
	require.Zero(t, total, "nobody else is asked")
	require.Equal(t, "available", r.snapshot().GetNodes()[0].GetProviders()[0].GetStatus())
	r.quiet()
}

// D14: an answer of status 200 that has no text because the context was full passes as it is, and is flagged.
func TestCase_D14_AnAnswerWithoutTextPasses(t *testing.T) {
	const whole = `{"id":"c1","object":"chat.completion","model":"served","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":4096,"completion_tokens":0,"total_tokens":4096}}`
	cut := strings.Replace(finish, "stop", "length", 1)
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, body []byte) {
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, cut+endMark)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
	})
	r := single(t, s)
	for id, want := range map[string]string{"d14-whole": whole, "d14-stream": cut + endMark} {
		a := r.chat(id, chatBody("m", id == "d14-stream", ""))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, strings.ReplaceAll(want, `"served"`, `"m"`), a.body)
		end := r.ended(id)
		require.Equal(t, "completed", end["outcome"])
		require.Equal(t, true, end["empty"])
	}
	r.quiet()
	require.EqualValues(t, 2, r.scraped().sum("iop_empty_answers_total", `model="m"`, `node="n"`, `provider="p"`))
}

// D17: bodies up to the limit reach the provider whole; one byte more is 413, in JSON.
func TestCase_D17_BodiesUpToTheLimit(t *testing.T) {
	const limit = 20 << 20
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		complete(w, "served", fmt.Sprint(r.ContentLength, " ", len(body)))
	})
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")},
		object{"edge": object{"body_limit_bytes": limit}}), "n")
	sized := func(n int) string {
		const frame = `{"model":"m","x":""}`
		return frame[:len(frame)-2] + strings.Repeat("x", n-len(frame)) + `"}`
	}
	const grows = len(`"served"`) - len(`"m"`)
	for _, n := range []int{40 << 10, 1 << 20, limit} {
		a := r.chat(fmt.Sprint("d17-", n), sized(n))
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Contains(t, a.body, fmt.Sprint(n+grows, " ", n+grows))
	}
	a := r.chat("d17-over", sized(limit+1))
	require.NoError(t, a.err)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	require.Equal(t, "request_too_large", a.code(t))
	_, _, total, _ := s.counts()
	require.Equal(t, 3, total)
	r.quiet()
}

// D21: one window for all providers of a model. A provider whose context is smaller is refused by name before it can cut anything short.
func TestCase_D21_AProviderWithASmallerContextIsAMistake(t *testing.T) {
	m := model("m", "n/small=x", "n/large=x")
	m["context_window_tokens"] = 131072
	file := edgeFile([]object{nodeConfig("n",
		provider("small", "http://127.0.0.1:9001", 1, object{"long_context_capacity": 1, "total_context_tokens": 32768}),
		provider("large", "http://127.0.0.1:9002", 1, object{"long_context_capacity": 1, "total_context_tokens": 131072}),
	)}, []object{m})
	path := filepath.Join(t.TempDir(), "edge.yaml")
	writeYAML(t, path, file)
	out, err := exec.Command(binary, "config", "check", "-c", path).CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Regexp(t, `total_context_tokens.*32768.*"m"`, string(out))
	require.Equal(t, 1, strings.Count(string(out), "total_context_tokens: found"), "the large one is fine: %s", out)
}
