package splice

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const chunk = `{"id":"c-1","object":"chat.completion.chunk","model":"served","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`

// spliced is what every case expects: the served name replaced in the marked places, all else the same.
func spliced(s string) string { return strings.ReplaceAll(s, `"served"`, replacement) }

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name   string
		format Format
		body   string
		want   string // "" = unchanged
	}{
		{"top level of a body", JSON, `{"a":1,"model":"served","b":[1]}`, `{"a":1,"model":"asked-for","b":[1]}`},
		{"spaces around it", JSON, "{ \"model\" :\n\t\"served\" }", "{ \"model\" :\n\t\"asked-for\" }"},
		{"an escaped key is the same key", JSON, `{"mod\u0065l":"served"}`, `{"mod\u0065l":"asked-for"}`},
		{"escapes in the value", JSON, `{"model":"a\"b\\"}`, `{"model":"asked-for"}`},
		{"null stays", JSON, `{"model":null}`, ""},
		{"a number stays", JSON, `{"model":4}`, ""},
		{"an object stays", JSON, `{"model":{"model":"served"}}`, ""},
		{"absent stays absent", JSON, `{"choices":[]}`, ""},
		{"another case is another key", JSON, `{"Model":"served"}`, ""},
		{"deeper ones stay", JSON, `{"x":{"model":"served"},"y":[{"model":"served"}]}`, ""},
		{"text that looks like it stays", JSON, `{"x":"\"model\":\"served\""}`, ""},
		{"response.model belongs to events", JSON, `{"response":{"model":"served"}}`, ""},
		{"an array is no object", JSON, `[{"model":"served"}]`, ""},
		{"a value too long for a name stays", JSON, `{"model":"` + strings.Repeat("m", MaxModelBytes) + `"}`, ""},
		{"cut inside the value", JSON, `{"model":"serv`, ""},
		{"response.model in an event", SSE, "event: response.created\ndata: {\"response\":{\"id\":1,\"model\":\"served\"}}\n\n", "event: response.created\ndata: {\"response\":{\"id\":1,\"model\":\"asked-for\"}}\n\n"},
		{"message.model in an event", SSE, "data: {\"type\":\"message_start\",\"message\":{\"model\":\"served\"}}\n\n", "data: {\"type\":\"message_start\",\"message\":{\"model\":\"asked-for\"}}\n\n"},
		{"a value broken by a line end stays, the next event is spliced", SSE, "data: {\"model\":\"ser\ndata: ved\"}\n\ndata: {\"model\":\"served\"}\n\n", "data: {\"model\":\"ser\ndata: ved\"}\n\ndata: {\"model\":\"asked-for\"}\n\n"},
		{"no colon", JSON, `{"a" 1,"model":"served"}`, ""},
		{"no comma", JSON, `{"a":1 "model":"served"}`, ""},
		{"no value", JSON, `{"a":,"model":"served"}`, ""},
		{"a wrong bracket", JSON, `{"a":],"model":"served"}`, ""},
		{"a wrong end", JSON, `{"a":1],"model":"served"}`, ""},
		{"no key", JSON, `{1:2,"model":"served"}`, ""},
		{"after the end", JSON, `{} {"model":"served"}`, ""},
		{"a key that is no string to JSON", JSON, `{"\x":1,"model":"served"}`, `{"\x":1,"model":"asked-for"}`},
		{"nearly the end marker", SSE, "data: [DONX]\n\ndata: {\"model\":\"served\"}\n\n", "data: [DONX]\n\ndata: {\"model\":\"asked-for\"}\n\n"},
		{"a number broken by a line end", SSE, "data: {\"a\":1\ndata: ,\"model\":\"served\"}\n\n", "data: {\"a\":1\ndata: ,\"model\":\"asked-for\"}\n\n"},
		{"another field stays", SSE, "id: {\"model\":\"served\"}\n\n", ""},
		{"a byte order mark is no part of the field name", SSE, "\ufeffdata: {\"model\":\"served\"}\n\n", "\ufeffdata: {\"model\":\"asked-for\"}\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want == "" {
				want = c.body
			}
			for _, size := range []int{1, 2, 3, 7, len(c.body)} {
				require.Equal(t, want, string(run(New(c.format, []byte(replacement)), []byte(c.body), []int{size})), "chunks of %d", size)
			}
		})
	}
}

