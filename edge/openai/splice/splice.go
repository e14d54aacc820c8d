package splice

import "bytes"

// MaxModelBytes bounds the raw model value that is withheld and replaced, quotes included. A longer one is no model name and passes as it is.
const MaxModelBytes = 8 << 10

// Format says how the body is framed.
type Format uint8

const (
	// JSON is one JSON document: only its top-level model is replaced.
	JSON Format = iota
	// SSE is a text/event-stream whose data fields are JSON objects: model, response.model and message.model are replaced.
	SSE
	// NDJSON is one JSON object a line, as Ollama streams: the top-level model of each is replaced.
	NDJSON
)

// Seen is what has been observed so far.
type Seen struct {
	// Done: the end marker passed: [DONE], a whole object with "done":true, or a whole terminal event of the responses, messages or audio API.
	Done bool
	// Finish: every choice that has begun carried a finish_reason (neither null nor empty) by the end of its object, or a terminal event type
	// of the responses or messages API passed.
	Finish bool
	// Error: an in-band error passed (a top-level error object or string, an "error" event or type).
	Error bool
	// Empty: a choice says that its length was used up, and none has any text, tool call or refusal.
	Empty bool
	// PromptTokens and CompletionTokens are the last usage numbers that passed; -1 while there were none. Of the prompt it is the whole, what a cache had included.
	PromptTokens, CompletionTokens int
}

// Complete reports whether the stream has shown by itself how it ended.
func (s Seen) Complete() bool { return s.Done || s.Finish || s.Error }

type lineState uint8

const (
	lineStart lineState = iota // nothing of the line has come yet
	lineName                   // in the field name
	lineData                   // in the value of a data field
	lineEvent                  // in the value of an event field
	lineOther                  // in a comment or another field
)

var bom = []byte("\xef\xbb\xbf")

// Splicer transforms one body. The zero value is not usable: call Reset first. It is not safe for concurrent use.
type Splicer struct {
	seen   Seen
	format Format
	model  []byte // the replacement, quotes included; nil = observe only

	line    lineState
	first   bool // the first line of the stream, where a byte order mark may stand
	afterCR bool // a line has ended with CR; a directly following LF belongs to it
	inEvent bool // a non-blank line came since the last blank one
	name    [12]byte
	nameLen int

	// The messages API counts apart what its cache had, and what it took: these make up PromptTokens; input is -1 while there was none.
	input, cacheRead, cacheWrite int

	// The choice whose object is being read, and which indices have begun and finished.
	choice struct {
		index    int
		finished bool
	}
	begun, finished [manyChoices / 64]uint64
	terminal        bool // an event type said the end
	said            bool // a choice has text, or what stands for it
	cut             bool // a choice's finish_reason is "length"

	json automaton
}

// New returns a Splicer for one body. model is the replacement as a quoted JSON string; nil only observes.
func New(format Format, model []byte) *Splicer {
	s := new(Splicer)
	s.Reset(format, model)
	return s
}

// Reset makes s ready for another body and keeps its buffers.
func (s *Splicer) Reset(format Format, model []byte) {
	held := s.json.held[:0]
	*s = Splicer{format: format, model: model, first: true}
	s.seen.PromptTokens, s.seen.CompletionTokens, s.input = -1, -1, -1
	s.json.held = held
}

// Seen returns what has been observed so far.
func (s *Splicer) Seen() Seen {
	seen := s.seen
	seen.Empty = s.cut && !s.said
	return seen
}

// Append appends to dst what src becomes and returns dst. src is not kept.
func (s *Splicer) Append(dst, src []byte) []byte {
	c := cursor{src: src, dst: dst}
	switch s.format {
	case JSON:
		s.scan(&c, 0, len(src))
	case SSE:
		s.lines(&c)
	case NDJSON:
		s.objects(&c)
	}
	if s.json.withholding() {
		c.dst = append(c.dst, src[c.from:c.value]...)
		if len(s.json.held)+len(src)-c.value > MaxModelBytes {
			c.from = c.value
			s.release(&c)
			s.json.state = stringOf(s.json.state)
			return append(c.dst, src[c.from:]...)
		}
		s.json.held = append(s.json.held, src[c.value:]...)
		return c.dst
	}
	return append(c.dst, src[c.from:]...)
}

