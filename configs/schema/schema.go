package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Of is the JSON Schema (draft 7, which editors know best) of a file that holds
// one message, indented, with a line break at the end.
func Of(md protoreflect.MessageDescriptor) ([]byte, error) {
	w := &writer{done: map[protoreflect.FullName]bool{}}
	root := append(object{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", string(md.Name())}}, w.message(md, true)...)
	root = append(root, member{"definitions", w.definitions})
	packed, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write the schema of %s: %w", md.FullName(), err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, packed, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the schema of %s: %w", md.FullName(), err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// object is a JSON object that keeps the order of its members: that of the file.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := encoder.Encode(m.key); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := encoder.Encode(m.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

type writer struct {
	definitions object
	done        map[protoreflect.FullName]bool
}

// message is the schema of keys and values; a whole file may be empty.
func (w *writer) message(md protoreflect.MessageDescriptor, root bool) object {
	var properties object
	var required []string
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		rules := rulesOf(fd)
		if isRequired(fd, rules) {
			required = append(required, string(fd.Name()))
		}
		properties = append(properties, member{string(fd.Name()), w.field(fd, rules)})
	}
	out := object{{"description", comment(md)}, {"type", "object"}}
	if root && len(required) == 0 {
		out[1].value = []string{"object", "null"}
	}
	out = append(out, member{"additionalProperties", false}, member{"properties", properties})
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	return out
}

// field is the schema of one value.
func (w *writer) field(fd protoreflect.FieldDescriptor, rules *validate.FieldRules) object {
	out := object{{"description", comment(fd)}}
	if strings.HasPrefix(comment(fd), "Legacy:") {
		out = append(out, member{"deprecated", true})
	}
	null := !isRequired(fd, rules)
	switch {
	case fd.IsList():
		out = append(out, member{"type", typeOf("array", null)})
		if most := rules.GetRepeated().GetMaxItems(); most > 0 {
			out = append(out, member{"maxItems", most})
		}
		return append(out, member{"items", w.item(fd, rules.GetRepeated().GetItems())})
	case fd.Message() != nil && null:
		return append(out, member{"anyOf", []object{w.reference(fd.Message()), {{"type", "null"}}}})
	case fd.Message() != nil:
		return append(out, member{"allOf", []object{w.reference(fd.Message())}})
	}
	return append(out, scalar(fd, rules, null)...)
}

// item is the schema of an entry of a list, which is never null.
func (w *writer) item(fd protoreflect.FieldDescriptor, rules *validate.FieldRules) object {
	if fd.Message() != nil {
		return w.reference(fd.Message())
	}
	return scalar(fd, rules, false)
}

// reference points to the schema of a message, which it writes once.
func (w *writer) reference(md protoreflect.MessageDescriptor) object {
	name := string(md.Name())
	if !w.done[md.FullName()] {
		w.done[md.FullName()] = true
		at := len(w.definitions)
		w.definitions = append(w.definitions, member{name, nil})
		w.definitions[at].value = w.message(md, false)
	}
	return object{{"$ref", "#/definitions/" + name}}
}

func scalar(fd protoreflect.FieldDescriptor, rules *validate.FieldRules, null bool) object {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return object{{"type", typeOf("boolean", null)}}
	case protoreflect.StringKind:
		return text(rules.GetString(), null)
	case protoreflect.DoubleKind:
		low, high := bounds(rules.GetDouble(), math.Inf(-1), math.Inf(1))
		return ranged("number", low, high, null)
	case protoreflect.Int32Kind:
		low, high := bounds(rules.GetInt32(), math.MinInt32, math.MaxInt32)
		return ranged("integer", low, high, null)
	case protoreflect.Int64Kind:
		low, high := bounds(rules.GetInt64(), math.Inf(-1), math.Inf(1))
		return ranged("integer", low, high, null)
	case protoreflect.Uint32Kind:
		low, high := bounds(rules.GetUint32(), 0, math.MaxUint32)
		return ranged("integer", low, high, null)
	default: // 64 bits have no limit that a file gets near
		low, high := bounds(rules.GetUint64(), 0, math.Inf(1))
		return ranged("integer", low, high, null)
	}
}

// bounds are the limits of a rule within those of its type.
func bounds(rules proto.Message, low, high float64) (float64, float64) {
	m := rules.ProtoReflect()
	if !m.IsValid() {
		return low, high
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch fd.Name() {
		case "gte":
			low = max(low, number(v))
		case "lte":
			high = min(high, number(v))
		}
		return true
	})
	return low, high
}

func number(v protoreflect.Value) float64 {
	switch n := v.Interface().(type) {
	case int32:
		return float64(n)
	case int64:
		return float64(n)
	case uint32:
		return float64(n)
	case uint64:
		return float64(n)
	}
	return v.Float()
}

func ranged(kind string, low, high float64, null bool) object {
	out := object{{"type", typeOf(kind, null)}}
	if !math.IsInf(low, 0) {
		out = append(out, member{"minimum", low})
	}
	if !math.IsInf(high, 0) {
		out = append(out, member{"maximum", high})
	}
	return out
}

func text(rules *validate.StringRules, null bool) object {
	out := object{{"type", typeOf("string", null)}}
	if choices := rules.GetIn(); len(choices) > 0 {
		words := make([]any, 0, len(choices)+1)
		for _, c := range choices {
			if c != "" { // an empty text is a value left out
				words = append(words, c)
			}
		}
		if null {
			words = append(words, nil)
		}
		return append(out, member{"enum", words})
	}
	if n := rules.GetMinLen(); n > 0 {
		out = append(out, member{"minLength", n})
	}
	if n := rules.GetMaxLen(); n > 0 {
		out = append(out, member{"maxLength", n})
	}
	if p := rules.GetPattern(); p != "" {
		out = append(out, member{"pattern", p})
	}
	return out
}

func typeOf(kind string, null bool) any {
	if null {
		return []string{kind, "null"}
	}
	return kind
}

// isRequired reports whether the rules refuse a file without the field.
func isRequired(fd protoreflect.FieldDescriptor, rules *validate.FieldRules) bool {
	if rules.GetRequired() {
		return true
	}
	if fd.IsList() || fd.HasPresence() || fd.Kind() != protoreflect.StringKind {
		return false
	}
	s := rules.GetString()
	switch {
	case len(s.GetIn()) > 0:
		for _, c := range s.GetIn() {
			if c == "" {
				return false
			}
		}
		return true
	case s.GetMinLen() > 0:
		return true
	}
	return s.GetPattern() != "" && !regexp.MustCompile(s.GetPattern()).MatchString("")
}

func rulesOf(fd protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

// comment is what the proto file says above a declaration, as one line; empty
// for descriptors without their sources.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	return strings.Join(strings.Fields(text), " ")
}
