package openai

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

// upstream records what dispatch was asked and writes the body as a provider would get it.
type upstream struct {
	last *dispatch.Request
	body string
}

func (u *upstream) Do(ctx context.Context, r *dispatch.Request, s dispatch.Sink) error {
	u.last = r
	served := `"served"`
	if r.PlainModel {
		served = "served"
	}
	u.body = string(r.Body[:r.ModelStart]) + served + string(r.Body[r.ModelEnd:])
	return answer(whole(200, "application/json", `{"model":"served"}`))(ctx, r, s)
}

func TestCase_A08_D20_E01_E02_E04_E05_E08_E09_E11_E12_E13_E14_BodyGoesOnAsItCame(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"E01 unknown fields", `{"model":"m","chat_template_kwargs":{"enable_thinking":false},"top_k":4,"min_p":0.05,"cache_prompt":true,"made_up":{"x":[{}]}}`},
		{"E02 large integers", `{"seed":9007199254740993,"model":"m","x":-0,"y":1.0e+2}`},
		{"E04 key order", `{"tools":[{"function":{"parameters":{"z":1,"b":2,"a":3}}}],"model":"m"}`},
		{"E05 angle brackets", `{"model":"m","messages":[{"content":"<&>` + "\u2028" + ` \u003c\u0026\u003e"}]}`},
		{"E08 null content", `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`},
		{"E09 content parts", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`},
		{"E11 max_completion_tokens", `{"model":"m","max_completion_tokens":16}`},
		{"E12 nothing added to a stream", `{"model":"m","stream":true}`},
		{"E13 empty tools", `{"model":"m","tools":[],"tool_choice":"none"}`},
		{"E14 messages empty", `{"model":"m","messages":[]}`},
		{"E14 messages absent", `{"model":"m"}`},
		{"E14 messages null", `{"model":"m","messages":null}`},
		{"E14 messages a string", `{"model":"m","messages":"hi"}`},
		{"D20 float-heavy schema", `{"model":"m","tools":[{"x":[` + strings.Repeat("0.30000000000000004,1e-7,", 1000) + `0]}]}`},
		{"A08 stream options", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"spaces", "{ \"messages\" : [ ] ,\r\n\t\"model\" : \"m\" }\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := new(upstream)
			over(t, u, settings(), func(r *rig) {
				require.Equal(r, 200, r.chat(c.body).StatusCode)
				require.Equal(r, strings.Replace(c.body, `"m"`, `"served"`, 1), u.body)
				require.Equal(r, admission.GroupKey("m"), u.last.Group)
				require.Equal(r, admission.SurfaceChat, u.last.Surface)
				require.Equal(r, "/v1/chat/completions", u.last.Path)
			})
		})
	}
}

func TestCase_E16_ChunkedBodyIsReadWhole(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		req := r.request("POST", "/v1/chat/completions", hello)
		req.Body, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(hello[:9]), strings.NewReader(hello[9:]))), -1
		require.Equal(r, 200, r.do(req).StatusCode)
		require.Len(r, u.last.Body, len(hello))
	})
}

func TestCase_E17_AliasesOfAnyLength(t *testing.T) {
	long := strings.Repeat("very-long-alias/", 30)
	s := settings()
	s.Models = append(s.Models, Model{ID: long, Group: "long"})
	u := new(upstream)
	over(t, u, s, func(r *rig) {
		got := r.chat(strings.Replace(hello, `"m"`, `"`+long+`"`, 1))
		require.Equal(r, strings.Replace(hello, `"m"`, `"served"`, 1), u.body)
		require.Equal(r, `{"model":"`+long+`"}`, got.body)
		require.EqualValues(r, len(got.body), got.ContentLength)
	})
}

// bodyOf is a valid body of exactly n bytes.
func bodyOf(n int) string {
	const frame = `{"model":"m","x":""}`
	return frame[:len(frame)-2] + strings.Repeat("x", n-len(frame)) + `"}`
}

func TestCase_D17_BodyLimit(t *testing.T) {
	s := settings()
	s.BodyLimit = 1 << 20
	u := new(upstream)
	over(t, u, s, func(r *rig) {
		for _, n := range []int{40 << 10, 600 << 10, 1 << 20} {
			require.Equal(r, 200, r.chat(bodyOf(n)).StatusCode, "%d bytes", n)
			require.Len(r, u.last.Body, n)
		}
		for _, n := range []int{1<<20 + 1, 20 << 20} {
			r.requireError(r.chat(bodyOf(n)), 413, "request_too_large", "invalid_request_error")
			req := r.request("POST", "/v1/chat/completions", "", "Content-Type", "application/json")
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(bodyOf(n))), -1
			r.requireError(r.do(req), 413, "request_too_large", "invalid_request_error")
		}
		require.Equal(r, 200, r.chat(hello).StatusCode, "the next request is fine")
	})
	s.BodyLimit = 32 << 20
	over(t, u, s, func(r *rig) {
		if strings.HasSuffix(r.Name(), "h1") { // once is enough: the race detector makes it slow
			require.Equal(r, 200, r.chat(bodyOf(20<<20)).StatusCode)
			require.Len(r, u.last.Body, 20<<20)
		}
	})
}