// Close appends what is still withheld (a body that ended inside its model value) as it came. Call it after a clean end only.
func (s *Splicer) Close(dst []byte) []byte {
	dst = append(dst, s.json.held...)
	s.json.held = s.json.held[:0]
	return dst
}

// Terminator returns the line ends that close a half-written line or event, so that what is written next is an event or a line of its own.
// Only for SSE and NDJSON.
func (s *Splicer) Terminator() string {
	switch {
	case s.line != lineStart && s.format == NDJSON:
		return "\n"
	case s.line != lineStart || (s.inEvent && s.afterCR):
		return "\n\n" // after a CR the first LF only completes that line's end
	case s.inEvent:
		return "\n"
	default:
		return ""
	}
}

// BetweenEvents reports whether no byte of the stream's next event has come, so that a comment can stand here. Only for SSE. After a CR it
// is false: the LF that may follow belongs to it.
func (s *Splicer) BetweenEvents() bool { return s.line == lineStart && !s.inEvent && !s.afterCR }

// cursor is the position inside one Append call.
type cursor struct {
	src   []byte
	dst   []byte
	from  int // src[from:] is not in dst yet
	value int // where a withheld model value starts in src; 0 when it started in an earlier chunk
}

// objects is the automaton over lines of one object each. A CR before the LF is white space to JSON.
func (s *Splicer) objects(c *cursor) {
	for i := 0; i < len(c.src); {
		end := next(c.src, i, '\n')
		if i < end {
			s.line = lineData
			s.scan(c, i, end)
		}
		if i = end + 1; end < len(c.src) {
			s.newline(c)
			s.json.reset()
			s.line = lineStart
		}
	}
}

// lines is the automaton over the lines of an event stream.
func (s *Splicer) lines(c *cursor) {
	src := c.src
	lf, cr := -1, -1 // next line ends, found once each per chunk and stepped over: linear for any mix
	for i := 0; i < len(src); {
		if s.line == lineStart {
			b := src[i]
			after := s.afterCR
			s.afterCR = false
			switch {
			case b == '\n' && after:
				i++
				continue
			case b == '\n' || b == '\r':
				s.afterCR = b == '\r'
				s.inEvent, s.first = false, false
				s.json.reset()
				i++
				continue
			}
			s.inEvent = true
			s.line, s.nameLen = lineName, 0
		}
		if lf < i {
			lf = next(src, i, '\n')
		}
		if cr < i {
			cr = next(src, i, '\r')
		}
		end := min(lf, cr)
		switch s.line {
		case lineName:
			i = s.fieldName(src, i, end)
		case lineData:
			s.scan(c, i, end)
			i = end
		case lineEvent:
			s.nameLen += copy(s.name[s.nameLen:], src[i:end])
			i = end
		default:
			i = end
		}
		if i == end && end < len(src) {
			s.endLine(c)
			s.afterCR = src[end] == '\r'
			i++
		}
	}
}

// fieldName collects the name up to its colon and returns where the value begins.
func (s *Splicer) fieldName(src []byte, i, end int) int {
	colon := bytes.IndexByte(src[i:end], ':')
	if colon < 0 {
		s.nameLen += copy(s.name[s.nameLen:], src[i:end])
		return end
	}
	s.nameLen += copy(s.name[s.nameLen:], src[i:i+colon])
	name := s.name[:s.nameLen]
	if s.first {
		name = bytes.TrimPrefix(name, bom)
	}
	switch string(name) {
	case "data":
		s.line = lineData
	case "event":
		s.line, s.nameLen = lineEvent, 0
	case "error": // older llama.cpp servers report a failure in a field of this name
		s.seen.Error = true
		s.line = lineOther
	default:
		s.line = lineOther
	}
	return i + colon + 1
}

func (s *Splicer) endLine(c *cursor) {
	switch s.line {
	case lineData:
		s.newline(c)
	case lineEvent:
		if string(bytes.TrimPrefix(s.name[:s.nameLen], []byte(" "))) == "error" {
			s.seen.Error = true
		}
	}
	s.line, s.first = lineStart, false
}

func next(src []byte, i int, b byte) int {
	if n := bytes.IndexByte(src[i:], b); n >= 0 {
		return i + n
	}
	return len(src)
}
