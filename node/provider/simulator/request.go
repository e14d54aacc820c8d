package simulator

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// request is what the simulator reads of a request; everything else is ignored.
type request struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	System              text            `json:"system"`
	Instructions        text            `json:"instructions"`
	Prompt              text            `json:"prompt"`
	Input               json.RawMessage `json:"input"`
	Stream              bool            `json:"stream"`
	StreamOptions       streamOptions   `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MaxOutputTokens     *int            `json:"max_output_tokens"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role    string `json:"role"`
	Content text   `json:"content"`
}

// text is a string, or an array of strings or parts with a text field, or null.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var whole string
	if json.Unmarshal(raw, &whole) == nil {
		*t = text(whole)
		return nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return fmt.Errorf("a text must be a string or an array of parts")
	}
	var all []string
	for _, item := range items {
		var part struct {
			Text string `json:"text"`
		}
		switch {
		case json.Unmarshal(item, &whole) == nil:
			all = append(all, whole)
		case json.Unmarshal(item, &part) == nil:
			all = append(all, part.Text)
		default:
			return fmt.Errorf("a part of a text must be a string or an object")
		}
	}
	*t = text(strings.Join(all, " "))
	return nil
}

// tokens are the words of a text: the simulator's only notion of a token.
func (t text) tokens() []string { return strings.Fields(string(t)) }

// converse turns the input of the responses API into messages: a string, or an
// array of items, of which those with a text count.
func (r *request) converse() error {
	var one string
	if json.Unmarshal(r.Input, &one) == nil {
		r.Messages = []message{{Role: "user", Content: text(one)}}
		return nil
	}
	if err := json.Unmarshal(r.Input, &r.Messages); err != nil {
		return fmt.Errorf("input must be a string or an array of items")
	}
	return nil
}

// promptTokens counts the prompt, whatever the API calls its parts.
func (r *request) promptTokens() int {
	n := len(r.Prompt.tokens()) + len(r.System.tokens()) + len(r.Instructions.tokens())
	for _, m := range r.Messages {
		n += len(m.Content.tokens())
	}
	return n
}

// lastWords are the words that the answer repeats: those of the last user
// message, or of the prompt.
func (r *request) lastWords() []string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == "user" {
			return r.Messages[i].Content.tokens()
		}
	}
	return r.Prompt.tokens()
}

// limit is the number of answer tokens that the request allows; ok is false if it
// sets none.
func (r *request) limit() (n int, ok bool) {
	switch {
	case r.MaxCompletionTokens != nil:
		return max(*r.MaxCompletionTokens, 0), true
	case r.MaxOutputTokens != nil:
		return max(*r.MaxOutputTokens, 0), true
	case r.MaxTokens != nil && *r.MaxTokens >= 0:
		return *r.MaxTokens, true
	}
	return 0, false
}

// inputs are the texts to embed: one string, or an array of strings.
func (r *request) inputs() ([]text, error) {
	var one string
	if json.Unmarshal(r.Input, &one) == nil {
		return []text{text(one)}, nil
	}
	var many []text
	if err := json.Unmarshal(r.Input, &many); err != nil || len(many) == 0 {
		return nil, fmt.Errorf("input must be a string or an array of strings")
	}
	return many, nil
}

// vector is an embedding of eight dimensions and length 1.
func (t text) vector() []float64 {
	var v [8]float64
	norm := 0.0
	v[0] = 1
	for _, word := range t.tokens() {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(word))
		v[hash.Sum32()%8]++
	}
	for _, x := range v {
		norm += x * x
	}
	for i := range v {
		v[i] /= math.Sqrt(norm)
	}
	return v[:]
}