func TestBodyTooSlow(t *testing.T) {
	s := settings()
	s.BodyTimeout = 30 * time.Millisecond
	over(t, new(upstream), s, func(r *rig) {
		body, feed := io.Pipe()
		defer feed.Close()
		go feed.Write([]byte(hello[:10]))
		req := r.request("POST", "/v1/chat/completions", "", "Content-Type", "application/json")
		req.Body, req.ContentLength = body, -1
		r.requireError(r.do(req), 408, "request_timeout", "invalid_request_error")
	})
}

// deadlines is a connection that records its read deadline.
type deadlines struct {
	*recorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

func TestSlowBodyThatKeepsComingIsTaken(t *testing.T) {
	conn := &deadlines{recorder: newRecorder()}
	p := watchProgress(http.NewResponseController(conn), time.Hour)
	for range 5 {
		p.received.Add(bodyProgress)
		p.check() // what the timer runs
		require.True(t, conn.read.IsZero())
	}
	p.received.Add(bodyProgress - 1)
	p.check()
	require.False(t, conn.read.IsZero(), "too little in one limit")

	conn.read = time.Time{}
	p.stop()
	p.check()
	require.True(t, conn.read.IsZero(), "a timer that fires late must not end the wait for the client's disconnect")
}

func TestClientThatLeavesInsideItsBodyIsNeverDispatched(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		require.NoError(r, err)
		_, err = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"+hello)
		require.NoError(r, err)
		require.NoError(r, conn.(*net.TCPConn).CloseWrite())
		left, err := io.ReadAll(conn) // the server hangs up without an answer
		require.NoError(r, err)
		require.Empty(r, left)
		require.NoError(r, conn.Close())
		require.Nil(r, u.last)
	})
}

func TestCase_E18_ContentTypes(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		for _, ct := range []string{"", "application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/vnd.api+json", "text/json"} {
			require.Equal(r, 200, r.chat(hello, "Content-Type", ct).StatusCode, ct)
		}
		for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "nonsense;;", "image/png"} {
			r.requireError(r.chat(hello, "Content-Type", ct), 415, "unsupported_media_type", "invalid_request_error")
		}
		r.requireError(r.chat(hello, "Content-Type", "", "Origin", "https://example.org"), 415, "unsupported_media_type", "invalid_request_error")
		r.requireError(r.chat(hello, "Content-Encoding", "gzip"), 415, "unsupported_media_type", "invalid_request_error")
		require.Equal(r, 200, r.chat(hello, "Content-Encoding", "identity").StatusCode)
	})
}

func TestBadRequests(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		for _, c := range []struct {
			body   string
			status int
			code   string
		}{
			{`{`, 400, "invalid_request"},
			{``, 400, "invalid_request"},
			{`[]`, 400, "invalid_request"},
			{`{"messages":[]}`, 400, "invalid_request"},
			{`{"model":5}`, 400, "invalid_request"},
			{`{"model":"m","model":"M"}`, 400, "invalid_request"},
			{`{"model":"m","Model":"M"}`, 400, "invalid_request"},
			{`{"model":"m","stream":"yes"}`, 400, "invalid_request"},
			{`{"model":"nope"}`, 404, "model_not_found"},
			{`{"model":"` + strings.Repeat("n", 5000) + `"}`, 404, "model_not_found"},
			{`{"model":"tiny "}`, 404, "model_not_found"},
			{`{"model":"served"}`, 404, "model_not_found"},
		} {
			got := r.chat(c.body, "Content-Type", "application/json")
			r.requireError(got, c.status, c.code, "invalid_request_error")
			require.Less(r, len(got.body), 600)
		}
	})
}

func TestHeadersTooLarge(t *testing.T) {
	s := settings()
	s.HeaderLimit = 2000
	over(t, new(upstream), s, func(r *rig) {
		r.requireError(r.chat(hello, "X-Big", strings.Repeat("x", 2000)), 431, "headers_too_large", "invalid_request_error")
	})
}

func TestCase_F05_CaseDecidesExactly(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		for _, id := range []string{"m", "M", "tiny"} {
			got := r.chat(`{"model":"` + id + `"}`)
			require.Equal(r, `{"model":"`+id+`"}`, got.body)
		}
		require.Equal(r, admission.GroupKey("route:tiny"), u.last.Group)
		r.requireError(r.chat(`{"model":"Tiny"}`), 404, "model_not_found", "invalid_request_error")
	})
}

