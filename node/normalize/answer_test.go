package normalize

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protodelim"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// told is one event as a line of text.
func told(e *inferencev1.RunResponse) string {
	switch e := e.GetEvent().(type) {
	case *inferencev1.RunResponse_Delta:
		return fmt.Sprintf("text %q", e.Delta.GetText())
	case *inferencev1.RunResponse_ReasoningDelta:
		return fmt.Sprintf("reasoning %q", e.ReasoningDelta.GetText())
	case *inferencev1.RunResponse_ToolCall:
		return fmt.Sprintf("call %s %s %s", e.ToolCall.GetId(), e.ToolCall.GetName(), e.ToolCall.GetArgumentsJson())
	case *inferencev1.RunResponse_Usage:
		u := e.Usage
		return fmt.Sprintf("usage %d %d %d %d", u.GetInputTokens(), u.GetOutputTokens(), u.GetCachedInputTokens(), u.GetReasoningTokens())
	case *inferencev1.RunResponse_Completed:
		return fmt.Sprintf("completed %s %s", strings.TrimPrefix(e.Completed.GetFinishReason().String(), "FINISH_REASON_"), e.Completed.GetProviderReason())
	case *inferencev1.RunResponse_Failed:
		return fmt.Sprintf("failed %d %s", e.Failed.GetProviderStatus(), e.Failed.GetProviderBody())
	}
	return "unknown"
}

// read feeds an answer in pieces of size bytes and returns its events.
func read(t *testing.T, kind string, status int, contentType, body string, size int) (events []string, err error) {
	t.Helper()
	a := FormOf(kind).Answer()
	n := 0
	a.events.newID = func() string { n++; return fmt.Sprintf("made-up-%d", n) }
	a.Head(status, contentType, 0)
	take := func(out []byte) {
		r := bytes.NewReader(out)
		for r.Len() > 0 {
			e := &inferencev1.RunResponse{}
			require.NoError(t, protodelim.UnmarshalFrom(r, e))
			events = append(events, told(e))
		}
	}
	for len(body) > size {
		out, err := a.Next([]byte(body[:size]), false)
		take(out)
		if err != nil {
			return events, err
		}
		body = body[size:]
	}
	out, err := a.Next([]byte(body), true)
	take(out)
	return events, err
}

const (
	sse    = "text/event-stream; charset=utf-8"
	ndjson = "application/x-ndjson"
)

