package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/iop-dev/iop/edge/dispatch"
)

const (
	// firstBuffer is the most that is allocated on a client's word alone; growth is how many times of what a client has sent are
	// allocated on its word afterwards.
	firstBuffer, growth = 1 << 20, 8
	// bodyProgress is what a client has to send in each BodyTimeout, in bytes.
	bodyProgress = 4 << 10
)

// errClientGone is returned when the client ended its connection before its body was complete.
var errClientGone = errors.New("openai: the client is gone")

// readBody reads the whole body, to EOF: net/http notices the end of an HTTP/1 connection only from then on. The error is a *problem,
// errClientGone, or dispatch.ErrStopped when the Edge stops meanwhile.
func readBody(w http.ResponseWriter, r *http.Request, s *active, kind bodyKind) ([]byte, error) {
	if p := checkBodyHeaders(r, s, kind); p != nil {
		return nil, p
	}
	if r.ContentLength > s.BodyLimit {
		return nil, tooLarge(s.BodyLimit)
	}
	rc := http.NewResponseController(w)
	watch := watchProgress(rc, s.BodyTimeout)
	defer watch.stop()
	stopped := func() bool { return errors.Is(context.Cause(r.Context()), dispatch.ErrStopped) }
	var forget func() bool // set once the body is seen to come in pieces
	defer func() {
		if forget != nil {
			forget()
		}
	}()
	room := s.Intake.Share()
	defer room.Release()
	// One byte more than announced, so that the read that finds EOF needs no room.
	size := min(max(r.ContentLength, 511)+1, firstBuffer, s.BodyLimit+1)
	if !room.Grow(size) {
		return nil, crowded()
	}
	body := make([]byte, 0, size)
	for {
		if len(body) == cap(body) {
			if !room.Grow(nextSize(int64(len(body)), r.ContentLength, s.BodyLimit)) {
				return nil, crowded()
			}
			body = grow(body, r.ContentLength, s.BodyLimit)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		watch.received.Add(int64(n))
		switch {
		case int64(len(body)) > s.BodyLimit:
			return nil, tooLarge(s.BodyLimit)
		case err == io.EOF:
			return body, nil
		case err == nil:
			if forget == nil {
				forget = context.AfterFunc(r.Context(), func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) })
			}
		case stopped():
			return nil, dispatch.ErrStopped
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &problem{status: http.StatusRequestTimeout, code: "request_timeout", kind: invalidRequest, hangUp: true,
				message: fmt.Sprintf("The request body came too slowly: less than %d bytes in %s.", bodyProgress, s.BodyTimeout)}
		default:
			return nil, errClientGone
		}
	}
}

// grow makes room for the rest of a body: in few steps towards an announced length, so that little is copied and little left behind.
func grow(body []byte, announced, limit int64) []byte {
	grown := make([]byte, len(body), nextSize(int64(len(body)), announced, limit))
	copy(grown, body)
	return grown
}

// nextSize is the room of a body that has filled the one it had.
func nextSize(have, announced, limit int64) int64 {
	size := have * 2
	if announced >= have {
		size = min(announced+1, have*growth)
	}
	return min(size, limit+1)
}

// progress ends the read of a body that stalls.
type progress struct {
	rc       *http.ResponseController
	limit    time.Duration
	received atomic.Int64

	mu      sync.Mutex
	timer   *time.Timer
	last    int64 // received at the last check
	stopped bool
}

func watchProgress(rc *http.ResponseController, limit time.Duration) *progress {
	p := &progress{rc: rc, limit: limit}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(limit, p.check)
	return p
}

func (p *progress) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.received.Load()
	switch {
	case p.stopped: // a deadline set now would end the wait for the client's disconnect
	case now-p.last >= bodyProgress:
		p.last = now
		p.timer.Reset(p.limit)
	default:
		_ = p.rc.SetReadDeadline(time.Unix(1, 0)) // unsupported only in writers that are no connection
	}
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}

// Error makes a problem an error for the functions that read a request.
func (p *problem) Error() string { return p.message }

// crowded sheds a request for whose body there is no memory: other clients are sending theirs.
func crowded() *problem {
	return &problem{status: http.StatusServiceUnavailable, code: "draining", kind: serverError, hangUp: true, retryAfter: 5,
		message: "The server is receiving as many large requests as it can hold. Retry later."}
}

func tooLarge(limit int64) *problem {
	return &problem{status: http.StatusRequestEntityTooLarge, code: "request_too_large", kind: invalidRequest, hangUp: true,
		message: fmt.Sprintf("The request body is larger than the limit of %d bytes.", limit)}
}

func unsupportedMedia(message string) *problem {
	return &problem{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", kind: invalidRequest, message: message}
}

// checkBodyHeaders refuses bodies that are not what the endpoint takes, or not plain, by their headers.
func checkBodyHeaders(r *http.Request, s *active, kind bodyKind) *problem {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return unsupportedMedia("The request body must not be content-encoded.")
	}
	if kind == formBody {
		return checkForm(r, s)
	}
	if kind == ollamaJSON && r.Header.Get("Origin") == "" {
		return nil // like Ollama, since curl says "form" of every body that it is not told of; the bytes themselves show what they are
	}
	return checkJSON(r)
}

// checkJSON refuses what is no JSON by its type. No Content-Type is taken as JSON, but not from a browser: a page may send that across
// origins without asking first.
func checkJSON(r *http.Request) *problem {
	ct := r.Header.Get("Content-Type")
	switch {
	case ct == "application/json":
		return nil
	case ct == "" && r.Header.Get("Origin") == "":
		return nil
	}
	media, params, err := mime.ParseMediaType(ct)
	if err != nil || !isJSON(media) {
		return unsupportedMedia("The request body must be JSON: send Content-Type: application/json.")
	}
	if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") && !strings.EqualFold(cs, "utf8") && !strings.EqualFold(cs, "us-ascii") {
		return unsupportedMedia("The request body must be encoded in UTF-8.")
	}
	return nil
}

// isJSON is for a media type in lower case, without parameters.
func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}
