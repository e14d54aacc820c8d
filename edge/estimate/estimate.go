package estimate

import "bytes"

const (
	// ImageTokens is the price of one image, whatever its size in bytes: about what current vision models make of a full-size picture.
	ImageTokens = 2048
	// mediaBytesPerToken prices audio and video: base64 characters per token (speech models need about 25 tokens a second).
	mediaBytesPerToken = 128
	// maxURLBytes bounds what counts as the address of a picture rather than as text in its place.
	maxURLBytes = 8 << 10
	// mediaTokens is the least price of an audio or video part.
	mediaTokens = 256
	// baseTokens covers what a chat template adds around the whole prompt.
	baseTokens = 8
)

// Long reports whether an input of that many tokens takes a long slot (the threshold itself does).
func Long(tokens, threshold int) bool { return tokens >= threshold }

// maxTracked is how deep the scanner remembers which key an object belongs to; deeper ones are priced as text.
const maxTracked = 64

// Tokens estimates the input tokens of a request body. It accepts any bytes; for what is no JSON object the number means nothing.
func Tokens(body []byte) int {
	s := scanner{body: body}
	s.run()
	return baseTokens + s.media + (s.cost+Unit-1)/Unit
}

type role uint8

const (
	plain    role = iota
	imageKey      // "image_url": a data URL or an object with one
	mediaKey      // "input_audio", "video_url", "audio_url"
	source        // "source" of an Anthropic content block
	urlKey        // "url"
	dataKey       // "data"
)

type scanner struct {
	body  []byte
	last  byte // the byte before, spaces between values left out
	cost  int  // see Unit
	media int  // tokens

	depth   int
	objects [maxTracked]bool // whether the container at that depth is an object
	roles   [maxTracked]role // the role of the key it is the value of
	key     role             // role of the key before the present value
	// muted is whether the present top-level member is not input; cost and media go back to the marks at its end.
	muted               bool
	costMark, mediaMark int
	lastMark            byte
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
		}
		s.cost += price(s.last, c)
		s.last = c
		i++
	}
	s.unmute()
}

func (s *scanner) open(object bool) {
	s.depth++
	if s.depth < maxTracked {
		s.objects[s.depth], s.roles[s.depth] = object, s.key
	}
	s.key = plain
}

// inObject is true for containers too deep to be remembered: a string priced as a key costs the same.
func (s *scanner) inObject() bool { return s.depth >= maxTracked || s.objects[s.depth] }

func (s *scanner) unmute() {
	if s.muted {
		s.cost, s.media, s.last, s.muted = s.costMark, s.mediaMark, s.lastMark, false
	}
}

// member reads a key. At the top level it decides whether the member is input at all.
func (s *scanner) member(i int) int {
	cost, next := text(s.body, i)
	name := s.body[i:max(next-1, i)]
	if s.depth == 1 {
		s.unmute()
		if notInput(name) {
			s.muted, s.costMark, s.mediaMark, s.lastMark = true, s.cost, s.media, s.last
		}
	}
	s.cost += price(s.last, '"') + cost
	s.key = roleOf(name)
	return next
}

func (s *scanner) stringValue(i int) int {
	if kind := s.mediaAt(i); kind != plain {
		end := stringEnd(s.body, i)
		switch {
		case isURL(s.body[i:], "http") && end-i > maxURLBytes: // no address
		case kind == imageKey:
			s.media += ImageTokens
			return end
		default:
			s.media += mediaTokens + (end-i)/mediaBytesPerToken
			return end
		}
	}
	cost, next := text(s.body, i)
	s.cost += cost
	return next
}

// mediaAt says whether the string at i is an image or other media in a place where the API takes one. Elsewhere a data URL is text.
func (s *scanner) mediaAt(i int) role {
	parent := plain
	if s.depth < maxTracked {
		parent = s.roles[s.depth]
	}
	b := s.body[i:]
	switch {
	case s.key == imageKey, s.key == urlKey && parent == imageKey:
		if isURL(b, "data:image") || isURL(b, "http") {
			return imageKey
		}
	case s.key == mediaKey, s.key == urlKey && parent == mediaKey:
		if isURL(b, "data:") || isURL(b, "http") {
			return mediaKey
		}
	case s.key == dataKey && parent == mediaKey:
		return mediaKey
	case s.key == dataKey && parent == source:
		for _, magic := range []string{"iVBOR", "/9j/", `\/9j\/`, "R0lGOD", "UklGR"} { // PNG, JPEG, GIF, WebP
			if bytes.HasPrefix(b, []byte(magic)) {
				return imageKey
			}
		}
	}
	return plain
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
		"modalities", "prompt_cache_key", "safety_identifier":
		return true
	}
	return false
}