func chunks(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

func delta(d string) string {
	return `{"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}`
}

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func TestAnswers(t *testing.T) {
	const usage = `{"choices":[],"usage":{"prompt_tokens":16,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`
	for _, c := range []struct {
		name, kind  string
		status      int
		contentType string
		body        string
		want        []string
		err         error
	}{
		{"text, usage at the end", "vllm", 200, sse, chunks(delta(`{"role":"assistant","content":""}`), delta(`{"content":" 99"}`), delta(`{"content":" é\u0000"}`), finish("stop"), usage, "[DONE]"),
			[]string{`text " 99"`, `text " é\x00"`, "usage 16 3 4 2", "completed STOP stop"}, nil},
		{"CRLF, comments, other fields, no space", "openai", 200, sse,
			": hi\r\nevent: x\r\nid: 1\r\ndata:" + delta(`{"content":"a"}`) + "\r\n\r\ndata: " + finish("length") + "\r\n\r\ndata: [DONE]\r\n\r\n",
			[]string{`text "a"`, "completed LENGTH length"}, nil},
		{"one event over several data lines", "openai", 200, sse, "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"a\"},\ndata: \"finish_reason\":\"stop\"}]}\n\n",
			[]string{`text "a"`, "completed STOP stop"}, nil},
		{"no end marker", "mlx", 200, sse, chunks(delta(`{"content":"a"}`), finish("stop")), []string{`text "a"`, "completed STOP stop"}, nil},
		{"no blank line at the end", "mlx", 200, sse, "data: " + finish("stop") + "\n\ndata: [DONE]", []string{"completed STOP stop"}, nil},
		{"an end marker alone", "openai", 200, sse, chunks(delta(`{"content":"a"}`), "[DONE]"), []string{`text "a"`, "completed OTHER "}, nil},
		{"nothing after the end marker counts", "openai", 200, sse, chunks(finish("stop"), "[DONE]", delta(`{"content":"late"}`), "no JSON"), []string{"completed STOP stop"}, nil},
		{"usage in every chunk", "vllm", 200, sse,
			chunks(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, "[DONE]"),
			[]string{`text "a"`, "usage 1 2 0 0", "completed STOP stop"}, nil},
		{"reasoning_content", "llamacpp", 200, sse, chunks(delta(`{"role":"assistant","content":null}`), delta(`{"reasoning_content":"\n 1"}`), delta(`{"content":"a"}`), finish("stop"), "[DONE]"),
			[]string{`reasoning "\n 1"`, `text "a"`, "completed STOP stop"}, nil},
		{"reasoning", "vllm", 200, sse, chunks(delta(`{"reasoning":"hm"}`), finish("stop")), []string{`reasoning "hm"`, "completed STOP stop"}, nil},
		{"reasoning under both names", "vllm", 200, sse, chunks(delta(`{"reasoning":"hm","reasoning_content":"hm"}`), finish("stop")), []string{`reasoning "hm"`, "completed STOP stop"}, nil},
		{"empty deltas", "openai", 200, sse, chunks(`{"choices":[]}`, delta(`{}`), delta(`{"content":""}`), `{"choices":[{"index":0}]}`, finish("stop")), []string{"completed STOP stop"}, nil},
		{"tool calls in pieces", "llamacpp", 200, sse, chunks(
			delta(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"clock","arguments":"{"}}]}`),
			delta(`{"tool_calls":[{"index":1,"function":{"name":"now","arguments":"{}"}},{"index":0,"function":{"arguments":"\"zone\":"}}]}`),
			delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"clock","arguments":" \"utc\"}"}}]}`), finish("tool_calls"), "[DONE]"),
			[]string{`call a clock {"zone": "utc"}`, `call made-up-1 now {}`, "completed TOOL_CALLS tool_calls"}, nil},
		{"tool calls without an index", "lmstudio", 200, sse, chunks(
			delta(`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`), delta(`{"tool_calls":[{"id":"b","function":{"name":"g","arguments":{"x":1}}}]}`), finish("stop")),
			[]string{`call a f {}`, `call b g {"x":1}`, "completed TOOL_CALLS stop"}, nil},
		{"finish reasons", "openai", 200, sse, chunks(finish("content_filter")), []string{"completed CONTENT_FILTER content_filter"}, nil},
		{"another finish reason", "vllm", 200, sse, chunks(finish("abort")), []string{"completed OTHER abort"}, nil},
		{"a second choice", "openai", 200, sse, chunks(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`, finish("stop")), []string{"completed STOP stop"}, nil},
		{"one document", "openai", 200, "application/json", "{\n \"choices\":[{\"index\":0,\"message\":{\"content\":\"a\",\"tool_calls\":[{\"id\":\"i\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}],\n\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n",
			[]string{`text "a"`, `call i f {}`, "usage 2 1 0 0", "completed TOOL_CALLS tool_calls"}, nil},

		{"cut off", "vllm", 200, sse, chunks(delta(`{"content":"a"}`)), []string{`text "a"`}, ErrIncomplete},
		{"cut off within an event", "vllm", 200, sse, chunks(delta(`{"content":"a"}`)) + `data: {"choices":[{"ind`, []string{`text "a"`}, errNoJSON},
		{"empty", "openai", 200, sse, "", nil, ErrIncomplete},
		{"cut off in a tool call", "vllm", 200, sse, chunks(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`)), nil, ErrIncomplete},
		{"no JSON", "openai", 200, sse, chunks("oops"), nil, errNoJSON},
		{"a wrong type", "openai", 200, sse, chunks(`{"choices":"none"}`), nil, errNoJSON},
		{"error in band", "vllm", 200, sse, chunks(delta(`{"content":"a"}`), `{"error":{"message":"boom","code":500}}`, "[DONE]"), []string{`text "a"`, `failed 500 {"error":{"message":"boom","code":500}}`}, nil},
		{"error in band, of old vLLM", "vllm", 200, sse, chunks(`{"object":"error","message":"boom","code":400}`), []string{`failed 400 {"object":"error","message":"boom","code":400}`}, nil},
		{"error in band, a text", "openai", 200, sse, chunks(`{"error":"boom"}`), []string{`failed 0 {"error":"boom"}`}, nil},
		{"error field", "llamacpp", 200, sse, "error: {\"code\":500}\n\n", []string{`failed 0 {"code":500}`}, nil},
		{"error is null", "openai", 200, sse, chunks(`{"error":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), []string{"completed STOP stop"}, nil},
		{"status", "openai", 400, "application/json", `{"error":{"message":"too long"}}`, []string{`failed 400 {"error":{"message":"too long"}}`}, nil},
		{"status without a body", "vllm", 503, "", "", []string{"failed 503 "}, nil},

		{"ollama", "ollama", 200, ndjson, `{"message":{"role":"assistant","content":" 98"},"done":false}` + "\n" + `{"message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"prompt_eval_count":4,"eval_count":3}` + "\n",
			[]string{`text " 98"`, "usage 4 3 0 0", "completed STOP stop"}, nil},
		{"ollama thinks, CRLF, blank lines", "ollama", 200, ndjson, "{\"message\":{\"thinking\":\"hm\",\"content\":\"\"}}\r\n\r\n{\"message\":{\"content\":\"a\"}}\r\n{\"done\":true,\"done_reason\":\"length\",\"eval_count\":2}\r\n",
			[]string{`reasoning "hm"`, `text "a"`, "usage 0 2 0 0", "completed LENGTH length"}, nil},
		{"ollama calls tools", "ollama", 200, ndjson, `{"message":{"content":"","tool_calls":[{"function":{"name":"clock","arguments":{"zone":"utc","n":1.50}}}]}}` + "\n" + `{"message":{"tool_calls":[{"id":"call_x","function":{"index":1,"name":"now","arguments":{}}}]}}` + "\n" + `{"done":true,"done_reason":"stop"}`,
			[]string{`call made-up-1 clock {"zone":"utc","n":1.50}`, `call call_x now {}`, "usage 0 0 0 0", "completed TOOL_CALLS stop"}, nil},
		{"ollama unloads", "ollama", 200, ndjson, `{"done":true,"done_reason":"unload"}`, []string{"usage 0 0 0 0", "completed OTHER unload"}, nil},
		{"ollama's runner dies", "ollama", 200, ndjson, `{"message":{"content":"a"},"done":false}` + "\n" + `{"error":"unexpected EOF"}` + "\n", []string{`text "a"`, `failed 0 {"error":"unexpected EOF"}`}, nil},
		{"ollama cut off", "ollama", 200, ndjson, `{"message":{"content":"a"},"done":false}` + "\n", []string{`text "a"`}, ErrIncomplete},
		{"ollama cut off within a line", "ollama", 200, ndjson, `{"message":{"content":"a"},"done":false}` + "\n{\"mess", []string{`text "a"`}, errNoJSON},
		{"ollama busy", "ollama", 503, "application/json; charset=utf-8", `{"error":"server busy"}`, []string{`failed 503 {"error":"server busy"}`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 1 << 20} {
				got, err := read(t, c.kind, c.status, c.contentType, c.body, size)
				require.Equal(t, c.want, got, "in pieces of %d", size)
				if c.err == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, c.err, "in pieces of %d", size)
				}
			}
		})
	}
}

func TestALineOfTwoMiBBecomesEventsThatEveryClientTakes(t *testing.T) {
	text := strings.Repeat("é", 1<<20) // 2 MiB
	for kind, body := range map[string]string{
		"vllm":   chunks(delta(`{"content":"`+text+`"}`), finish("stop")),
		"ollama": `{"message":{"content":"` + text + `"}}` + "\n" + `{"done":true,"done_reason":"stop"}` + "\n",
	} {
		a := FormOf(kind).Answer()
		a.Head(200, sse, 0)
		var got strings.Builder
		for len(body) > 0 {
			n := min(len(body), 16<<10)
			out, err := a.Next([]byte(body[:n]), n == len(body))
			require.NoError(t, err)
			for r := bytes.NewReader(out); r.Len() > 0; {
				e := &inferencev1.RunResponse{}
				require.NoError(t, protodelim.UnmarshalFrom(r, e))
				require.LessOrEqual(t, len(e.GetDelta().GetText()), deltaLimit)
				got.WriteString(e.GetDelta().GetText())
			}
			body = body[n:]
		}
		require.True(t, got.String() == text, "%s: the text is whole", kind)
		_, err := a.Next(nil, false)
		require.NoError(t, err)
		require.LessOrEqual(t, cap(a.lines.partial)+cap(a.events.out), 4*keptOut, "%s: large buffers are given up", kind)
	}
}

func TestMemoryOfAnAnswerIsBounded(t *testing.T) {
	piece := bytes.Repeat([]byte("x"), 256<<10)
	grow := func(kind, contentType, prefix string, next func(i int) []byte) error {
		a := FormOf(kind).Answer()
		a.Head(200, contentType, 0)
		if _, err := a.Next([]byte(prefix), false); err != nil {
			return err
		}
		for i := range 64 { // 16 MiB
			if _, err := a.Next(next(i), false); err != nil {
				return err
			}
		}
		return errors.New("never refused")
	}
	same := func(int) []byte { return piece }
	require.ErrorContains(t, grow("vllm", sse, "data: ", same), "a line of more than")
	require.ErrorContains(t, grow("ollama", ndjson, "", same), "a line of more than")
	require.ErrorContains(t, grow("openai", "application/json", "{", same), "a line of more than")
	require.ErrorContains(t, grow("openai", sse, "", func(int) []byte { return append([]byte("data: "), append(piece, '\n')...) }), "an event that is too large")
	require.ErrorContains(t, grow("openai", sse, "", func(int) []byte {
		return []byte(chunks(delta(`{"tool_calls":[{"index":0,"function":{"arguments":"` + string(piece) + `"}}]}`)))
	}), "tool calls are larger than")
	require.ErrorContains(t, grow("openai", sse, "", func(i int) []byte {
		var many []string
		for j := range 32 {
			many = append(many, delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"name":"f"}}]}`, 32*i+j)))
		}
		return []byte(chunks(many...))
	}), "more than 512 tool calls")
	a := FormOf("openai").Answer()
	a.Head(500, "text/plain", 7)
	for range 64 {
		_, err := a.Next(piece, false)
		require.NoError(t, err)
	}
	out, err := a.Next(nil, true)
	require.NoError(t, err)
	e := &inferencev1.RunResponse{}
	require.NoError(t, protodelim.UnmarshalFrom(bytes.NewReader(out), e))
	require.Len(t, e.GetFailed().GetProviderBody(), excerptLimit)
	require.EqualValues(t, 7, e.GetFailed().GetRetryAfterSeconds())
}

// FuzzAnswer holds that no answer, in whatever pieces, is read differently, and
// that completed and failed are last.
func FuzzAnswer(f *testing.F) {
	f.Add("vllm", chunks(delta(`{"content":"a"}`), finish("stop"), "[DONE]"), uint8(3))
	f.Add("ollama", `{"message":{"content":"a"}}`+"\r\n"+`{"done":true}`, uint8(1))
	f.Add("openai", "data: {\ndata: }\n\nerror: x\n\n", uint8(2))
	f.Fuzz(func(t *testing.T, kind, body string, size uint8) {
		if len(body) > 1<<16 {
			return
		}
		whole, wholeErr := read(t, kind, 200, sse, body, 1<<20)
		cut, cutErr := read(t, kind, 200, sse, body, int(size)+1)
		require.Equal(t, whole, cut)
		require.Equal(t, wholeErr == nil, cutErr == nil)
		for i, e := range whole {
			last := strings.HasPrefix(e, "completed") || strings.HasPrefix(e, "failed")
			require.Equal(t, last && wholeErr == nil, i == len(whole)-1 && wholeErr == nil)
		}
	})
}

// A JSON decoder takes what is not UTF-8 and mends it in strings, but not in a
// value that is kept as it came.
func TestArgumentsThatAreNoTextAreMended(t *testing.T) {
	for kind, answer := range map[string]string{
		"ollama": `{"message":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":"` + "\xff" + `"}}}]},"done":true,"done_reason":"stop"}` + "\n",
		"vllm": `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":{"a":"` + "\xff" + `"}}}]},"finish_reason":"tool_calls"}]}` +
			"\n\ndata: [DONE]\n\n",
	} {
		events, err := read(t, kind, 200, "", answer, 7)
		require.NoError(t, err)
		require.Contains(t, events, "call c f {\"a\":\"\uFFFD\"}", kind)
	}
}
