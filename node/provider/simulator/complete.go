package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// form is what tells a chat from a completion on the wire.
type form struct {
	object, chunkObject string
	// full and delta are the choice fields of a whole answer and of one token;
	// first marks the first token.
	full  func(text string) (field string, value any)
	delta func(text string, first bool) (field string, value any)
}

var chatForm = form{
	object: "chat.completion", chunkObject: "chat.completion.chunk",
	full: func(text string) (string, any) {
		return "message", map[string]any{"role": "assistant", "content": text}
	},
	delta: func(text string, first bool) (string, any) {
		delta := map[string]any{}
		if first {
			delta["role"] = "assistant"
		}
		if text != "" || first {
			delta["content"] = text
		}
		return "delta", delta
	},
}

var completionForm = form{
	object: "text_completion", chunkObject: "text_completion",
	full:  func(text string) (string, any) { return "text", text },
	delta: func(text string, _ bool) (string, any) { return "text", text },
}

// complete answers a chat or a completion.
func (s *Simulator) complete(w http.ResponseWriter, r *http.Request, f form) {
	started := s.clock.Now()
	req, id, breakOff, ok := s.accept(w, r)
	if !ok || !s.fits(w, r, req.promptTokens()) {
		return
	}
	words, finish := s.answer(req)
	base := func(object string) map[string]any {
		return map[string]any{
			"id": id, "object": object, "created": started.Unix(),
			"model": req.Model, "system_fingerprint": Fingerprint,
		}
	}
	usage := map[string]int{
		"prompt_tokens": req.promptTokens(), "completion_tokens": len(words), "total_tokens": req.promptTokens() + len(words),
	}
	if req.Stream {
		a := &streamed{w: w, rc: http.NewResponseController(w)}
		s.stream(r, a, f, base, words, finish, breakOff)
		if req.StreamOptions.IncludeUsage {
			chunk := base(f.chunkObject)
			chunk["choices"], chunk["usage"] = []any{}, usage
			a.event(chunk)
		}
		a.done(r)
		return
	}
	if !s.pace(r.Context(), started, len(words)) {
		panic(http.ErrAbortHandler)
	}
	whole := base(f.object)
	field, value := f.full(strings.Join(words, ""))
	whole["choices"] = []any{map[string]any{"index": 0, field: value, "finish_reason": finish}}
	whole["usage"] = usage
	if breakOff {
		s.breakOff(w, whole)
	}
	writeJSON(w, http.StatusOK, whole)
}

// stream writes one event per token and one with the reason of the end.
func (s *Simulator) stream(r *http.Request, a *streamed, f form, base func(string) map[string]any, words []string, finish string, breakOff bool) {
	chunk := base(f.chunkObject)
	s.speak(r, words, breakOff, func(n int, word string) {
		field, value := f.delta(word, n == 0)
		chunk["choices"] = []any{map[string]any{"index": 0, field: value, "finish_reason": nil}}
		a.event(chunk)
	})
	field, value := f.delta("", false)
	chunk["choices"] = []any{map[string]any{"index": 0, field: value, "finish_reason": finish}}
	a.event(chunk)
}

// speak says each word when it is due. It ends the connection if the client has
// gone, and half-way if the answer is to break off.
func (s *Simulator) speak(r *http.Request, words []string, breakOff bool, say func(n int, word string)) {
	started := s.clock.Now()
	for n, word := range words {
		if !s.pace(r.Context(), started, n) || breakOff && n == (len(words)+1)/2 {
			panic(http.ErrAbortHandler)
		}
		say(n, word)
	}
	if breakOff {
		panic(http.ErrAbortHandler)
	}
}

// breakOff promises a whole answer, sends half of it and hangs up.
func (s *Simulator) breakOff(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("simulator: an answer cannot be written as JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// streamed is a server-sent event stream; its head goes with the first event.
type streamed struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	started bool
}

func (a *streamed) event(value any) { a.named("", value) }

// named writes an event whose name is its type, as the APIs without choices have them.
func (a *streamed) named(name string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("simulator: an event cannot be written as JSON: %v", err))
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	a.send(name, data)
}

func (a *streamed) send(name string, data []byte) {
	if !a.started {
		a.started = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-cache")
	}
	_, err := fmt.Fprintf(a.w, "%sdata: %s\n\n", name, data)
	if err == nil {
		err = a.rc.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// done ends the stream as OpenAI does.
func (a *streamed) done(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	a.send("", []byte("[DONE]"))
}

// embed answers with a vector per input that depends on the input's words only.
func (s *Simulator) embed(w http.ResponseWriter, r *http.Request) {
	req, _, breakOff, ok := s.accept(w, r)
	if !ok {
		return
	}
	inputs, err := req.inputs()
	if err != nil {
		writeError(w, r, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	data, tokens := []any{}, 0
	for i, input := range inputs {
		tokens += len(input.tokens())
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": input.vector()})
	}
	if !s.fits(w, r, tokens) {
		return
	}
	answer := map[string]any{
		"object": "list", "data": data, "model": req.Model, "system_fingerprint": Fingerprint,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens},
	}
	if breakOff {
		s.breakOff(w, answer)
	}
	writeJSON(w, http.StatusOK, answer)
}
