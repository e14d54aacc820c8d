package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Values are the fields of a message in the order of its file, secrets masked.
// Empty text and lists are left out, and so are the fields in quiet when they
// are zero.
func Values(m proto.Message, quiet ...protoreflect.FullName) Effective {
	d := describer{quiet: quiet}
	d.message(m.ProtoReflect(), "", "", "")
	return d.out
}

type describer struct {
	out   Effective
	heads []string // lines that wait for the first value below them
	quiet []protoreflect.FullName
}

// message adds the fields; the first line begins with lead, the others with
// indent.
func (d *describer) message(m protoreflect.Message, lead, indent, path string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) && (d.isSilent(fd) || slices.Contains(d.quiet, fd.FullName())) {
			continue
		}
		head, at := lead+string(fd.Name())+":", join(path, string(fd.Name()))
		written, waiting := len(d.out), len(d.heads)
		switch {
		case fd.IsList() && fd.Message() != nil:
			d.heads = append(d.heads, head)
			list := m.Get(fd).List()
			for j := range list.Len() {
				d.message(list.Get(j).Message(), indent+"  - ", indent+"    ", at+"["+strconv.Itoa(j)+"]")
			}
		case fd.Message() != nil:
			d.heads = append(d.heads, head)
			d.message(m.Get(fd).Message(), indent+"  ", indent+"  ", at)
		default:
			d.out = append(d.out, Value{Path: at, Value: text(fd, m.Get(fd)), heads: d.heads, key: head})
			d.heads = nil
		}
		if len(d.out) > written {
			lead = indent
		} else {
			d.heads = d.heads[:waiting] // nothing stands below the head
		}
	}
}

// isSilent reports whether an unset field says nothing.
func (d *describer) isSilent(fd protoreflect.FieldDescriptor) bool {
	return fd.IsList() || fd.HasPresence() || fd.Kind() == protoreflect.StringKind
}

// text is a scalar or a list of scalars.
func text(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if isSecret(fd) {
		return "(set)"
	}
	if !fd.IsList() {
		return one(fd, v)
	}
	list := v.List()
	items := make([]string, list.Len())
	for i := range items {
		items[i] = one(fd, list.Get(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func one(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s := shown(fd, v.String())
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || strings.ContainsRune(` "',[]{}#`, r) }) {
			return strconv.Quote(s)
		}
		return s
	case protoreflect.DoubleKind:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return v.String()
}

// Change is one difference between two messages.
type Change struct {
	// Field names the field without the names of list entries: "nodes.providers.capacity".
	Field string
	// Text is for people: "nodes[gx10].providers[vllm].capacity: 4 -> 2".
	Text string
}

// Diff lists how two messages of one type differ, in the order of the fields.
// Entries of lists are matched by what names them, not by their place, so a
// renamed entry is one removed and one added.
func Diff(before, after proto.Message) []Change {
	var d differ
	d.message(before.ProtoReflect(), after.ProtoReflect(), "", "")
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(field, path, format string, args ...any) {
	d.changes = append(d.changes, Change{Field: field, Text: path + ": " + fmt.Sprintf(format, args...)})
}

func (d *differ) message(a, b protoreflect.Message, field, path string) {
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		f, p := join(field, string(fd.Name())), join(path, string(fd.Name()))
		switch {
		case fd.IsList() && fd.Message() != nil:
			d.entries(a.Get(fd).List(), b.Get(fd).List(), f, p)
		case fd.Message() != nil:
			if a.Has(fd) || b.Has(fd) {
				d.message(a.Get(fd).Message(), b.Get(fd).Message(), f, p)
			}
		case a.Has(fd) == b.Has(fd) && a.Get(fd).Equal(b.Get(fd)):
		case isSecret(fd):
			d.add(f, p, "changed")
		default:
			d.add(f, p, "%s -> %s", state(fd, a), state(fd, b))
		}
	}
}

// state is a field's value, or "(none)".
func state(fd protoreflect.FieldDescriptor, m protoreflect.Message) string {
	if !m.Has(fd) && (fd.HasPresence() || fd.IsList() || fd.Kind() == protoreflect.StringKind) {
		return "(none)"
	}
	return text(fd, m.Get(fd))
}

// entries compares two lists of named messages.
func (d *differ) entries(a, b protoreflect.List, field, path string) {
	before, after := named(a), named(b)
	for _, name := range before.order {
		at := path + "[" + name + "]"
		if m, ok := after.byName[name]; ok {
			d.message(before.byName[name], m, field, at)
		} else {
			d.add(field, at, "removed")
		}
	}
	for _, name := range after.order {
		if _, ok := before.byName[name]; !ok {
			d.add(field, path+"["+name+"]", "added")
		}
	}
	kept := func(l, other entries) []string {
		return slices.DeleteFunc(slices.Clone(l.order), func(n string) bool { _, ok := other.byName[n]; return !ok })
	}
	if !slices.Equal(kept(before, after), kept(after, before)) {
		d.add(field, path, "order changed")
	}
}

type entries struct {
	order  []string
	byName map[string]protoreflect.Message
}

func named(l protoreflect.List) entries {
	e := entries{byName: map[string]protoreflect.Message{}}
	for i := range l.Len() {
		m := l.Get(i).Message()
		name := entryName(m)
		if _, taken := e.byName[name]; name == "" || taken {
			name = strconv.Itoa(i)
		}
		e.order = append(e.order, name)
		e.byName[name] = m
	}
	return e
}

// entryName is what names an entry of a list: its id, name or model, or the
// node and provider that it points to.
func entryName(m protoreflect.Message) string {
	get := func(name protoreflect.Name) string {
		fd := m.Descriptor().Fields().ByName(name)
		if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
			return ""
		}
		return m.Get(fd).String()
	}
	for _, name := range []protoreflect.Name{"id", "name", "model"} {
		if s := get(name); s != "" {
			return s
		}
	}
	return strings.TrimPrefix(get("node")+"/"+get("provider"), "/")
}
