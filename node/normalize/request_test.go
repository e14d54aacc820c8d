package normalize

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// runOf reads a RunRequest from its JSON.
func runOf(t *testing.T, text string) []byte {
	t.Helper()
	run := &inferencev1.RunRequest{}
	require.NoError(t, protojson.Unmarshal([]byte(text), run))
	body, err := proto.Marshal(run)
	require.NoError(t, err)
	return body
}

const (
	hello = `{"model":"ornith:35b","messages":[{"role":"ROLE_USER","parts":[{"text":"hello"}]}]}`

	everything = `{"model":"ornith:35b",
		"messages":[
			{"role":"ROLE_SYSTEM","parts":[{"text":"Be <brief>."}]},
			{"role":"ROLE_USER","parts":[{"text":"What is this?"},{"image":{"data":"iVBORw==","mediaType":"image/png"}},{"text":"And the time?"}]},
			{"role":"ROLE_ASSISTANT","toolCalls":[{"id":"c1","name":"clock","argumentsJson":"{\"zone\":\"utc\", \"n\":1.50}"},{"id":"c2","name":"now"}]},
			{"role":"ROLE_TOOL","toolCallId":"c1","parts":[{"text":"12:00"}]},
			{"role":"ROLE_TOOL","toolCallId":"c2","parts":[{"text":"noon"}]}],
		"tools":[{"name":"clock","description":"tells the time","parametersJson":"{\"type\":\"object\",\"properties\":{\"zone\":{\"type\":\"string\"},\"a\":{}}}"},{"name":"now"}],
		"sampling":{"temperature":0,"topP":0.9,"seed":"7","stop":["END"],"maxOutputTokens":64,"presencePenalty":0.5,"frequencyPenalty":-0.5},
		"responseFormat":{"jsonSchema":{"name":"answer","schemaJson":"{\"type\":\"object\",\"properties\":{\"z\":{},\"a\":{}}}"}},
		"reasoningEffort":"REASONING_EFFORT_LOW","numCtx":4096}`

	image    = `{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"image":{"data":"iVBORw==","mediaType":"image/png"}}]}],"responseFormat":{"jsonObject":{}}}`
	noReason = `{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"x"}]}],"reasoningEffort":"REASONING_EFFORT_NONE"}`
	reason   = `{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"x"}]}],"reasoningEffort":"REASONING_EFFORT_MEDIUM"}`
	numCtx   = `{"model":"m","messages":[{"role":"ROLE_USER","parts":[{"text":"x"}]}],"numCtx":9000}`
)

