package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/openai/splice"
)

const (
	// lateBody is how much of an answer is read for its message; lateText is the longest that is told of one that is no JSON.
	lateBody = 64 << 10
	lateText = 2 << 10
)

// lateAnswer is what a provider answered after a comment had committed the client's answer to a stream of events, and which is none. It is
// told in one error event and counts as failed.
type lateAnswer struct {
	head *dispatch.Head
	body []byte
}

// lateError makes dispatch count the request as failed; the client is told problem.
type lateError struct {
	failed  error
	problem problem
}

func (e *lateError) Error() string { return e.failed.Error() }
func (e *lateError) Unwrap() error { return e.failed }

// adopt takes the head of the provider's answer into a stream that has begun without it. Its fields can no longer reach the client.
func (y *relay) adopt(head *dispatch.Head) {
	y.headed = true
	if y.classify(head); y.judged {
		return
	}
	y.late = &lateAnswer{head: &dispatch.Head{Status: head.Status, Header: append([]dispatch.Header(nil), head.Header...)}}
	y.sse, y.splicing, y.noBody = true, true, false // as it was committed
	y.splicer.Reset(splice.SSE, nil)
}

// take collects the answer up to its end.
func (l *lateAnswer) take(g *dispatch.Grant, f *dispatch.Frame) error {
	l.body = append(l.body, f.Body[:min(len(f.Body), lateBody-len(l.body))]...)
	if !f.End {
		return nil
	}
	why := fmt.Sprintf("the provider answered with status %d after keep-alive comments had begun the stream", l.head.Status)
	return &lateError{lostProvider(g, true, why), l.problem()}
}

// problem is the answer in the contract's terms: the provider's own words where it has some.
func (l *lateAnswer) problem() problem {
	status := l.head.Status
	p := problem{status: status, code: "provider_error", kind: serverError}
	switch {
	case status < 400:
		media := "something"
		for _, f := range l.head.Header {
			if strings.EqualFold(f.Name, "content-type") {
				media = mediaType(f.Value)
			}
		}
		p.status = http.StatusBadGateway
		p.message = fmt.Sprintf("The provider answered with status %d and %s instead of a stream of events. "+
			"It can be passed on only while openai.keepalive_ms is 0.", status, media)
		return p
	case status == http.StatusTooManyRequests:
		p.kind = rateLimit
	case status < 500:
		p.kind = invalidRequest
	}
	said := ownWords(l.body, &p)
	p.message = fmt.Sprintf("The provider answered with status %d", status)
	if said != "" {
		p.message += ": " + said
	}
	return p
}

// ownWords returns the message of an error body, and sets of p what else an OpenAI-shaped one says. A body that is none is its own message,
// if it is text.
func ownWords(body []byte, p *problem) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"` // FastAPI
	}
	if json.Unmarshal(body, &e) == nil {
		var inner struct {
			Message string `json:"message"`
			Type    string `json:"type"`
		}
		var more struct {
			Param string `json:"param"`
			Code  string `json:"code"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
			if inner.Type != "" {
				p.kind = inner.Type
			}
			_ = json.Unmarshal(e.Error, &more) // some write numbers there
			if more.Code != "" {
				p.code = more.Code
			}
			p.param = more.Param
			return inner.Message
		case json.Unmarshal(e.Error, &text) == nil && text != "": // Ollama's own
			return text
		case e.Message != "":
			return e.Message
		case e.Detail != "":
			return e.Detail
		}
	}
	if len(body) > lateText || !utf8.Valid(body) {
		return ""
	}
	return strings.TrimSpace(string(body))
}
