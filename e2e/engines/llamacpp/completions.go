package llamacpp

import (
	"fmt"
	"net/http"
	"time"
)

// completions is POST /v1/completions.
func (s *Server) completions(x *exchange, b body) error {
	a, err := b.text()
	if err != nil {
		return err
	}
	id := s.id()
	// object is one answer or chunk; more stands before its id.
	object := func(text, finish, more, after string) string {
		return fmt.Sprintf(`{"choices":[{"text":%s,"index":0,"logprobs":null,"finish_reason":%s}],"created":%d,"model":%s,`+
			`"system_fingerprint":%q,"object":"text_completion"%s,"id":"chatcmpl-%s"%s}`,
			quote(text), finish, time.Now().Unix(), quote(s.options.Alias), fingerprint, more, id, after)
	}
	var out *stream
	var each func(piece) bool
	if a.stream {
		out = &stream{x: x}
		each = func(p piece) bool {
			text := p.reasoning + p.text
			return text == "" || out.send("data: "+object(text, "null", "", "")+"\n\n")
		}
	}
	g, ok, err := s.run(x, a, each)
	if !ok {
		return err
	}
	used, speed := ","+usage(a.tokens, g.tokens()), ","+timings(a.tokens, g.tokens())
	if out == nil {
		x.reply(http.StatusOK, jsonType, object(g.reasoning()+g.text(), quote(g.finish), used, speed))
		return nil
	}
	out.send("data: " + object("", quote(g.finish), used, speed) + "\n\n")
	out.send("data: [DONE]\n\n")
	out.end()
	return nil
}

// native is POST /completion, llama.cpp's own, which has no [DONE].
func (s *Server) native(x *exchange, b body) error {
	a, err := b.text()
	if err != nil {
		return err
	}
	var out *stream
	var each func(piece) bool
	if a.stream {
		out = &stream{x: x}
		made := 0
		each = func(p piece) bool {
			made++
			t := tokenize(p.text)
			return len(t) == 0 || out.send(fmt.Sprintf("data: {\"index\":0,\"content\":%s,\"tokens\":[%d],\"stop\":false,\"id_slot\":-1,"+
				"\"tokens_predicted\":%d,\"tokens_evaluated\":%d}\n\n", quote(p.text), t[0].id, made, a.tokens))
		}
	}
	g, ok, err := s.run(x, a, each)
	if !ok {
		return err
	}
	text, kind := g.text(), "eos"
	switch {
	case g.finish == finishLength:
		kind = "limit"
	case g.stop != "":
		kind = "word"
	}
	if out != nil {
		text = ""
	}
	last := fmt.Sprintf(`{"index":0,"content":%s,"tokens":[],"id_slot":0,"stop":true,"model":%s,"tokens_predicted":%d,"tokens_evaluated":%d,`+
		`"generation_settings":%s,"prompt":%s,"has_new_line":false,"truncated":false,"stop_type":%q,"stopping_word":%s,"tokens_cached":%d,%s}`,
		quote(text), quote(s.options.Alias), g.tokens(), a.tokens, settings, quote("<s>"+a.prompt), kind, quote(g.stop), a.tokens+g.tokens()-1,
		timings(a.tokens, g.tokens()))
	if out == nil {
		x.reply(http.StatusOK, jsonType, last)
		return nil
	}
	out.send("data: " + last + "\n\n")
	out.end()
	return nil
}

// infill is refused: the model has no tokens for it.
func (s *Server) infill(*exchange, body) error {
	return unsupported("Infill is not supported by this model: prefix token is missing. suffix token is missing. middle token is missing. ")
}