func TestNativeRequests(t *testing.T) {
	const plainChat = `{"model":"served","messages":[{"role":"user","content":"hello"}],"stream":true,"stream_options":{"include_usage":true}}`
	for _, c := range []struct {
		name, kind, run string
		window          uint64
		path, want      string
	}{
		{"plain, vllm", "vllm", hello, 8192, "/v1/chat/completions", plainChat},
		{"plain, simulator", "simulator", hello, 0, "/v1/chat/completions", plainChat},
		{"everything, openai", "openai", everything, 8192, "/v1/chat/completions", `{"model":"served","messages":[` +
			`{"role":"system","content":"Be <brief>."},` +
			`{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw=="}},{"type":"text","text":"And the time?"}]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"clock","arguments":"{\"zone\":\"utc\", \"n\":1.50}"}},{"id":"c2","type":"function","function":{"name":"now","arguments":""}}]},` +
			`{"role":"tool","content":"12:00","tool_call_id":"c1"},{"role":"tool","content":"noon","tool_call_id":"c2"}],` +
			`"stream":true,"stream_options":{"include_usage":true},` +
			`"tools":[{"type":"function","function":{"name":"clock","description":"tells the time","parameters":{"type":"object","properties":{"zone":{"type":"string"},"a":{}}}}},{"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}],` +
			`"temperature":0,"top_p":0.9,"seed":7,"stop":["END"],"max_tokens":64,"presence_penalty":0.5,"frequency_penalty":-0.5,` +
			`"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object","properties":{"z":{},"a":{}}}}},"reasoning_effort":"low"}`},
		{"no reasoning, openai", "openai", noReason, 0, "/v1/chat/completions",
			`{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"none"}`},
		{"no reasoning, vllm", "vllm", noReason, 0, "/v1/chat/completions",
			`{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":false}}`},
		{"image and json, llamacpp", "llamacpp", image, 0, "/v1/chat/completions",
			`{"model":"served","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw=="}}]}],"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"}}`},

		{"plain, ollama", "ollama", hello, 0, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"hello"}],"stream":true}`},
		{"plain with a window, ollama", "ollama", hello, 8192, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"hello"}],"stream":true,"options":{"num_ctx":8192}}`},
		{"num_ctx within the window, ollama", "ollama", numCtx, 10000, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"options":{"num_ctx":9000}}`},
		{"num_ctx without a window, ollama", "ollama", numCtx, 0, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"options":{"num_ctx":9000}}`},
		{"num_ctx above the window, ollama", "ollama", numCtx, 8192, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"options":{"num_ctx":8192}}`},
		{"image and json, ollama", "ollama", image, 0, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"","images":["iVBORw=="]}],"stream":true,"format":"json"}`},
		{"no thinking, ollama", "ollama", noReason, 0, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"think":false}`},
		{"thinking, ollama", "ollama", reason, 0, "/api/chat", `{"model":"served","messages":[{"role":"user","content":"x"}],"stream":true,"think":true}`},
		{"everything, ollama", "ollama", everything, 8192, "/api/chat", `{"model":"served","messages":[` +
			`{"role":"system","content":"Be <brief>."},{"role":"user","content":"What is this?\nAnd the time?","images":["iVBORw=="]},` +
			`{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"name":"clock","arguments":{"zone":"utc","n":1.50}}},{"id":"c2","function":{"name":"now","arguments":{}}}]},` +
			`{"role":"tool","content":"12:00","tool_name":"clock","tool_call_id":"c1"},{"role":"tool","content":"noon","tool_name":"now","tool_call_id":"c2"}],"stream":true,` +
			`"tools":[{"type":"function","function":{"name":"clock","description":"tells the time","parameters":{"type":"object","properties":{"zone":{"type":"string"},"a":{}}}}},{"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}],` +
			`"format":{"type":"object","properties":{"z":{},"a":{}}},"think":"low",` +
			`"options":{"num_ctx":4096,"num_predict":64,"temperature":0,"top_p":0.9,"seed":7,"stop":["END"],"presence_penalty":0.5,"frequency_penalty":-0.5}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			form := FormOf(c.kind)
			require.Equal(t, c.path, form.Path)
			got, err := form.Request(runOf(t, c.run), Options{Target: "served", ContextWindow: c.window})
			require.NoError(t, err)
			require.True(t, json.Valid(got))
			require.Equal(t, c.want, string(got))
		})
	}
}

func TestRunsThatCannotBeTranslatedAreRefused(t *testing.T) {
	const secret = "do-not-quote-me"
	for _, c := range []struct{ name, kind, run, says string }{
		{"schema", "vllm", `{"messages":[{"role":"ROLE_USER"}],"tools":[{"name":"f","parametersJson":"` + secret + `"}]}`, "tools[0].parameters_json is no JSON object"},
		{"array as schema", "ollama", `{"responseFormat":{"jsonSchema":{"schemaJson":"[1]"}}}`, "response_format.json_schema.schema_json is no JSON object"},
		{"arguments", "ollama", `{"messages":[{"role":"ROLE_ASSISTANT","toolCalls":[{"id":"c","name":"f","argumentsJson":"` + secret + `"}]}]}`, "messages[0].tool_calls[0].arguments_json is no JSON object"},
		{"role of a later version", "openai", `{"messages":[{"role":77}]}`, "messages[0] has a role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := FormOf(c.kind).Request(runOf(t, c.run), Options{})
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), secret)
		})
	}
	_, err := FormOf("vllm").Request([]byte{0xff}, Options{})
	require.ErrorContains(t, err, "RunRequest")
}
