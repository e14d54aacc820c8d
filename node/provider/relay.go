package provider

import (
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

const (
	// readSize is what is read of a stream at once: the whole of what an exchange
	// holds of it, next to the transport's buffer of the same size.
	readSize = 16 << 10
	// wholeLimit is the longest answer that is sent as one frame.
	wholeLimit = 1 << 20
	// largeFrame is the longest frame of an answer beyond wholeLimit.
	largeFrame = 256 << 10
)

// buffers are for streams and short answers, wholeBuffers for longer ones: one
// byte more than wholeLimit, so that a full one shows a longer answer.
var (
	buffers      = sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}
	wholeBuffers = sync.Pool{New: func() any { b := make([]byte, wholeLimit+1); return &b }}
)

func (x *exchange) takeBuffer(size int) []byte {
	pool := &buffers
	if size > readSize {
		pool = &wholeBuffers
	}
	x.buffer = pool.Get().(*[]byte)
	return *x.buffer
}

func (x *exchange) returnBuffer() {
	if x.buffer == nil {
		return
	}
	if len(*x.buffer) == readSize {
		buffers.Put(x.buffer)
	} else {
		wholeBuffers.Put(x.buffer)
	}
	x.buffer = nil
}

// relay passes the answer on and returns the final frame, or the error of out.
func (x *exchange) relay(resp *http.Response) (*Frame, error) {
	defer resp.Body.Close()
	x.mu.Lock()
	x.headSeen = true
	x.mu.Unlock()
	if limit := milliseconds(x.begin.GetIdleTimeoutMs()); limit > 0 {
		x.watchSilence(limit)
	}
	if resp.StatusCode < 200 || resp.StatusCode/100 == 3 {
		// Neither may the answer of another server pass for that of this one, nor
		// can a client follow a redirect to a place that only the node can reach.
		return failed(disconnected, "provider %s answered with status %d; redirects are not followed, so base_url must name the final address", x.instance.id, resp.StatusCode), nil
	}
	shape := shapeOf(resp)
	if shape == whole && resp.StatusCode < 300 && resp.StatusCode != http.StatusResetContent && resp.Header.Get("Content-Encoding") == "" && unframed(resp) {
		resp.Body = &jsonBody{ReadCloser: resp.Body}
	}
	switch {
	case shape == whole && resp.ContentLength <= wholeLimit:
		return x.whole(resp)
	case shape == whole:
		return x.stream(resp.Body, responseHead(resp, false), x.takeBuffer(wholeLimit)[:largeFrame])
	default:
		if x.instance.profile.streamEndsConn {
			x.spendConn()
			defer x.dropConn()
		}
		return x.stream(resp.Body, responseHead(resp, shape == events), x.takeBuffer(readSize))
	}
}

// shape is how an answer is passed on.
type shape int

const (
	// whole answers are of use only when complete, or short enough not to matter.
	whole shape = iota
	// pieces are passed on as they come.
	pieces
	// events is a server-sent event stream, passed on as it comes.
	events
)

// shapeOf judges by what the provider sent, never by what the client asked for:
// SDKs ask for JSON and want a stream.
func shapeOf(resp *http.Response) shape {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "text/event-stream":
		return events
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return whole
	case resp.ContentLength >= 0 && resp.ContentLength <= wholeLimit && kind != "application/x-ndjson":
		return whole
	}
	return pieces
}

