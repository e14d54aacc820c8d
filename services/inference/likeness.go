package inference

import (
	"encoding/base64"
	"encoding/json"

	"github.com/iop-dev/iop/edge/estimate"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// chatLikeness is the run's input as a chat completion, for the estimate: a run
// is of the class that the same conversation has on /v1. Pictures are there by
// the heads of their files, as the estimate looks at no more.
func chatLikeness(req *inferencev1.RunRequest) ([]byte, error) {
	type (
		url struct {
			URL string `json:"url"`
		}
		part struct {
			Type     string `json:"type"`
			Text     string `json:"text,omitempty"`
			ImageURL *url   `json:"image_url,omitempty"`
		}
		function struct {
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Arguments   string          `json:"arguments,omitempty"`
			Parameters  json.RawMessage `json:"parameters,omitempty"`
		}
		call struct {
			ID       string   `json:"id,omitempty"`
			Type     string   `json:"type"`
			Function function `json:"function"`
		}
		message struct {
			Role       string `json:"role"`
			Content    []part `json:"content"`
			ToolCalls  []call `json:"tool_calls,omitempty"`
			ToolCallID string `json:"tool_call_id,omitempty"`
		}
	)
	var chat struct {
		Messages       []message       `json:"messages"`
		Tools          []call          `json:"tools,omitempty"`
		ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	}
	for _, m := range req.GetMessages() {
		like := message{Role: m.GetRole().String(), ToolCallID: m.GetToolCallId()}
		for _, p := range m.GetParts() {
			if image := p.GetImage(); image != nil {
				like.Content = append(like.Content, part{Type: "image_url", ImageURL: &url{pictureURL(image)}})
				continue
			}
			like.Content = append(like.Content, part{Type: "text", Text: p.GetText()})
		}
		for _, c := range m.GetToolCalls() {
			like.ToolCalls = append(like.ToolCalls, call{c.GetId(), "function", function{Name: c.GetName(), Arguments: c.GetArgumentsJson()}})
		}
		chat.Messages = append(chat.Messages, like)
	}
	for _, t := range req.GetTools() {
		chat.Tools = append(chat.Tools, call{"", "function",
			function{Name: t.GetName(), Description: t.GetDescription(), Parameters: json.RawMessage(t.GetParametersJson())}})
	}
	if schema := req.GetResponseFormat().GetJsonSchema(); schema != nil {
		chat.ResponseFormat = json.RawMessage(schema.GetSchemaJson())
	}
	return json.Marshal(&chat)
}

// pictureURL is a data URL of a picture's head.
func pictureURL(p *inferencev1.Image) string {
	data := p.GetData()
	return "data:" + p.GetMediaType() + ";base64," + base64.StdEncoding.EncodeToString(data[:min(len(data), estimate.ImageHeader)])
}
