package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A 1 MiB body reaches the provider as it was sent, but for the model, with an
// exact Content-Length; fields nobody knows, number spellings and key order too.
func TestCase_D17_E01_E02_E04_LargeBodyUnaltered(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		complete(w, asked(t, body), fmt.Sprint(r.ContentLength))
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=a-much-longer-served-name")}), "n")
	body := `{"z":1,"a":{"y":[0.30000000000000004,1E400,9007199254740993]},"model" : "m" ,"unknown":"<&>\u00e9\ud83d\ude00","messages":[{"role":"user","content":"` +
		strings.Repeat("0123456789abcdef", 1<<16) + `"}]}`
	a := r.ask(t.Context(), body)
	require.Equal(t, http.StatusOK, a.status, a.body)
	want := strings.Replace(body, `"model" : "m"`, `"model" : "a-much-longer-served-name"`, 1)
	s.mu.Lock()
	got := string(s.bodies[0])
	s.mu.Unlock()
	require.True(t, want == got, "the body was altered")
	require.Contains(t, a.body, strconv.Itoa(len(want)))
	r.quiet()
}

// A07: one SSE line of 2 MiB passes whole and the stream goes on.
func TestCase_A07_LongLine(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		for _, data := range []string{chunk("served", "before"), chunk("served", long), lastChunk("served"), "[DONE]"} {
			_ = sse(w, data)
		}
	})
	r := oneSlot(t, s)
	a := r.ask(t.Context(), chatBody("m", true, ""))
	require.NoError(t, a.err)
	requireSSE(t, a.body, 4)
	require.True(t, strings.Contains(a.body, long))
	require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	require.Equal(t, 3, strings.Count(a.body, `"model":"m"`))
	require.Equal(t, "no-cache", a.header.Get("Cache-Control"))
	require.Equal(t, "no", a.header.Get("X-Accel-Buffering"))
	r.quiet()
}

// Ten thousand chunks arrive in order and complete at a reader that is slower
// than the provider; neither Edge nor Node holds more than a bounded part of the
// answer meanwhile, since the provider's own writes come to a stop.
func TestBackPressure_10000ChunksAndASlowReader(t *testing.T) {
	const chunks, size = 10_000, 8 << 10 // 80 MiB in all
	var sent sync.Map
	pad := strings.Repeat("p", size)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		for i := range chunks {
			data := chunk("served", fmt.Sprintf("%d %s", i, pad))
			if sse(w, data) != nil {
				return
			}
			sent.Store("chunks", i+1)
		}
		_ = sse(w, lastChunk("served"))
		_ = sse(w, "[DONE]")
	})
	r := oneSlot(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res, err := r.post(ctx, chatBody("m", true, ""))
	require.NoError(t, err)
	defer res.Body.Close()
	edge, node := r.edge.rss(t), r.nodes["n"].rss(t)

	// The reader stalls: the provider must come to a stop far from the end.
	reader := bufio.NewReaderSize(res.Body, 64<<10)
	_, err = reader.Peek(1)
	require.NoError(t, err)
	stopped := func() any { v, _ := sent.Load("chunks"); return v }
	last := stopped()
	require.Eventually(t, func() bool { now := stopped(); same := now == last; last = now; return same && now != nil }, 20*time.Second, 300*time.Millisecond)
	require.Less(t, last.(int), chunks/2, "nothing held the provider back")
	grown := max(r.edge.rss(t)-edge, r.nodes["n"].rss(t)-node)
	t.Logf("provider held back after %d of %d chunks; largest growth of a process %d KiB", last, chunks, grown>>10)
	require.Less(t, grown, int64(24<<20))

	next := 0
	for {
		line, err := reader.ReadString('\n')
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if strings.Contains(line, pad) {
			require.Contains(t, line, fmt.Sprintf(`"content":"%d p`, next))
			next++
		}
	}
	require.Equal(t, chunks, next)
	r.quiet()
}

