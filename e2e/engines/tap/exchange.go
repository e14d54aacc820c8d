package tap

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"time"
)

// Exchange is one request and as much of its answer as has been seen.
type Exchange struct {
	Method, Path string
	Header       http.Header // of the request
	Request      []byte      // body of the request

	Status int // 0 while there is no response head
	// ResponseHeader and Response are the answer; Response has the chunk framing
	// taken off and nothing else.
	ResponseHeader http.Header
	Response       []byte
	// Complete says that the answer came to its proper end.
	Complete bool

	// Start is when the first byte of the request came. End is when the last byte
	// of a complete answer came, else when the server closed the connection; zero
	// while neither has happened.
	Start, End time.Time
	// ClientClosed and ServerClosed are when each party ended its direction of
	// the connection; zero while it has not.
	ClientClosed, ServerClosed time.Time
}

// Running says that the server may still be at work on the request.
func (e *Exchange) Running() bool { return e.End.IsZero() }

// Exchanges parses all that was recorded so far, in order of Start. Requests
// whose body has not come whole are left out.
func (t *Tap) Exchanges() []Exchange {
	t.mu.Lock()
	connections := slices.Clone(t.connections)
	t.mu.Unlock()
	var all []Exchange
	for _, c := range connections {
		all = append(all, c.exchanges()...)
	}
	slices.SortStableFunc(all, func(a, b Exchange) int { return a.Start.Compare(b.Start) })
	return all
}

// Peak is the largest number of exchanges that ran at the same time.
func Peak(exchanges []Exchange) int {
	type step struct {
		at    time.Time
		delta int
	}
	var steps []step
	for _, e := range exchanges {
		steps = append(steps, step{e.Start, 1})
		if !e.Running() {
			steps = append(steps, step{e.End, -1})
		}
	}
	// Of steps at the same instant the ends come first: the end of one answer is
	// what lets the next request go.
	slices.SortFunc(steps, func(a, b step) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta
	})
	running, peak := 0, 0
	for _, s := range steps {
		running += s.delta
		peak = max(peak, running)
	}
	return peak
}

func (c *connection) exchanges() []Exchange {
	// The answers first: one that comes between the two copies belongs to a
	// request that is then in the other copy.
	serverClosed, _ := c.received.endedAt()
	clientClosed, _ := c.sent.endedAt()
	answers := newCursor(&c.received)
	requests := newCursor(&c.sent)
	var all []Exchange
	for {
		start := requests.offset()
		req, err := http.ReadRequest(requests.reader)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return all
		}
		e := Exchange{
			Method: req.Method, Path: req.URL.Path, Header: req.Header, Request: body,
			Start:        arrival(requests.reads, start),
			ClientClosed: clientClosed, ServerClosed: serverClosed,
		}
		e.answer(req, answers)
		if !e.Complete {
			e.End = serverClosed
		}
		all = append(all, e)
		if !e.Complete {
			return all // nothing can follow on this connection
		}
	}
}

// answer fills in the response from the cursor.
func (e *Exchange) answer(req *http.Request, from *cursor) {
	res, err := http.ReadResponse(from.reader, req)
	if err != nil {
		return
	}
	e.Status, e.ResponseHeader = res.StatusCode, res.Header
	e.Response, err = io.ReadAll(res.Body)
	untilClose := res.ContentLength < 0 && len(res.TransferEncoding) == 0
	if err != nil || untilClose && e.ServerClosed.IsZero() {
		return
	}
	e.Complete = true
	e.End = arrival(from.reads, from.offset()-1)
}

// cursor reads a direction and knows how far it has come.
type cursor struct {
	reader *bufio.Reader
	reads  []mark
	source *bytes.Reader
	size   int
}

func newCursor(r *recording) *cursor {
	data, reads := r.copied()
	source := bytes.NewReader(data)
	return &cursor{reader: bufio.NewReader(source), reads: reads, source: source, size: len(data)}
}

func (c *cursor) offset() int { return c.size - c.source.Len() - c.reader.Buffered() }
