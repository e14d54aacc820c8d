package session

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// dialer dials for one session and knows every connection it made, so that
// nothing outlives the session.
type dialer struct {
	net.Dialer
	dialed  atomic.Bool // a connection was made
	settled atomic.Bool // a peer without TLS began with HTTP/2 settings

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// dial dials; what the connection brings is added to received, in bytes.
func (d *dialer) dial(ctx context.Context, network, address string, received *atomic.Uint64) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.dialed.Store(true)
	tracked := &trackedConn{Conn: c, dialer: d, received: received}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.open[tracked] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return tracked, nil
}

// close closes every connection, and those still being dialed.
func (d *dialer) close() {
	d.mu.Lock()
	d.closed = true
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for c := range open {
		_ = c.(*trackedConn).Conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	dialer   *dialer
	received *atomic.Uint64
	read     bool // of the transport's one reader
}

// Read notes whether the first bytes are an HTTP/2 SETTINGS frame: the error a
// transport gives when they are not depends on whether it was reading or writing.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(uint64(n))
	if !c.read && n > 0 {
		const typeAt, settings = 3, 4
		c.read = true
		if n > typeAt && p[typeAt] == settings {
			c.dialer.settled.Store(true)
		}
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// newTransport makes an HTTP/2-only transport: over TLS for https, with prior
// knowledge for http. Stream windows are small in a large connection window, so
// that one stalled stream does not stop the others (ADR 0002, rule 8). What its
// connections bring is added to received, in bytes.
func (s *session) newTransport(received *atomic.Uint64) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.dialer.dial(ctx, network, address, received)
		},
		TLSClientConfig:    s.cfg.TLS.Clone(),
		Protocols:          protocols,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              64 << 10,
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 64 << 20,
			SendPingTimeout:               15 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
	}
}

// wholeFrames is a connect.HTTPClient that sends a Connect envelope's prefix and
// payload, which Connect writes separately, as one DATA frame (ADR 0002, rule 4), and
// tells a work stream when the transport gives its request body up.
type wholeFrames struct{ transport http.RoundTripper }

type workKey struct{}

// Do implements connect.HTTPClient.
func (c wholeFrames) Do(r *http.Request) (*http.Response, error) {
	body := &envelopeBody{source: r.Body}
	if w, ok := r.Context().Value(workKey{}).(*work); ok {
		body.closed = w.breakOff
	}
	r.Body = body
	return c.transport.RoundTrip(r)
}

const prefixSize = 5 // bytes of a Connect envelope before its payload: flags, length

// envelopeBody reads envelopes from a pipe so that one Read returns as much of
// one envelope as fits, prefix included.
type envelopeBody struct {
	source io.ReadCloser
	closed func() // nil = nobody asks
	left   uint32 // payload bytes of the present envelope still to come
}

// Read implements io.Reader.
func (b *envelopeBody) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		if len(p) < prefixSize {
			// Only a transport with frames below 5 bytes asks so.
			return 0, io.ErrShortBuffer
		}
		if n, err = io.ReadFull(b.source, p[:prefixSize]); err != nil {
			return n, err
		}
		b.left = binary.BigEndian.Uint32(p[1:prefixSize])
	}
	for n < len(p) && b.left > 0 && err == nil {
		room := p[n:]
		if uint64(len(room)) > uint64(b.left) {
			room = room[:b.left]
		}
		var m int
		m, err = b.source.Read(room)
		n += m
		b.left -= uint32(m)
	}
	return n, err
}

// Close implements io.Closer.
func (b *envelopeBody) Close() error {
	err := b.source.Close()
	if b.closed != nil {
		b.closed()
	}
	return err
}
