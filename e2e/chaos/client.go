//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// behaviour is what a client does besides asking.
type behaviour string

const (
	plain       behaviour = "plain"
	abortEarly  behaviour = "aborts before the first byte"
	abortStream behaviour = "aborts in mid-answer"
	slowReader  behaviour = "reads slowly"
	slowWriter  behaviour = "writes slowly"
	large       behaviour = "asks for a large answer"
)

// patience bounds one request. The limits that apply in turn are those of the
// queue, the head, silence and the answer itself; a frozen Node adds its freeze.
const patience = 60 * time.Second

// call is one request of a client.
type call struct {
	order     order
	model     string
	stream    bool
	long      bool
	behaviour behaviour
	wait      time.Duration // before an abort, or between two pieces
}

// makeCall draws what the next request is like.
func makeCall(rnd *rand.Rand, id string) call {
	c := call{
		model: modelIDs[rnd.IntN(len(modelIDs))], stream: rnd.IntN(2) == 0, long: rnd.IntN(8) == 0, behaviour: plain,
		order: order{ID: id, Parts: 2 + rnd.IntN(12), PauseMs: rnd.IntN(25)},
		wait:  time.Duration(rnd.IntN(60)) * time.Millisecond,
	}
	if rnd.IntN(12) == 0 {
		c.order.Parts *= 4
	}
	switch n := rnd.IntN(100); {
	case n < 10:
		c.behaviour = abortEarly
	case n < 18:
		c.behaviour, c.stream = abortStream, true
	case n < 26:
		c.behaviour, c.stream, c.order.Pad = slowReader, rnd.IntN(4) > 0, 20000
	case n < 32:
		c.behaviour = slowWriter
	case n < 35:
		c.behaviour, c.order.Pad, c.order.PauseMs = large, 150000, 2
	}
	return c
}

// reply is how a request ended.
type reply struct {
	class string // of the report
	bad   string // what was broken; "" = nothing
}

// table is the error table of docs/contracts/openai-api.md, as far as these
// requests may meet it.
var table = map[string]struct {
	status     int
	kind       string
	retryAfter bool
}{
	"queue_full":            {429, "rate_limit_error", true},
	"queue_timeout":         {503, "server_error", true},
	"provider_unavailable":  {503, "server_error", true},
	"provider_busy":         {503, "server_error", true},
	"draining":              {503, "server_error", true},
	"provider_disconnected": {502, "server_error", false},
	"provider_timeout":      {504, "server_error", false},
}

// inBand are the codes an error event within a stream may have.
var inBand = map[string]bool{"provider_disconnected": true, "provider_timeout": true}

// errAborted says that the client itself gave up.
var errAborted = errors.New("aborted by the client")

