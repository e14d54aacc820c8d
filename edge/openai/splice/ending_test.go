package splice

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An answer of several choices has ended when each choice that has begun did: a cut between the first finish and the last is a failure (A10).
func TestCase_A10_EveryChoiceHasToFinish(t *testing.T) {
	const (
		a     = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
		b     = `data: {"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
		aEnds = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
		bEnds = `data: {"choices":[{"finish_reason":"length","delta":{},"index":1}]}` + "\n\n"
	)
	for name, c := range map[string]struct {
		body   string
		finish bool
	}{
		"both":                            {a + b + aEnds + bEnds, true},
		"the other order":                 {a + b + bEnds + aEnds, true},
		"one is cut":                      {a + b + aEnds, false},
		"the other is cut":                {a + b + bEnds, false},
		"a second begins afterwards":      {a + aEnds + b, false},
		"one after the other":             {a + aEnds + b + bEnds, true},
		"both in one event":               {`data: {"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":"stop"}]}` + "\n\n", true},
		"one of two in one event":         {`data: {"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":null}]}` + "\n\n", false},
		"one of two, the other empty":     {`data: {"choices":[{"index":1,"finish_reason":"stop"},{}]}` + "\n\n", false},
		"a chunk after the finish":        {a + aEnds + a, true},
		"without an index":                {`data: {"choices":[{"finish_reason":"stop"}]}` + "\n\n", true},
		"the object of the choice is cut": {`data: {"choices":[{"index":0,"finish_reason":"stop"`, false},
		"many":                            {`data: {"choices":[{"index":127,"finish_reason":"stop"},{"index":63,"finish_reason":"stop"},{"index":64,"finish_reason":"stop"}]}` + "\n\n", true},
		"more than are told apart":        {`data: {"choices":[{"index":99999999999999999999,"finish_reason":"stop"},{"index":1e9,"finish_reason":"stop"}]}` + "\n\n", true},
		"an index elsewhere":              {`data: {"choices":[{"delta":{"tool_calls":[{"index":3}]},"finish_reason":"tool_calls","index":0}]}` + "\n\n", true},
		"the messages API has no choices": {`data: {"type":"message_stop"}` + "\n\n", true},
	} {
		for _, size := range []int{1, 3, len(c.body)} {
			s := New(SSE, nil)
			run(s, []byte(c.body), []int{size})
			require.Equal(t, c.finish, s.Seen().Finish, "%s, chunks of %d", name, size)
		}
	}
}

func TestProperty_FinishOfAnyNumberOfChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body strings.Builder
		finished := map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			var list []string
			for range rapid.IntRange(0, 3).Draw(t, "choices") {
				i := rapid.IntRange(0, 70).Draw(t, "index")
				ends := rapid.Bool().Draw(t, "ends")
				finished[i] = finished[i] || ends
				members := []string{fmt.Sprintf(`"index": %d`, i), `"delta":` + genValue(2).Draw(t, "delta")}
				switch {
				case ends:
					members = append(members, `"finish_reason":"stop"`)
				case rapid.Bool().Draw(t, "null"):
					members = append(members, `"finish_reason" : null`)
				}
				list = append(list, "{"+strings.Join(rapid.Permutation(members).Draw(t, "order"), ",")+"}")
			}
			body.WriteString(`data: {"choices":[` + strings.Join(list, ",") + "]}\n\n")
		}
		want := len(finished) > 0
		for _, done := range finished {
			want = want && done
		}
		s := New(SSE, nil)
		run(s, []byte(body.String()), rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "sizes"))
		if got := s.Seen().Finish; got != want {
			t.Fatalf("finish is %v, not %v, in %q", got, want, body.String())
		}
	})
}

// events parses a stream as browsers do: an event without its blank line is dropped.
func events(body string) (data []string) {
	var lines []string
	some := false
	body = strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n")
	for {
		line, rest, whole := strings.Cut(body, "\n")
		if !whole {
			return data
		}
		body = rest
		switch value, isData := strings.CutPrefix(line, "data:"); {
		case line == "" && some:
			data = append(data, strings.Join(lines, "\n"))
			lines, some = nil, false
		case isData:
			lines, some = append(lines, strings.TrimPrefix(value, " ")), true
		}
	}
}

// Wherever a stream is cut, what a standard parser then reads before the error event is either what it would have read anyway or no JSON.
func TestCase_A14_NoHalfEventPassesForAWholeOne(t *testing.T) {
	const failure = `{"error":{"code":"provider_disconnected"}}`
	for _, body := range []string{
		": ping\n\nevent: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"served\"}}\n\ndata: {\"model\":\"served\",\"n\":[1,23],\"t\":true}\n\ndata: [DONE]\n\n",
		"data:{\"model\":\"served\",\ndata: \"choices\":[{\"index\":0,\ndata:\"finish_reason\":null}]}\n\nid: 17\ndata: {\"a\":\"\\u00e9\\n\"}\n\n",
	} {
		for _, eol := range []string{"\n", "\r\n", "\r"} {
			body := strings.ReplaceAll(body, "\n", eol)
			whole := events(string(run(New(SSE, []byte(replacement)), []byte(body), []int{len(body)})))
			for cut := range len(body) {
				s := New(SSE, []byte(replacement))
				seen := string(s.Append(nil, []byte(body[:cut])))
				got := events(seen + s.Terminator() + "data: " + failure + "\n\n")
				require.NotEmpty(t, got)
				require.Equal(t, failure, got[len(got)-1], "cut %q", body[:cut])
				for i, e := range got[:len(got)-1] {
					if json.Valid([]byte(e)) {
						require.Equal(t, whole[i], e, "cut %q", body[:cut])
					}
				}
			}
		}
	}
}

func TestBetweenEvents(t *testing.T) {
	for body, want := range map[string]bool{
		"": true, "data: x\n\n": true, "data: x\r\n\r\n": true, ": x\n\n": true, "\n": true,
		"d": false, "data: x": false, "data: x\n": false, "data: x\n\nd": false, "data: x\r\r": false, "data: x\r\n\r": false, ": x\n": false,
	} {
		s := New(SSE, nil)
		run(s, []byte(body), []int{1})
		require.Equal(t, want, s.BetweenEvents(), "after %q", body)
	}
}
