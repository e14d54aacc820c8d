package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// asked is what a request wants generated, whatever its dialect.
type asked struct {
	prompt string // of which the last word counts
	tokens int    // of the prompt
	tools  bool
	schema json.RawMessage
	stops  []string
	limit  int // of the answer; below 0 = none
	stream bool
	usage  bool // of a stream
	n      int
}

// refusal is an error in the server's own words.
type refusal struct {
	status        int
	message, kind string
	more          string // further members
}

func (r *refusal) Error() string { return r.message }

func invalid(format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...), kind: "invalid_request_error"}
}

func unsupported(message string) *refusal {
	return &refusal{status: http.StatusNotImplemented, message: message, kind: "not_supported_error"}
}

// message is one of a conversation.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// body is every field of any dialect that the server looks at.
type body struct {
	Messages            json.RawMessage `json:"messages"`
	System              json.RawMessage `json:"system"`
	Prompt              json.RawMessage `json:"prompt"`
	Input               json.RawMessage `json:"input"`
	Instructions        string          `json:"instructions"`
	Query               string          `json:"query"`
	Documents           []string        `json:"documents"`
	Content             string          `json:"content"`
	WithPieces          bool            `json:"with_pieces"`
	EncodingFormat      string          `json:"encoding_format"`
	Tools               json.RawMessage `json:"tools"`
	Stop                json.RawMessage `json:"stop"`
	StopSequences       []string        `json:"stop_sequences"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MaxOutputTokens     *int            `json:"max_output_tokens"`
	NPredict            *int            `json:"n_predict"`
	N                   int             `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Text struct {
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
}

// parse reads a body; what is no JSON is a 500, as nlohmann's exception is there.
func parse(data []byte) (body, error) {
	var b body
	err := json.Unmarshal(data, &b)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return b, nil
	case errors.As(err, &syntax):
		read := string(data[min(1, len(data)):min(int(syntax.Offset), len(data))])
		what := "invalid literal"
		if int(syntax.Offset) >= len(data) {
			what = "unexpected end of input"
		}
		return b, &refusal{
			status: http.StatusInternalServerError, kind: "server_error",
			message: fmt.Sprintf("[json.exception.parse_error.101] parse error at line 1, column %d: syntax error while parsing value - %s; last read: '%s'",
				syntax.Offset, what, read[max(0, len(read)-32):]),
		}
	case errors.As(err, &kind):
		return b, &refusal{
			status: http.StatusInternalServerError, kind: "server_error",
			message: fmt.Sprintf("[json.exception.type_error.302] type must be %s, but is %s", kind.Type, kind.Value),
		}
	}
	return b, err
}

// common fills in what all dialects share.
func (b body) common(a asked) asked {
	a.limit, a.stream, a.usage, a.n = -1, b.Stream, b.StreamOptions.IncludeUsage, max(b.N, 1)
	for _, l := range []*int{b.MaxTokens, b.MaxCompletionTokens, b.MaxOutputTokens, b.NPredict} {
		if l != nil {
			a.limit = *l
		}
	}
	a.stops = b.StopSequences
	var one string
	if json.Unmarshal(b.Stop, &one) == nil && one != "" {
		a.stops = append(a.stops, one)
	}
	var many []string
	if json.Unmarshal(b.Stop, &many) == nil {
		a.stops = append(a.stops, many...)
	}
	switch {
	case b.ResponseFormat.JSONSchema.Schema != nil:
		a.schema = b.ResponseFormat.JSONSchema.Schema
	case b.ResponseFormat.Type == "json_object":
		a.schema = json.RawMessage(`{"type":"object"}`)
	case b.Text.Format.Schema != nil:
		a.schema = b.Text.Format.Schema
	}
	if len(b.Tools) > 2 && string(b.Tools) != "null" {
		a.tools = true
		a.tokens += len("|tools: |") + len(b.Tools) - len("[]") + strings.Count(string(b.Tools), ":") + strings.Count(string(b.Tools), ",")
	}
	return a
}

// chat is a conversation put through the model's template: a mark, each message
// between marks, and the last word once more.
func (b body) chat(needed bool) (asked, error) {
	var list []message
	if b.Messages == nil {
		return asked{}, invalid("'messages' is required")
	}
	if err := json.Unmarshal(b.Messages, &list); err != nil && needed {
		return asked{}, invalid("Expected 'messages' to be an array")
	}
	if system := textOf(b.System); system != "" {
		content, _ := json.Marshal(system)
		list = append([]message{{Role: "system", Content: content}}, list...)
	}
	return b.templated(list)
}

func (b body) templated(list []message) (asked, error) {
	a := asked{tokens: 2}
	for _, m := range list {
		if strings.Contains(string(m.Content), `"image_url"`) {
			return asked{}, &refusal{
				status: http.StatusInternalServerError, kind: "server_error",
				message: "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
			}
		}
		a.prompt = textOf(m.Content)
		a.tokens += countTokens(a.prompt) + 2
	}
	if words := strings.Fields(a.prompt); len(words) > 0 {
		a.tokens += countTokens(" " + words[len(words)-1])
	}
	return b.common(a), nil
}

// text is a bare prompt.
func (b body) text() (asked, error) {
	if b.Prompt == nil {
		return asked{}, invalid("\"prompt\" is required")
	}
	prompt := textOf(b.Prompt)
	return b.common(asked{prompt: prompt, tokens: 1 + countTokens(prompt)}), nil
}

// response is the input of /v1/responses.
func (b body) response() (asked, error) {
	if b.Input == nil {
		return asked{}, invalid("'input' is required")
	}
	var list []message
	if json.Unmarshal(b.Input, &list) != nil {
		list = []message{{Role: "user", Content: b.Input}}
	}
	if b.Instructions != "" {
		content, _ := json.Marshal(b.Instructions)
		list = append([]message{{Role: "system", Content: content}}, list...)
	}
	return b.templated(list)
}

// textOf is the text of a string or of parts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(content, &parts)
	var all []string
	for _, p := range parts {
		if p.Content != nil {
			p.Text = textOf(p.Content) // a tool's result
		}
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}
