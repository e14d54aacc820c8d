package simulator

import (
	"net/http"
	"strings"
)

// message answers in the form of Anthropic's messages API.
func (s *Simulator) message(w http.ResponseWriter, r *http.Request) {
	started := s.clock.Now()
	req, id, breakOff, ok := s.accept(w, r)
	if !ok || !s.fits(w, r, req.promptTokens()) {
		return
	}
	words, finish := s.answer(req)
	reason := map[string]string{"stop": "end_turn", "length": "max_tokens"}[finish]
	usage := func(output int) map[string]int {
		return map[string]int{"input_tokens": req.promptTokens(), "output_tokens": output}
	}
	whole := map[string]any{
		"id": id, "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage(0),
	}
	if req.Stream {
		a := &streamed{w: w, rc: http.NewResponseController(w)}
		a.named("message_start", map[string]any{"type": "message_start", "message": whole})
		a.named("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": textBlock("")})
		s.speak(r, words, breakOff, func(_ int, word string) {
			delta := map[string]any{"type": "text_delta", "text": word}
			a.named("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": delta})
		})
		a.named("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
		end := map[string]any{"stop_reason": reason, "stop_sequence": nil}
		a.named("message_delta", map[string]any{"type": "message_delta", "delta": end, "usage": usage(len(words))})
		a.named("message_stop", map[string]any{"type": "message_stop"})
		return
	}
	if !s.pace(r.Context(), started, len(words)) {
		panic(http.ErrAbortHandler)
	}
	whole["content"] = []any{textBlock(strings.Join(words, ""))}
	whole["stop_reason"], whole["usage"] = reason, usage(len(words))
	if breakOff {
		s.breakOff(w, whole)
	}
	writeJSON(w, http.StatusOK, whole)
}

func textBlock(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

// countTokens answers what message would count, without answering it.
func (s *Simulator) countTokens(w http.ResponseWriter, r *http.Request) {
	req, _, breakOff, ok := s.accept(w, r)
	if !ok {
		return
	}
	count := map[string]int{"input_tokens": req.promptTokens()}
	if breakOff {
		s.breakOff(w, count)
	}
	writeJSON(w, http.StatusOK, count)
}
