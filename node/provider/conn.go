package provider

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// conn is one connection to a provider below the HTTP transport. It knows which
// exchange it carries, whether anything of that exchange's request may have been
// sent, and how to end it such that the provider's own end can be seen.
type conn struct {
	net.Conn

	// sent is true once a byte of the owner's request may have left.
	sent atomic.Bool

	mu    sync.Mutex
	owner *exchange
	// spent connections are never used for another request.
	spent bool
}

// dialer wraps the connections that dial makes.
func dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c}, nil
	}
}

// unwrap finds the conn below what the transport reports, TLS or not.
func unwrap(c net.Conn) *conn {
	if layered, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = layered.NetConn()
	}
	return c.(*conn)
}

// Write writes for the transport. sent is set before a byte can leave and taken
// back only if certainly none did.
func (c *conn) Write(p []byte) (int, error) {
	before := c.sent.Swap(true)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil && !before {
		c.sent.Store(false)
	}
	return n, err
}

// claim makes x the owner; false if the connection must not carry another request.
func (c *conn) claim(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spent {
		return false
	}
	c.owner = x
	c.sent.Store(false)
	return true
}

// spend keeps the connection from carrying another request after that of x.
// False if it already carries another one.
func (c *conn) spend(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != x {
		return false
	}
	c.spent = true
	return true
}

// sever ends the provider's work for x. The half-close tells the server that the
// client is gone while its own end stays visible; full closes both directions,
// for servers which notice only a failed write. Nothing happens if the
// connection has moved on to another exchange.
func (c *conn) sever(x *exchange, full bool) {
	if !c.spend(x) {
		return
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if full || !ok || half.CloseWrite() != nil {
		_ = c.Conn.Close()
	}
}

// drop closes the connection if it still is that of x.
func (c *conn) drop(x *exchange) {
	if c.spend(x) {
		_ = c.Conn.Close()
	}
}

// drain reads a severed connection to its end, which comes from the provider or
// from drop. Only for when the transport does not read.
func (c *conn) drain() {
	scratch := buffers.Get().(*[]byte)
	defer buffers.Put(scratch)
	for {
		if _, err := c.Conn.Read(*scratch); err != nil {
			return
		}
	}
}
