package normalize

import (
	"encoding/json"
	"fmt"
	"strings"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// ollamaChat is the body of /api/chat.
type ollamaChat struct {
	Model    string          `json:"model"`
	Messages []ollamaMessage `json:"messages"`
	Stream   bool            `json:"stream"`
	Tools    []function      `json:"tools,omitempty"`
	Format   json.RawMessage `json:"format,omitempty"`
	Think    any             `json:"think,omitempty"` // bool or string
	Options  *ollamaOptions  `json:"options,omitempty"`
}

type ollamaMessage struct {
	Role       string           `json:"role"`
	Content    string           `json:"content"`
	Images     [][]byte         `json:"images,omitempty"` // base64 in JSON
	ToolCalls  []ollamaToolCall `json:"tool_calls,omitempty"`
	ToolName   string           `json:"tool_name,omitempty"`
	ToolCallID string           `json:"tool_call_id,omitempty"`
}

type ollamaToolCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type ollamaOptions struct {
	NumCtx           uint64   `json:"num_ctx,omitempty"`
	NumPredict       *uint32  `json:"num_predict,omitempty"`
	Temperature      *float64 `json:"temperature,omitempty"`
	TopP             *float64 `json:"top_p,omitempty"`
	Seed             *int64   `json:"seed,omitempty"`
	Stop             []string `json:"stop,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
}

func ollamaRequest(r *inferencev1.RunRequest, o Options) (any, error) {
	c := &ollamaChat{Model: o.Target, Stream: true, Think: think(r.GetReasoningEffort()), Options: optionsOf(r, o)}
	var err error
	if c.Tools, err = functions(r.GetTools()); err != nil {
		return nil, err
	}
	switch f := r.GetResponseFormat(); {
	case f.GetJsonSchema() != nil:
		c.Format, err = object(f.GetJsonSchema().GetSchemaJson(), "response_format.json_schema.schema_json")
	case f.GetJsonObject() != nil:
		c.Format = json.RawMessage(`"json"`)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]string{} // of the functions, by tool call
	for i, m := range r.GetMessages() {
		message, err := ollamaTurn(m, i, names)
		if err != nil {
			return nil, err
		}
		c.Messages = append(c.Messages, message)
	}
	return c, nil
}

// ollamaTurn is one message. A message of Ollama has one text and its pictures
// beside it; the texts of several parts become its paragraphs.
func ollamaTurn(m *inferencev1.Message, i int, names map[string]string) (message ollamaMessage, err error) {
	if message.Role, err = roleOf(m, i); err != nil {
		return message, err
	}
	var texts []string
	for _, p := range m.GetParts() {
		if image := p.GetImage(); image != nil {
			message.Images = append(message.Images, image.GetData())
			continue
		}
		texts = append(texts, p.GetText())
	}
	message.Content = strings.Join(texts, "\n")
	for j, call := range m.GetToolCalls() {
		var c ollamaToolCall
		c.ID, c.Function.Name = call.GetId(), call.GetName()
		arguments := call.GetArgumentsJson()
		if arguments == "" {
			arguments = "{}"
		}
		if c.Function.Arguments, err = object(arguments, fmt.Sprintf("messages[%d].tool_calls[%d].arguments_json", i, j)); err != nil {
			return message, err
		}
		message.ToolCalls = append(message.ToolCalls, c)
		names[call.GetId()] = call.GetName()
	}
	if id := m.GetToolCallId(); id != "" {
		message.ToolCallID, message.ToolName = id, names[id]
	}
	return message, nil
}

// optionsOf is nil where nothing is set, so that Ollama keeps to its Modelfile.
func optionsOf(r *inferencev1.RunRequest, o Options) *ollamaOptions {
	n := &ollamaOptions{NumCtx: o.ContextWindow}
	if r.NumCtx != nil {
		n.NumCtx = uint64(r.GetNumCtx())
		if o.ContextWindow > 0 {
			n.NumCtx = min(n.NumCtx, o.ContextWindow)
		}
	}
	if s := r.GetSampling(); s != nil {
		n.NumPredict, n.Temperature, n.TopP, n.Seed, n.Stop = s.MaxOutputTokens, s.Temperature, s.TopP, s.Seed, s.Stop
		n.PresencePenalty, n.FrequencyPenalty = s.PresencePenalty, s.FrequencyPenalty
	} else if n.NumCtx == 0 {
		return nil
	}
	return n
}

// think is Ollama's setting: a plain yes is all that most models take, a level
// what a few take besides.
func think(effort inferencev1.ReasoningEffort) any {
	switch effort {
	case inferencev1.ReasoningEffort_REASONING_EFFORT_UNSPECIFIED:
		return nil
	case inferencev1.ReasoningEffort_REASONING_EFFORT_NONE:
		return false
	case inferencev1.ReasoningEffort_REASONING_EFFORT_LOW, inferencev1.ReasoningEffort_REASONING_EFFORT_HIGH:
		return efforts[effort]
	default:
		return true
	}
}
