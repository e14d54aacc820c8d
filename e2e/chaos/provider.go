//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// mode is how a provider behaves for the moment.
type mode int

const (
	healthy     mode = iota
	hanging          // takes requests and stops answering
	deafHanging      // the same, and works on when its client is gone
	closing          // closes the connection in mid-answer
	resetting        // resets it
	failing          // answers 500
	slow             // takes its time for the head
)

// fake is one physical provider: a server of its own that counts what runs.
type fake struct {
	spec    providerSpec
	verdict *verdict
	lag     *lag
	ledger  *ledger
	address string
	stopped chan struct{} // closed when the program ends

	mu       sync.Mutex
	listener net.Listener
	conns    map[*fakeConn]struct{}
	running  map[*execution]struct{}
	mode     mode
	calmed   chan struct{} // closed, and replaced, when the mode changes
	limit    limit
	total    int
	peak     int // of what runs
	excused  int // of what a deaf provider ran besides
	serving  sync.WaitGroup
}

// execution is one request that the provider runs.
type execution struct {
	id   string
	conn *fakeConn
	// left is when the provider's side saw its client leave; zero while it has not.
	left time.Time
}

type fakeConn struct {
	net.Conn
	gone chan struct{} // closed when the end of the connection is seen
}

func newFake(spec providerSpec, host string, v *verdict, l *lag, led *ledger) (*fake, error) {
	f := &fake{
		spec: spec, verdict: v, lag: l, ledger: led, stopped: make(chan struct{}),
		conns: map[*fakeConn]struct{}{}, running: map[*execution]struct{}{}, calmed: make(chan struct{}),
		limit: limit{ceiling: spec.capacity, current: spec.capacity},
	}
	listener, err := listen(host)
	if err != nil {
		return nil, fmt.Errorf("open the provider %s: %w", spec.key(), err)
	}
	f.address = listener.Addr().String()
	f.serve(listener)
	return f, nil
}

func (f *fake) serve(l net.Listener) {
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conn := &fakeConn{Conn: c, gone: make(chan struct{})}
			f.mu.Lock()
			if f.listener != l {
				f.mu.Unlock()
				reset(c)
				continue
			}
			f.conns[conn] = struct{}{}
			f.mu.Unlock()
			f.serving.Go(func() { f.serveConn(conn) })
		}
	})
}

// crash ends every connection and stops listening; revive starts anew.
func (f *fake) crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		return
	}
	_ = f.listener.Close()
	f.listener = nil
	clear(f.running)
	for c := range f.conns {
		reset(c.Conn)
	}
}

func (f *fake) revive() error {
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("reopen the provider %s: %w", f.spec.key(), err)
	}
	f.serve(l)
	return nil
}

// close ends the provider for good.
func (f *fake) close() {
	close(f.stopped)
	f.crash()
	f.serving.Wait()
}

func (f *fake) setMode(m mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = m
	close(f.calmed)
	f.calmed = make(chan struct{})
}

func (f *fake) getMode() mode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mode
}

// nodeDied says that the process which had opened every connection up to now
// has ended, and its sockets with it.
func (f *fake) nodeDied() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.running)
}

// begin counts a request as running and judges the count. It reports false for
// one whose client has left before it was read.
func (f *fake) begin(c *fakeConn, id string) (*execution, bool) {
	x := &execution{id: id, conn: c}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil || clientLeft(c.Conn) {
		return nil, false
	}
	now := time.Now()
	// The other side has let go at the end of the grace or later, but this one may
	// have seen its client leave somewhat late.
	margin := f.spec.grace()/4 + 2*f.lag.now()
	live, excused, unseen := 1, 0, 0
	for other := range f.running {
		switch {
		case !other.left.IsZero() && now.Sub(other.left) >= f.spec.grace()-margin:
			excused++ // the grace is over: the Node may not wait any longer (S05, cancel_grace_ms)
		case other.left.IsZero() && clientLeft(other.conn.Conn):
			unseen++ // this program has been slow to see it
		default:
			live++
		}
	}
	f.running[x] = struct{}{}
	f.total++
	f.peak = max(f.peak, live)
	if excused > 0 {
		f.excused = max(f.excused, excused)
	}
	switch allowed := f.limit.allowed(); {
	case live > allowed:
		f.verdict.breach("provider %s runs %d requests, %d are allowed (configured now: %d); the newest is %s\n%s",
			f.spec.key(), live, allowed, f.limit.current, id, f.describeLocked(now))
	case live+unseen > allowed:
		f.verdict.note("starts next to a request whose client had left unseen")
	}
	return x, true
}

func (f *fake) describeLocked(now time.Time) string {
	var b strings.Builder
	for x := range f.running {
		left := "client present"
		if !x.left.IsZero() {
			left = "client left " + now.Sub(x.left).Round(time.Millisecond).String() + " ago"
		}
		fmt.Fprintf(&b, "\t%s from %s: %s\n", x.id, x.conn.RemoteAddr(), left)
	}
	fmt.Fprintf(&b, "\tlimit: %s", f.limit.describe())
	return b.String()
}

// end says that the provider does nothing any more for a request. It comes
// before the bytes that tell the Node so.
func (f *fake) end(x *execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, x)
}

func (f *fake) clientGone(x *execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.left = time.Now()
}

// counts are what the report shows.
func (f *fake) counts() (running, total, peak, excused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running), f.total, f.peak, f.excused
}