// Three clients that stop reading stop nobody else.
func TestStalledClientsStopNobodyElse(t *testing.T) {
	pad := strings.Repeat("p", 16<<10)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if strings.Contains(string(body), "stalled") {
			for sse(w, chunk("served", pad)) == nil {
				if r.Context().Err() != nil {
					return
				}
			}
			return
		}
		complete(w, "served", "hi")
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 8))}, []object{model("m", "n/p=served")}), "n")
	for range 3 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		body := chatBody("m", true, `,"user":"stalled"`)
		_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", apiKey, len(body), body)
		require.NoError(t, err)
	}
	r.running(3)
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		a := r.ask(ctx, chatBody("m", false, ""))
		cancel()
		require.NoError(t, a.err, "request %d behind three stalled clients", i)
		require.Equal(t, http.StatusOK, a.status)
	}
}

// A10 and A14: what ends before it is complete never looks complete, whether the
// provider closes neatly or not.
func TestCase_A10_A14_UnfinishedAnswersAreFailures(t *testing.T) {
	for name, breakOff := range map[string]func(http.ResponseWriter){
		"closed neatly": func(http.ResponseWriter) {},
		"reset": func(w http.ResponseWriter) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
				for range 5 {
					_ = sse(w, chunk("served", "word "))
				}
				breakOff(w)
			})
			r := oneSlot(t, s)
			a := r.ask(t.Context(), chatBody("m", true, ""))
			require.NoError(t, a.err)
			require.Contains(t, a.body, `"error"`)
			require.Contains(t, a.body, "provider_disconnected")
			require.NotContains(t, a.body, "[DONE]")
			r.quiet()
		})
	}
}

// A truncated whole answer aborts the client's connection.
func TestNonStreamTruncationAbortsTheConnection(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "4000000")
		_, _ = io.WriteString(w, `{"model":"served","text":"`+strings.Repeat("x", 2<<20))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r := oneSlot(t, s)
	a := r.ask(t.Context(), chatBody("m", false, ""))
	require.Error(t, a.err, "a short body passed for a whole one: %d bytes", len(a.body))
	r.quiet()
}

// A13 and D13: the provider's own errors pass through: status, type and body.
func TestCase_A13_D13_ProviderErrorsPass(t *testing.T) {
	for _, tt := range []struct {
		status int
		kind   string
		body   string
	}{
		{400, "application/json", `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":1024}}`},
		{404, "application/json", `{"error":{"message":"model \"x\" not found"}}`},
		{429, "application/json", `{"error":{"message":"slow down"}}`},
		{500, "text/plain; charset=utf-8", "it broke"},
		{503, "application/json", `{"error":{"message":"loading model"}}`},
	} {
		s := newStub(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		r := oneSlot(t, s)
		for _, stream := range []bool{true, false} {
			a := r.ask(t.Context(), chatBody("m", stream, ""))
			require.NoError(t, a.err)
			require.Equal(t, tt.status, a.status)
			require.Equal(t, tt.kind, a.header.Get("Content-Type"))
			require.Equal(t, tt.body, a.body)
		}
		_, _, total, _ := s.counts()
		require.Equal(t, 2, total, "nothing is repeated")
		r.quiet()
	}
}

// I01 and I07: what the client says of itself never reaches the provider.
func TestCase_I01_I07_ClientHeadersStayHere(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	r := oneSlot(t, s)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(chatBody("m", false, "")))
	require.NoError(t, err)
	for k, v := range map[string]string{
		"Authorization": "Bearer " + apiKey, "Content-Type": "application/json", "Cookie": "session=1", "Origin": "https://evil.example",
		"Referer": "https://evil.example/x", "X-Forwarded-For": "10.1.1.1", "Forwarded": "for=10.1.1.1", "X-Api-Key": apiKey, "User-Agent": "somebody/1",
	} {
		req.Header.Set(k, v)
	}
	res, err := r.client.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	res.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.headers[0] {
		require.NotContains(t, []string{"Authorization", "Cookie", "Origin", "Referer", "X-Forwarded-For", "Forwarded", "X-Api-Key"}, k)
		require.NotContains(t, strings.Join(v, " "), "evil")
		require.NotContains(t, strings.Join(v, " "), apiKey)
	}
}
