package bodyscan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of objects and arrays that is accepted.
const MaxDepth = 512

// Fields is what the Edge needs of a body.
type Fields struct {
	// Model is the decoded model id, never empty.
	Model string
	// ModelStart and ModelEnd bound its raw value in the body, quotes included.
	ModelStart, ModelEnd int
	// Stream is the value of "stream"; false if it is absent or null.
	Stream bool
}

// Error says what is wrong with a body, in words for the client. It never repeats the body's text.
type Error struct {
	Message string
	// Param is the member at fault, "" for the body as a whole.
	Param string
}

func (e *Error) Error() string { return e.Message }

func invalid(offset int, what string) *Error {
	return &Error{Message: fmt.Sprintf("The request body is not valid JSON: %s at byte %d.", what, offset)}
}

type expecting uint8

const (
	aValue expecting = iota
	aValueOrEnd
	aKey
	aKeyOrEnd
	aCommaOrEnd
)

type scanner struct {
	b      []byte
	fields Fields
	member uint8 // which top-level member the next value belongs to
	seen   bool  // whether "model" came
}

const (
	otherMember = iota
	modelMember
	streamMember
)

var (
	modelKey      = []byte("model")
	byteOrderMark = []byte("\ufeff")
)

// Scan checks the whole body and returns its fields. The error is an *Error.
func Scan(body []byte) (Fields, error) {
	s := scanner{b: body}
	if err := s.scan(); err != nil {
		return Fields{}, err
	}
	if !s.seen {
		return Fields{}, &Error{Message: `The request body has no "model". Name one of the models that GET /v1/models lists.`, Param: "model"}
	}
	return s.fields, nil
}

func (s *scanner) scan() *Error {
	b := s.b
	i := skipSpace(b, 0)
	switch {
	case i == len(b):
		return &Error{Message: "The request body is empty. Send a JSON object."}
	case bytes.HasPrefix(b[i:], byteOrderMark):
		return &Error{Message: "The request body begins with a byte order mark. Send plain UTF-8."}
	case b[i] != '{':
		return &Error{Message: "The request body must be a JSON object."}
	}
	if !utf8.Valid(b) {
		return invalid(firstInvalid(b), "a byte sequence that is no UTF-8")
	}
	var objects [MaxDepth/64 + 1]uint64 // bit d: the container at depth d is an object
	depth := 0
	state := aValue
	for {
		i = skipSpace(b, i)
		if i == len(b) {
			return invalid(i, "it ends too early")
		}
		c := b[i]
		switch state {
		case aKey, aKeyOrEnd:
			if c == '}' && state == aKeyOrEnd {
				depth--
				i++
				state = aCommaOrEnd
				break
			}
			if c != '"' {
				return invalid(i, "a key in quotes is missing")
			}
			end, err := s.str(i)
			if err != nil {
				return err
			}
			if depth == 1 {
				if err := s.key(b[i:end]); err != nil {
					return err
				}
			}
			i = skipSpace(b, end)
			if i == len(b) || b[i] != ':' {
				return invalid(i, "a colon is missing")
			}
			i++
			state = aValue
			continue
		case aCommaOrEnd:
			object := objects[depth/64]>>(depth%64)&1 == 1
			switch {
			case c == ',' && object:
				state = aKey
			case c == ',':
				state = aValue
			case c == '}' && object, c == ']' && !object:
				depth--
			default:
				return invalid(i, "a comma or the end of an object or array is missing")
			}
			i++
		default:
			if c == ']' && state == aValueOrEnd {
				depth--
				i++
				state = aCommaOrEnd
				break
			}
			if depth == 1 && s.member != otherMember {
				if err := s.typed(c, i); err != nil {
					return err
				}
			}
			from := i
			var err *Error
			switch {
			case c == '{' || c == '[':
				if depth++; depth > MaxDepth {
					return &Error{Message: fmt.Sprintf("The request body is nested deeper than %d levels.", MaxDepth)}
				}
				if c == '{' {
					objects[depth/64] |= 1 << (depth % 64)
					state = aKeyOrEnd
				} else {
					objects[depth/64] &^= 1 << (depth % 64)
					state = aValueOrEnd
				}
				i++
				continue
			case c == '"':
				i, err = s.str(i)
			case c == '-' || isDigit(c):
				i, err = s.number(i)
			default:
				i, err = s.literal(i)
			}
			if err != nil {
				return err
			}
			if depth == 1 && s.member != otherMember {
				if err := s.take(from, i); err != nil {
					return err
				}
			}
			state = aCommaOrEnd
		}
		if depth == 0 {
			if i = skipSpace(b, i); i < len(b) {
				return invalid(i, "something follows the object")
			}
			return nil
		}
	}
}

