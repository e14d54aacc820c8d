package splice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// D14: an answer is empty if its length was used up and it has nothing of what a choice can say.
func TestCase_D14_EmptyAnswers(t *testing.T) {
	const cut = `,"finish_reason":"length"`
	for name, c := range map[string]struct {
		choice string
		empty  bool
	}{
		"no content":           {`{"message":{"role":"assistant","content":""}` + cut + `}`, true},
		"null content":         {`{"message":{"role":"assistant","content":null,"tool_calls":null}` + cut + `}`, true},
		"no tool calls":        {`{"message":{"content":"","tool_calls":[ ],"refusal":""}` + cut + `}`, true},
		"the reason first":     {`{"finish_reason":"length","index":0,"message":{"content":""}}`, true},
		"an empty delta":       {`{"delta":{}` + cut + `}`, true},
		"no text":              {`{"text":""` + cut + `}`, true},
		"content elsewhere":    {`{"message":{"content":"","x":{"content":"x"}},"content":"x"` + cut + `}`, true},
		"content":              {`{"message":{"content":"x"}` + cut + `}`, false},
		"an escape as content": {`{"delta":{"content":"\n"}` + cut + `}`, false},
		"an escaped key":       {`{"delta":{"c\u006fntent":"x"}` + cut + `}`, false},
		"text":                 {`{"text":"x"` + cut + `}`, false},
		"thought":              {`{"delta":{"content":"","reasoning_content":"x"}` + cut + `}`, false},
		"a refusal":            {`{"message":{"refusal":"x"}` + cut + `}`, false},
		"a tool call":          {`{"message":{"content":null,"tool_calls":[{"id":"x"}]}` + cut + `}`, false},
		"a function call":      {`{"message":{"content":null,"function_call":{"name":"x"}}` + cut + `}`, false},
		"parts":                {`{"message":{"content":[ {"type":"text","text":"x"}]}` + cut + `}`, false},
		"it stopped by itself": {`{"message":{"content":""},"finish_reason":"stop"}`, false},
	} {
		for form, body := range map[Format]string{
			JSON: fmt.Sprintf(`{"choices":[%s],"model":"served"}`, c.choice),
			SSE:  fmt.Sprintf("data: {\"choices\":[%s]}\n\ndata: [DONE]\n\n", c.choice),
		} {
			for _, size := range []int{1, 3, len(body)} {
				s := New(form, nil)
				require.Equal(t, body, string(run(s, []byte(body), []int{size})))
				require.Equal(t, c.empty, s.Seen().Empty, "%s, format %d, chunks of %d", name, form, size)
			}
		}
	}
	s := New(SSE, nil)
	run(s, []byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"), []int{7})
	require.False(t, s.Seen().Empty, "an earlier event has said something")
}
