package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// Migration is a file in its modern form.
type Migration struct {
	Text []byte
	// Changes are what differs, one line each, with places in the old file; none
	// when the file was modern already.
	Changes []string
}

// Migrate turns legacy queue values of providers into values of the pool (S06).
// Only the lines concerned are touched: comments, order and spelling of all
// others stay, byte for byte. The result means the same as the file did. Errors
// are those of [Parse], a conflict between legacy values among them, and a file
// that is written in a way that only people can edit.
func Migrate(path string, text []byte) (Migration, error) {
	before, err := ParseElsewhere(path, text)
	if err != nil {
		return Migration{}, err
	}
	e, err := newEditor(path, text)
	if err != nil {
		return Migration{}, err
	}
	e.removeLegacy()
	if len(e.changes) == 0 {
		return Migration{Text: text}, nil
	}
	for _, f := range legacyFields {
		_, values := (&rules{cfg: before.Config}).declared(f)
		if len(values) > 0 && !before.doc.Has("provider_pool."+f.name) {
			e.setPool(f.name, values[0]) // all of them are equal, or it would not parse
		}
	}
	out := e.apply()
	after, err := ParseElsewhere(path, out)
	if err != nil || !proto.Equal(withoutLegacy(before.Config), after.Config) {
		return Migration{}, e.byHand()
	}
	return Migration{Text: out, Changes: e.changes}, nil
}

func withoutLegacy(cfg *configv1.EdgeConfig) *configv1.EdgeConfig {
	cfg = proto.CloneOf(cfg)
	for _, n := range cfg.GetNodes() {
		for _, p := range n.GetProviders() {
			p.MaxQueue, p.QueueTimeoutMs = 0, 0
		}
	}
	return cfg
}

// editor changes the text of a file at the places of its YAML nodes.
type editor struct {
	path    string
	text    []byte
	lines   []int // where each line begins
	root    *yaml.Node
	edits   []edit
	pool    []string // "max_queue: 8", what is to be added to the pool
	changes []string
}

// edit replaces text[from:to].
type edit struct {
	from, to int
	with     string
}

// oddBreak is a line break for the YAML parser, which numbers the lines, and not
// for the editor, which finds them.
var oddBreak = regexp.MustCompile("\r[^\n]|\r$|[\u0085\u2028\u2029]")

func newEditor(path string, text []byte) (*editor, error) {
	if oddBreak.Match(text) {
		return nil, fmt.Errorf("%s has line breaks that are neither LF nor CRLF: save it with either, then migrate it", path)
	}
	e := &editor{path: path, text: text}
	begin := len(text) - len(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	e.lines = []int{begin}
	for i, c := range text {
		if c == '\n' {
			e.lines = append(e.lines, i+1)
		}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text[begin:], &doc); err != nil {
		return nil, fmt.Errorf("read %s as YAML: %w", path, err)
	}
	if len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode {
		e.root = doc.Content[0]
	}
	return e, nil
}

// offset is where a node begins; columns count characters.
func (e *editor) offset(n *yaml.Node) int {
	at := e.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(e.text[at:])
		at += size
	}
	return at
}