// key notes which member comes next. A second spelling of "model" is refused: parsers differ in which one they take.
func (s *scanner) key(quoted []byte) *Error {
	s.member = otherMember
	name := quoted[1 : len(quoted)-1]
	if len(name) > 6*len("stream") {
		return nil
	}
	if bytes.IndexByte(name, '\\') >= 0 {
		var decoded string
		if json.Unmarshal(quoted, &decoded) != nil {
			return nil
		}
		name = []byte(decoded)
	}
	switch {
	case string(name) == "stream":
		s.member = streamMember
	case !bytes.EqualFold(name, modelKey):
	case string(name) != "model":
		return &Error{Message: `The request body has a key that differs from "model" only in its case. Spell it "model".`, Param: "model"}
	case s.seen:
		return &Error{Message: `The request body has more than one "model".`, Param: "model"}
	default:
		s.member, s.seen = modelMember, true
	}
	return nil
}

// typed refuses a wrong type by its first byte, before the value is read.
func (s *scanner) typed(c byte, i int) *Error {
	switch {
	case s.member == modelMember && c != '"':
		return &Error{Message: `"model" must be a string.`, Param: "model"}
	case s.member == streamMember && c != 't' && c != 'f' && c != 'n':
		return &Error{Message: `"stream" must be true or false.`, Param: "stream"}
	}
	return nil
}

// take stores a value that key announced.
func (s *scanner) take(from, to int) *Error {
	raw := s.b[from:to]
	if s.member == streamMember {
		s.fields.Stream = raw[0] == 't'
		s.member = otherMember
		return nil
	}
	s.member = otherMember
	s.fields.ModelStart, s.fields.ModelEnd = from, to
	s.fields.Model = string(raw[1 : len(raw)-1])
	if strings.IndexByte(s.fields.Model, '\\') >= 0 {
		if err := json.Unmarshal(raw, &s.fields.Model); err != nil {
			return invalid(from, "a string that cannot be decoded")
		}
	}
	if s.fields.Model == "" {
		return &Error{Message: `"model" must not be empty.`, Param: "model"}
	}
	if strings.IndexFunc(s.fields.Model, func(r rune) bool { return r < 0x20 || r == 0x7f }) >= 0 {
		return &Error{Message: `"model" must not contain control characters.`, Param: "model"}
	}
	return nil
}

// str checks the string that begins at i and returns the index after its closing quote.
func (s *scanner) str(i int) (int, *Error) {
	b := s.b
	for i++; ; {
		i = special(b, i)
		if i == len(b) {
			return i, invalid(i, "it ends inside a string")
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c != '\\':
			return i, invalid(i, "a control character in a string")
		case i+1 == len(b):
			return i, invalid(i, "it ends inside a string")
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) || !isHex(b[i+5]) {
				return i, invalid(i, "a wrong \\u escape")
			}
			i += 6
		default:
			return i, invalid(i, "an unknown escape")
		}
	}
}

func (s *scanner) number(i int) (int, *Error) {
	b := s.b
	at := func(i int) byte {
		if i < len(b) {
			return b[i]
		}
		return 0
	}
	from := i
	if at(i) == '-' {
		i++
	}
	switch {
	case at(i) == '0':
		i++
	case isDigit(at(i)):
		for isDigit(at(i)) {
			i++
		}
	default:
		return i, invalid(from, "a wrong number")
	}
	if at(i) == '.' {
		if i++; !isDigit(at(i)) {
			return i, invalid(from, "a wrong number")
		}
		for isDigit(at(i)) {
			i++
		}
	}
	if at(i)|0x20 == 'e' {
		if i++; at(i) == '+' || at(i) == '-' {
			i++
		}
		if !isDigit(at(i)) {
			return i, invalid(from, "a wrong number")
		}
		for isDigit(at(i)) {
			i++
		}
	}
	return i, nil
}

func (s *scanner) literal(i int) (int, *Error) {
	for _, word := range [...]string{"true", "false", "null"} {
		if i+len(word) <= len(s.b) && string(s.b[i:i+len(word)]) == word {
			return i + len(word), nil
		}
	}
	return i, invalid(i, "no value begins like this")
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// special returns the index of the first quote, backslash or control byte in b[i:], or len(b). It looks at sixteen bytes at a time.
func special(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
		quote = ones * '"'
		slash = ones * '\\'
		space = ones * ' '
	)
	// Of several marks in a word the lowest is right; borrows can only make wrong ones above it.
	marks := func(w uint64) uint64 {
		q, s := w^quote, w^slash
		return ((q-ones)&^q | (s-ones)&^s | (w-space)&^w) & highs
	}
	for ; i+16 <= len(b); i += 16 {
		low, high := marks(binary.LittleEndian.Uint64(b[i:])), marks(binary.LittleEndian.Uint64(b[i+8:]))
		switch {
		case low != 0:
			return i + bits.TrailingZeros64(low)/8
		case high != 0:
			return i + 8 + bits.TrailingZeros64(high)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}