// do sends the request and judges what comes of it.
func (s *site) do(c call) reply {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	size := 400
	if c.long {
		size = longTokens * 8
	}
	body := requestBody(c.model, c.stream, c.order, size)
	source := func() (io.ReadCloser, error) {
		if c.behaviour == slowWriter {
			return io.NopCloser(&slowBody{body: body, pause: c.wait * 4}), nil
		}
		return io.NopCloser(bytes.NewReader(body)), nil
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	if c.behaviour == abortEarly {
		timer := time.AfterFunc(c.wait, func() { abort(errAborted) })
		defer timer.Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.edgeAddr+"/v1/chat/completions", nil)
	if err != nil {
		return reply{bad: err.Error()}
	}
	// The transport sends a request again only if it met a connection that had been
	// closed before: the ledger of the providers would show any other repetition.
	req.Body, _ = source()
	req.GetBody, req.ContentLength = source, int64(len(body))
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", c.order.ID)
	res, err := s.Do(req)
	if err != nil {
		slack := time.Second + 2*s.lag.now()
		if c.behaviour == slowWriter {
			slack += patience // the Edge has a request once it has all of it
		}
		return s.noAnswer(ctx, "before the head", err, s.outages.excuse(began, false, slack))
	}
	defer res.Body.Close()
	if got := res.Header.Get("X-Request-Id"); got != c.order.ID {
		return reply{class: "wrong x-request-id", bad: fmt.Sprintf("the reply has x-request-id %q", got)}
	}
	media := res.Header.Get("Content-Type")
	switch {
	case res.StatusCode != http.StatusOK:
		return s.refused(ctx, began, res)
	case c.stream != strings.HasPrefix(media, "text/event-stream"):
		return reply{class: "wrong content type", bad: fmt.Sprintf("stream %t was answered with %q", c.stream, media)}
	case c.stream:
		return s.readStream(ctx, began, c, res, abort)
	default:
		return s.readWhole(ctx, began, c, res)
	}
}

// noAnswer judges a transport error; down says that an outage of the Edge may be
// the reason.
func (s *site) noAnswer(ctx context.Context, where string, err error, down bool) reply {
	switch {
	case errors.Is(context.Cause(ctx), errAborted):
		return reply{class: "aborted by the client"}
	case errors.Is(err, context.DeadlineExceeded):
		return reply{class: "no outcome", bad: fmt.Sprintf("no outcome within %s (%s)", patience, where)}
	case down:
		return reply{class: "transport error while the Edge was down"}
	}
	return reply{class: "transport error", bad: fmt.Sprintf("transport error %s though the Edge was up, or stopping in order: %v", where, err)}
}

// refused judges a status other than 200.
func (s *site) refused(ctx context.Context, began time.Time, res *http.Response) reply {
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return s.noAnswer(ctx, "in an error", err, s.outages.excuse(began, true, 0))
	}
	var envelope struct {
		Error struct{ Message, Type, Code string } `json:"error"`
	}
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.Error.Message == "" {
		return reply{class: "no envelope", bad: fmt.Sprintf("status %d without an error envelope: %.200q", res.StatusCode, text)}
	}
	code := envelope.Error.Code
	if code == "chaos_planned" && res.StatusCode == http.StatusInternalServerError {
		return reply{class: "500 of the provider, passed on"}
	}
	class := fmt.Sprintf("%d %s", res.StatusCode, code)
	if code == "model_not_found" && res.StatusCode == http.StatusNotFound && s.removed(began) {
		return reply{class: class}
	}
	row, known := table[code]
	retry := res.Header.Get("Retry-After")
	seconds, retryErr := strconv.Atoi(retry)
	switch {
	case !known || row.status != res.StatusCode || row.kind != envelope.Error.Type:
		return reply{class: class, bad: fmt.Sprintf("status %d, code %q, type %q is no row of the table: %s", res.StatusCode, code, envelope.Error.Type, envelope.Error.Message)}
	case row.retryAfter && (retryErr != nil || seconds < 1 || seconds > 60), !row.retryAfter && retry != "":
		return reply{class: class, bad: fmt.Sprintf("%s with Retry-After %q", class, retry)}
	case code == "provider_timeout" && res.Header.Get("X-Should-Retry") != "false":
		return reply{class: class, bad: class + " without x-should-retry: false"}
	}
	return reply{class: class}
}

// readWhole judges an answer that is no stream.
func (s *site) readWhole(ctx context.Context, began time.Time, c call, res *http.Response) reply {
	var from io.Reader = res.Body
	if c.behaviour == slowReader {
		from = &slowSource{from: res.Body, pause: c.wait, piece: 8 << 10, most: 2 * time.Second}
	}
	text, err := io.ReadAll(from)
	if err != nil {
		if r := s.noAnswer(ctx, "in an answer", err, s.outages.excuse(began, true, 0)); r.class != "transport error" {
			return r
		}
		return reply{class: "cut off in mid-answer (no stream)"} // so that it cannot pass for whole
	}
	var answer struct {
		Model   string
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Choices) != 1 {
		return reply{class: "truncated", bad: fmt.Sprintf("an answer of %d bytes that ended in order is no whole JSON: %v", len(text), err)}
	}
	return whole(c, answer.Model, answer.Choices[0].Message.Content, answer.Choices[0].FinishReason)
}

