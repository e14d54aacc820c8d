package run

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

const (
	sse    = "text/event-stream"
	ndjson = "application/x-ndjson"
	// whole is a whole answer of an OpenAI-compatible server.
	whole = `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
)

var wholeEvents = []string{"started my-id m n/p false", "reasoning hm", "text hello", "call f {}", "usage 3 2", "completed TOOL_CALLS"}

func answerWhole(w http.ResponseWriter, _ *http.Request, _ string) { write(w, sse, whole) }

func TestRunOverEveryProtocol(t *testing.T) {
	b := newBackend(t, answerWhole)
	r := start(t, b.as("vllm"), options{})
	for name, c := range map[string]inferencev1connect.InferenceServiceClient{
		"Connect over HTTP/1.1":            r.client(r.http1),
		"Connect over HTTP/2":              r.client(r.http2),
		"Connect with JSON":                r.client(r.http1, connect.WithProtoJSON()),
		"gRPC":                             r.client(r.http2, connect.WithGRPC()),
		"gRPC-Web over HTTP/1.1":           r.client(r.http1, connect.WithGRPCWeb()),
		"gRPC-Web over HTTP/2":             r.client(r.http2, connect.WithGRPCWeb()),
		"Connect with compressed requests": r.client(r.http1, connect.WithSendGzip()),
	} {
		t.Run(name, func(t *testing.T) {
			events, err := run(t.Context(), c, ask("hi"))
			require.NoError(t, err)
			require.Equal(t, wholeEvents, events)
		})
	}
	require.Equal(t, `/v1/chat/completions {"model":"served","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`, b.asked[0])
}

// TestRunAsAPlainPost does what a client without any library does: one enveloped
// JSON message, and enveloped JSON messages back.
func TestRunAsAPlainPost(t *testing.T) {
	b := newBackend(t, answerWhole)
	r := start(t, b.as("vllm"), options{})
	post := func(body string) (header http.Header, messages []string) {
		var out bytes.Buffer
		out.WriteByte(0)
		_ = binary.Write(&out, binary.BigEndian, uint32(len(body)))
		out.WriteString(body)
		req, err := http.NewRequest(http.MethodPost, r.url+inferencev1connect.InferenceServiceRunProcedure, &out)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/connect+json")
		req.Header.Set("Connect-Protocol-Version", "1")
		req.Header.Set("Authorization", "Bearer "+apiKey)
		res, err := r.http1.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		for {
			var head [5]byte
			if _, err := io.ReadFull(res.Body, head[:]); err == io.EOF {
				return res.Header, messages
			}
			message := make([]byte, binary.BigEndian.Uint32(head[1:]))
			_, err = io.ReadFull(res.Body, message)
			require.NoError(t, err)
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, message))
			messages = append(messages, compact.String())
		}
	}
	header, got := post(`{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"hi"}]}]}`)
	require.Len(t, got, len(wholeEvents)+1)
	require.Contains(t, got[0], `"requestId":"`+header.Get("X-Request-Id")+`"`)
	require.Contains(t, got[2], `{"delta":{"text":"hello"}}`)
	require.Equal(t, `{}`, got[len(got)-1], "the end without an error")

	_, got = post(`{"model":"m","messages":[]}`)
	require.Len(t, got, 1)
	require.Contains(t, got[0], `"code":"invalid_argument"`)
	require.Contains(t, got[0], "messages")
}

func TestRunOnOllamasOwnAPI(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		write(w, ndjson, `{"message":{"role":"assistant","content":"","thinking":"hm"},"done":false}`+"\n")
		write(w, ndjson, `{"message":{"content":"hel`)
		write(w, ndjson, `lo","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}`+"\n")
		write(w, ndjson, `{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}`+"\n")
	})
	r := start(t, b.as("ollama"), options{})
	events, err := run(t.Context(), r.api, ask("hi"))
	require.NoError(t, err)
	require.Equal(t, []string{"started my-id m n/p false", "reasoning hm", "text hello", `call f {"a":1}`, "usage 3 2", "completed TOOL_CALLS"}, events)
	require.Equal(t, `/api/chat {"model":"served","messages":[{"role":"user","content":"hi"}],"stream":true,"options":{"num_ctx":8192}}`, b.asked[0], "the group's window")

	req := ask("hi")
	req.NumCtx = new(uint32(4096))
	_, err = run(t.Context(), r.api, req)
	require.NoError(t, err)
	require.Contains(t, b.asked[1], `"num_ctx":4096`)
	req.NumCtx = new(uint32(8193))
	_, err = run(t.Context(), r.api, req)
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.Equal(t, "INVALID_REQUEST", reasonOf(failureOf(t, err)))
	req = ask("hi")
	req.Model = "other"
	_, err = run(t.Context(), r.api, req)
	require.NoError(t, err)
	require.NotContains(t, b.asked[2], "num_ctx", "the group states no window")
}

