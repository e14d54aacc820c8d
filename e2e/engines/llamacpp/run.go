package llamacpp

import (
	"fmt"
	"net/http"
	"time"
)

// run waits for a slot and makes the answer, a token at a pace. each, if not nil,
// gets every piece as it comes. ok is false when the client has gone, and then
// nothing more is to be sent.
func (s *Server) run(x *exchange, a asked, each func(piece) bool) (g *generation, ok bool, err error) {
	room := s.options.Context - a.tokens
	if room <= 0 {
		return nil, false, &refusal{
			status: http.StatusBadRequest, kind: "exceed_context_size_error",
			message: fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", a.tokens, s.options.Context),
			more:    fmt.Sprintf(`,"n_prompt_tokens":%d,"n_ctx":%d`, a.tokens, s.options.Context),
		}
	}
	if a.limit >= 0 {
		room = min(room, a.limit)
	}
	slot, ok := s.slots.acquire(x.gone)
	if !ok {
		return nil, false, nil
	}
	defer s.slots.release(slot)
	g = generate(a.prompt, a.tools, a.schema, a.stops, room)
	poll := time.NewTicker(s.options.Poll)
	defer poll.Stop()
	pace := time.NewTimer(s.options.Pace)
	defer pace.Stop()
	for i := 0; i < len(g.pieces) || g.more(); i++ {
		if !s.token(x, pace, poll, each != nil) || each != nil && !each(g.pieces[i]) {
			return nil, false, nil
		}
	}
	return g, true, nil
}

// token waits for the time of one token, and reports whether the client was
// there: in a stream that shows at once, otherwise at a poll.
func (s *Server) token(x *exchange, pace *time.Timer, poll *time.Ticker, streaming bool) bool {
	if s.options.Pace == 0 {
		return !streaming || !isClosed(x.gone)
	}
	gone := x.gone
	if !streaming {
		gone = nil
	}
	for {
		select {
		case <-pace.C:
			pace.Reset(s.options.Pace)
			return true
		case <-gone:
			return false
		case <-poll.C:
			if isClosed(x.gone) {
				return false
			}
		}
	}
}

// timings is what llama-server tells of its speed; made up here.
func timings(prompt, predicted int) string {
	return fmt.Sprintf(`"timings":{"cache_n":0,"prompt_n":%d,"prompt_ms":1.5,"prompt_per_token_ms":0.125,"prompt_per_second":8000.0,`+
		`"predicted_n":%d,"predicted_ms":2.25,"predicted_per_token_ms":0.75,"predicted_per_second":1333.5}`, prompt, predicted)
}

// usage is the count of tokens in chat and completions.
func usage(prompt, predicted int) string {
	return fmt.Sprintf(`"usage":{"completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`,
		predicted, prompt, prompt+predicted)
}

// fingerprint is the build of the server that the quirks were seen on.
const fingerprint = "b1-80fb11a"
