package estimate

import "bytes"

const (
	// mediaBytesPerToken prices audio and video: base64 characters per token (speech models need about 25 tokens a second).
	mediaBytesPerToken = 128
	// maxURLBytes bounds what counts as the address of a picture rather than as text in its place.
	maxURLBytes = 8 << 10
	// mediaTokens is the least price of an audio or video part.
	mediaTokens = 256
	// baseTokens covers what a chat template adds around the whole prompt.
	baseTokens = 8
)

// maxTracked is how deep the scanner remembers which key an object belongs to; deeper ones are priced as text.
const maxTracked = 64

// Estimate is what the bytes of a body tell of its input.
type Estimate struct {
	// Text is the tokens of what a tokenizer reads, by the price table.
	Text int
	// Fixed is the tokens of what none reads: pictures, sound, token ids.
	Fixed int
	// Foreign is whether the provider counts something else than the text of the body: pictures, sound, documents.
	Foreign bool
	// Kind is the kind of text.
	Kind Kind
}

// Tokens is the input by the price table.
func (e Estimate) Tokens() int { return e.Text + e.Fixed }

// Of estimates the input of a request body. It accepts any bytes; for what is no JSON object the numbers mean nothing.
func Of(body []byte) Estimate {
	s := scanner{body: body}
	s.run()
	e := Estimate{Text: baseTokens + (s.cost+Unit-1)/Unit, Fixed: s.fixed, Foreign: s.foreign}
	e.Kind = kindOf(body, e.Text)
	return e
}

type role uint8

const (
	plain     role = iota
	imageKey       // "image_url": a data URL or an object with one
	mediaKey       // "input_audio", "video_url", "audio_url"
	source         // "source" of an Anthropic content block
	urlKey         // "url"
	dataKey        // "data"
	fileKey        // "file_data": a document
	idsKey         // top-level "input", "prompt" or "context", and the arrays directly in it: their numbers are token ids
	imagesKey      // "images": an array of base64 texts, as Ollama takes pictures
)

type scanner struct {
	body    []byte
	mark    // what has been counted
	depth   int
	objects [maxTracked]bool // whether the container at that depth is an object
	roles   [maxTracked]role // the role of the key it is the value of
	key     role             // role of the key before the present value
	// muted is whether the present top-level member is not input; what was counted goes back to before at its end.
	muted  bool
	before mark
}

type mark struct {
	last    byte // the byte before, spaces between values left out
	cost    int  // see Unit
	fixed   int  // tokens
	foreign bool
}

func (s *scanner) run() {
	b := s.body
	isKey := false
	for i := 0; i < len(b); {
		c := b[i]
		switch c {
		case ' ', '\t', '\n', '\r':
			i++
			continue
		case '{', '[':
			s.open(c == '{')
			isKey = c == '{'
		case '}', ']':
			if s.depth == 1 {
				s.unmute()
			}
			s.depth = max(s.depth-1, 0)
			isKey = false
		case ',':
			if s.depth == 1 {
				s.unmute()
			}
			isKey = s.inObject()
			s.key = plain
			if s.depth == 1 { // members count as if each were the only one
				s.last = '{'
				i++
				continue
			}
		case '"':
			if isKey {
				i = s.member(i + 1)
			} else {
				s.cost += price(s.last, '"')
				i = s.stringValue(i + 1)
			}
			s.last = '"'
			isKey = false
			continue
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if s.role() == idsKey && s.depth <= 3 {
				i = s.ids(i)
				continue
			}
		}
		s.cost += price(s.last, c)
		s.last = c
		i++
	}
	s.unmute()
}

func (s *scanner) open(object bool) {
	role := s.key
	if s.role() == idsKey {
		role = idsKey
	}
	if role == idsKey && object {
		role = plain
	}
	s.depth++
	if s.depth < maxTracked {
		s.objects[s.depth], s.roles[s.depth] = object, role
	}
	s.key = plain
}

// role is the one of the present object or array.
func (s *scanner) role() role {
	if s.depth < maxTracked {
		return s.roles[s.depth]
	}
	return plain
}

// ids counts a run of token ids, a token each.
func (s *scanner) ids(i int) int {
	b := s.body
	for {
		s.fixed++
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		next := i
		for next < len(b) && (b[next] == ',' || b[next] == ' ' || b[next] == '\n' || b[next] == '\t' || b[next] == '\r') {
			next++
		}
		if next == len(b) || b[next]-'0' > 9 {
			return i
		}
		i = next
	}
}

