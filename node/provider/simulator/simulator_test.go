package simulator

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns an HTTP client of a served simulator.
func client(t *testing.T, clock clockwork.Clock, config *runtimev1.Simulator) *http.Client {
	t.Helper()
	server := Serve(New(config, clock))
	transport := &http.Transport{DialContext: server.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: transport}
}

func post(t *testing.T, c *http.Client, path, body string) (status int, answer string, err error) {
	t.Helper()
	resp, err := c.Post("http://simulator"+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

const hello = `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hello there"}]}]`

func TestChatSaysWhatItIsAndIsDeterministic(t *testing.T) {
	c := client(t, clockwork.NewFakeClockAt(time.Unix(1700000000, 0)), &runtimev1.Simulator{AnswerTokens: 8})
	status, first, err := post(t, c, "/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"id":"sim-72825a3c39b54c54","object":"chat.completion","created":1700000000,"model":"m","system_fingerprint":"iop-simulator",
		"choices":[{"index":0,"message":{"role":"assistant","content":"[IOP simulator] You said: hello there 1 2"},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":4,"completion_tokens":8,"total_tokens":12}}`, first)
	_, second, err := post(t, c, "/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	assert.Equal(t, first, second)
}

func TestStreamHoldsTheSameWords(t *testing.T) {
	c := client(t, clockwork.NewRealClock(), nil)
	_, body, err := post(t, c, "/v1/chat/completions", hello+`,"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":5}`)
	require.NoError(t, err)
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	require.Len(t, events, 5+1+1+1, "five tokens, the reason, the usage, the end")
	assert.Equal(t, "data: [DONE]", events[7])
	var text strings.Builder
	for i, event := range events[:7] {
		var chunk struct {
			Object            string `json:"object"`
			SystemFingerprint string `json:"system_fingerprint"`
			Choices           []struct {
				Delta        struct{ Role, Content string } `json:"delta"`
				FinishReason *string                        `json:"finish_reason"`
			} `json:"choices"`
			Usage map[string]int `json:"usage"`
		}
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &chunk))
		assert.Equal(t, "chat.completion.chunk", chunk.Object)
		assert.Equal(t, Fingerprint, chunk.SystemFingerprint)
		switch i {
		case 6:
			assert.Empty(t, chunk.Choices)
			assert.Equal(t, map[string]int{"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}, chunk.Usage)
			continue
		case 5:
			assert.Equal(t, "length", *chunk.Choices[0].FinishReason)
		case 0:
			assert.Equal(t, "assistant", chunk.Choices[0].Delta.Role)
		}
		text.WriteString(chunk.Choices[0].Delta.Content)
	}
	assert.Equal(t, "[IOP simulator] You said: hello", text.String())
}

func TestOtherEndpoints(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{Models: []string{"a", "b"}})
	resp, err := c.Get("http://simulator/v1/models")
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.JSONEq(t, `{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"iop-simulator"},{"id":"b","object":"model","created":0,"owned_by":"iop-simulator"}]}`, string(raw))

	status, body, err := post(t, c, "/v1/completions", `{"model":"a","prompt":"one two","max_tokens":6}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `"text":"[IOP simulator] You said: one two"`)

	status, body, err = post(t, c, "/v1/embeddings", `{"model":"b","input":["x","x y","x"]}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	var vectors struct {
		Data []struct {
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &vectors))
	require.Len(t, vectors.Data, 3)
	assert.Equal(t, vectors.Data[0], vectors.Data[2])
	assert.NotEqual(t, vectors.Data[0], vectors.Data[1])

	for path, want := range map[string]struct {
		body   string
		status int
	}{
		"/v1/rerank":           {`{"model":"a"}`, http.StatusNotImplemented},
		"/v1/chat/completions": {`{"model":"c"}`, http.StatusNotFound},
		"/v1/completions":      {`{"model":`, http.StatusBadRequest},
		"/v1/embeddings":       {`{"model":"a","input":7}`, http.StatusBadRequest},
	} {
		status, body, err := post(t, c, path, want.body)
		require.NoError(t, err)
		assert.Equal(t, want.status, status, path)
		assert.Contains(t, body, `"error"`, path)
	}
}

func TestContextSizeIsEnforcedAsByLlamaServer(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{ContextTokens: 6})
	for _, stream := range []string{"false", "true"} {
		status, body, err := post(t, c, "/v1/chat/completions", `{"stream":`+stream+`,"messages":[{"role":"user","content":"1 2 3 4 5 6 7"}]}`)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.JSONEq(t, `{"error":{"code":400,"message":"request (7 tokens) exceeds the available context size (6 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":7,"n_ctx":6}}`, body)
	}
	_, body, err := post(t, c, "/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	assert.Contains(t, body, `"finish_reason":"length"`)
	assert.Contains(t, body, `"content":"[IOP simulator]"`, "the context has room for two tokens")
}

func TestFailuresComeEveryNthRequest(t *testing.T) {
	c := client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{FailEvery: 2, FailMode: "status"})
	for i := range 6 {
		status, _, err := post(t, c, "/v1/chat/completions", hello+`}`)
		require.NoError(t, err)
		assert.Equal(t, []int{http.StatusOK, http.StatusInternalServerError}[i%2], status)
	}
	c = client(t, clockwork.NewFakeClock(), &runtimev1.Simulator{FailEvery: 2, FailMode: "disconnect"})
	for i, stream := range []string{"false", "false", "true", "true"} {
		status, body, err := post(t, c, "/v1/chat/completions", hello+`,"stream":`+stream+`}`)
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, i%2 == 1, err != nil, "request %d: %v", i, err)
		assert.NotEmpty(t, body)
		assert.Equal(t, i == 2, strings.Contains(body, "[DONE]"))
	}
}

func TestTokensComeAtTheirPace(t *testing.T) {
	clock := clockwork.NewFakeClock()
	c := client(t, clock, &runtimev1.Simulator{FirstTokenMs: 500, TokensPerSecond: 10})
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := c.Post("http://simulator/v1/chat/completions", "application/json", strings.NewReader(hello+`,"stream":true,"max_tokens":3}`))
		if assert.NoError(t, err) {
			answered <- resp
		}
	}()
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(499 * time.Millisecond)
	assert.Empty(t, answered)
	clock.Advance(time.Millisecond)
	resp := <-answered
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	for i := range 3 {
		require.True(t, events.Scan())
		assert.Contains(t, events.Text(), "data: {")
		require.True(t, events.Scan())
		if i < 2 {
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(100 * time.Millisecond)
		}
	}
	require.True(t, events.Scan())
	assert.Contains(t, events.Text(), `"finish_reason":"length"`)
}

// TestHalfCloseEndsTheAnswer is what the node's cancel relies on.
func TestHalfCloseEndsTheAnswer(t *testing.T) {
	server := Serve(New(&runtimev1.Simulator{FirstTokenMs: 1000}, clockwork.NewFakeClock()))
	defer server.Close()
	conn, err := server.Dial(t.Context(), "", "")
	require.NoError(t, err)
	body := hello + "}"
	req, err := http.NewRequest(http.MethodPost, "http://simulator/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, req.Write(conn))
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Empty(t, rest, "the answer was given up and the connection closed")
	require.NoError(t, conn.Close())
}

func TestClosedServerRefuses(t *testing.T) {
	server := Serve(New(nil, clockwork.NewFakeClock()))
	server.Close()
	server.Close()
	_, err := server.Dial(t.Context(), "", "")
	require.ErrorIs(t, err, net.ErrClosed)
	other := Serve(New(nil, clockwork.NewFakeClock()))
	defer other.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := other.Dial(ctx, "", ""); err == nil {
		require.NoError(t, conn.Close())
	}
}
