package llamacpp

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// chat is POST /v1/chat/completions.
func (s *Server) chat(x *exchange, b body) error {
	a, err := b.chat(true)
	if err != nil {
		return err
	}
	if a.stream {
		return s.chatStream(x, a)
	}
	g, ok, err := s.run(x, a, nil)
	if !ok {
		return err
	}
	message := fmt.Sprintf(`{"role":"assistant","content":%s`, quote(g.text()))
	if r := g.reasoning(); r != "" {
		message += `,"reasoning_content":` + quote(r)
	}
	if name := g.tool(); name != "" {
		message += fmt.Sprintf(`,"tool_calls":[{"type":"function","function":{"name":%q,"arguments":%s},"id":%q}]`, name, quote(g.arguments()), s.id())
	}
	var choices []string
	for i := range a.n {
		choices = append(choices, fmt.Sprintf(`{"finish_reason":%q,"index":%d,"message":%s}}`, g.finish, i, message))
	}
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(
		`{"choices":[%s],"created":%d,"model":%s,"system_fingerprint":%q,"object":"chat.completion",%s,"id":"chatcmpl-%s",%s}`,
		strings.Join(choices, ","), time.Now().Unix(), quote(s.options.Alias), fingerprint, usage(a.tokens, g.tokens()), s.id(), timings(a.tokens, g.tokens())))
	return nil
}

func (s *Server) chatStream(x *exchange, a asked) error {
	out := &stream{x: x}
	id := s.id()
	// event is one chunk object: its choices, and more behind the fixed fields.
	event := func(choices, more string) string {
		return fmt.Sprintf("data: {\"choices\":[%s],\"created\":%d,\"id\":\"chatcmpl-%s\",\"model\":%s,\"system_fingerprint\":%q,"+
			"\"object\":\"chat.completion.chunk\"%s}\n\n", choices, time.Now().Unix(), id, quote(s.options.Alias), fingerprint, more)
	}
	delta := func(fields string) string {
		return event(`{"finish_reason":null,"index":0,"delta":{`+fields+`}}`, "")
	}
	role := delta(`"role":"assistant","content":null`)
	g, ok, err := s.run(x, a, func(p piece) bool {
		text := role // and the first text with it
		role = ""
		switch {
		case p.text != "":
			text += delta(`"content":` + quote(p.text))
		case p.reasoning != "":
			text += delta(`"reasoning_content":` + quote(p.reasoning))
		case p.name != "":
			text += delta(fmt.Sprintf(`"tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}]`,
				s.id(), p.name, quote(p.arguments)))
		case p.arguments != "":
			text += delta(fmt.Sprintf(`"tool_calls":[{"index":0,"function":{"arguments":%s}}]`, quote(p.arguments)))
		}
		return text == "" || out.send(text)
	})
	if !ok {
		return err
	}
	if role != "" { // an empty answer
		out.send(role)
	}
	last := fmt.Sprintf(`{"finish_reason":%q,"index":0,"delta":{}}`, g.finish)
	speed := "," + timings(a.tokens, g.tokens())
	if a.usage {
		out.send(event(last, "") + event("", ","+usage(a.tokens, g.tokens())+speed))
	} else {
		out.send(event(last, speed))
	}
	out.send("data: [DONE]\n\n")
	out.end()
	return nil
}
