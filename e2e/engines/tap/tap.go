package tap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Tap listens on a loopback port and passes connections on to one server.
type Tap struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup // accept loop and connections

	mu          sync.Mutex
	closed      bool
	connections []*connection
	open        map[net.Conn]struct{} // both ends of every live connection
}

// Listen starts a tap in front of target, a host:port. The caller must Close it.
func Listen(target string) (*Tap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("tap before %s: %w", target, err)
	}
	t := &Tap{listener: l, target: target, open: map[net.Conn]struct{}{}}
	t.running.Go(t.accept)
	return t, nil
}

// Address is the host:port to connect to instead of the server's.
func (t *Tap) Address() string { return t.listener.Addr().String() }

// Close breaks off all connections and returns when none is left. What was
// recorded stays readable. Idempotent.
func (t *Tap) Close() error {
	t.mu.Lock()
	t.closed = true
	err := t.listener.Close()
	for c := range t.open {
		err = errors.Join(err, c.Close())
	}
	clear(t.open)
	t.mu.Unlock()
	t.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Forget drops what was recorded of connections that have ended; those that
// live on are kept from their beginning.
func (t *Tap) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.connections[:0]
	for _, c := range t.connections {
		if !c.ended() {
			kept = append(kept, c)
		}
	}
	clear(t.connections[len(kept):])
	t.connections = kept
}

func (t *Tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return // Close was called
		}
		t.running.Go(func() { t.serve(client) })
	}
}

// serve passes one connection on until both directions have ended.
func (t *Tap) serve(client net.Conn) {
	server, err := net.Dial("tcp", t.target)
	if err != nil {
		_ = client.Close() // the client sees what it would see of a dead server
		return
	}
	c := &connection{}
	if !t.register(c, client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(server, client, &c.sent) })
	both.Go(func() { pass(client, server, &c.received) })
	both.Wait()
	t.forget(client, server)
}

func (t *Tap) register(c *connection, ends ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		for _, end := range ends {
			_ = end.Close()
		}
		return false
	}
	t.connections = append(t.connections, c)
	for _, end := range ends {
		t.open[end] = struct{}{}
	}
	return true
}

func (t *Tap) forget(ends ...net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, end := range ends {
		_ = end.Close()
		delete(t.open, end)
	}
}

// pass copies one direction and records it before it is passed on, so that a
// reader of the far end never knows more than the tap. The end of the direction
// is passed on as a half-close, and a direction that nobody takes any more is
// ended at its source too.
func pass(to, from net.Conn, rec *recording) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			rec.add(buf[:n], time.Now())
			if _, werr := to.Write(buf[:n]); werr != nil {
				_ = from.Close()
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close() // a reset is passed on as an abrupt end
			}
			break
		}
	}
	rec.end(time.Now())
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