// whole judges what looks complete.
func whole(c call, model, content, finish string) reply {
	switch {
	case content != c.order.content():
		return reply{class: "truncated", bad: fmt.Sprintf("an answer that looks complete has %d of %d bytes of content, or others: %.120q", len(content), len(c.order.content()), content)}
	case model != c.model || finish != "stop":
		return reply{class: "wrong", bad: fmt.Sprintf("a complete answer names model %q and finish_reason %q", model, finish)}
	}
	return reply{class: "200 complete"}
}

// readStream judges a streamed answer.
func (s *site) readStream(ctx context.Context, began time.Time, c call, res *http.Response, abort context.CancelCauseFunc) reply {
	var from io.Reader = res.Body
	if c.behaviour == slowReader {
		from = &slowSource{from: res.Body, pause: c.wait, piece: 8 << 10, most: 2 * time.Second}
	}
	lines := bufio.NewReader(from)
	var content strings.Builder
	var model, finish, failure string
	done, torn, events := false, false, 0
	for {
		line, err := lines.ReadString('\n')
		data, isData := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data: ")
		if err == nil && isData && data == "[DONE]" {
			if done {
				return reply{class: "wrong", bad: "a stream with two [DONE]"}
			}
			done = true
		} else if err == nil && isData {
			var e struct {
				Model   string
				Choices []struct {
					Delta        struct{ Content string }
					FinishReason string `json:"finish_reason"`
				}
				Error *struct{ Code string }
			}
			if done || failure != "" || torn && !strings.HasPrefix(data, `{"error"`) {
				return reply{class: "wrong", bad: "an event after the end of the stream"}
			}
			// A long event may have been lost in its middle: what has been sent of it
			// cannot be taken back, and the error comes next.
			torn = json.Unmarshal([]byte(data), &e) != nil
			if torn {
				continue
			}
			if e.Error != nil {
				failure = e.Error.Code
			} else if len(e.Choices) == 1 {
				model = e.Model
				content.WriteString(e.Choices[0].Delta.Content)
				finish = e.Choices[0].FinishReason
				if events++; c.behaviour == abortStream && events >= 2 {
					abort(errAborted)
					return reply{class: "aborted by the client"}
				}
			}
		}
		switch {
		case err == nil:
			continue
		case done && failure == "":
			return whole(c, model, content.String(), finish)
		case done:
			return reply{class: "wrong", bad: "a stream with an error and with [DONE]"}
		case failure != "" && inBand[failure]:
			return reply{class: "200, then in-band " + failure}
		case failure != "":
			return reply{class: "wrong", bad: fmt.Sprintf("an error event with code %q", failure)}
		case torn && errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return reply{class: "truncated", bad: "a stream that ended in order after half an event"}
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return reply{class: "truncated", bad: fmt.Sprintf("a stream that ended in order without [DONE] or error, after %d events", events)}
		}
		return s.noAnswer(ctx, fmt.Sprintf("in a stream, after %d events", events), err, s.outages.excuse(began, true, 0))
	}
}

// slowBody is a request body that comes in pieces.
type slowBody struct {
	body  []byte
	pause time.Duration
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.body) == 0 {
		return 0, io.EOF
	}
	time.Sleep(b.pause)
	n := copy(p, b.body[:min(len(b.body), max(len(p)/8, 200))])
	b.body = b.body[n:]
	return n, nil
}

// slowSource reads an answer in pieces with pauses, at most so long in all.
type slowSource struct {
	from        io.Reader
	pause, most time.Duration
	piece       int
}

// Read implements io.Reader.
func (r *slowSource) Read(p []byte) (int, error) {
	if r.most > 0 {
		time.Sleep(r.pause)
		r.most -= r.pause
	}
	return r.from.Read(p[:min(len(p), r.piece)])
}