func TestCase_A01_A04_A06_A09_A14_A25_A28_Framing(t *testing.T) {
	for _, c := range []struct {
		name string
		body string
		seen Seen
	}{
		{"A01 comments between events", ": ping\n\ndata: " + chunk + "\n\n: ping\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n", Seen{Done: true, PromptTokens: 11, CompletionTokens: 7}},
		{"A04 CRLF", "data: " + chunk + "\r\n\r\ndata: [DONE]\r\n\r\n", Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A04 lone CR", "data: " + chunk + "\r\rdata: " + chunk + "\r\rdata: [DONE]\r\r", Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A04 mixed", "data: " + chunk + "\r\n\ndata: " + chunk + "\n\r\ndata: [DONE]\r\r", Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A06 no space, several data lines", "data:" + chunk + "\n\ndata: {\"model\":\"served\",\ndata: \"choices\":[{\"finish_reason\":\ndata:\"stop\"}]}\n\n", Seen{Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A09 empty and absent choices", "data: {\"model\":\"served\",\"choices\":[]}\n\ndata: {\"model\":\"served\"}\n\ndata: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\n", Seen{Finish: true, Empty: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A25 finish with content, then usage only", "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\n", Seen{Finish: true, PromptTokens: 1, CompletionTokens: 2}},
		{"A28 usage line without its blank line", "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n", Seen{Finish: true, PromptTokens: 5, CompletionTokens: 6}},
		{"A10 nothing ended it", "data: " + chunk + "\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"an empty finish_reason is none", "data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"A14 error object", "data: {\"error\":{\"message\":\"x\"}}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A14 error null is none", "data: {\"error\":null}\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"A14 error event", "event: error\ndata: {}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"A14 error field", "error: {\"code\":500}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"finish_reason elsewhere is none", "data: {\"x\":[{\"finish_reason\":\"stop\"}],\"choices\":[{\"delta\":{\"finish_reason\":\"stop\"}}]}\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"usage broken by a line end", "data: {\"usage\":{\"prompt_tokens\":12\ndata: ,\"completion_tokens\":3.5,\"x\":1}}\n\n", Seen{PromptTokens: 12, CompletionTokens: -1}},
		{"the marker broken by a line end is none", "data: [DO\ndata: NE]\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"a later choice finishes", "data: {\"choices\":[{\"finish_reason\":null},{\"finish_reason\":\"length\"}]}\n\n", Seen{Finish: true, Empty: true, PromptTokens: -1, CompletionTokens: -1}},
		{"an error in words", "data: {\"error\":\"no\"}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"an empty error is none", "data: {\"error\":\"\"}\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"an error type", "data: {\"type\":\"error\",\"message\":\"no\"}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"messages end only with their whole last event", "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"responses end only with their whole last event", "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"a response that is cut short by its limit", "data: {\"response\":{\"model\":\"served\"},\"type\":\"response.incomplete\"}\n\n", Seen{Done: true, Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"a response that failed", "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"no\"}}}\n\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}},
		{"a part of a response that is done", "data: {\"type\":\"response.output_text.done\"}\n\n", Seen{PromptTokens: -1, CompletionTokens: -1}},
		{"a transcript ends", "data: {\"type\":\"transcript.text.delta\",\"delta\":\"a\"}\n\ndata: {\"type\":\"transcript.text.done\",\"text\":\"a\"}\n\n", Seen{Done: true, Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"speech ends", "data: {\"type\":\"speech.audio.done\"}\n\n", Seen{Done: true, Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"one image of several", "data: {\"type\":\"image_generation.completed\"}\n\n", Seen{Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"messages end", "data: {\"type\":\"message_stop\"}\n\n", Seen{Done: true, Finish: true, PromptTokens: -1, CompletionTokens: -1}},
		{"messages count the cache apart", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_creation_input_tokens\":100,\"input_tokens\":3,\"cache_read_input_tokens\":2000,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\ndata: {\"type\":\"message_stop\"}\n\n", Seen{Done: true, Finish: true, PromptTokens: 2103, CompletionTokens: 9}},
		{"prompt_tokens have the cache in them", "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":50,\"cache_read_input_tokens\":40,\"completion_tokens\":2}}\n\n", Seen{Finish: true, PromptTokens: 50, CompletionTokens: 2}},
		{"responses end with usage", "data: {\"type\":\"response.completed\",\"response\":{\"model\":\"served\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n", Seen{Done: true, Finish: true, PromptTokens: 3, CompletionTokens: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 5, 16, len(c.body)} {
				s := New(SSE, []byte(replacement))
				require.Equal(t, spliced(c.body), string(run(s, []byte(c.body), []int{size})), "chunks of %d", size)
				require.Equal(t, c.seen, s.Seen(), "chunks of %d", size)
			}
		})
	}
}

func TestCase_A26_ReasoningAndUnknownFieldsAreVerbatim(t *testing.T) {
	body := "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm \\u003c\",\"reasoning\":\"x\",\"zz\":{\"b\":1.50,\"a\":9007199254740993}}}]}\n\n"
	require.Equal(t, body, string(run(New(SSE, []byte(replacement)), []byte(body), []int{4})))
}

func TestCase_A07_LongLinePassesInBoundedMemory(t *testing.T) {
	line := []byte("data: {\"arguments\":\"" + strings.Repeat(`abc\"d `, 300<<10) + "\",\"model\":\"served\"}\n\n")
	require.Greater(t, len(line), 2<<20)
	s := New(SSE, []byte(replacement))
	out := make([]byte, 0, len(line)+64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for rest := line; len(rest) > 0; {
		n := min(1000, len(rest))
		out = s.Append(out, rest[:n])
		rest = rest[n:]
	}
	runtime.ReadMemStats(&after)
	require.True(t, bytes.HasSuffix(out, []byte(replacement+"}\n\n")))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10), "the automaton keeps nothing of the line")
}

func TestModelTooLongEndsInAnEscape(t *testing.T) {
	body := `{"model":"` + strings.Repeat("m", MaxModelBytes) + `\"x","a":{"model":1}}`
	for _, size := range []int{MaxModelBytes + 11, 100, len(body)} {
		require.Equal(t, body, string(run(New(JSON, []byte(replacement)), []byte(body), []int{size})))
	}
}

func TestTerminator(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"", ""},
		{"data: x\n\n", ""},
		{"data: x\n", "\n"},
		{"data: x\r\n", "\n"},
		{"data: x\r", "\n\n"},
		{"data: x\r\r", ""},
		{"data: x", "\n\n"},
		{"dat", "\n\n"},
		{"data: x\n\nda", "\n\n"},
	} {
		s := New(SSE, nil)
		run(s, []byte(c.body), []int{2})
		require.Equal(t, c.want, s.Terminator(), "after %q", c.body)
	}
}
