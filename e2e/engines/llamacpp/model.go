package llamacpp

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Why an answer ended.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
)

// piece is what one token adds to the answer; all empty for a token that only
// belongs to the frame of a tool call.
type piece struct {
	text, reasoning string
	// name and arguments are those of a tool call.
	name, arguments string
}

// generation is an answer, token by token. It grows by more until that says no.
type generation struct {
	pieces []piece
	finish string
	// stop is the stop sequence that ended it, or "".
	stop string

	room     int // tokens at most
	counting bool
	last     int // number said
}

// tokens is how many were made, the one that ends the turn included.
func (g *generation) tokens() int {
	if g.finish == finishLength || g.stop != "" {
		return len(g.pieces)
	}
	return len(g.pieces) + 1
}

func (g *generation) text() string {
	return g.join(func(p piece) string { return p.text })
}

func (g *generation) reasoning() string {
	return g.join(func(p piece) string { return p.reasoning })
}

func (g *generation) arguments() string {
	return g.join(func(p piece) string { return p.arguments })
}

// tool is the name of the tool called, or "".
func (g *generation) tool() string {
	return g.join(func(p piece) string { return p.name })
}

func (g *generation) join(of func(piece) string) string {
	var b strings.Builder
	for _, p := range g.pieces {
		b.WriteString(of(p))
	}
	return b.String()
}

// following is the number after n; ok is false where the answer ends.
func following(n int) (next int, ok bool) {
	switch {
	case n == 899:
		return 500, true
	case n >= 900, n == 499, n > 0 && n <= 400 && n%100 == 0:
		return 0, false
	}
	return n + 1, true
}

// lastNumber is the number the prompt ends in; ok is false where it ends in
// another word.
func lastNumber(prompt string) (n int, ok bool) {
	words := strings.Fields(prompt)
	if len(words) == 0 {
		return 0, false
	}
	last := words[len(words)-1]
	n, err := strconv.Atoi(last)
	return n, err == nil && n >= 0 && n < 1000 && strconv.Itoa(n) == last
}

// generate begins the answer to a prompt, of room tokens at most.
func generate(prompt string, tools bool, schema json.RawMessage, stops []string, room int) *generation {
	g := &generation{finish: finishStop, room: room}
	n, known := lastNumber(prompt)
	switch {
	case schema != nil:
		for _, r := range leastJSON(schema) {
			g.pieces = append(g.pieces, piece{text: string(r)})
		}
	case known && n == 990 && tools:
		g.pieces = []piece{{}, {}, {name: "get_time", arguments: "{"}, {arguments: `"zone":`}, {arguments: ` "utc"}`}, {}, {}}
		g.finish = finishTools
	case known && n == 980:
		g.pieces = []piece{{}, {reasoning: " let"}, {reasoning: " me"}, {}, {text: " 1"}}
		g.counting, g.last = true, 1
	case known:
		g.counting, g.last = true, n
	default:
		g.pieces = []piece{{text: " 1"}}
		g.counting, g.last = true, 1
	}
	if len(g.pieces) >= room {
		g.pieces, g.finish, g.counting = g.pieces[:room], finishLength, false
	}
	if len(stops) > 0 {
		for g.more() {
		}
		g.cutAt(stops)
	}
	return g
}

// more adds the next number, and reports whether there was one.
func (g *generation) more() bool {
	if !g.counting {
		return false
	}
	next, ok := following(g.last)
	if !ok || len(g.pieces) == g.room {
		g.counting = false
		if ok {
			g.finish = finishLength
		}
		return false
	}
	g.last = next
	g.pieces = append(g.pieces, piece{text: " " + strconv.Itoa(next)})
	return true
}

// cutAt ends the answer before the first stop sequence in its text.
func (g *generation) cutAt(stops []string) {
	text, at := g.text(), -1
	for _, s := range stops {
		if i := strings.Index(text, s); s != "" && i >= 0 && (at < 0 || i < at) {
			at, g.stop = i, s
		}
	}
	if at < 0 {
		return
	}
	g.finish = finishStop
	end := 0
	for i, p := range g.pieces {
		if end+len(p.text) > at {
			g.pieces[i].text = p.text[:at-end] // its token was made all the same
			g.pieces = g.pieces[:i+1]
			return
		}
		end += len(p.text)
	}
}

// leastJSON is the shortest sensible value that fits a JSON schema, its members
// in the schema's order.
func leastJSON(schema json.RawMessage) string {
	var s struct {
		Type       string            `json:"type"`
		Const      json.RawMessage   `json:"const"`
		Enum       []json.RawMessage `json:"enum"`
		Properties json.RawMessage   `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s)
	switch {
	case s.Const != nil:
		return string(s.Const)
	case len(s.Enum) > 0:
		return string(s.Enum[0])
	}
	switch s.Type {
	case "integer", "number":
		return "1"
	case "boolean":
		return "false"
	case "string":
		return `"a"`
	case "array":
		return "[]"
	case "null":
		return "null"
	}
	var members []string
	for name, property := range ordered(s.Properties) {
		members = append(members, quote(name)+": "+leastJSON(property))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// ordered yields the members of a JSON object in their order.
func ordered(object json.RawMessage) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		d := json.NewDecoder(bytes.NewReader(object))
		if start, err := d.Token(); err != nil || start != json.Delim('{') {
			return
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return
			}
			var value json.RawMessage
			if d.Decode(&value) != nil || !yield(name.(string), value) {
				return
			}
		}
	}
}

// quote is text as JSON writes it, without the escapes that only HTML needs.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text)
	return strings.TrimSuffix(b.String(), "\n")
}