// inObject is true for containers too deep to be remembered: a string priced as a key costs the same.
func (s *scanner) inObject() bool { return s.depth >= maxTracked || s.objects[s.depth] }

func (s *scanner) unmute() {
	if s.muted {
		s.mark, s.muted = s.before, false
	}
}

// member reads a key. At the top level it decides whether the member is input at all.
func (s *scanner) member(i int) int {
	cost, next := text(s.body, i)
	name := s.body[i:max(next-1, i)]
	if s.depth == 1 {
		s.unmute()
		if notInput(name) {
			s.muted, s.before = true, s.mark
		}
	}
	s.cost += price(s.last, '"') + cost
	s.key = roleOf(name)
	if s.depth == 1 && (string(name) == "input" || string(name) == "prompt" || string(name) == "context") {
		s.key = idsKey
	}
	return next
}

func (s *scanner) stringValue(i int) int {
	if kind := s.mediaAt(i); kind != plain {
		end := stringEnd(s.body, i)
		switch {
		case isURL(s.body[i:], "http") && end-i > maxURLBytes: // no address
		case kind == imageKey:
			s.foreign = true
			s.fixed += imageTokens(afterComma(s.body[i:end]))
			return end
		case kind == fileKey: // priced as text: a compressed document holds about as many tokens as its base64
			s.foreign = true
		default:
			s.foreign = true
			s.fixed += mediaTokens + (end-i)/mediaBytesPerToken
			return end
		}
	}
	cost, next := text(s.body, i)
	s.cost += cost
	return next
}

// afterComma is the base64 text of a data URL, or b itself.
func afterComma(b []byte) []byte {
	const head = 64 // of "data:image/png;base64,", parameters included
	if n := bytes.IndexByte(b[:min(head, len(b))], ','); n >= 0 {
		return b[n+1:]
	}
	return b
}

// mediaAt says whether the string at i is an image or other media in a place where the API takes one. Elsewhere a data URL is text.
func (s *scanner) mediaAt(i int) role {
	parent := s.role()
	b := s.body[i:]
	switch {
	case parent == imagesKey && !s.inObject() && isPicture(b):
		return imageKey
	case s.key == plain:
		return plain
	case s.key == imageKey, s.key == urlKey && parent == imageKey:
		if isURL(b, "data:image") || isURL(b, "http") {
			return imageKey
		}
	case s.key == urlKey && parent == source:
		if isURL(b, "http") {
			return imageKey
		}
	case s.key == mediaKey, s.key == urlKey && parent == mediaKey:
		if isURL(b, "data:") || isURL(b, "http") {
			return mediaKey
		}
	case s.key == dataKey && parent == mediaKey:
		return mediaKey
	case s.key == dataKey && parent == source:
		if isPicture(b) {
			return imageKey
		}
		return fileKey
	case s.key == fileKey:
		return fileKey
	}
	return plain
}

// isPicture reports whether base64 text begins like a PNG, JPEG, GIF or WebP.
func isPicture(b []byte) bool {
	for _, magic := range []string{"iVBOR", "/9j/", `\/9j\/`, "R0lGOD", "UklGR"} {
		if bytes.HasPrefix(b, []byte(magic)) {
			return true
		}
	}
	return false
}

func isURL(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && bytes.EqualFold(b[:len(prefix)], []byte(prefix))
}

func stringEnd(b []byte, i int) int {
	for i < len(b) {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		slashes := 0
		for end-slashes > i && b[end-slashes-1] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
	return i
}

func roleOf(key []byte) role {
	switch string(key) {
	case "image_url":
		return imageKey
	case "input_audio", "video_url", "audio_url":
		return mediaKey
	case "source":
		return source
	case "url":
		return urlKey
	case "data":
		return dataKey
	case "file_data":
		return fileKey
	case "images":
		return imagesKey
	}
	return plain
}

// notInput lists the top-level members that are settings: output length, thinking, sampling, transport. What is not listed is counted.
func notInput(key []byte) bool {
	switch string(key) {
	case "model", "stream", "stream_options", "n", "best_of", "seed", "user", "store", "service_tier",
		"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "n_predict",
		"thinking", "thinking_budget", "thinking_budget_tokens", "reasoning", "reasoning_effort", "reasoning_budget",
		"temperature", "top_p", "top_k", "min_p", "typical_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "repeat_penalty",
		"logit_bias", "logprobs", "top_logprobs", "stop", "parallel_tool_calls", "cache_prompt", "keep_alive", "encoding_format", "dimensions",
		"modalities", "prompt_cache_key", "safety_identifier",
		"options", "think", "raw", "truncate": // Ollama's
		return true
	}
	return false
}
