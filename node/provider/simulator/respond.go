package simulator

import (
	"net/http"
	"strings"
)

// respond answers in the form of OpenAI's responses API.
func (s *Simulator) respond(w http.ResponseWriter, r *http.Request) {
	started := s.clock.Now()
	req, id, breakOff, ok := s.accept(w, r)
	if !ok {
		return
	}
	if err := req.converse(); err != nil {
		writeError(w, r, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	if !s.fits(w, r, req.promptTokens()) {
		return
	}
	words, finish := s.answer(req)
	status := map[string]string{"stop": "completed", "length": "incomplete"}[finish]
	response := map[string]any{
		"id": id, "object": "response", "created_at": started.Unix(), "status": "in_progress", "model": req.Model, "output": []any{},
		"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": map[string]any{}, "parallel_tool_calls": true,
		"temperature": nil, "tool_choice": "auto", "tools": []any{}, "top_p": nil, "usage": nil,
	}
	item := func(status string, content ...any) map[string]any {
		if content == nil {
			content = []any{}
		}
		return map[string]any{"id": id + "-message", "type": "message", "status": status, "role": "assistant", "content": content}
	}
	part := func(text string) map[string]any {
		return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
	}
	end := func() {
		response["status"], response["output"] = status, []any{item(status, part(strings.Join(words, "")))}
		if finish == "length" {
			response["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
		}
		response["usage"] = map[string]any{
			"input_tokens": req.promptTokens(), "input_tokens_details": map[string]int{"cached_tokens": 0},
			"output_tokens": len(words), "output_tokens_details": map[string]int{"reasoning_tokens": 0},
			"total_tokens": req.promptTokens() + len(words),
		}
	}
	if !req.Stream {
		if !s.pace(r.Context(), started, len(words)) {
			panic(http.ErrAbortHandler)
		}
		end()
		if breakOff {
			s.breakOff(w, response)
		}
		writeJSON(w, http.StatusOK, response)
		return
	}
	a, number := &streamed{w: w, rc: http.NewResponseController(w)}, 0
	event := func(name string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = name, number
		number++
		a.named(name, fields)
	}
	within := func(fields map[string]any) map[string]any {
		fields["item_id"], fields["output_index"], fields["content_index"] = id+"-message", 0, 0
		return fields
	}
	event("response.created", map[string]any{"response": response})
	event("response.in_progress", map[string]any{"response": response})
	event("response.output_item.added", map[string]any{"output_index": 0, "item": item("in_progress")})
	event("response.content_part.added", within(map[string]any{"part": part("")}))
	s.speak(r, words, breakOff, func(_ int, word string) {
		event("response.output_text.delta", within(map[string]any{"delta": word}))
	})
	text := strings.Join(words, "")
	event("response.output_text.done", within(map[string]any{"text": text}))
	event("response.content_part.done", within(map[string]any{"part": part(text)}))
	event("response.output_item.done", map[string]any{"output_index": 0, "item": item(status, part(text))})
	end()
	event("response."+status, map[string]any{"response": response})
}
