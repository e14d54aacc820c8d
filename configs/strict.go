package configs

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxAliasNodes bounds how many nodes aliases may add to a file.
const maxAliasNodes = 200_000

// strict judges the YAML nodes against a message and leaves behind only what
// can be set: nulls, aliases and everything wrong are gone.
type strict struct {
	doc      *Document
	root     protoreflect.MessageDescriptor // of the whole file
	problems Problems
	budget   int // nodes that aliases may still add
}

// key adds a problem of a key in the mapping at path.
func (s *strict) key(path string, n *yaml.Node, format string, args ...any) {
	p := Problem{File: s.doc.File, Line: n.Line, Column: n.Column, Path: path, OfKey: true, Message: fmt.Sprintf(format, args...)}
	if n.Kind == yaml.ScalarNode {
		p.Path = join(path, strings.Trim(quote(n.Value), `"`))
	}
	s.problems = append(s.problems, p)
}

// value adds a problem of the value at path.
func (s *strict) value(path string, n *yaml.Node, format string, args ...any) {
	s.doc.broken[path] = true
	s.problems = append(s.problems, Problem{File: s.doc.File, Line: n.Line, Column: n.Column, Path: path, Message: fmt.Sprintf(format, args...)})
}

// message judges a mapping. False means that the node cannot be used at all.
func (s *strict) message(n *yaml.Node, md protoreflect.MessageDescriptor, path string) bool {
	if n.Kind != yaml.MappingNode {
		s.value(path, n, "found %s%s; expected keys: %s", describeNode(n, holdsSecret(md)), spaceHint(n), strings.Join(keys(md), ", "))
		return false
	}
	var kept []*yaml.Node
	var slips []string // keys that were probably meant by unknown ones
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := s.expand(n.Content[i], path), s.expand(n.Content[i+1], path)
		if k == nil || v == nil {
			continue
		}
		fd, meant := s.field(k, md, path)
		if meant != "" {
			slips = append(slips, meant)
		}
		if fd == nil {
			continue
		}
		name := string(fd.Name())
		if first, ok := seen[name]; ok {
			s.key(path, k, "duplicate key %q%s (first on line %d)", name, in(path), first)
			continue
		}
		seen[name] = k.Line
		at := join(path, name)
		s.doc.places[at] = placeOf(k, v)
		if isNull(v) {
			delete(s.doc.places, at)
			continue
		}
		if s.content(v, fd, at) {
			kept = append(kept, k, v)
		}
	}
	for _, name := range slips {
		if seen[name] == 0 {
			s.doc.broken[join(path, name)] = true // it is not also missing
		}
	}
	n.Content = kept
	return true
}

// field finds the field that a key names, or complains; meant is then the key
// that was probably meant, if any is near.
func (s *strict) field(k *yaml.Node, md protoreflect.MessageDescriptor, path string) (fd protoreflect.FieldDescriptor, meant string) {
	switch {
	case k.Kind != yaml.ScalarNode:
		s.key(path, k, "found %s as a key%s; expected one of: %s", describeNode(k, false), in(path), strings.Join(keys(md), ", "))
		return nil, ""
	case k.ShortTag() == "!!merge":
		s.key(path, k, "found a merge key (<<)%s; merge keys are not read: write the keys out", in(path))
		return nil, ""
	}
	if fd := md.Fields().ByName(protoreflect.Name(k.Value)); fd != nil {
		return fd, ""
	}
	if near, ok := Nearest(k.Value, keys(md)); ok {
		s.key(path, k, "unknown key %s (did you mean %q?)%s", quote(k.Value), near, in(path))
		return nil, near
	}
	home := ""
	if at := owner(s.root, protoreflect.Name(k.Value), map[protoreflect.FullName]bool{}); at != "" {
		home = "; it is a key of " + at
	}
	s.key(path, k, "unknown key %s%s%s (allowed here: %s)", quote(k.Value), in(path), home, strings.Join(keys(md), ", "))
	return nil, ""
}

// owner is the first place, such as "nodes[].providers[]", that has a key of
// that name; "" when none has below the file's own keys.
func owner(md protoreflect.MessageDescriptor, name protoreflect.Name, seen map[protoreflect.FullName]bool) string {
	if seen[md.FullName()] {
		return ""
	}
	seen[md.FullName()] = true
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Message() == nil {
			continue
		}
		at := string(fd.Name())
		if fd.IsList() {
			at += "[]"
		}
		if fd.Message().Fields().ByName(name) != nil {
			return at
		}
		if below := owner(fd.Message(), name, seen); below != "" {
			return at + "." + below
		}
	}
	return ""
}

// content judges the value of a key.
func (s *strict) content(v *yaml.Node, fd protoreflect.FieldDescriptor, path string) bool {
	if !fd.IsList() {
		return s.one(v, fd, path)
	}
	if v.Kind != yaml.SequenceNode {
		s.value(path, v, `found %s; expected a list: entries on lines of their own that begin with "- ", or all of them in [ ]`, describeNode(v, isSecret(fd) || fd.Message() != nil && holdsSecret(fd.Message())))
		return false
	}
	whole := true
	for i, item := range v.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		item = s.expand(item, path)
		if item == nil {
			return false
		}
		v.Content[i] = item
		s.doc.places[at] = place{item.Line, item.Column}
		good := false
		if isNull(item) {
			s.value(at, item, "an empty entry; remove it or fill it in")
		} else {
			good = s.one(item, fd, at)
		}
		if !good && fd.Message() != nil {
			// Without it the numbers of what follows would shift.
			v.Content[i] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: item.Line, Column: item.Column}
			continue
		}
		whole = whole && good
	}
	return whole
}

