//go:build engines

package engines

import (
	"context"
	"encoding/json"
	"fmt"
)

// ask is what a scenario asks a client for. A client uses what it needs of it.
type ask struct {
	Model  string   `json:"model"`
	Prompt string   `json:"prompt,omitempty"`
	Inputs []string `json:"inputs,omitempty"` // of embeddings
	// MaxTokens bounds the answer; 0 = unbounded.
	MaxTokens int `json:"maxTokens,omitempty"`
	// AbortAfter breaks a stream off after that many pieces of text; 0 = never.
	AbortAfter int `json:"abortAfter,omitempty"`
	// Retries is how often the library may try again by itself.
	Retries int `json:"retries,omitempty"`
}

// seen is what an application sees of one scenario. What a library does not tell
// is left at its zero value.
type seen struct {
	Text   string   `json:"text"`
	Finish string   `json:"finish"`
	Models []string `json:"models"`
	Tools  []struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"tools"`
	Object  json.RawMessage `json:"object"` // of structured output
	Input   int             `json:"input"`  // tokens, by the usage
	Output  int             `json:"output"`
	Chunks  int             `json:"chunks"` // pieces of text of a stream
	Dims    []int           `json:"dims"`   // length of each embedding
	IDs     []string        `json:"ids"`
	Aborted bool            `json:"aborted"`
	Error   *refusal        `json:"error"`
	// Attempts are the library's own HTTP requests, answered ones, in order.
	Attempts []attempt `json:"attempts"`
}

type attempt struct {
	Status     int `json:"status"`
	RetryAfter int `json:"retryAfter"` // s
	Pause      int `json:"pause"`      // ms since the answer before
}

func (s seen) statuses() []int {
	var all []int
	for _, a := range s.Attempts {
		all = append(all, a.Status)
	}
	return all
}

// client is one real client library with the words it has for things.
type client struct {
	// run drives one scenario. attempted is called with the status of each HTTP
	// answer as it comes; it may be nil.
	run func(ctx context.Context, at endpoint, scenario string, a ask, attempted func(status int)) (seen, error)
	// stop, length and tool are the finish reasons.
	stop, length, tool string
	// notFound, unauthorized and invalid are the classes of its errors for 404, 401 and 400.
	notFound, unauthorized, invalid string
	// plain says that it reports only status and message of an error.
	plain bool
	// anthropic says that it reads the errors of the messages API.
	anthropic bool
}

var clients = map[string]client{
	"openai (npm)": {
		run: script("openai-endpoints.mjs"), stop: "stop", length: "length", tool: "tool_calls",
		notFound: "NotFoundError", unauthorized: "AuthenticationError", invalid: "BadRequestError",
	},
	"@anthropic-ai/sdk": {
		run: script("anthropic.mjs"), stop: "end_turn", length: "max_tokens", tool: "tool_use", anthropic: true,
		notFound: "NotFoundError", unauthorized: "AuthenticationError", invalid: "BadRequestError",
	},
	"ai + @ai-sdk/openai-compatible": {
		run: script("aisdk.mjs"), stop: "stop", length: "length", tool: "tool-calls",
		notFound: "APICallError", unauthorized: "APICallError", invalid: "APICallError",
	},
	"@langchain/openai": {
		run: script("langchain.mjs"), stop: "stop", length: "length", tool: "tool_calls",
		notFound: "NotFoundError", unauthorized: "AuthenticationError", invalid: "BadRequestError",
	},
	"ollama (npm)": {
		run: script("ollama.mjs"), stop: "stop", length: "length", tool: "stop",
		notFound: "ResponseError", unauthorized: "ResponseError", invalid: "ResponseError", plain: true,
	},
}

// script is an application of a npm package.
func script(name string) func(context.Context, endpoint, string, ask, func(int)) (seen, error) {
	return func(ctx context.Context, at endpoint, scenario string, a ask, attempted func(int)) (seen, error) {
		app, err := nodeApp(ctx, name, at)
		if err != nil {
			return seen{}, err
		}
		s, err := app.play(scenario, a, attempted)
		if err != nil {
			return seen{}, fmt.Errorf("node %s %s: %w", name, scenario, err)
		}
		return s, nil
	}
}
