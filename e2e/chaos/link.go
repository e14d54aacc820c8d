//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link is the network between one Node and the Edge: a TCP proxy that can be
// told to misbehave. What it holds back is delivered when it recovers, as TCP's
// own retransmission would.
type link struct {
	edge     string // address that it connects to
	listener net.Listener
	space    *netns // nil: the proxy itself makes the black holes

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	open    chan struct{} // closed while bytes pass
	delay   time.Duration // of each piece
	rate    int           // bytes per second and direction; 0 = no limit
	closed  chan struct{}
	pumping sync.WaitGroup
}

func newLink(host, edge string, space *netns) (*link, error) {
	l, err := listen(host)
	if err != nil {
		return nil, fmt.Errorf("open the link: %w", err)
	}
	k := &link{edge: edge, listener: l, space: space, conns: map[net.Conn]struct{}{}, open: make(chan struct{}), closed: make(chan struct{})}
	close(k.open)
	k.pumping.Go(k.accept)
	return k, nil
}

func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) accept() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.pumping.Go(func() { k.carry(near) })
	}
}

// carry connects one connection of the Node with the Edge and moves bytes until
// either end is done.
func (k *link) carry(near net.Conn) {
	defer near.Close()
	if !k.keep(near) || !k.pass(0) {
		return
	}
	defer k.drop(near)
	far, err := net.DialTimeout("tcp", k.edge, 5*time.Second)
	if err != nil {
		reset(near) // as near as a proxy comes to "connection refused"
		return
	}
	defer far.Close()
	if !k.keep(far) {
		return
	}
	defer k.drop(far)
	var both sync.WaitGroup
	both.Go(func() { k.pump(far, near) })
	both.Go(func() { k.pump(near, far) })
	both.Wait()
}

// pump moves bytes in one direction and hands on how it ended.
func (k *link) pump(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if !k.pass(n) {
			reset(to)
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				reset(from)
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.(*net.TCPConn).CloseWrite()
			return
		default:
			reset(to)
			return
		}
	}
}

// pass holds n bytes back for as long as the link's state wants; false when the
// link is closed.
func (k *link) pass(n int) bool {
	k.mu.Lock()
	open, wait := k.open, k.delay
	if k.rate > 0 {
		wait += time.Duration(n) * time.Second / time.Duration(k.rate)
	}
	k.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-k.closed:
			return false
		}
	}
	for {
		select {
		case <-open:
		case <-k.closed:
			return false
		}
		k.mu.Lock()
		now := k.open
		k.mu.Unlock()
		if now == open {
			return true
		}
		open = now
	}
}

func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.closed:
		return false
	default:
		k.conns[c] = struct{}{}
		return true
	}
}

func (k *link) drop(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

// resetAll resets every connection.
func (k *link) resetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		reset(c)
	}
}

// hole lets nothing through, in either direction, until fill.
func (k *link) hole() error {
	if k.space != nil {
		return k.space.hole()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = make(chan struct{})
	return nil
}

func (k *link) fill() error {
	if k.space != nil {
		return k.space.fill()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.open)
	return nil
}

// impair sets a delay of each piece and a rate in bytes per second; 0 = none.
func (k *link) impair(delay time.Duration, rate int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay, k.rate = delay, rate
}

func (k *link) close() {
	_ = k.listener.Close()
	close(k.closed)
	k.resetAll()
	k.pumping.Wait()
}