// serveConn serves requests on one connection, one after the other.
func (f *fake) serveConn(c *fakeConn) {
	defer func() {
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
		_ = c.Close()
	}()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		var a asked
		if err := json.Unmarshal(body, &a); err != nil || a.Chaos.ID == "" {
			f.verdict.breach("provider %s got a request that no client sent: %v", f.spec.key(), err)
			return
		}
		if a.Model != f.spec.target() {
			f.verdict.breach("provider %s was asked for model %q, its target is %q", f.spec.key(), a.Model, f.spec.target())
		}
		f.ledger.reached(a.Chaos.ID, f.spec.key())
		x, ok := f.begin(c, a.Chaos.ID)
		if !ok {
			return
		}
		// Nothing is expected on the connection before the answer's end: a byte or an
		// end that comes is the next request or the client's leaving.
		peeked := make(chan struct{})
		go func() {
			defer close(peeked)
			if _, err := in.Peek(1); err != nil {
				f.clientGone(x)
				close(c.gone)
			}
		}()
		err = f.answer(c, x, a)
		if errors.Is(err, errGone) {
			f.linger(a.Chaos.ID)
		}
		f.end(x)
		if err != nil {
			if errors.Is(err, errReset) {
				reset(c.Conn)
			}
			_ = c.Close()
		}
		<-peeked
		if err != nil {
			return
		}
		select {
		case <-c.gone:
			return
		default:
		}
	}
}

var (
	errClosed = errors.New("the provider closes")
	errReset  = errors.New("the provider resets")
	errGone   = errors.New("the client is gone")
)

// pause lets time pass in an answer; it ends at once when the client is gone.
func (f *fake) pause(c *fakeConn, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.gone:
		return errGone
	case <-f.stopped:
		return errGone
	}
}

// linger is the time that an engine takes to stop after its client has left: well
// within the grace, and different for each request.
func (f *fake) linger(id string) {
	timer := time.NewTimer(f.spec.grace() * time.Duration(crc32.ChecksumIEEE([]byte(id))%60) / 100)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.stopped:
	}
}

// hang answers nothing until the client is gone, and if deaf for a while after.
func (f *fake) hang(c *fakeConn, deaf bool) error {
	select {
	case <-c.gone:
	case <-f.stopped:
	}
	if deaf {
		select {
		case <-time.After(3 * f.spec.grace()):
		case <-f.stopped:
		}
	}
	return errGone
}

// disturb does in mid-answer what the mode wants.
func (f *fake) disturb(c *fakeConn, m mode) error {
	switch m {
	case hanging, deafHanging:
		return f.hang(c, m == deafHanging)
	case closing:
		return errClosed
	case resetting:
		return errReset
	}
	return nil
}

// answer writes the answer; an error means that the connection has to end.
func (f *fake) answer(c *fakeConn, x *execution, a asked) error {
	m := f.getMode()
	switch m {
	case hanging, deafHanging:
		return f.hang(c, m == deafHanging)
	case slow:
		if err := f.pause(c, f.spec.headDelay()); err != nil {
			return err
		}
	case failing:
		body := `{"error":{"message":"planned","type":"chaos","param":null,"code":"chaos_planned"}}`
		f.end(x)
		_, err := fmt.Fprintf(c, "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return err
	}
	if a.Stream {
		return f.stream(c, x, a)
	}
	parts := a.Chaos.parts()
	if err := f.pause(c, time.Duration(len(parts)*a.Chaos.PauseMs)*time.Millisecond); err != nil {
		return err
	}
	body := completion(f.spec.target(), strings.Join(parts, ""))
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	half := len(body) / 2
	if _, err := c.Write(append([]byte(head), body[:half]...)); err != nil {
		return err
	}
	if err := f.disturb(c, f.getMode()); err != nil {
		return err
	}
	f.end(x)
	_, err := c.Write(body[half:])
	return err
}

// stream writes the answer as server-sent events.
func (f *fake) stream(c *fakeConn, x *execution, a asked) error {
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	for i, part := range a.Chaos.parts() {
		if err := f.pause(c, time.Duration(a.Chaos.PauseMs)*time.Millisecond); err != nil {
			return err
		}
		if _, err := c.Write(chunk(event(f.spec.target(), part, nil))); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if err := f.disturb(c, f.getMode()); err != nil {
			if errors.Is(err, errClosed) && len(a.Chaos.ID)%2 == 0 {
				// In order, as if this were all: only what it lacks shows that it is not.
				f.end(x)
				_, _ = io.WriteString(c, "0\r\n\r\n")
			}
			return err
		}
	}
	f.end(x)
	last := chunk(event(f.spec.target(), "", "stop") + "data: [DONE]\n\n")
	_, err := c.Write(append(last, "0\r\n\r\n"...))
	return err
}

func chunk(s string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(s), s) }

// reset ends a connection without the courtesy of a FIN.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// ledger knows which requests have reached a provider.
type ledger struct {
	verdict *verdict
	mu      sync.Mutex
	seen    map[string]string
}

func newLedger(v *verdict) *ledger { return &ledger{verdict: v, seen: map[string]string{}} }

// reached records that a request has reached a provider: once, or it was repeated.
func (l *ledger) reached(id, provider string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first, twice := l.seen[id]; twice {
		l.verdict.breach("request %s reached %s after it had reached %s: nothing that was sent may be repeated", id, provider, first)
	}
	l.seen[id] = provider
}