// whole reads an answer to its end and returns it as one frame. An answer of
// unknown length that turns out too long goes on as a stream.
func (x *exchange) whole(resp *http.Response) (*Frame, error) {
	head := responseHead(resp, false)
	buf := x.takeBuffer(int(resp.ContentLength + 1))
	for n := 0; ; {
		m, err := x.read(resp.Body, buf[n:])
		n += m
		switch {
		case x.halted():
			return x.discard(resp.Body, err)
		case isEnd(err):
			x.end()
			return &Frame{Head: head, Body: buf[:n], End: true}, nil
		case err != nil:
			return x.brokenOff(err), nil
		case n == readSize && len(buf) == readSize:
			small := x.buffer
			buf = x.takeBuffer(wholeLimit)
			copy(buf, *small)
			buffers.Put(small)
		case n == len(buf):
			for part := range slices.Chunk(buf, largeFrame) {
				if err := x.out.Frame(&Frame{Head: head, Body: part}); err != nil {
					return x.readerFailed(resp.Body, err)
				}
				head = nil
			}
			return x.stream(resp.Body, nil, buf[:largeFrame])
		}
	}
}

// stream passes on what comes as it comes: each read is one frame, and the head,
// nil if it is sent already, travels with the first.
func (x *exchange) stream(body io.Reader, head *runtimev1.ResponseHead, buf []byte) (*Frame, error) {
	var held *heldHead
	if head != nil {
		held = x.holdHead(head)
	}
	var frame Frame
	for {
		n, err := x.read(body, buf)
		if held != nil {
			var failed error
			if frame.Head, failed = held.take(); failed != nil {
				return x.readerFailed(body, failed)
			}
			held = nil
		}
		if x.halted() {
			return x.discard(body, err)
		}
		frame.Body = buf[:n]
		if isEnd(err) {
			x.end()
			frame.End = true
			return &frame, nil
		}
		if n > 0 {
			if err := x.out.Frame(&frame); err != nil {
				return x.readerFailed(body, err)
			}
			frame.Head = nil
		}
		if err != nil {
			return x.brokenOff(err), nil
		}
	}
}

// read waits for the provider's next bytes.
func (x *exchange) read(body io.Reader, p []byte) (int, error) {
	x.waitingSince.Store(int64(x.config.Clock.Since(x.started)) + 1)
	n, err := body.Read(p)
	x.waitingSince.Store(0)
	return n, err
}

// isEnd tells a body's complete end from its loss: readers return io.EOF itself
// for the former, and an error that wraps it is the latter.
func isEnd(err error) bool {
	return err == io.EOF //nolint:errorlint // a wrapped io.EOF is a broken connection, never the end
}

// halted tells whether the answer is of no more use to anyone.
func (x *exchange) halted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.why != goesOn
}

// brokenOff is the final frame of an answer that the provider did not complete.
// A stop that came in the same moment counts as the cause.
func (x *exchange) brokenOff(err error) *Frame {
	x.settle()
	x.dropConn()
	x.mu.Lock()
	why := x.why
	x.mu.Unlock()
	if why != goesOn {
		return x.stopped(why, true)
	}
	return failed(disconnected, "provider %s was lost in mid-answer: %s", x.instance.id, describe(err))
}

// discard sees a stopped exchange to its end: a drained answer is read on, a
// severed connection is left to settle. err is that of the last read.
func (x *exchange) discard(body io.Reader, err error) (*Frame, error) {
	for err == nil && !x.isSevered() {
		_, err = x.read(body, *x.buffer)
	}
	x.settle()
	x.mu.Lock()
	why := x.why
	x.mu.Unlock()
	return x.stopped(why, true), nil
}

// readerFailed ends an exchange whose frames cannot be delivered.
func (x *exchange) readerFailed(body io.Reader, err error) (*Frame, error) {
	x.stop(readerGone)
	_, _ = x.discard(body, nil)
	return nil, err
}

func (x *exchange) isSevered() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.severed
}

// spendConn keeps the exchange's connection, if it has one, from being used again.
func (x *exchange) spendConn() {
	x.mu.Lock()
	c := x.conn
	x.mu.Unlock()
	if c != nil {
		c.spend(x)
	}
}

// dropConn closes the exchange's connection.
func (x *exchange) dropConn() {
	x.mu.Lock()
	c := x.conn
	x.mu.Unlock()
	c.drop(x)
}
