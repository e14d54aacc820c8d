package normalize

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

var errNoJSON = errors.New("the provider sent an event that is not the JSON of its API")

// openAIReader reads chat.completion.chunk events, or one chat.completion.
type openAIReader struct {
	*events
	data    []byte // of an event whose end has not come
	pending bool   // data is an event's
	finish  *string
	done    bool // [DONE] has come
	// byIndex finds a tool call by the provider's number for it.
	byIndex map[int]*toolCall
	last    *toolCall
}

func newOpenAIReader(e *events) reader {
	return &openAIReader{events: e, byIndex: map[int]*toolCall{}}
}

type chatChunk struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Index        int       `json:"index"`
		Delta        chatDelta `json:"delta"`
		Message      chatDelta `json:"message"` // of a document
		FinishReason *string   `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens        uint64 `json:"prompt_tokens"`
		CompletionTokens    uint64 `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens uint64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionTokensDetails struct {
			ReasoningTokens uint64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
}

type chatDelta struct {
	Content          string `json:"content"`
	Refusal          string `json:"refusal"`
	ReasoningContent string `json:"reasoning_content"` // llama.cpp, vLLM, DeepSeek
	Reasoning        string `json:"reasoning"`         // newer vLLM, OpenRouter, Ollama; some send both
	ToolCalls        []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// line implements reader: server-sent events, of which only data and (of old
// llama.cpp) error matter; a document comes as one line.
func (r *openAIReader) line(line []byte) error {
	if r.done || r.over {
		return nil
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch {
	case len(line) == 0:
		return r.dispatch()
	case line[0] == '{':
		return r.event(line)
	case string(field) == "error":
		r.fail(0, value, 0)
		return nil
	case string(field) != "data":
		return nil
	}
	if r.pending {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(value) > LineLimit {
		return errors.New("the provider sent an event that is too large")
	}
	r.data, r.pending = append(r.data, value...), true
	return nil
}

// dispatch takes the event that an empty line ends.
func (r *openAIReader) dispatch() error {
	if !r.pending {
		return nil
	}
	err := r.event(r.data)
	r.data, r.pending = r.data[:0], false
	if cap(r.data) > keptLine {
		r.data = nil
	}
	return err
}

func (r *openAIReader) event(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return nil
	case string(data) == "[DONE]":
		r.done = true
		r.conclude()
		return nil
	}
	var c chatChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return errNoJSON
	}
	if c.Object == "error" || len(c.Error) > 0 && string(c.Error) != "null" {
		r.fail(statusIn(data), data, 0)
		return nil
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue // n is never asked for
		}
		for _, d := range []*chatDelta{&choice.Delta, &choice.Message} {
			if err := r.delta(d); err != nil {
				return err
			}
		}
		if choice.FinishReason != nil && *choice.FinishReason != "" {
			r.finish = choice.FinishReason
		}
	}
	if u := c.Usage; u != nil {
		r.usage = &inferencev1.Usage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
			CachedInputTokens: u.PromptTokensDetails.CachedTokens, ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens}
	}
	return nil
}

func (r *openAIReader) delta(d *chatDelta) error {
	if d.ReasoningContent != "" {
		r.reasoning(d.ReasoningContent)
	} else {
		r.reasoning(d.Reasoning)
	}
	r.text(d.Content)
	r.text(d.Refusal)
	for i := range d.ToolCalls {
		t := &d.ToolCalls[i]
		call, err := r.callOf(t.Index, t.ID)
		if err != nil {
			return err
		}
		if err := r.piece(call, t.ID, t.Function.Name, argumentsOf(t.Function.Arguments)); err != nil {
			return err
		}
	}
	return nil
}

// callOf finds the tool call that a piece belongs to. Without an index, a new id
// begins a new call.
func (r *openAIReader) callOf(index *int, id string) (*toolCall, error) {
	switch {
	case index != nil && r.byIndex[*index] != nil:
		return r.byIndex[*index], nil
	case index == nil && r.last != nil && (id == "" || id == r.last.id):
		return r.last, nil
	}
	call, err := r.tool()
	if err != nil {
		return nil, err
	}
	r.last = call
	if index != nil {
		r.byIndex[*index] = call
	}
	return call, nil
}

// argumentsOf is a piece of the arguments: a string, or of some servers an object.
func argumentsOf(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD") // which decoding has done to a string
}

// end takes an event without an empty line after it, which some servers send last.
func (r *openAIReader) end() error {
	err := r.dispatch()
	if err == nil {
		r.conclude()
	}
	return err
}

// conclude completes an answer that has a finish reason or an end marker.
func (r *openAIReader) conclude() {
	switch {
	case r.finish != nil:
		r.complete(*r.finish)
	case r.done:
		r.complete("")
	}
}

// statusIn finds the status that an error in a stream names, 0 if none.
func statusIn(data []byte) int {
	type coded struct {
		Code json.RawMessage `json:"code"`
	}
	var e struct {
		coded
		Error json.RawMessage `json:"error"`
	}
	var inner coded
	if json.Unmarshal(data, &e) != nil {
		return 0
	}
	_ = json.Unmarshal(e.Error, &inner) // an error may be a mere string
	for _, raw := range []json.RawMessage{inner.Code, e.Code} {
		var status int
		if json.Unmarshal(raw, &status) == nil && status >= 400 && status <= 599 {
			return status
		}
	}
	return 0
}