// one judges a single value.
func (s *strict) one(v *yaml.Node, fd protoreflect.FieldDescriptor, path string) bool {
	if fd.Message() != nil {
		return s.message(v, fd.Message(), path)
	}
	if wrong := scalar(v, fd); wrong != "" {
		s.value(path, v, "%s", wrong)
		return false
	}
	return true
}

// scalar judges a single value that is no message, and spells numbers the way
// protoyaml reads them. It returns what is wrong.
func scalar(v *yaml.Node, fd protoreflect.FieldDescriptor) string {
	found, tag := describeNode(v, isSecret(fd)), v.ShortTag()
	if v.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if tag != "!!bool" {
			return fmt.Sprintf("found %s; expected true or false", found)
		}
	case protoreflect.StringKind:
		switch tag {
		case "!!str", "!!int", "!!float", "!!timestamp": // the text counts, as written
		case "!!bool":
			return fmt.Sprintf("found %s; expected text: put it in quotes", found)
		default:
			return fmt.Sprintf("found %s; expected text", found)
		}
	case protoreflect.DoubleKind:
		f, err := strconv.ParseFloat(v.Value, 64)
		if tag != "!!int" && tag != "!!float" || err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Sprintf("found %s; expected a finite number%s", found, unquoteHint(v))
		}
	default:
		return whole(v, tag, found, fd)
	}
	return ""
}

// whole judges a whole number and its range.
func whole(v *yaml.Node, tag, found string, fd protoreflect.FieldDescriptor) string {
	digits := strings.TrimPrefix(strings.TrimPrefix(v.Value, "-"), "+")
	switch {
	case tag == "!!float" && len(digits) >= 19 && strings.Trim(digits, "0123456789") == "":
		return fmt.Sprintf("found %s; that is too large", found)
	case tag != "!!int":
		return fmt.Sprintf("found %s; expected a whole number%s%s", found, unit(fd), unquoteHint(v))
	case len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9':
		return fmt.Sprintf("found %s; write it without leading zeros", found)
	}
	text := strings.ReplaceAll(v.Value, "_", "")
	lo, hi := int64(0), uint64(math.MaxUint64)
	switch fd.Kind() {
	case protoreflect.Int32Kind:
		lo, hi = math.MinInt32, math.MaxInt32
	case protoreflect.Int64Kind:
		lo, hi = math.MinInt64, math.MaxInt64
	case protoreflect.Uint32Kind:
		hi = math.MaxUint32
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && n < 0 {
		if n < lo {
			return fmt.Sprintf("found %s; expected at least %d", found, lo)
		}
		v.Value = strconv.FormatInt(n, 10)
		return ""
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 0, 64)
	if err != nil || n > hi {
		return fmt.Sprintf("found %s; expected a whole number from %d to %d", found, lo, hi)
	}
	v.Value = strconv.FormatUint(n, 10)
	return ""
}

// expand returns a copy of what an alias stands for, so that it can be judged
// at its own place in the message; nil when aliases add too much.
func (s *strict) expand(n *yaml.Node, path string) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		if s.budget <= 0 {
			return nil
		}
		at := n
		n = s.clone(n.Alias)
		if n == nil {
			s.key(path, at, "aliases (*%s) add more than %d entries to the file", at.Value, maxAliasNodes)
			return nil
		}
	}
	return n
}

func (s *strict) clone(n *yaml.Node) *yaml.Node {
	if s.budget--; s.budget < 0 {
		return nil
	}
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		if c.Content[i] = s.clone(child); c.Content[i] == nil {
			return nil
		}
	}
	return &c
}

// placeOf is the value's place, or the key's when a block begins below it.
func placeOf(k, v *yaml.Node) place {
	if v.Line != k.Line && v.Kind != yaml.ScalarNode {
		return place{k.Line, k.Column}
	}
	return place{v.Line, v.Column}
}

// in says which mapping a key stands in.
func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

func keys(md protoreflect.MessageDescriptor) []string {
	fields := md.Fields()
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// describeNode says what stands in the file; never a secret.
func describeNode(n *yaml.Node, secret bool) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case secret:
		return fmt.Sprintf("a value of %d characters (not shown)", len([]rune(n.Value)))
	case n.ShortTag() == "!!str":
		return "the text " + quote(n.Value)
	case isNull(n):
		return "nothing"
	case len(n.Value) <= 40:
		return n.Value
	}
	return quote(n.Value)
}

// unit says what a number counts, by the ending of its key.
func unit(fd protoreflect.FieldDescriptor) string {
	name := string(fd.Name())
	for _, u := range [][2]string{{"_ms", "milliseconds"}, {"_sec", "seconds"}, {"_bytes", "bytes"}, {"_tokens", "tokens"}} {
		if strings.HasSuffix(name, u[0]) {
			return " of " + u[1]
		}
	}
	return ""
}

// spaceHint explains text that was meant to be a key with a value.
func spaceHint(n *yaml.Node) string {
	if key, value, found := strings.Cut(n.Value, ":"); n.Kind == yaml.ScalarNode && found && key != "" && value != "" && value[0] != '/' && !strings.ContainsAny(key, " .") {
		return " (a space is missing after the colon)"
	}
	return ""
}

func unquoteHint(v *yaml.Node) string {
	if v.Kind != yaml.ScalarNode || v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		return ""
	}
	if _, err := strconv.ParseFloat(v.Value, 64); err != nil {
		return ""
	}
	return " without quotes"
}
