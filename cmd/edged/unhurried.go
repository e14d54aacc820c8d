package edged

import (
	"net"
	"sync/atomic"
	"time"
)

// unhurried lets a connection say nothing for idle before its first request, as it
// may before any other. net/http gives the first one no more than the time for a
// head, counted from the connection's begin; but clients open connections ahead
// (Go's does whenever another one becomes free first), and take the end of such a
// one, which they have never used, for an error rather than for an idle connection.
// With TLS a connection has spoken by its handshake; clients that open ahead speak
// HTTP/2 there, which idles anyway.
type unhurried struct {
	net.Listener
	allowance
}

// Accept implements net.Listener.
func (u unhurried) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &silent{Conn: c, allowance: u.allowance}, nil
}

// silent is a connection that has yet to say something.
type silent struct {
	net.Conn
	allowance
	spoken atomic.Bool
}

// SetReadDeadline implements net.Conn: until the first byte, a limit is that of an
// idle connection.
func (s *silent) SetReadDeadline(t time.Time) error {
	if !s.spoken.Load() && time.Until(t) > 0 {
		t = t.Add(s.idle - s.head)
	}
	return s.Conn.SetReadDeadline(t)
}

// Read implements net.Conn. From the first byte on, a head has its usual time.
func (s *silent) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 && s.spoken.CompareAndSwap(false, true) {
		if err := s.Conn.SetReadDeadline(time.Now().Add(s.head)); err != nil {
			return n, err
		}
	}
	return n, err
}
