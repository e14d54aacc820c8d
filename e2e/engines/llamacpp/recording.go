package llamacpp

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// Request is what the server knows of one request.
type Request struct {
	// Conn and Place are the number of its connection and its own place on it, both
	// from 1.
	Conn, Place int
	Method      string
	Path        string
	Header      http.Header
	Host        string
	Body        []byte
	Start, End  time.Time // End is zero while it runs
	Status      int       // 0 while nothing has been sent
	Streamed    bool
	// Gone says that the client had closed its side before the answer's end.
	Gone bool
}

// Ended reports whether the request is over.
func (r Request) Ended() bool { return !r.End.IsZero() }

// Conn is what the server knows of one connection.
type Conn struct {
	Requests int
	Opened   time.Time
	Closed   time.Time // zero while it is open
	// ByClient says that the client closed it first.
	ByClient bool
}

// Peak is the most that was ever at the server at once.
type Peak struct{ Running, Queued, Connections int }

// recording keeps all of it.
type recording struct {
	mu       sync.Mutex
	requests []*Request
	conns    []*Conn
	open     int
	peakOpen int
}

// Requests is every request so far, in the order of arrival.
func (s *Server) Requests() []Request {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	all := make([]Request, len(s.seen.requests))
	for i, r := range s.seen.requests {
		all[i] = *r
	}
	return all
}

// Conns is every connection so far, in the order of opening.
func (s *Server) Conns() []Conn {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	all := make([]Conn, len(s.seen.conns))
	for i, c := range s.seen.conns {
		all[i] = *c
	}
	return all
}

// Peak is the most that ran, waited and was connected at once.
func (s *Server) Peak() Peak {
	s.slots.mu.Lock()
	p := Peak{Running: s.slots.peakBusy, Queued: s.slots.peakQueued}
	s.slots.mu.Unlock()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	p.Connections = s.seen.peakOpen
	return p
}

// Running and Waiting are the requests that have a slot, and those that do not.
func (s *Server) Running() int {
	busy, _ := s.slots.state()
	return len(busy) - len(slices.DeleteFunc(busy, func(b bool) bool { return b }))
}

// Waiting is how many requests wait for a slot.
func (s *Server) Waiting() int {
	_, waiting := s.slots.state()
	return waiting
}

// Forget drops what was recorded of ended requests and sets the peaks to what is.
func (s *Server) Forget() {
	s.slots.mu.Lock()
	s.slots.peakBusy, s.slots.peakQueued = s.slots.running(), len(s.slots.waiting)
	s.slots.mu.Unlock()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	s.seen.peakOpen = s.seen.open
	s.seen.requests = slices.DeleteFunc(s.seen.requests, func(r *Request) bool { return r.Ended() })
}

func (r *recording) opened() (number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, &Conn{Opened: time.Now()})
	r.open++
	r.peakOpen = max(r.peakOpen, r.open)
	return len(r.conns)
}

func (r *recording) shut(number int, byClient bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conns[number-1]
	c.Closed, c.ByClient = time.Now(), byClient
	r.open--
}

func (r *recording) arrived(q *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conns[q.Conn-1]
	c.Requests++
	q.Place = c.Requests
	r.requests = append(r.requests, q)
}

// change alters a request that is on record.
func (r *recording) change(q *Request, what func(*Request)) Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	what(q)
	return *q
}
