package bodyscan

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"
)

// Limits of a form.
const (
	// MaxParts is the most parts of a form; the longest list of fields that a known endpoint takes has about thirty.
	MaxParts = 128
	// MaxPartHeader is the longest header of a part in bytes, its empty line included.
	MaxPartHeader = 8 << 10
	// maxBoundary is RFC 2046's limit, in bytes.
	maxBoundary = 70
)

// Form is what the Edge needs of a multipart/form-data body.
type Form struct {
	// Model is the model id, never empty.
	Model string
	// ModelStart and ModelEnd bound its raw value in the body.
	ModelStart, ModelEnd int
	// Text and Files are the bytes of the parts without and with a file name, the model left out.
	Text, Files int
}

// Boundary returns the boundary that a multipart/form-data Content-Type names. isForm is false if the type is another one. The error is an
// *Error: servers read odd spellings differently, so only what all of them read alike passes.
func Boundary(contentType string) (boundary string, isForm bool, err error) {
	media, params, broken := mime.ParseMediaType(contentType)
	if broken != nil {
		media, _, _ = strings.Cut(contentType, ";")
	}
	if !strings.EqualFold(strings.Trim(media, " \t"), "multipart/form-data") {
		return "", false, nil
	}
	boundary = params["boundary"]
	if broken != nil || !isBoundary(boundary) || strings.ContainsAny(contentType, `\*`) {
		return "", true, &Error{Message: "The Content-Type must name one boundary of 1 to 70 characters that RFC 2046 allows."}
	}
	return boundary, true, nil
}

func isBoundary(b string) bool {
	if b == "" || len(b) > maxBoundary || b[len(b)-1] == ' ' {
		return false
	}
	for i := range len(b) {
		if c := b[i]; !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && !strings.ContainsRune("'()+_,-./:=? ", rune(c)) {
			return false
		}
	}
	return true
}

// ScanForm checks the frame of a whole multipart/form-data body (RFC 2046, RFC 7578) and finds its model field. What the parts hold passes
// unseen. Whatever some server could take for a boundary and another one not is refused, since the two would see different fields; a line
// that only begins like a boundary is content to all. The error is an *Error.
func ScanForm(body []byte, boundary string) (Form, error) {
	s := formScanner{body: body, dash: []byte("--" + boundary), line: []byte("\r\n--" + boundary)}
	if err := s.scan(); err != nil {
		return Form{}, err
	}
	if !s.seen {
		return Form{}, &Error{Message: `The form has no field "model". Name one of the models that GET /v1/models lists.`, Param: "model"}
	}
	return s.form, nil
}

type formScanner struct {
	body []byte
	dash []byte // two dashes and the boundary
	line []byte // a line end and those
	form Form
	seen bool // whether the model came
}

func malformed(offset int, what string) *Error {
	return &Error{Message: fmt.Sprintf("The request body is not a valid form: %s at byte %d.", what, offset)}
}

func (s *formScanner) scan() *Error {
	b := s.body
	if err := s.bareLineEnds(); err != nil {
		return err
	}
	at := bytes.Index(b, s.dash)
	if at < 0 || at > 0 && !bytes.HasSuffix(b[:at], []byte("\r\n")) {
		return malformed(max(at, 0), "its boundary is missing")
	}
	kind, next := delimiter(b, at+len(s.dash))
	if kind != opens {
		return malformed(at, "it does not begin with a part")
	}
	for parts := 1; ; parts++ {
		if parts > MaxParts {
			return &Error{Message: fmt.Sprintf("The form has more than %d parts.", MaxParts)}
		}
		content, part, err := partHeader(b, next)
		if err != nil {
			return err
		}
		end := 0
		if end, kind, next = s.contentEnd(content); kind == none {
			return malformed(len(b), "it ends inside a part")
		}
		if err := s.take(part, content, end); err != nil {
			return err
		}
		if kind == closes {
			break
		}
	}
	if n := bytes.Index(b[next:], s.dash); n >= 0 {
		return malformed(next+n, "a boundary comes after the last one")
	}
	return nil
}

// bareLineEnds refuses a boundary after a line end that is no CR LF: some servers take it for one.
func (s *formScanner) bareLineEnds() *Error {
	for _, c := range []byte{'\n', '\r'} {
		line := append([]byte{c}, s.dash...)
		for i := 0; ; {
			n := bytes.Index(s.body[i:], line)
			if n < 0 {
				break
			}
			i += n
			if c == '\r' || i == 0 || s.body[i-1] != '\r' {
				return malformed(i, "a boundary stands after a line end that is not CR LF")
			}
			i += len(line)
		}
	}
	return nil
}

// contentEnd finds the delimiter that ends the content which begins at i, and where the line after it begins.
func (s *formScanner) contentEnd(i int) (end int, kind delimiterKind, next int) {
	// The CR LF before a delimiter belongs to it; that of an empty content is the one that ended the header.
	for at := i; ; {
		n := bytes.Index(s.body[at-2:], s.line)
		if n < 0 {
			return len(s.body), none, len(s.body)
		}
		end = at - 2 + n
		after := end + 2 + len(s.dash)
		if kind, next = delimiter(s.body, after); kind != none {
			return max(end, i), kind, next
		}
		at = after + 2
		if at > len(s.body) {
			return len(s.body), none, len(s.body)
		}
	}
}