// lineEnd is where the line of an offset ends, its break included.
func (e *editor) lineEnd(at int) int {
	if i := bytes.IndexByte(e.text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(e.text)
}

// valueEnd is where a number, null or alias that begins at an offset ends.
func (e *editor) valueEnd(at int) int {
	end := at
	for end < len(e.text) && !bytes.ContainsRune([]byte(",}\r\n#"), rune(e.text[end])) {
		end++
	}
	return at + len(bytes.TrimRight(e.text[at:end], " \t"))
}

// removeLegacy takes the legacy keys out of every provider.
func (e *editor) removeLegacy() {
	if e.root == nil {
		return
	}
	done := map[int]bool{} // a mapping with an anchor stands in several places
	for i, n := range items(value(e.root, "nodes")) {
		for j, p := range items(value(n, "providers")) {
			for _, f := range legacyFields {
				key, val := entry(p, f.name)
				if key == nil || done[e.offset(key)] {
					continue
				}
				done[e.offset(key)] = true
				e.remove(p, key, val)
				e.changes = append(e.changes, fmt.Sprintf("%s:%d:%d: nodes[%d].providers[%d].%s: removed", e.path, key.Line, key.Column, i, j, f.name))
			}
		}
	}
}

// remove takes one key and its value out of a mapping.
func (e *editor) remove(m, key, val *yaml.Node) {
	at := e.offset(key)
	end := e.valueEnd(e.offset(val))
	i := slices.Index(m.Content, key)
	switch {
	case m.Style&yaml.FlowStyle != 0 && !onlyLegacy(m.Content[i+2:]):
		e.edits = append(e.edits, edit{at, e.offset(m.Content[i+2]), ""})
	case m.Style&yaml.FlowStyle != 0:
		before := bytes.TrimRight(e.text[:at], " \t\r\n,")
		e.edits = append(e.edits, edit{len(before), end, ""})
	case len(bytes.TrimLeft(e.text[e.lines[key.Line-1]:at], " ")) == 0:
		begin, next := e.lines[key.Line-1], e.lineEnd(end)
		if rest := bytes.TrimLeft(e.text[end:next], " \t"); bytes.HasPrefix(rest, []byte("#")) {
			begin, next = at, next-len(rest) // its comment stays
		}
		e.edits = append(e.edits, edit{begin, next, ""})
	case i+2 < len(m.Content) && len(bytes.TrimSpace(e.text[end:e.offset(m.Content[i+2])])) == 0:
		// First behind the dash of a list: the next key takes its place.
		e.edits = append(e.edits, edit{at, e.offset(m.Content[i+2]), ""})
	default:
		e.edits = append(e.edits, edit{at, end, ""})
	}
}

// onlyLegacy reports whether all of these keys go: then the comma before them
// goes as well.
func onlyLegacy(content []*yaml.Node) bool {
	for i := 0; i < len(content); i += 2 {
		if !slices.ContainsFunc(legacyFields, func(f legacyField) bool { return f.name == content[i].Value }) {
			return false
		}
	}
	return true
}

// setPool gives the pool a value that it does not have.
func (e *editor) setPool(name string, v uint32) {
	line := fmt.Sprintf("%s: %d", name, v)
	e.changes = append(e.changes, fmt.Sprintf("%s: provider_pool.%s", e.path, line))
	if _, val := entry(value(e.root, "provider_pool"), name); val != nil { // a written null
		at := e.offset(val)
		e.edits = append(e.edits, edit{at, at + len(val.Value), spaced(e.text, at, fmt.Sprint(v))})
		return
	}
	e.pool = append(e.pool, line)
}

// spaced puts a space before text that would touch a colon.
func spaced(text []byte, at int, word string) string {
	if at > 0 && text[at-1] == ':' {
		return " " + word
	}
	return word
}

// apply returns the text with all edits made.
func (e *editor) apply() []byte {
	if len(e.pool) > 0 {
		e.addToPool()
	}
	slices.SortStableFunc(e.edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, x := range e.edits {
		if x.from < at { // two neighbours in one list: the first took the space between them
			x.from = min(at, x.to)
		}
		out = append(append(out, e.text[at:x.from]...), x.with...)
		at = max(at, x.to)
	}
	return append(out, e.text[at:]...)
}

func (e *editor) addToPool() {
	newline := "\n"
	if bytes.Contains(e.text, []byte("\r\n")) {
		newline = "\r\n"
	}
	inline := strings.Join(e.pool, ", ")
	key, pool := entry(e.root, "provider_pool")
	switch {
	case key == nil && e.root.Style&yaml.FlowStyle != 0:
		at := e.offset(e.root) + 1
		e.edits = append(e.edits, edit{at, at, "provider_pool: {" + inline + "}, "})
	case key == nil:
		at := e.aboveLater()
		e.edits = append(e.edits, edit{at, at, "provider_pool:" + newline + "  " + strings.Join(e.pool, newline+"  ") + newline + newline})
	case pool.Kind == yaml.MappingNode && pool.Style&yaml.FlowStyle != 0:
		at := e.offset(pool) + 1
		if len(pool.Content) > 0 {
			inline += ", "
		}
		e.edits = append(e.edits, edit{at, at, inline})
	case pool.Kind == yaml.MappingNode:
		last := pool.Content[len(pool.Content)-1]
		indent := strings.Repeat(" ", pool.Content[0].Column-1)
		at := e.lineEnd(e.offset(last))
		with := indent + strings.Join(e.pool, newline+indent) + newline
		if at > 0 && e.text[at-1] != '\n' {
			with = newline + with
		}
		e.edits = append(e.edits, edit{at, at, with})
	default: // a null, written or not
		at := e.offset(pool)
		e.edits = append(e.edits, edit{at, at + len(pool.Value), spaced(e.text, at, "{"+inline+"}")})
	}
}

// aboveLater is where a pool belongs that the file does not have: above the keys
// that come after it in the example, and their comments.
func (e *editor) aboveLater() int {
	for i := 0; i < len(e.root.Content); i += 2 {
		k := e.root.Content[i]
		if k.Value != "openai" && k.Value != "models" && k.Value != "nodes" {
			continue
		}
		line := k.Line - 1
		for line > 0 && bytes.HasPrefix(e.text[e.lines[line-1]:], []byte("#")) {
			line--
		}
		return e.lines[line]
	}
	return e.lines[0]
}

// byHand says what people are to do.
func (e *editor) byHand() error {
	return configs.Problems{{File: e.path, Line: 1, Column: 1,
		Message: "the file cannot be edited without changing what it means (anchors, or comments inside brackets); do this by hand:\n  " + strings.Join(e.changes, "\n  ")}}
}

// value is the value of a key, aliases followed; nil when there is none.
func value(m *yaml.Node, key string) *yaml.Node {
	_, v := entry(m, key)
	return target(v)
}

// entry is a key of a mapping and its value.
func entry(m *yaml.Node, name string) (key, val *yaml.Node) {
	if m = target(m); m == nil || m.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// items are the entries of a list, aliases followed.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, len(n.Content))
	for i := range out {
		out[i] = target(n.Content[i])
	}
	return out
}

func target(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
