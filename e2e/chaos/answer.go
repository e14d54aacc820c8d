//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
)

// order is what a client asks of a provider. It travels in the request body as
// the unknown field "chaos", which must reach the provider as it was sent.
type order struct {
	ID string `json:"id"`
	// Parts is how many parts the answer has before its checksum.
	Parts int `json:"parts"`
	// Pad is how many bytes each part is longer than its text.
	Pad int `json:"pad,omitempty"`
	// PauseMs is the time between two parts, in milliseconds.
	PauseMs int `json:"pause_ms,omitempty"`
}

// parts is the whole content of the answer: the id in each part, then a checksum
// over all of them.
func (o order) parts() []string {
	all := make([]string, 0, o.Parts+1)
	sum := crc32.NewIEEE()
	for i := range o.Parts {
		part := fmt.Sprintf("%s:%d/%d%s;", o.ID, i+1, o.Parts, strings.Repeat(".", o.Pad))
		sum.Write([]byte(part))
		all = append(all, part)
	}
	return append(all, fmt.Sprintf("crc=%08x", sum.Sum32()))
}

// content is what a client must have received when an answer looks complete.
func (o order) content() string { return strings.Join(o.parts(), "") }

// requestBody is a chat request with the order in it, at least size bytes long.
func requestBody(model string, stream bool, o order, size int) []byte {
	prompt := "go " + strings.Repeat("lorem ipsum ", max(size-300, 0)/12)
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": stream, "chaos": o,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		panic(err) // strings and numbers only
	}
	return body
}

// asked is the part of a request that a provider looks at.
type asked struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Chaos  order  `json:"chaos"`
}

func completion(target, content string) []byte {
	body, err := json.Marshal(map[string]any{
		"id": "c", "object": "chat.completion", "model": target,
		"choices": []map[string]any{{"index": 0, "message": map[string]string{"role": "assistant", "content": content}, "finish_reason": "stop"}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

// event is one server-sent event of a streamed answer; the last one of the
// content says that it is finished.
func event(target, content string, finish any) string {
	body, err := json.Marshal(map[string]any{
		"id": "c", "object": "chat.completion.chunk", "model": target,
		"choices": []map[string]any{{"index": 0, "delta": map[string]string{"content": content}, "finish_reason": finish}},
	})
	if err != nil {
		panic(err)
	}
	return "data: " + string(body) + "\n\n"
}