type delimiterKind uint8

const (
	none   delimiterKind = iota // content that begins like a delimiter
	opens                       // a part follows
	closes                      // the last one
)

// delimiter tells what the line is whose boundary ends at i.
func delimiter(b []byte, i int) (kind delimiterKind, next int) {
	if bytes.HasPrefix(b[i:], []byte("--")) {
		return closes, i + 2
	}
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') { // padding that RFC 2046 lets transports add
		i++
	}
	if bytes.HasPrefix(b[i:], []byte("\r\n")) {
		return opens, i + 2
	}
	return none, i
}

// formPart is the header of a part.
type formPart struct {
	name    string
	isFile  bool // it has a file name
	encoded bool // its content is not what it stands for
}

// partHeader reads the header of the part that begins at i, and returns where its content begins.
func partHeader(b []byte, i int) (content int, part formPart, err *Error) {
	window := b[i:min(len(b), i+MaxPartHeader)]
	disposed := false
	for from := 0; ; {
		n := bytes.IndexByte(window[from:], '\n')
		if n < 0 {
			if len(window) == MaxPartHeader {
				return 0, part, malformed(i, fmt.Sprintf("the header of a part is longer than %d bytes", MaxPartHeader))
			}
			return 0, part, malformed(len(b), "it ends inside the header of a part")
		}
		line, at := window[from:from+n+1], i+from
		from += n + 1
		line, isWhole := bytes.CutSuffix(line, []byte("\r\n"))
		switch {
		case !isWhole || bytes.IndexByte(line, '\r') >= 0 || bytes.IndexByte(line, 0) >= 0:
			return 0, part, malformed(at, "a line of a part's header is broken")
		case len(line) == 0 && !disposed:
			return 0, part, malformed(at, "a part has no Content-Disposition")
		case len(line) == 0:
			return i + from, part, nil
		}
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !isToken(string(name)) {
			return 0, part, malformed(at, "a line of a part's header is no field")
		}
		switch strings.ToLower(string(name)) {
		case "content-disposition":
			if disposed || !part.dispose(strings.Trim(string(value), " \t")) {
				return 0, part, malformed(at, "the Content-Disposition of a part is not one form-data with a plain name first")
			}
			disposed = true
		case "content-transfer-encoding":
			switch strings.ToLower(strings.Trim(string(value), " \t")) {
			case "7bit", "8bit", "binary":
			default:
				part.encoded = true
			}
		}
	}
}

// dispose reads a Content-Disposition. The name comes first, as all known clients send it: some servers split at semicolons inside quotes,
// and would find another name in a file's.
func (p *formPart) dispose(value string) bool {
	kind, rest, found := strings.Cut(value, ";")
	if !found || !strings.EqualFold(strings.TrimRight(kind, " \t"), "form-data") {
		return false
	}
	for first := true; ; first = false {
		key, after, found := strings.Cut(rest, "=")
		key = strings.ToLower(strings.Trim(key, " \t"))
		if !found || !isToken(key) || first != (key == "name") || strings.HasPrefix(key, "name*") {
			return false
		}
		var text string
		if text, rest, found = parameter(after); !found {
			return false
		}
		if first && strings.IndexByte(text, '\\') >= 0 {
			return false
		}
		if first {
			p.name = text
		}
		p.isFile = p.isFile || strings.HasPrefix(key, "filename")
		if rest == "" {
			return true
		}
	}
}

// parameter reads a value, quoted or not, up to the semicolon behind it. A quoted one keeps its backslashes.
func parameter(s string) (value, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		value = strings.TrimRight(value, " \t")
		return value, strings.TrimLeft(rest, " \t"), isToken(value)
	}
	end := 1
	for end < len(s) && s[end] != '"' {
		if s[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(s) {
		return "", "", false
	}
	value, rest = s[1:end], strings.TrimLeft(s[end+1:], " \t")
	if rest == "" {
		return value, "", true
	}
	rest, ok = strings.CutPrefix(rest, ";")
	return value, strings.TrimLeft(rest, " \t"), ok
}

// isToken is for RFC 9110's tokens.
func isToken(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// take counts a part, and keeps it if it is the model.
func (s *formScanner) take(part formPart, from, to int) *Error {
	wrong := func(what string) *Error { return &Error{Message: what, Param: "model"} }
	switch {
	case !strings.EqualFold(part.name, "model"):
		if part.isFile {
			s.form.Files += to - from
		} else {
			s.form.Text += to - from
		}
		return nil
	case part.name != "model":
		return wrong(`The form has a field "model" in another case. Spell it in lower case.`)
	case s.seen:
		return wrong(`The form has two fields "model".`)
	case part.isFile:
		return wrong(`The field "model" must not be a file.`)
	case part.encoded:
		return wrong(`The field "model" must not have a Content-Transfer-Encoding.`)
	}
	raw := s.body[from:to]
	switch {
	case len(raw) == 0:
		return wrong(`"model" must not be empty.`)
	case !utf8.Valid(raw):
		return wrong(`"model" must be UTF-8.`)
	case bytes.ContainsFunc(raw, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return wrong(`"model" must not contain control characters.`)
	}
	s.seen = true
	s.form.Model, s.form.ModelStart, s.form.ModelEnd = string(raw), from, to
	return nil
}
