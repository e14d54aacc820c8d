package nodelink

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ServerHTTP2Config is how a server must be set up for node connections
// (ADR 0002, rule 8). Small stream windows in a large connection window
// keep stalled receivers from stopping the others, and small read frames keep a
// node's parked streams cheap: its transport holds one frame of buffer for each.
// Few streams a connection keep the write scheduler fast; a node dials more
// connections as needed.
func ServerHTTP2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          100,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerStream:     256 << 10,
		MaxReceiveBufferPerConnection: 64 << 20,
		SendPingTimeout:               15 * time.Second,
		PingTimeout:                   15 * time.Second,
	}
}

// transport is the HTTP side of one stream of ours: what Connect's handler does
// not give access to.
type transport struct {
	body *bodyReader
	rc   *http.ResponseController

	mu   sync.Mutex
	over bool // the handler has returned: rc must not be used any more
}

type transportKey struct{}

// transportOf finds the transport of a handler's context.
func transportOf(ctx context.Context) *transport {
	t, _ := ctx.Value(transportKey{}).(*transport)
	return t
}

// carry serves h with a transport in each request's context, reads of the
// request body through a pooled buffer (ADR 0002, rule 3), and without the server's own
// read and write timeouts, which are meant for ordinary requests.
func carry(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &transport{body: &bodyReader{source: r.Body}, rc: http.NewResponseController(w)}
		// A writer without deadlines has none to lift.
		_ = t.rc.SetReadDeadline(time.Time{})
		_ = t.rc.SetWriteDeadline(time.Time{})
		r = r.WithContext(context.WithValue(r.Context(), transportKey{}, t))
		r.Body = t.body
		defer t.finish()
		h.ServeHTTP(w, r)
	})
}

// finish marks the handler as returned.
func (t *transport) finish() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.body.release()
}

// sever makes every read and write of the stream fail, those in progress
// included, and resets the stream towards the node. Any goroutine may call it,
// any number of times.
func (t *transport) sever() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	past := time.Unix(1, 0)
	_ = t.rc.SetReadDeadline(past)
	_ = t.rc.SetWriteDeadline(past)
}

// stopReading makes every read of the stream fail, one in progress included; the
// handler can still write and end the stream in good order.
func (t *transport) stopReading() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		_ = t.rc.SetReadDeadline(time.Unix(1, 0))
	}
}

const bodyBuffer = 32 << 10 // bytes

var bodyBuffers = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}

// bodyReader reads a request body through a pooled buffer: every read of the raw
// HTTP/2 body is a channel send to the connection's goroutine. The buffer is
// held only while it holds data or a read is under way, so that a parked stream
// has none. It is for one goroutine at a time.
type bodyReader struct {
	source io.ReadCloser
	buffer *[bodyBuffer]byte
	rest   []byte // unread part of buffer
	err    error  // of source; given after rest
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if len(p) >= bodyBuffer {
			return b.source.Read(p)
		}
		if b.buffer == nil {
			b.buffer = bodyBuffers.Get().(*[bodyBuffer]byte)
		}
		var n int
		n, b.err = b.source.Read(b.buffer[:])
		b.rest = b.buffer[:n]
		if n == 0 {
			b.release()
			return 0, b.err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) == 0 {
		b.release()
	}
	return n, nil
}

// Close implements io.Closer.
func (b *bodyReader) Close() error { return b.source.Close() }

// release gives the buffer back, and with it what is unread.
func (b *bodyReader) release() {
	if b.buffer != nil {
		bodyBuffers.Put(b.buffer)
		b.buffer, b.rest = nil, nil
	}
}

// frameBuffered reports whether the next Connect envelope is here whole.
func (b *bodyReader) frameBuffered() bool {
	const prefix = 5 // bytes: flags, length
	return len(b.rest) >= prefix && uint64(len(b.rest)-prefix) >= uint64(binary.BigEndian.Uint32(b.rest[1:prefix]))
}

// errNoTransport can only mean that the handler was mounted without [Service.Handler].
var errNoTransport = errors.New("nodelink: handler mounted without its transport")
