//go:build !windows

package link

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP proxy between a Node and its Edge that can stop forwarding
// without a word, as a dead network does, or cut what goes through it.
type Proxy struct {
	listener net.Listener
	target   string
	loops    sync.WaitGroup

	mu     sync.Mutex
	pass   chan struct{} // closed while bytes are forwarded
	refuse bool          // new connections are closed at once
	closed bool
	conns  []*proxied // since the last Cut, in the order they were made
}

// proxied is one connection through the proxy. The times are guarded by
// Proxy.mu, and of the Node's bytes towards the Edge.
type proxied struct {
	node, edge  net.Conn
	first, last time.Time
}

// NewProxy starts a proxy to an address.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, pass: make(chan struct{})}
	close(p.pass)
	p.loops.Go(p.accept)
	return p, nil
}

// URL is where a Node dials.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Blackhole stops forwarding in both directions; every connection stays open.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass = make(chan struct{})
}

// Cut closes every connection, and new ones at once, until Open.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for _, c := range p.conns {
		c.node.Close()
		c.edge.Close()
	}
	p.conns = nil
	p.forwardLocked()
}

func (p *Proxy) forwardLocked() {
	select {
	case <-p.pass:
	default:
		close(p.pass)
	}
}

// Open lets connections through again; those of a Blackhole are cut.
func (p *Proxy) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.pass:
	default:
		p.cutLocked()
	}
	p.refuse = false
}

// Session tells when the first bytes of the Node's session since the last Cut
// were forwarded, and when the last: a Node dials its session first. False when
// there has been none.
func (p *Proxy) Session() (first, last time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) == 0 || p.conns[0].first.IsZero() {
		return time.Time{}, time.Time{}, false
	}
	return p.conns[0].first, p.conns[0].last, true
}

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.refuse = true
	p.cutLocked()
	p.mu.Unlock()
	p.listener.Close()
	p.loops.Wait()
}

func (p *Proxy) accept() {
	for {
		node, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if p.refusing() {
			node.Close()
			continue
		}
		edge, err := net.Dial("tcp", p.target)
		if err != nil {
			node.Close()
			continue
		}
		p.carry(&proxied{node: node, edge: edge})
	}
}

func (p *Proxy) refusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse
}

// carry forwards in both directions until one of them ends.
func (p *Proxy) carry(c *proxied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		c.node.Close()
		c.edge.Close()
		return
	}
	p.conns = append(p.conns, c)
	p.loops.Go(func() { p.forward(c, c.edge, c.node, true) })
	p.loops.Go(func() { p.forward(c, c.node, c.edge, false) })
}

func (p *Proxy) forward(c *proxied, to, from net.Conn, noted bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.admit(c, noted)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			// The end of a connection is swallowed by a blackhole, too.
			p.admit(c, false)
			return
		}
	}
}

// admit waits until bytes may pass, and notes the time.
func (p *Proxy) admit(c *proxied, noted bool) {
	p.mu.Lock()
	for {
		pass := p.pass
		select {
		case <-pass:
			if noted {
				c.last = time.Now()
				if c.first.IsZero() {
					c.first = c.last
				}
			}
			p.mu.Unlock()
			return
		default:
		}
		p.mu.Unlock()
		<-pass
		p.mu.Lock()
	}
}
