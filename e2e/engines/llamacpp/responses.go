package llamacpp

import (
	"fmt"
	"net/http"
	"time"
)

// responses is POST /v1/responses.
func (s *Server) responses(x *exchange, b body) error {
	a, err := b.response()
	if err != nil {
		return err
	}
	r := &response{server: s, id: "resp_" + s.id(), item: "msg_" + s.id(), call: "fc_" + s.id()}
	if a.stream {
		return r.stream(x, a)
	}
	g, ok, err := s.run(x, a, nil)
	if !ok {
		return err
	}
	now := time.Now().Unix()
	item := fmt.Sprintf(`{"content":[%s],"id":%q,"role":"assistant","status":"completed","type":"message"}`, outputText(g.text()), r.item)
	if g.tool() != "" {
		item = r.functionCall(g)
	}
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(
		`{"completed_at":%d,"created_at":%d,"id":%q,"model":%s,"object":"response","output":[%s],"status":"completed",%s}`,
		now, now, r.id, quote(s.options.Alias), item, responseUsage(a, g)))
	return nil
}

// response is one answer and the names of its parts.
type response struct {
	server         *Server
	id, item, call string
	out            *stream
	began          bool // the message, or the call
}

func outputText(text string) string {
	return fmt.Sprintf(`{"type":"output_text","annotations":[],"logprobs":[],"text":%s}`, quote(text))
}

func (r *response) functionCall(g *generation) string {
	return fmt.Sprintf(`{"type":"function_call","status":"completed","arguments":%s,"call_id":%q,"name":%q}`, quote(g.arguments()), r.call, g.tool())
}

func responseUsage(a asked, g *generation) string {
	return fmt.Sprintf(`"usage":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,"input_tokens_details":{"cached_tokens":0}}`,
		a.tokens, g.tokens(), a.tokens+g.tokens())
}

// event is one server-sent event: its type stands before it and in it.
func event(kind, format string, args ...any) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, fmt.Sprintf(format, args...))
}

func (r *response) stream(x *exchange, a asked) error {
	r.out = &stream{x: x}
	start := ""
	for _, kind := range []string{"response.created", "response.in_progress"} {
		start += event(kind, `,"response":{"id":%q,"object":"response","status":"in_progress"}`, r.id)
	}
	g, ok, err := r.server.run(x, a, func(p piece) bool {
		text := start + r.piece(p)
		start = ""
		return text == "" || r.out.send(text)
	})
	if !ok {
		return err
	}
	item := fmt.Sprintf(`{"type":"message","status":"completed","id":%q,"content":[%s],"role":"assistant"}`, r.item, outputText(g.text()))
	last := start
	if g.tool() != "" {
		item = r.functionCall(g)
	} else {
		last += r.begin()
		last += event("response.output_text.done", `,"item_id":%q,"text":%s`, r.item, quote(g.text()))
		last += event("response.content_part.done", `,"item_id":%q,"part":%s`, r.item, outputText(g.text()))
	}
	last += event("response.output_item.done", `,"item":%s`, item)
	last += event("response.completed", `,"response":{"id":%q,"object":"response","created_at":%d,"status":"completed","model":%s,"output":[%s],%s},%s`,
		r.id, time.Now().Unix(), quote(r.server.options.Alias), item, responseUsage(a, g), timings(a.tokens, g.tokens()))
	r.out.send(last)
	r.out.end() // no [DONE]
	return nil
}

// begin opens the message, once.
func (r *response) begin() string {
	if r.began {
		return ""
	}
	r.began = true
	return event("response.output_item.added", `,"item":{"content":[],"id":%q,"role":"assistant","status":"in_progress","type":"message"}`, r.item) +
		event("response.content_part.added", `,"item_id":%q,"part":{"type":"output_text","text":""}`, r.item)
}

func (r *response) piece(p piece) string {
	switch {
	case p.text != "":
		return r.begin() + event("response.output_text.delta", `,"item_id":%q,"delta":%s`, r.item, quote(p.text))
	case p.name != "":
		r.began = true
		return event("response.output_item.added", `,"item":{"arguments":"","call_id":%q,"name":%q,"type":"function_call","status":"in_progress"}`,
			r.call, p.name) + r.arguments(p)
	case p.arguments != "":
		return r.arguments(p)
	}
	return ""
}

func (r *response) arguments(p piece) string {
	return event("response.function_call_arguments.delta", `,"delta":%s,"item_id":%q`, quote(p.arguments), r.call)
}
