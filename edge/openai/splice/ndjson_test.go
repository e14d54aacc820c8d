package splice

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// piece is a line of a running answer.
const piece = `{"model":"served","created_at":"2026-11-30T14:28:58.2Z","message":{"role":"assistant","model":"mine","content":"\"model\":\"served\""},"done":false}` + "\n"

func TestCase_A04_A06_A09_A10_A14_LinesOfObjects(t *testing.T) {
	none := Seen{PromptTokens: -1, CompletionTokens: -1}
	for _, c := range []struct {
		name, body string
		seen       Seen
		terminator string
	}{
		{"a stream to its end", piece + piece + `{"model":"served","message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":16,"eval_count":4}` + "\n",
			Seen{Done: true, PromptTokens: 16, CompletionTokens: 4}, ""},
		{"the end without its line end", `{"model":"served","response":"","done":true}`, Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}, "\n"},
		{"CRLF and blank lines", "\r\n" + `{"model":"served"}` + "\r\n\n" + ` {"model":"served","done":true} ` + "\r\n", Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}, ""},
		{"a model loaded", `{"model":"served","response":"","done":true,"done_reason":"load"}` + "\n", Seen{Done: true, PromptTokens: -1, CompletionTokens: -1}, ""},
		{"cut in the last line", piece + `{"model":"served","done":true,"total_duration":1`, none, "\n"},
		{"nothing ended it", piece, none, ""},
		{"done in words is none", `{"done":"true"}` + "\n" + `{"message":{"done":true}}` + "\n" + `{"Done":true}` + "\n", none, ""},
		{"done across lines is none", `{"done":` + "\n" + `true}` + "\n", none, ""},
		{"an error in words", piece + `{"error":"model runner has unexpectedly stopped"}` + "\n", Seen{Error: true, PromptTokens: -1, CompletionTokens: -1}, ""},
		{"no event stream", "data: {\"model\":\"x\"}\n\n[DONE]\n", none, ""},
		{"of other forms nothing counts", `{"choices":[{"finish_reason":"stop"}],"type":"error","usage":{"prompt_tokens":3},"response":{"model":"x"}}` + "\n", none, ""},
		{"a value cut by a line end stays, the next line is spliced", `{"model":"ser` + "\n" + piece, none, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 5, 16, len(c.body)} {
				s := New(NDJSON, []byte(replacement))
				want := strings.ReplaceAll(c.body, `{"model":"served"`, `{"model":`+replacement)
				require.Equal(t, want, string(run(s, []byte(c.body), []int{size})), "chunks of %d", size)
				require.Equal(t, c.seen, s.Seen(), "chunks of %d", size)
				require.Equal(t, c.terminator, s.Terminator(), "chunks of %d", size)
			}
		})
	}
}

func TestCountsOfAWholeOllamaAnswer(t *testing.T) {
	body := `{"model":"served","message":{"role":"assistant","content":"x"},"done":true,"prompt_eval_count":300,"eval_count":7}`
	s := New(JSON, []byte(replacement))
	require.Equal(t, spliced(body), string(run(s, []byte(body), []int{9})))
	require.Equal(t, Seen{PromptTokens: 300, CompletionTokens: 7}, s.Seen())
}

func TestCase_A07_LongObjectPassesInBoundedMemory(t *testing.T) {
	line := []byte(`{"message":{"content":"` + strings.Repeat(`abc\"d `, 300<<10) + `"},"model":"served","done":true}` + "\n")
	require.Greater(t, len(line), 2<<20)
	s := New(NDJSON, []byte(replacement))
	out := make([]byte, 0, len(line)+64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for rest := line; len(rest) > 0; {
		n := min(1000, len(rest))
		out = s.Append(out, rest[:n])
		rest = rest[n:]
	}
	runtime.ReadMemStats(&after)
	require.True(t, bytes.HasSuffix(out, []byte(replacement+",\"done\":true}\n")))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10), "the automaton keeps nothing of the line")
	require.True(t, s.Seen().Done)
}
