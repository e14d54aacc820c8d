package configs

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// judge applies the rules that the message itself carries. What the file
// already got wrong in another way is not said again.
func judge(doc *Document, m proto.Message) Problems {
	err := protovalidate.Validate(m)
	var invalid *protovalidate.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return Problems{doc.Problemf("", "%v", err)}
	}
	var problems Problems
	wrong, holders := map[string]bool{}, doc.holders()
	for _, v := range invalid.Violations {
		path := protovalidate.FieldPathString(v.Proto.GetField())
		if doc.Broken(path) || holders[path] {
			continue
		}
		problems = append(problems, doc.Problemf(path, "%s", explain(doc, path, v)))
		wrong[path] = true
	}
	maps.Copy(doc.broken, wrong)
	return problems
}

// holders are the paths that hold something broken.
func (d *Document) holders() map[string]bool {
	holders := map[string]bool{}
	for path := range d.broken {
		for path = above(path); path != "" && !holders[path]; path = above(path) {
			holders[path] = true
		}
	}
	return holders
}

var (
	betweenText = regexp.MustCompile(`^must be greater than or equal to (\S+) and less than or equal to (\S+)$`)
	boundText   = regexp.MustCompile(`^must be (greater|less) than or equal to (\S+)$`)
)

// explain says what was found and what is allowed.
func explain(doc *Document, path string, v *protovalidate.Violation) string {
	found := "missing"
	if doc.Has(path) {
		found = "found " + foundValue(v)
	}
	return found + "; " + allowed(doc.Has(path), v)
}

func allowed(given bool, v *protovalidate.Violation) string {
	rule, text, fd := v.Proto.GetRuleId(), v.Proto.GetMessage(), v.FieldDescriptor
	switch {
	case strings.HasSuffix(rule, ".in"):
		names := choices(v.RuleValue)
		text = "allowed: " + strings.Join(names, ", ")
		if fd != nil && fd.Kind() == protoreflect.StringKind && given {
			text += DidYouMean(v.FieldValue.String(), names)
		}
		return text
	case rule == "required", strings.HasSuffix(rule, ".min_len") && !given:
		return "it must be given"
	case strings.HasSuffix(rule, ".min_len"):
		return "it must not be empty"
	case strings.HasSuffix(rule, ".pattern") && fd != nil && isSecret(fd):
		return `expected a SHA-256: 64 hexadecimal digits, as "printf %s SECRET | sha256sum" prints`
	case strings.HasSuffix(rule, ".pattern") && fd != nil && fd.Name() == "id":
		return "expected letters, digits, dots, dashes and underscores, a letter or digit first"
	}
	if m := betweenText.FindStringSubmatch(text); m != nil {
		return "expected " + m[1] + " to " + m[2]
	}
	if m := boundText.FindStringSubmatch(text); m != nil {
		return "expected at " + map[string]string{"greater": "least ", "less": "most "}[m[1]] + m[2]
	}
	return text
}

// choices are the members of an "in" rule that a file can write.
func choices(rule protoreflect.Value) []string {
	list, ok := rule.Interface().(protoreflect.List)
	if !ok {
		return nil
	}
	var names []string
	for i := range list.Len() {
		if name := list.Get(i).String(); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func foundValue(v *protovalidate.Violation) string {
	fd := v.FieldDescriptor
	switch {
	case fd == nil || !v.FieldValue.IsValid():
		return "this"
	case isSecret(fd):
		return fmt.Sprintf("a value of %d characters (not shown)", len([]rune(v.FieldValue.String())))
	case fd.IsList():
		if l, ok := v.FieldValue.Interface().(protoreflect.List); ok {
			return fmt.Sprintf("%d entries", l.Len())
		}
		return "this"
	case fd.Message() != nil:
		return "this"
	case fd.Kind() == protoreflect.StringKind:
		return quote(shown(fd, v.FieldValue.String()))
	}
	return v.FieldValue.String()
}

// isSecret reports whether a value of the field is never shown: hashes, where
// people paste the secret itself by mistake.
func isSecret(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Name()), "sha256") || fd.Name() == "ca_pin"
}

// holdsSecret reports whether a message says what a secret is or where: text in
// its place is the secret itself as likely as not.
func holdsSecret(md protoreflect.MessageDescriptor) bool {
	fields := md.Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); isSecret(fd) || strings.HasSuffix(string(fd.Name()), "_env") {
			return true
		}
	}
	return false
}

// shown is the text of a value that is no secret, without a password that a URL
// may carry.
func shown(fd protoreflect.FieldDescriptor, text string) string {
	if !strings.HasSuffix(string(fd.Name()), "url") {
		return text
	}
	return RedactURL(text)
}

// RedactURL is the URL for messages: what may hold a password or a key, that is
// user information and query, is masked.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.ContainsAny(text, "@?"):
		return "(not shown)"
	case err != nil:
		return text
	}
	if u.RawQuery != "" {
		u.RawQuery = "***"
	}
	if u.User == nil {
		return u.String()
	}
	u.User = url.User("***")
	return strings.Replace(u.String(), "%2A%2A%2A@", "***@", 1)
}
