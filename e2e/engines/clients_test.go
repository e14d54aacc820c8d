//go:build engines

package engines

import (
	"context"
)

// call is what an application asks a client library for.
type call struct {
	Model  string `json:"model"`
	Prompt string `json:"prompt"`
	Stream bool   `json:"stream,omitempty"`
	// Usage asks for the usage chunk of a stream.
	Usage bool `json:"usage,omitempty"`
	// MaxTokens bounds the answer; 0 = unbounded.
	MaxTokens int `json:"maxTokens,omitempty"`
	// AbortAfter breaks a stream off after that many chunks; 0 = never.
	AbortAfter int `json:"abortAfter,omitempty"`
}

// answer is what the library made of the reply.
type answer struct {
	Text   string `json:"text"`
	Finish string `json:"finish"`
	// Models holds each model name seen, once.
	Models           []string `json:"models"`
	Chunks           int      `json:"chunks"` // of a stream
	CompletionTokens int      `json:"completionTokens"`
	RequestID        string   `json:"requestId"`
	Aborted          bool     `json:"aborted"`
}

// refusal is how the library reports that the call was refused.
type refusal struct {
	// Kind is the class or type of the error in the library.
	Kind      string `json:"kind"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Type      string `json:"type"`
	Message   string `json:"message"`
	RequestID string `json:"requestId"`
}

// endpoint is where a client is pointed, and with which key.
type endpoint struct {
	baseURL string // with /v1
	key     string
}

// library is one real client library. None of them may retry by itself.
type library interface {
	name() string
	// ask makes one call that has to be answered.
	ask(ctx context.Context, at endpoint, c call) (answer, error)
	// askAll makes all calls at once and answers in their order.
	askAll(ctx context.Context, at endpoint, calls []call) ([]answer, error)
	// refused makes calls that have to be refused, each of them.
	refused(ctx context.Context, at endpoint, calls []call) ([]refusal, error)
	// models lists the catalogue's ids.
	models(ctx context.Context, at endpoint) ([]string, error)
}

func libraries() []library { return []library{openaiNode{}, openaiGo{}} }