func TestTheSimulatorAnswersARun(t *testing.T) {
	r := start(t, "type: simulator", options{})
	events, err := run(t.Context(), r.api, ask("count with me"))
	require.NoError(t, err)
	require.Equal(t, "started my-id m n/p true", events[0])
	require.Equal(t, "text [IOP", events[1])
	require.Equal(t, "completed STOP", events[len(events)-1])
	require.Contains(t, events[len(events)-2], "usage 3 ")
}

func TestProvidersOwnErrors(t *testing.T) {
	mode := make(chan func(http.ResponseWriter), 1)
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) { (<-mode)(w) })
	r := start(t, b.as("vllm"), options{})
	const piece = `data: {"choices":[{"index":0,"delta":{"content":"hel"}}]}` + "\n\n"
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		events []string
		code   connect.Code
		reason string
		retry  string
	}{
		{"refused", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"too long"}`)
		}, []string{"started my-id m n/p false", `failed PROVIDER_ERROR 400 {"error":"too long"}`}, connect.CodeInvalidArgument, "PROVIDER_ERROR", ""},
		{"busy", func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, []string{"started my-id m n/p false", "failed PROVIDER_ERROR 503 "}, connect.CodeUnavailable, "PROVIDER_ERROR", "7"},
		{"an error in its stream", func(w http.ResponseWriter) {
			write(w, sse, piece+`data: {"error":{"message":"boom"}}`+"\n\n")
		}, []string{"started my-id m n/p false", "text hel", `failed PROVIDER_ERROR 0 {"error":{"message":"boom"}}`}, connect.CodeUnknown, "PROVIDER_ERROR", ""},
		{"cut off", func(w http.ResponseWriter) { write(w, sse, piece) },
			[]string{"started my-id m n/p false", "text hel", "failed PROVIDER_DISCONNECTED 0 "}, connect.CodeAborted, "PROVIDER_DISCONNECTED", ""},
		{"lost", func(w http.ResponseWriter) {
			write(w, sse, piece)
			abort(w)
		}, []string{"started my-id m n/p false", "text hel", "failed PROVIDER_DISCONNECTED 0 "}, connect.CodeAborted, "PROVIDER_DISCONNECTED", ""},
		{"not its API", func(w http.ResponseWriter) { write(w, sse, piece+"data: oops\n\n"+piece) },
			[]string{"started my-id m n/p false", "text hel", "failed PROVIDER_DISCONNECTED 0 "}, connect.CodeAborted, "PROVIDER_DISCONNECTED", ""},
		{"lost before it answered", abort, nil, connect.CodeAborted, "PROVIDER_DISCONNECTED", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			mode <- c.answer
			events, err := run(t.Context(), r.api, ask("hi"))
			require.Equal(t, c.events, events)
			require.Equal(t, c.code, connect.CodeOf(err), "%v", err)
			f := failureOf(t, err)
			require.Equal(t, c.reason, reasonOf(f))
			require.True(t, f.GetMayHaveRun())
			var e *connect.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.retry, e.Meta().Get("Retry-After"))
		})
	}
}

func TestWhatIsRefusedBeforeAdmission(t *testing.T) {
	b := newBackend(t, answerWhole)
	r := start(t, b.as("vllm"), options{})
	limited := r.clientWith(r.http1, limitedKey)
	one := func(change func(*inferencev1.RunRequest)) *inferencev1.RunRequest {
		req := ask("hi")
		change(req)
		return req
	}
	for _, c := range []struct {
		name   string
		client inferencev1connect.InferenceServiceClient
		req    *inferencev1.RunRequest
		code   connect.Code
		reason string // "" = no detail
	}{
		{"no such model", r.api, one(func(q *inferencev1.RunRequest) { q.Model = "M" }), connect.CodeNotFound, "MODEL_NOT_FOUND"},
		{"a model of others", limited, one(func(q *inferencev1.RunRequest) { q.Model = "other" }), connect.CodePermissionDenied, "MODEL_NOT_ALLOWED"},
		{"no key", r.clientWith(r.http1, "wrong"), ask("hi"), connect.CodeUnauthenticated, ""},
		{"no messages", r.api, &inferencev1.RunRequest{Model: "m"}, connect.CodeInvalidArgument, ""},
		{"too hot", r.api, one(func(q *inferencev1.RunRequest) { q.Sampling = &inferencev1.Sampling{Temperature: new(3.0)} }), connect.CodeInvalidArgument, ""},
		{"a tool's result without its call", r.api, one(func(q *inferencev1.RunRequest) { q.Messages[0].Role = inferencev1.Role_ROLE_TOOL }), connect.CodeInvalidArgument, ""},
		{"a schema that is none", r.api, one(func(q *inferencev1.RunRequest) { q.Tools = []*inferencev1.Tool{{Name: "f", ParametersJson: "{"}} }), connect.CodeInvalidArgument, "INVALID_REQUEST"},
		{"too large", r.api, ask(strings.Repeat("x", 4<<20)), connect.CodeResourceExhausted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, err := run(t.Context(), c.client, c.req)
			require.Empty(t, events)
			require.Equal(t, c.code, connect.CodeOf(err), "%v", err)
			if c.reason != "" {
				require.Equal(t, c.reason, reasonOf(failureOf(t, err)))
			}
		})
	}
	require.Zero(t, b.peaked(), "nothing has reached the provider")
	list, err := limited.ListModels(t.Context(), &inferencev1.ListModelsRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetModels(), 1)
	require.True(t, list.GetModels()[0].GetAvailable())
}

func TestALineOfTwoMiBPasses(t *testing.T) {
	text := strings.Repeat("x", 2<<20)
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		write(w, sse, `data: {"choices":[{"index":0,"delta":{"content":"`+text+`"},"finish_reason":"stop"}]}`+"\n\n")
	})
	r := start(t, b.as("vllm"), options{})
	events, err := run(t.Context(), r.client(r.http2, connect.WithGRPC()), ask("hi"))
	require.NoError(t, err)
	var got strings.Builder
	for _, e := range events[1 : len(events)-1] {
		got.WriteString(strings.TrimPrefix(e, "text "))
	}
	require.True(t, got.String() == text)
}

func TestEventsComeAsTheyAreMade(t *testing.T) {
	next := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		for range 3 {
			write(w, sse, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
			<-next
		}
		write(w, sse, "data: [DONE]\n\n")
	})
	r := start(t, b.as("vllm"), options{})
	stream, err := r.api.Run(t.Context(), ask("hi"))
	require.NoError(t, err)
	defer stream.Close()
	require.True(t, stream.Receive())
	for range 3 {
		require.True(t, stream.Receive(), "before the provider goes on: %v", stream.Err())
		require.Equal(t, "a", stream.Msg().GetDelta().GetText())
		next <- struct{}{}
	}
	require.True(t, stream.Receive())
	require.NotNil(t, stream.Msg().GetCompleted())
}

// A client's deadline travels as a header. The Edge ends the run by it, whether or
// not the client is still there to hang up.
func TestDeadlineOfTheClientIsHonoured(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() })
	r := start(t, b.as("vllm"), options{queue: 8})
	for name, c := range map[string]struct {
		client        inferencev1connect.InferenceServiceClient
		header, value string
	}{
		"Connect":  {r.client(r.http1), "Connect-Timeout-Ms", "1000"},
		"gRPC":     {r.client(r.http2, connect.WithGRPC()), "Grpc-Timeout", "1000m"},
		"gRPC-Web": {r.client(r.http1, connect.WithGRPCWeb()), "Grpc-Timeout", "1000m"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, call := connect.NewClientContext(t.Context())
			call.RequestHeader().Set(c.header, c.value)
			_, err := run(ctx, c.client, ask("hi"))
			require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(err), "%v", err)
			require.Equal(t, "CANCELLED", reasonOf(failureOf(t, err)))
			require.Eventually(t, func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.current == 0
			}, patience, time.Millisecond, "the provider is let go")
		})
	}
}
