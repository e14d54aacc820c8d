package openai

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/openai/splice"
)

// relay is the sink of one request: it writes the answer's frames to the client as they come.
type relay struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	endpoint *endpoint
	model    []byte // as the client spelt it, quotes included
	clock    clockwork.Clock
	patience time.Duration // longest a client may take nothing of what waits for it
	keep     *keepalive    // nil = no comments

	relayed
	splicer splice.Splicer
	buf     []byte
	stall   *stall // nil before the first write that can block
}

// relayed is what has become of one request's answer.
type relayed struct {
	grant     bool // the headers of the grant are set
	begun     bool // the response head was written
	headed    bool // the provider's head has come
	committed bool // the response head was written for a keep-alive comment, before the provider's
	gone      bool // a write failed
	noBody    bool // the status allows no body
	sse       bool
	splicing  bool // bytes go through splicer
	judged    bool // a stream that has to show how it ended
	success   bool // the status is 2xx
	target    string
	late      *lateAnswer // not nil: an answer that can no longer be passed on as it is
}

// maxKeptBuffer bounds what a pooled relay keeps.
const maxKeptBuffer = 64 << 10

// unblocked is what net/http takes into its own buffer, so that the write cannot block.
const unblocked = 4 << 10

var relays = sync.Pool{New: func() any { return new(relay) }}

func newRelay(w http.ResponseWriter, e *endpoint, model []byte, clock clockwork.Clock, patience time.Duration) *relay {
	y := relays.Get().(*relay)
	buf := y.buf
	if cap(buf) > maxKeptBuffer {
		buf = nil
	}
	y.w, y.rc, y.endpoint, y.model, y.clock, y.patience, y.buf = w, http.NewResponseController(w), e, model, clock, patience, buf[:0]
	y.relayed = relayed{}
	return y
}

// quiet ends what else may write or watch than the request's own goroutine.
func (y *relay) quiet() {
	if y.keep != nil {
		y.keep.end()
		y.keep = nil
	}
}

// free gives the relay back. The request has ended.
func (y *relay) free() {
	y.quiet()
	if y.stall != nil {
		y.stall.end()
	}
	y.w, y.rc, y.endpoint, y.model, y.clock, y.stall, y.relayed = nil, nil, nil, nil, nil, nil, relayed{}
	relays.Put(y)
}

// HandedOff implements dispatch.Watcher.
func (y *relay) HandedOff(g *dispatch.Grant) {
	if y.keep != nil {
		y.keep.handedOff(g)
	}
}

// Refused implements dispatch.Watcher.
func (y *relay) Refused() {
	if y.keep != nil {
		y.keep.refused()
	}
}

// Frame takes one frame of the answer.
func (y *relay) Frame(g *dispatch.Grant, f *dispatch.Frame) error {
	if y.keep == nil {
		return y.frame(g, f)
	}
	y.keep.mu.Lock()
	defer y.keep.mu.Unlock()
	err := y.frame(g, f)
	y.keep.last = y.clock.Now()
	return err
}

func (y *relay) frame(g *dispatch.Grant, f *dispatch.Frame) error {
	if y.committed {
		if f.Head != nil {
			y.adopt(f.Head)
		}
		if y.late != nil {
			return y.late.take(g, f)
		}
	} else if f.Head != nil {
		switch y.classify(f.Head); {
		case f.Head.Status < 200 || f.Head.Status > 599:
			return lostProvider(g, false, "the provider's status is none of HTTP's final ones")
		case f.End && len(f.Body) == 0 && y.judged:
			return lostProvider(g, false, "the provider's event stream has no byte")
		}
		y.begun, y.headed = true, true
		y.setGrant(g)
		y.setHeader(f.Head)
		if f.End && !y.sse {
			return y.whole(f)
		}
		y.w.WriteHeader(f.Head.Status)
	}
	if !y.headed {
		return lostProvider(g, false, "an answer without a head")
	}
	if err := y.stream(f); err != nil {
		return err
	}
	if !f.End || !y.judged {
		return nil
	}
	switch seen := y.splicer.Seen(); {
	case seen.Error:
		return &reportedError{lostProvider(g, true, "the provider reported an error inside its stream")}
	case !seen.Complete():
		return lostProvider(g, true, "the stream ended without finish_reason, end marker or error")
	}
	return nil
}

// Complete reports whether the client has seen the stream's end marker.
func (y *relay) Complete() bool { return y.judged && y.splicer.Seen().Done }

// counted is the served target of a whole answer and what its provider has counted for the prompt; 0 if it did not say.
func (y *relay) counted() (target string, tokens int) {
	if !y.success || !y.splicing {
		return "", 0
	}
	return y.target, max(y.splicer.Seen().PromptTokens, 0)
}

// Tokens are what the provider has counted so far; -1 = it has not.
func (y *relay) Tokens() (input, output int) {
	if !y.splicing {
		return -1, -1
	}
	seen := y.splicer.Seen()
	return seen.PromptTokens, seen.CompletionTokens
}

// Empty implements dispatch.Emptiable.
func (y *relay) Empty() bool { return y.success && y.splicing && y.splicer.Seen().Empty }

// reportedError makes dispatch count an answer as failed whose error the provider itself has told the client, in an event (A14).
type reportedError struct{ failed error }

func (e *reportedError) Error() string { return e.failed.Error() }
func (e *reportedError) Unwrap() error { return e.failed }

