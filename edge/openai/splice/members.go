package splice

import (
	"bytes"
	"encoding/json"
)

// meaning is what the value after a key is wanted for.
type meaning uint8

const (
	nothing meaning = iota
	wantModel
	wantNested
	wantChoices
	wantUsage
	wantError
	wantType
	wantFinish
	wantSaid    // the message of a choice, or its delta
	wantContent // what makes it said
	wantDone
	wantIndex // the first of the counts
	wantPrompt
	wantInput
	wantCacheRead
	wantCacheWrite
	wantCompletion
)

// keyBytes is enough for the longest key of interest ("completion_tokens") with every letter written as an escape.
const keyBytes = 6 * len("completion_tokens")

// beginKey takes a key that lies whole and unescaped in src, and its colon, in one step; any other key goes byte by byte.
func (s *Splicer) beginKey(src []byte, i int) int {
	a := &s.json
	end := special(src, i)
	if end == len(src) || src[end] != '"' {
		a.state, a.textLen = inKey, 0
		return i
	}
	a.want, a.state = s.meaningOf(src[i:end]), colon
	end++
	if end < len(src) && src[end] == ':' {
		a.state = value
		end++
	}
	return end
}

func (s *Splicer) meaningOf(k []byte) meaning {
	if len(k) > keyBytes {
		return nothing
	}
	if bytes.IndexByte(k, '\\') >= 0 {
		k = unescape(k)
	}
	switch s.json.stack[s.json.depth-1] {
	case root:
		if s.format == NDJSON {
			return meaningInOllama(k)
		}
		switch string(k) {
		case "model":
			return wantModel
		case "choices":
			return wantChoices
		case "usage":
			return wantUsage
		case "error":
			return wantError
		case "type":
			return wantType
		case "prompt_eval_count":
			return wantPrompt
		case "eval_count":
			return wantCompletion
		case "response", "message":
			if s.format == SSE {
				return wantNested
			}
		}
	case nested:
		switch string(k) {
		case "model":
			return wantModel
		case "usage":
			return wantUsage
		}
	case choice:
		switch string(k) {
		case "finish_reason":
			return wantFinish
		case "index":
			return wantIndex
		case "message", "delta":
			if !s.said {
				return wantSaid
			}
		case "text":
			return wantContent
		}
	case said:
		switch string(k) {
		case "content", "refusal", "tool_calls", "function_call", "audio", "reasoning_content", "reasoning":
			return wantContent
		}
	case usage:
		switch string(k) {
		case "prompt_tokens":
			return wantPrompt
		case "input_tokens":
			return wantInput
		case "cache_read_input_tokens":
			return wantCacheRead
		case "cache_creation_input_tokens":
			return wantCacheWrite
		case "completion_tokens", "output_tokens":
			return wantCompletion
		}
	}
	return nothing
}

// meaningInOllama is that of a key of a streamed line; "message" and "response" hold text there.
func meaningInOllama(k []byte) meaning {
	switch string(k) {
	case "model":
		return wantModel
	case "error":
		return wantError
	case "done":
		return wantDone
	case "prompt_eval_count":
		return wantPrompt
	case "eval_count":
		return wantCompletion
	}
	return nothing
}

// unescape decodes a key that is spelt with escapes; rare, so it may allocate.
func unescape(k []byte) []byte {
	quoted := make([]byte, 0, len(k)+2)
	quoted = append(quoted, '"')
	quoted = append(quoted, k...)
	quoted = append(quoted, '"')
	var out string
	if json.Unmarshal(quoted, &out) != nil {
		return nil
	}
	return []byte(out)
}

// typed notes the event types that end a stream of the APIs without choices. They are end markers: nothing of the answer comes after them,
// but for several images.
func (s *Splicer) typed(t []byte) {
	switch string(t) {
	case "message_stop", "response.completed", "response.incomplete", "transcript.text.done", "speech.audio.done":
		s.json.done = true
	case "image_generation.completed":
		s.terminal, s.seen.Finish = true, true
	case "error", "response.failed":
		s.seen.Error = true
	}
}

func (s *Splicer) counted() {
	n := s.json.count
	switch s.json.want {
	case wantIndex:
		s.choice.index = n
		return
	case wantCompletion:
		s.seen.CompletionTokens = n
		return
	case wantPrompt:
		s.seen.PromptTokens, s.input = n, -1
		return
	case wantInput:
		s.input = n
	case wantCacheRead:
		s.cacheRead = n
	case wantCacheWrite:
		s.cacheWrite = n
	}
	if s.input >= 0 {
		s.seen.PromptTokens = s.input + s.cacheRead + s.cacheWrite
	}
}

// manyChoices is how many choices of one answer are told apart. The rest counts as the last of them.
const manyChoices = 128

// chosen notes the end of a choice's object. An answer of several choices has ended when each that has begun did.
func (s *Splicer) chosen() {
	i := min(s.choice.index, manyChoices-1)
	s.begun[i/64] |= 1 << (i % 64)
	if s.choice.finished {
		s.finished[i/64] |= 1 << (i % 64)
	}
	s.seen.Finish = s.terminal || s.begun == s.finished
}
