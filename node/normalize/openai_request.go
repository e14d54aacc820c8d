package normalize

import (
	"encoding/base64"
	"encoding/json"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// chatRequest is the body of /v1/chat/completions. max_tokens is the name of the
// limit that every server knows; servers that know only a newer one answer
// without it.
type chatRequest struct {
	Model              string              `json:"model"`
	Messages           []chatMessage       `json:"messages"`
	Stream             bool                `json:"stream"`
	StreamOptions      chatStreamOptions   `json:"stream_options"`
	Tools              []function          `json:"tools,omitempty"`
	Temperature        *float64            `json:"temperature,omitempty"`
	TopP               *float64            `json:"top_p,omitempty"`
	Seed               *int64              `json:"seed,omitempty"`
	Stop               []string            `json:"stop,omitempty"`
	MaxTokens          *uint32             `json:"max_tokens,omitempty"`
	PresencePenalty    *float64            `json:"presence_penalty,omitempty"`
	FrequencyPenalty   *float64            `json:"frequency_penalty,omitempty"`
	ResponseFormat     *chatResponseFormat `json:"response_format,omitempty"`
	ReasoningEffort    string              `json:"reasoning_effort,omitempty"`
	ChatTemplateKwargs *chatTemplateKwargs `json:"chat_template_kwargs,omitempty"`
}

type chatStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTemplateKwargs struct {
	EnableThinking bool `json:"enable_thinking"`
}

type chatMessage struct {
	Role       string         `json:"role"`
	Content    any            `json:"content"` // string, []chatPart or nil
	ToolCalls  []chatToolCall `json:"tool_calls,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"`
}

type chatPart struct {
	Type     string        `json:"type"`
	Text     string        `json:"text,omitempty"`
	ImageURL *chatImageURL `json:"image_url,omitempty"`
}

type chatImageURL struct {
	URL string `json:"url"`
}

type chatToolCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"`
	Function chatFunctionCall `json:"function"`
}

type chatFunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *chatSchema `json:"json_schema,omitempty"`
}

type chatSchema struct {
	Name   string          `json:"name"`
	Strict bool            `json:"strict"`
	Schema json.RawMessage `json:"schema"`
}

// templated servers turn reasoning off by an argument of the chat template, and
// refuse the effort "none".
var templated = map[string]bool{"vllm": true, "llamacpp": true, "lemonade": true}

func openAIRequest(r *inferencev1.RunRequest, o Options, kind string) (any, error) {
	s := r.GetSampling()
	if s == nil {
		s = &inferencev1.Sampling{}
	}
	c := &chatRequest{
		Model: o.Target, Stream: true, StreamOptions: chatStreamOptions{IncludeUsage: true},
		Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed, Stop: s.Stop, MaxTokens: s.MaxOutputTokens,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		ReasoningEffort: efforts[r.GetReasoningEffort()],
	}
	if r.GetReasoningEffort() == inferencev1.ReasoningEffort_REASONING_EFFORT_NONE && templated[kind] {
		c.ReasoningEffort, c.ChatTemplateKwargs = "", &chatTemplateKwargs{}
	}
	var err error
	if c.Tools, err = functions(r.GetTools()); err != nil {
		return nil, err
	}
	if c.ResponseFormat, err = chatFormat(r.GetResponseFormat()); err != nil {
		return nil, err
	}
	for i, m := range r.GetMessages() {
		message := chatMessage{Content: chatContent(m), ToolCallID: m.GetToolCallId()}
		if message.Role, err = roleOf(m, i); err != nil {
			return nil, err
		}
		for _, call := range m.GetToolCalls() {
			message.ToolCalls = append(message.ToolCalls, chatToolCall{ID: call.GetId(), Type: "function",
				Function: chatFunctionCall{Name: call.GetName(), Arguments: call.GetArgumentsJson()}})
		}
		c.Messages = append(c.Messages, message)
	}
	return c, nil
}

// chatContent is a plain string wherever it can be: some servers take no other.
func chatContent(m *inferencev1.Message) any {
	parts := m.GetParts()
	if len(parts) == 0 {
		return nil
	}
	if len(parts) == 1 && parts[0].GetImage() == nil {
		return parts[0].GetText()
	}
	all := make([]chatPart, len(parts))
	for i, p := range parts {
		if image := p.GetImage(); image != nil {
			url := "data:" + image.GetMediaType() + ";base64," + base64.StdEncoding.EncodeToString(image.GetData())
			all[i] = chatPart{Type: "image_url", ImageURL: &chatImageURL{URL: url}}
			continue
		}
		all[i] = chatPart{Type: "text", Text: p.GetText()}
	}
	return all
}

func chatFormat(f *inferencev1.ResponseFormat) (*chatResponseFormat, error) {
	switch {
	case f.GetJsonSchema() != nil:
		schema, err := object(f.GetJsonSchema().GetSchemaJson(), "response_format.json_schema.schema_json")
		if err != nil {
			return nil, err
		}
		return &chatResponseFormat{Type: "json_schema",
			JSONSchema: &chatSchema{Name: f.GetJsonSchema().GetName(), Strict: true, Schema: schema}}, nil
	case f.GetJsonObject() != nil:
		return &chatResponseFormat{Type: "json_object"}, nil
	}
	return nil, nil
}