func lostProvider(g *dispatch.Grant, started bool, why string) error {
	return &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Message: why, Started: started, HandedOff: true, Grant: *g}
}

// setGrant names who serves the request, once it is leased.
func (y *relay) setGrant(g *dispatch.Grant) {
	if y.grant || g.Node == "" {
		return
	}
	y.grant = true
	y.target = g.Target
	h := y.w.Header()
	h["X-Iop-Node"] = []string{string(g.Node)}
	h["X-Iop-Provider"] = []string{string(g.Provider)}
	h["X-Iop-Queue-Ms"] = []string{strconv.FormatInt(g.QueueWait.Milliseconds(), 10)}
}

// classify decides by the head how the body is treated.
func (y *relay) classify(head *dispatch.Head) {
	encoded := false
	media := ""
	for _, f := range head.Header {
		switch {
		case strings.EqualFold(f.Name, "content-type"):
			media = mediaType(f.Value)
		case strings.EqualFold(f.Name, "content-encoding"):
			encoded = encoded || !strings.EqualFold(f.Value, "identity")
		}
	}
	y.success = head.Status < 300
	if !y.success {
		y.model = nil // errors are the provider's own words; a stream of them is still observed for its event ends
	}
	y.sse = media == streamTypes[y.endpoint.stream]
	y.noBody = head.Status == http.StatusNoContent || head.Status == http.StatusResetContent || head.Status == http.StatusNotModified
	y.splicing = !encoded && (y.sse || y.success && isJSON(media))
	y.judged = y.splicing && y.sse && y.success && !y.noBody
	if y.splicing {
		format := splice.JSON
		if y.sse {
			format = y.endpoint.stream
		}
		y.splicer.Reset(format, y.model)
	}
}

// setHeader copies what may reach the client of the head's fields.
func (y *relay) setHeader(head *dispatch.Head) {
	h := y.w.Header()
	h["Content-Type"] = nil // none, rather than one that net/http guesses
	for _, f := range head.Header {
		if name := strings.ToLower(f.Name); toClient(name) {
			key := http.CanonicalHeaderKey(name)
			h[key] = append(h[key], f.Value)
		}
	}
	if y.sse {
		y.asEvents(h)
	}
}

// asEvents sets what keeps everything between from holding events back.
func (y *relay) asEvents(h http.Header) {
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"}
}

// whole sends an answer of one frame with its length and without a flush.
func (y *relay) whole(f *dispatch.Frame) error {
	body := f.Body
	if y.splicing {
		y.buf = y.splicer.Close(y.splicer.Append(y.buf[:0], body))
		body = y.buf
	}
	if !y.noBody {
		y.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	y.w.WriteHeader(f.Head.Status)
	if y.noBody || len(body) == 0 {
		return nil
	}
	if len(body) > unblocked {
		y.watch()
	}
	return y.write(body)
}

// stream sends a part of an answer and flushes it, so that every event arrives as it came (A16); a part whose successor is here already goes with it.
func (y *relay) stream(f *dispatch.Frame) error {
	if y.noBody {
		return nil
	}
	body := f.Body
	if y.splicing {
		y.buf = y.splicer.Append(y.buf[:0], body)
		if f.End {
			y.buf = y.splicer.Close(y.buf)
		}
		body = y.buf
	}
	y.watch()
	if err := y.write(body); err != nil {
		return err
	}
	if f.End || f.More {
		return nil // net/http flushes as the handler returns
	}
	return y.flush()
}

// watch makes the writes from now on end when the client takes nothing.
func (y *relay) watch() {
	if y.stall == nil && y.patience > 0 {
		y.stall = watchStall(y.rc, y.clock, y.patience)
	}
}

// write sends body in pieces that a slow client can take in its time.
func (y *relay) write(body []byte) error {
	for len(body) > 0 {
		piece := body[:min(len(body), writePiece)]
		body = body[len(piece):]
		if err := y.watched(func() error { _, err := y.w.Write(piece); return err }); err != nil {
			return err
		}
	}
	return nil
}

func (y *relay) flush() error { return y.watched(y.rc.Flush) }

func (y *relay) watched(send func() error) error {
	if y.stall != nil {
		y.stall.begin()
		defer y.stall.done()
	}
	err := send()
	y.gone = y.gone || err != nil
	return err
}

// failed tells the client that an answer which has begun is not whole: a stream gets one error event of its own and ends without an end
// marker; anything else is cut off, so that it cannot pass for complete.
func (y *relay) failed(p problem) {
	if y.gone || !y.sse || !y.splicing {
		panic(http.ErrAbortHandler)
	}
	if seen := y.splicer.Seen(); seen.Done || seen.Error && y.splicer.Terminator() == "" {
		return // the client has the whole answer, or the provider's own error
	}
	y.buf = append(y.buf[:0], y.splicer.Terminator()...)
	p.requestID = y.w.Header().Get("X-Request-Id")
	y.buf = y.endpoint.errors.appendInStream(y.buf, p)
	y.watch()
	if y.write(y.buf) != nil || y.flush() != nil {
		panic(http.ErrAbortHandler)
	}
}

// mediaType is the type of a Content-Type in lower case, without parameters; "" if it is none.
func mediaType(v string) string {
	switch v {
	case "application/json", "text/event-stream", "application/x-ndjson":
		return v
	}
	media, _, err := mime.ParseMediaType(v)
	if err != nil {
		media, _, _ = strings.Cut(v, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media
}
