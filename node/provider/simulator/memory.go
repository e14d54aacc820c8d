package simulator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a handler served over connections in memory.
type Server struct {
	http     *http.Server
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
	served   sync.WaitGroup
}

// Serve starts serving h. The caller must Close the server.
func Serve(h http.Handler) *Server {
	s := &Server{
		http:     &http.Server{Handler: h, ReadHeaderTimeout: time.Minute},
		incoming: make(chan net.Conn),
		closed:   make(chan struct{}),
	}
	s.served.Go(func() { _ = s.http.Serve((*listener)(s)) })
	return s
}

// Dial returns the client's end of a new connection. The network and address
// are of no meaning.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := pipe()
	select {
	case s.incoming <- server:
		return client, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the server and its connections. It is idempotent.
func (s *Server) Close() {
	s.once.Do(func() { close(s.closed) })
	_ = s.http.Close()
	s.served.Wait()
}

// listener is the Server as its http.Server sees it.
type listener Server

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is called by the http.Server; Server.Close does the work.
func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return address{} }

// address is where the simulator is: nowhere on a network.
type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "simulator" }

// duplex is one end of a connection made of two one-way pipes, so that either
// direction can be closed alone, as in TCP.
type duplex struct {
	in, out net.Conn
}

// pipe returns the two ends of a connection in memory.
func pipe() (net.Conn, net.Conn) {
	aIn, bOut := net.Pipe()
	bIn, aOut := net.Pipe()
	return &duplex{aIn, aOut}, &duplex{bIn, bOut}
}

func (d *duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d *duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

// CloseWrite lets the peer read to the end while this end may still read.
func (d *duplex) CloseWrite() error { return d.out.Close() }

func (d *duplex) Close() error         { return errors.Join(d.in.Close(), d.out.Close()) }
func (d *duplex) LocalAddr() net.Addr  { return address{} }
func (d *duplex) RemoteAddr() net.Addr { return address{} }

func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.in.SetReadDeadline(t), d.out.SetWriteDeadline(t))
}
func (d *duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d *duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