func TestL04_ClassAndEstimateReachDispatch(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		require.Equal(r, 200, r.chat(hello).StatusCode)
		require.Equal(r, admission.Normal, u.last.Input.Class())
		require.Positive(r, u.last.Input.Tokens)
		require.Equal(r, 200, r.chat(`{"model":"m","messages":[{"content":"`+strings.Repeat("한", 100000)+`"}]}`).StatusCode)
		require.Equal(r, admission.Long, u.last.Input.Class())
		require.GreaterOrEqual(r, u.last.Input.Tokens, 100000)
	})
}

func TestCase_I01_I07_OnlyAllowedHeadersGoOn(t *testing.T) {
	u := new(upstream)
	over(t, u, settings(), func(r *rig) {
		r.chat(hello, "Authorization", "Bearer secret", "X-Api-Key", "secret", "Cookie", "a=b", "Origin", "https://example.org", "Referer", "https://example.org",
			"X-Forwarded-For", "10.0.0.1", "Forwarded", "for=10.0.0.1", "User-Agent", "x", "Accept-Encoding", "br", "Proxy-Authorization", "x", "X-Stainless-Os", "y",
			"Accept", "text/event-stream", "Openai-Beta", "b", "X-Session-Id", "s", "X-Request-Id", "id-1")
		require.ElementsMatch(r, []dispatch.Header{
			{Name: "accept", Value: "text/event-stream"}, {Name: "content-type", Value: "application/json"}, {Name: "openai-beta", Value: "b"},
			{Name: "x-session-id", Value: "s"}, {Name: "x-request-id", Value: "id-1"},
		}, u.last.Header)
	})
}

func TestRequestID(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		require.Equal(r, "my.id_1-A", r.chat(hello, "X-Request-Id", "my.id_1-A").Header.Get("X-Request-Id"))
		seen := map[string]bool{}
		for _, id := range []string{"", "a b", strings.Repeat("x", 129), "é", "a;b"} {
			got := r.chat(hello, "X-Request-Id", id).Header.Get("X-Request-Id")
			require.True(r, strings.HasPrefix(got, "req_") && saneID(got), got)
			require.False(r, seen[got])
			seen[got] = true
		}
	})
}

func TestCase_I11_I15_Keys(t *testing.T) {
	hash := func(secret string) auth.Hash {
		h, err := auth.ParseHash(auth.HashToken(secret))
		require.NoError(t, err)
		return h
	}
	s := settings()
	s.Keys = auth.NewKeyring(auth.Credentials{Keys: []auth.Key{{Name: "all", Hash: hash("k")}, {Name: "one", Hash: hash("k2"), Models: []string{"m"}, MaxConcurrent: 1}}})
	over(t, new(upstream), s, func(r *rig) {
		for _, c := range []struct {
			name, header, value string
			status              int
		}{
			{"I15 none", "X", "y", 401},
			{"I15 empty bearer", "Authorization", "Bearer ", 401},
			{"I15 any case", "Authorization", "bearer k", 200},
			{"I15 upper case", "Authorization", "BEARER k", 200},
			{"I15 two spaces", "Authorization", "Bearer  k", 200},
			{"I15 basic", "Authorization", "Basic x", 401},
			{"I15 the bare key", "Authorization", "k", 401},
			{"I11 x-api-key", "X-Api-Key", "k", 200},
			{"wrong", "Authorization", "Bearer wrong-key", 401},
			{"wrong x-api-key", "X-Api-Key", "wrong-key", 401},
		} {
			for _, got := range []reply{r.chat(hello, c.header, c.value), r.do(r.request("GET", "/v1/models", "", c.header, c.value))} {
				require.Equal(r, c.status, got.StatusCode, c.name)
				if c.status == 401 {
					r.requireError(got, 401, "invalid_api_key", "authentication_error")
					require.NotContains(r, got.body, "wrong-key")
				}
			}
		}
		const limited = "Bearer k2"
		require.Equal(r, 200, r.chat(hello, "Authorization", limited).StatusCode)
		r.requireError(r.chat(`{"model":"tiny"}`, "Authorization", limited), 403, "model_not_allowed", "permission_error")
		r.requireError(r.chat(`{"model":"nope"}`, "Authorization", limited), 404, "model_not_found", "invalid_request_error")
		list := r.do(r.request("GET", "/v1/models", "", "Authorization", limited))
		require.Contains(r, list.body, `"m"`)
		require.NotContains(r, list.body, "tiny")
	})

	over(t, new(upstream), settings(), func(r *rig) { // I15: without keys whatever is sent is ignored
		for _, v := range []string{"Bearer ", "bearer k", "Bearer  k", "Basic x"} {
			require.Equal(r, 200, r.chat(hello, "Authorization", v).StatusCode)
		}
	})

	running, release := make(chan struct{}), make(chan struct{})
	slow := doFunc(func(ctx context.Context, q *dispatch.Request, sink dispatch.Sink) error {
		running <- struct{}{}
		<-release
		return answer(whole(200, "application/json", `{}`))(ctx, q, sink)
	})
	over(t, slow, s, func(r *rig) {
		first := make(chan int)
		req := r.request("POST", "/v1/chat/completions", hello, "Authorization", "Bearer k2")
		go func() { first <- r.do(req).StatusCode }()
		<-running
		got := r.chat(hello, "Authorization", "Bearer k2")
		r.requireError(got, 429, "key_limit", "rate_limit_error")
		require.Equal(r, "1", got.Header.Get("Retry-After"))
		release <- struct{}{}
		require.Equal(r, 200, <-first)
	})
}

