package splice

import (
	"encoding/binary"
	"math/bits"
)

// state is where the JSON automaton stands. Containers that hold nothing of interest are skipped by depth alone.
type state uint8

const (
	start         state = iota // before the document
	dead                       // nothing of interest until the next event
	endMarker                  // matching [DONE]
	keyOrEnd                   // after '{'
	key                        // after ',' in an object
	inKey                      // in a key
	inKeyEscape                // after a backslash in a key
	colon                      // after a key
	value                      // before a value
	valueOrEnd                 // after '[' of an array of interest
	inString                   // in a string of no interest
	inEscape                   // after a backslash in it
	inModel                    // in a model value, withheld
	inModelEscape              // after a backslash in it
	inReason                   // before the first byte of a finish_reason, error or content string
	inList                     // before the first element of a list that makes a choice said
	inType                     // in a type string
	inCount                    // in a token count
	inScalar                   // in a number or literal of no interest
	afterValue                 // after a value in a container of interest
	skip                       // in a container of no interest
	skipString                 // in a string therein
	skipEscape                 // after a backslash therein
)

// place names the containers of interest.
type place uint8

const (
	root    place = iota
	nested        // response or message of an event
	choices       // the array
	choice        // an element of it
	said          // the message of a choice, or its delta
	usage
)

type automaton struct {
	state   state
	want    meaning
	depth   int // used entries of stack
	stack   [4]place
	skipped int  // open containers of no interest
	count   int  // the token count being read
	done    bool // the document says that it is the last: "done":true, or its type
	text    [keyBytes + 1]byte
	textLen int    // of the key, the type or the matched part of the end marker
	held    []byte // withheld start of a model value that began in an earlier chunk
}

func (a *automaton) reset() {
	a.state, a.want, a.depth, a.skipped, a.done = start, nothing, 0, 0, false
}

func (a *automaton) withholding() bool { return a.state == inModel || a.state == inModelEscape }

// stringOf is the state of an ordinary string at the place where the model value stands.
func stringOf(s state) state {
	if s == inModelEscape {
		return inEscape
	}
	return inString
}

func (a *automaton) push(p place) {
	a.stack[a.depth] = p
	a.depth++
}

func (a *automaton) pop() {
	a.depth--
	a.state, a.want = afterValue, nothing
	if a.depth == 0 {
		a.state = dead
	}
}

const doneMarker = "[DONE]"

// release gives back the withheld start of a value that turned out not to be replaceable.
func (s *Splicer) release(c *cursor) {
	c.dst = append(c.dst, s.json.held...)
	s.json.held = s.json.held[:0]
}

// newline ends a data line. Lines of one event are joined by LF, which is white space to JSON and an error inside a string.
func (s *Splicer) newline(c *cursor) {
	a := &s.json
	switch a.state {
	case inModel, inModelEscape:
		s.release(c)
		a.state = dead
	case inKey, inKeyEscape, inString, inEscape, inReason, inType, skipString, skipEscape, endMarker:
		a.state = dead
	case inCount:
		s.counted()
		a.state = afterValue
	case inScalar:
		a.state = afterValue
	}
}

// scan is the automaton over src[i:end], a part of one document.
func (s *Splicer) scan(c *cursor, i, end int) {
	a := &s.json
	src := c.src[:end]
	for i < end {
		b := src[i]
		switch a.state {
		case dead:
			return
		case inString, skipString:
			i = special(src, i)
			if i == end {
				return
			}
			switch {
			case src[i] == '\\':
				a.state++ // the matching escape state
			case a.state == inString:
				a.state = afterValue
			default:
				a.state = skip
			}
		case inEscape, skipEscape:
			a.state--
		case skip:
			i = s.skipOver(src, i)
			continue
		case inModel:
			i = s.modelValue(c, i, end)
			continue
		case inModelEscape:
			a.state = inModel
		case start:
			switch {
			case isSpace(b):
			case b == '{':
				a.push(root)
				a.state = keyOrEnd
			case b == '[':
				a.state, a.textLen = endMarker, 1
			default:
				a.state = dead
			}
		case endMarker:
			if b != doneMarker[a.textLen] {
				a.state = dead
				return
			}
			if a.textLen++; a.textLen == len(doneMarker) {
				s.seen.Done = s.seen.Done || s.format == SSE
				a.state = dead
			}
		case keyOrEnd, key:
			switch {
			case isSpace(b):
			case b == '"':
				i = s.beginKey(src, i+1)
				continue
			case b == '}' && a.state == keyOrEnd:
				if a.stack[a.depth-1] == choice {
					s.chosen()
				}
				a.pop()
			default:
				a.state = dead
			}
		case inKey:
			if b == '"' {
				a.want, a.state = s.meaningOf(a.text[:a.textLen]), colon
				break
			}
			if b == '\\' {
				a.state = inKeyEscape
			}
			a.keep(b)
		case inKeyEscape:
			a.keep(b)
			a.state = inKey
		case colon:
			switch {
			case isSpace(b):
			case b == ':':
				a.state = value
			default:
				a.state = dead
			}
		case value, valueOrEnd:
			if !isSpace(b) {
				s.beginValue(c, b, i)
			}
		case inReason:
			if b == '"' {
				a.state = afterValue // some servers write "" for "not yet" or "none"
				break
			}
			switch a.want {
			case wantFinish:
				s.choice.finished = true
				s.cut = s.cut || b == 'l' // no other reason than "length" begins so
			case wantContent:
				s.said = true
			default:
				s.seen.Error = true
			}
			a.state = inString
			continue
		case inList:
			if isSpace(b) {
				break
			}
			if b == ']' {
				a.state = afterValue
				break
			}
			s.said = true
			a.state, a.skipped = skip, 1
			continue
		case inType:
			if b == '"' {
				s.typed(a.text[:a.textLen])
				a.state = afterValue
				break
			}
			if b == '\\' { // no terminal type is spelt with escapes
				a.state = inString
				continue
			}
			a.keep(b)
		case inCount:
			if b >= '0' && b <= '9' {
				if a.count < 1<<40 {
					a.count = a.count*10 + int(b-'0')
				}
				break
			}
			if b != '.' && b != 'e' && b != 'E' {
				s.counted()
			}
			a.state = inScalar
			continue
		case inScalar:
			for i < end && !endsScalar(src[i]) {
				i++
			}
			if i == end {
				return
			}
			a.state = afterValue
			continue
		case afterValue:
			s.afterValue(b)
		}
		i++
	}
}

