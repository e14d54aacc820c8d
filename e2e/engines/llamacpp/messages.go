package llamacpp

import (
	"fmt"
	"net/http"
	"strings"
)

// messages is POST /v1/messages.
func (s *Server) messages(x *exchange, b body) error {
	a, err := b.chat(false)
	if err != nil {
		return err
	}
	if a.stream {
		return s.messageStream(x, a)
	}
	g, ok, err := s.run(x, a, nil)
	if !ok {
		return err
	}
	var content []string
	if r := g.reasoning(); r != "" {
		content = append(content, fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":""}`, quote(r)))
	}
	if text := g.text(); text != "" {
		content = append(content, fmt.Sprintf(`{"type":"text","text":%s}`, quote(text)))
	}
	if name := g.tool(); name != "" {
		content = append(content, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, s.id(), name, g.arguments()))
	}
	reason, sequence := stopReason(g)
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(
		`{"id":"chatcmpl-%s","type":"message","role":"assistant","content":[%s],"model":%s,"stop_reason":%q,"stop_sequence":%s,`+
			`"usage":{"cache_read_input_tokens":0,"input_tokens":%d,"output_tokens":%d}}`,
		s.id(), strings.Join(content, ","), quote(s.options.Alias), reason, sequence, a.tokens, g.tokens()))
	return nil
}

// stopReason is the finish in this dialect.
func stopReason(g *generation) (reason, sequence string) {
	switch {
	case g.finish == finishLength:
		return "max_tokens", "null"
	case g.finish == finishTools:
		return "tool_use", "null"
	case g.stop != "":
		return "stop_sequence", quote(g.stop)
	}
	return "end_turn", "null"
}

// messageTokens is POST /v1/messages/count_tokens.
func (s *Server) messageTokens(x *exchange, b body) error {
	a, err := b.chat(false)
	if err != nil {
		return err
	}
	x.reply(http.StatusOK, jsonType, fmt.Sprintf(`{"input_tokens":%d}`, a.tokens))
	return nil
}

func (s *Server) messageStream(x *exchange, a asked) error {
	out := &stream{x: x}
	start := event("message_start", `,"message":{"id":"chatcmpl-%s","type":"message","role":"assistant","content":[],"model":%s,"stop_reason":null,`+
		`"stop_sequence":null,"usage":{"cache_read_input_tokens":0,"input_tokens":%d,"output_tokens":0}}`, s.id(), quote(s.options.Alias), a.tokens)
	blocks := &blocks{server: s, index: -1}
	g, ok, err := s.run(x, a, func(p piece) bool {
		text := start + blocks.piece(p)
		start = ""
		return text == "" || out.send(text)
	})
	if !ok {
		return err
	}
	reason, sequence := stopReason(g)
	out.send(start + blocks.end() +
		event("message_delta", `,"delta":{"stop_reason":%q,"stop_sequence":%s},"usage":{"output_tokens":%d}`, reason, sequence, g.tokens()) +
		event("message_stop", ""))
	out.end() // no [DONE]
	return nil
}

// blocks are the content blocks of one stream.
type blocks struct {
	server *Server
	index  int
	kind   string // of the open one, or ""
}

func (b *blocks) piece(p piece) string {
	switch {
	case p.text != "":
		return b.open("text", `"text":""`) + b.delta("text_delta", "text", p.text)
	case p.reasoning != "":
		return b.open("thinking", `"thinking":""`) + b.delta("thinking_delta", "thinking", p.reasoning)
	case p.name != "":
		return b.open("tool_use", fmt.Sprintf(`"id":%q,"name":%q`, b.server.id(), p.name)) + b.delta("input_json_delta", "partial_json", p.arguments)
	case p.arguments != "":
		return b.delta("input_json_delta", "partial_json", p.arguments)
	}
	return ""
}

// open begins a block of this kind, unless one is open.
func (b *blocks) open(kind, fields string) string {
	if b.kind == kind {
		return ""
	}
	text := b.end()
	b.kind = kind
	b.index++
	return text + event("content_block_start", `,"index":%d,"content_block":{"type":%q,%s}`, b.index, kind, fields)
}

func (b *blocks) delta(kind, field, text string) string {
	return event("content_block_delta", `,"index":%d,"delta":{"type":%q,%q:%s}`, b.index, kind, field, quote(text))
}

// end closes the open block.
func (b *blocks) end() string {
	text := ""
	switch b.kind {
	case "":
		return ""
	case "thinking":
		text = b.delta("signature_delta", "signature", "")
	}
	b.kind = ""
	return text + event("content_block_stop", `,"index":%d`, b.index)
}