func TestCase_I14_A22_HealthWithoutAKey(t *testing.T) {
	s := settings()
	s.Keys = auth.NewKeyring(auth.Credentials{})
	over(t, new(upstream), s, func(r *rig) {
		for _, path := range []string{"/healthz", "/readyz"} {
			got := r.do(r.request("GET", path, ""))
			require.Equal(r, 200, got.StatusCode)
			require.JSONEq(r, `{"status":"ok"}`, got.body)
			got = r.do(r.request("HEAD", path, ""))
			require.Equal(r, 200, got.StatusCode)
			require.Empty(r, got.body)
		}
	})
	over(t, new(upstream), settings(), func(r *rig) {
		got := r.do(r.request("HEAD", "/v1/models", ""))
		require.Equal(r, 200, got.StatusCode)
		require.Empty(r, got.body)
		got = r.do(r.request("HEAD", "/v1/chat/completions", ""))
		require.Equal(r, 405, got.StatusCode)
		require.Equal(r, "POST", got.Header.Get("Allow"))
	})
}

func TestCase_F01_F13_Models(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		list := r.do(r.request("GET", "/v1/models", ""))
		require.Equal(r, 200, list.StatusCode)
		require.JSONEq(r, `{"object":"list","data":[
			{"id":"m","object":"model","created":1796048940,"owned_by":"iop","context_window_tokens":262144},
			{"id":"org/name","object":"model","created":1796048940,"owned_by":"iop"},
			{"id":"M","object":"model","created":1796048940,"owned_by":"iop"},
			{"id":"tiny","object":"model","created":1796048940,"owned_by":"iop"}]}`, list.body)
		for _, path := range []string{"/v1/models/org/name", "/v1/models/org%2Fname", "/v1/models/org%2fname"} {
			got := r.do(r.request("GET", path, ""))
			require.Equal(r, 200, got.StatusCode)
			require.JSONEq(r, `{"id":"org/name","object":"model","created":1796048940,"owned_by":"iop"}`, got.body)
		}
		for _, path := range []string{"/v1/models/nope", "/v1/models/org", "/v1/models/org%252Fname", "/v1/models/../models/m", "/v1/models/" + strings.Repeat("x", 3000)} {
			got := r.do(r.request("GET", path, ""))
			require.Equal(r, 404, got.StatusCode, path)
			require.Less(r, len(got.body), 600)
		}
	})
}

func TestApplyReplacesTheCatalogue(t *testing.T) {
	over(t, new(upstream), settings(), func(r *rig) {
		s := settings()
		s.Models = s.Models[1:]
		r.handler.Apply(s)
		r.requireError(r.chat(hello), 404, "model_not_found", "invalid_request_error")
		require.NotContains(r, r.do(r.request("GET", "/v1/models", "")).body, `"m"`)
	})
}

// FuzzBody: whatever is posted, the answer is one of the contract's, and what goes on is what came but for the model's value.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{hello, `{"model":"m","model":"m"}`, `{"Model":"m"}`, "{\"model\":\"m\x00\"}", `{"model":"\u006d"}`, `[`, `{"model":"m"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		u := new(upstream)
		h := New(u, estimate.NewCalibration(), nil, settings())
		req, err := http.NewRequest("POST", "/v1/chat/completions", strings.NewReader(string(body)))
		require.NoError(t, err)
		w := newRecorder()
		h.ServeHTTP(w, req)
		switch w.status {
		case 200:
			require.Equal(t, fmt.Sprintf(`{"model":%s}`, body[u.last.ModelStart:u.last.ModelEnd]), w.body.String())
			require.Equal(t, string(body), string(u.last.Body))
		case 400, 404, 413:
			require.Nil(t, u.last)
			require.Contains(t, w.body.String(), `"error"`)
		default:
			t.Fatalf("status %d for %q", w.status, body)
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func newRecorder() *recorder                    { return &recorder{header: http.Header{}} }
func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *recorder) Flush()                      {}

func benchRequest(b *testing.B, body string) *http.Request {
	req, err := http.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}
