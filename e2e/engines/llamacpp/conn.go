package llamacpp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// conn is one connection. All but the watch for the client's leaving happens in
// one goroutine.
type conn struct {
	server *Server
	raw    *net.TCPConn
	in     *bufio.Reader
	number int
}

func newConn(s *Server, raw *net.TCPConn) *conn {
	return &conn{server: s, raw: raw, in: bufio.NewReaderSize(raw, 16<<10), number: s.seen.opened()}
}

// serve answers request after request until one side closes.
func (c *conn) serve() {
	byClient := false
	defer func() {
		_ = c.raw.Close()
		c.server.seen.shut(c.number, byClient)
	}()
	for {
		_ = c.raw.SetReadDeadline(time.Now().Add(c.server.options.KeepAlive))
		if _, err := c.in.Peek(1); err != nil {
			byClient = !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
			return
		}
		_ = c.raw.SetReadDeadline(time.Time{})
		req, err := http.ReadRequest(c.in)
		if err != nil {
			byClient = true
			return
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			_, _ = io.WriteString(c.raw, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			byClient = true
			return
		}
		if more := c.answer(req, body); !more {
			return
		}
	}
}

// answer answers one request and reports whether the connection goes on.
func (c *conn) answer(req *http.Request, body []byte) bool {
	record := &Request{
		Conn: c.number, Method: req.Method, Path: req.URL.Path, Header: req.Header, Host: req.Host, Body: body, Start: time.Now(),
	}
	c.server.seen.arrived(record)
	gone, calm := c.watch()
	x := &exchange{
		conn: c, server: c.server, req: req, body: body, record: record, gone: gone,
		closing: strings.EqualFold(req.Header.Get("Connection"), "close"),
	}
	c.server.route(x)
	calm()
	ended := c.server.seen.change(record, func(r *Request) {
		r.End = time.Now()
		r.Gone = isClosed(gone)
	})
	if f := c.server.options.Finished; f != nil {
		f(ended)
	}
	return !x.closing && !ended.Gone
}

// watch closes gone when the client closes its side. calm ends the watch.
func (c *conn) watch() (gone <-chan struct{}, calm func()) {
	left, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.in.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			close(left)
		}
	}()
	return left, func() {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.raw.SetReadDeadline(time.Time{})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// exchange is one request and its answer.
type exchange struct {
	conn    *conn
	server  *Server
	req     *http.Request
	body    []byte
	record  *Request
	gone    <-chan struct{}
	closing bool // the connection ends with this answer
}

// head is the start of every answer; the fields come in the order of the real
// one.
func (x *exchange) head(status int, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nServer: llama.cpp\r\n", status, http.StatusText(status))
	fmt.Fprintf(&b, "Access-Control-Allow-Origin: %s\r\n", x.req.Header.Get("Origin"))
	if x.req.Method == http.MethodOptions {
		b.WriteString("Access-Control-Allow-Credentials: true\r\nAccess-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n" +
			"Access-Control-Allow-Headers: *\r\n")
	}
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	x.server.seen.change(x.record, func(r *Request) { r.Status = status })
	return b.String()
}

// promise is what the header says of the connection's future.
func (x *exchange) promise(status int) string {
	if status >= 400 {
		x.closing = true
	}
	if x.closing {
		return "Connection: close"
	}
	return "Keep-Alive: timeout=5, max=100"
}

const jsonType = "application/json; charset=utf-8"

// reply sends a whole answer in one write.
func (x *exchange) reply(status int, contentType, body string, more ...string) {
	fields := more
	if contentType != "" {
		fields = append(fields, "Content-Type: "+contentType)
	}
	length, promise := fmt.Sprint("Content-Length: ", len(body)), x.promise(status)
	if body == "" {
		length, promise = promise, length // as the real one does
	}
	fields = append(fields, length, promise)
	if x.req.Method == http.MethodHead {
		body = ""
	}
	_, _ = io.WriteString(x.conn.raw, x.head(status, fields...)+"\r\n"+body)
}

// stream is an answer in chunks; its header goes out with the first of them.
type stream struct {
	x      *exchange
	opened bool
}

// send writes one chunk and reports whether the client still takes it.
func (s *stream) send(text string) bool {
	if !s.opened {
		s.opened = true
		promise := s.x.promise(http.StatusOK)
		s.x.closing = true // whatever was promised
		s.x.server.seen.change(s.x.record, func(r *Request) { r.Streamed = true })
		head := s.x.head(http.StatusOK, "X-Accel-Buffering: no", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", promise)
		if _, err := io.WriteString(s.x.conn.raw, head+"\r\n"); err != nil {
			return false
		}
	}
	_, err := fmt.Fprintf(s.x.conn.raw, "%x\r\n%s\r\n", len(text), text)
	return err == nil
}

func (s *stream) end() { _, _ = io.WriteString(s.x.conn.raw, "0\r\n\r\n") }