func (a *automaton) keep(b byte) {
	if a.textLen < len(a.text) {
		a.text[a.textLen] = b
		a.textLen++
	}
}

func (s *Splicer) afterValue(b byte) {
	a := &s.json
	inArray := a.stack[a.depth-1] == choices
	switch {
	case isSpace(b):
	case b == ',' && inArray:
		a.state, a.want = value, nothing
	case b == ',':
		a.state = key
	case b == '}' && !inArray, b == ']' && inArray:
		if a.stack[a.depth-1] == choice {
			s.chosen()
		}
		a.pop()
		if a.done && a.depth == 0 { // only now that the object is whole
			s.seen.Done = true
			s.terminal = s.format == SSE
			s.seen.Finish = s.seen.Finish || s.terminal
		}
	default:
		a.state = dead
	}
}

// beginValue decides by the first byte of a value what to do with the whole.
func (s *Splicer) beginValue(c *cursor, b byte, i int) {
	a := &s.json
	want := a.want
	orEnd := a.state == valueOrEnd
	switch b {
	case '"':
		a.state = inString
		switch want {
		case wantModel:
			if s.model != nil {
				a.state, c.value = inModel, i
			}
		case wantFinish, wantError, wantContent:
			a.state = inReason
		case wantType:
			a.state, a.textLen = inType, 0
		}
	case '{':
		a.state = keyOrEnd
		switch {
		case want == wantNested:
			a.push(nested)
		case want == wantUsage:
			a.push(usage)
		case want == wantSaid:
			a.push(said)
		case a.stack[a.depth-1] == choices:
			a.push(choice)
			s.choice.index, s.choice.finished = 0, false // servers that know of one choice only may leave its index out
		default:
			s.seen.Error = s.seen.Error || want == wantError
			s.said = s.said || want == wantContent
			a.state, a.skipped = skip, 1
		}
	case '[':
		if want == wantChoices {
			a.push(choices)
			a.state, a.want = valueOrEnd, nothing
			return
		}
		if want == wantContent {
			a.state = inList
			return
		}
		a.state, a.skipped = skip, 1
	case ',', '}', ':':
		a.state = dead
	case ']':
		if orEnd {
			a.pop()
			return
		}
		a.state = dead
	default:
		a.state = inScalar
		switch {
		case want == wantFinish && b != 'n':
			s.choice.finished = true
		case want == wantDone:
			a.done = b == 't'
		case want >= wantIndex && b >= '0' && b <= '9':
			a.state, a.count = inCount, int(b-'0')
		}
	}
}

// modelValue goes to the end of a withheld value and replaces it.
func (s *Splicer) modelValue(c *cursor, i, end int) int {
	a := &s.json
	i = special(c.src[:end], i)
	if i == end {
		return end
	}
	if c.src[i] == '\\' {
		a.state = inModelEscape
		return i + 1
	}
	i++
	c.dst = append(c.dst, c.src[c.from:c.value]...)
	if len(a.held)+i-c.value > MaxModelBytes {
		c.from = c.value
		s.release(c)
	} else {
		a.held = a.held[:0]
		c.dst = append(c.dst, s.model...)
		c.from = i
	}
	a.state = afterValue
	return i
}

// skipOver passes structure of no interest up to a string or the end of the container.
func (s *Splicer) skipOver(src []byte, i int) int {
	a := &s.json
	for ; i < len(src); i++ {
		switch structural[src[i]] {
		case opens:
			a.skipped++
		case closes:
			if a.skipped--; a.skipped == 0 {
				a.state = afterValue
				return i + 1
			}
		case quotes:
			// A string that lies whole and unescaped in src is passed in one step.
			end := special(src, i+1)
			if end == len(src) || src[end] != '"' {
				a.state = skipString
				return end
			}
			i = end
		}
	}
	return i
}

func endsScalar(b byte) bool { return b == ',' || b == '}' || b == ']' || isSpace(b) }

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

const (
	opens  = 1
	closes = 2
	quotes = 3
)

var structural = [256]uint8{'{': opens, '[': opens, '}': closes, ']': closes, '"': quotes}

// special returns the index of the first quote or backslash in src[i:], or len(src). It looks at eight bytes at a time.
func special(src []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
		quote = ones * '"'
		slash = ones * '\\'
	)
	for ; i+8 <= len(src); i += 8 {
		w := binary.LittleEndian.Uint64(src[i:])
		q, b := w^quote, w^slash
		if hit := ((q - ones) & ^q & highs) | ((b - ones) & ^b & highs); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(src); i++ {
		if src[i] == '"' || src[i] == '\\' {
			return i
		}
	}
	return i
}
