package llamacpp

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options is how the server is started; the zero value serves.
type Options struct {
	// Address to listen on; "" is a free port of 127.0.0.1.
	Address string
	// Alias is the model's name; "" is "count".
	Alias string
	// Slots is how many requests run at once; 0 is 2. It is what /props calls
	// total_slots.
	Slots int
	// Context is the number of tokens a slot holds, prompt and answer; 0 is 512.
	Context int
	// Pace is the time a token takes; 0 is none.
	Pace time.Duration
	// Poll is how often a plain answer looks whether its client is still there; 0
	// is the real one's second.
	Poll time.Duration
	// KeepAlive is how long an idle connection stays open; 0 is the 5 seconds that
	// the header promises.
	KeepAlive time.Duration
	// Embeddings and Reranking serve those endpoints, which are refused otherwise.
	Embeddings, Reranking bool
	// Key is the API key asked for; "" asks for none.
	Key string
	// Finished, if not nil, is told of each request when it has ended.
	Finished func(Request)
}

// Server is one running server. All methods may be called at any time.
type Server struct {
	options  Options
	listener net.Listener
	slots    *slots
	seen     recording
	created  int64 // in Unix seconds
	ids      atomic.Uint64
	loading  atomic.Bool
	failing  atomic.Pointer[failure]

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	wait   sync.WaitGroup
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	if o.Alias == "" {
		o.Alias = "count"
	}
	if o.Slots == 0 {
		o.Slots = 2
	}
	if o.Context == 0 {
		o.Context = 512
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 5 * time.Second
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("llamacpp: listen on %s: %w", o.Address, err)
	}
	s := &Server{options: o, listener: l, slots: newSlots(o.Slots), created: time.Now().Unix(), conns: map[*conn]struct{}{}}
	s.wait.Go(s.accept)
	return s, nil
}

// Address is where it listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// URL is Address as a base URL, without /v1.
func (s *Server) URL() string { return "http://" + s.Address() }

// SetLoading makes it say that the model is being loaded, to everything.
func (s *Server) SetLoading(loading bool) { s.loading.Store(loading) }

// FailNext makes the next n answers of the model an error with this status and
// this Retry-After, "" for none, before a slot is asked for.
func (s *Server) FailNext(n int, status int, retryAfter string) {
	f := &failure{status: status, retryAfter: retryAfter}
	f.left.Store(int64(n))
	s.failing.Store(f)
}

// failure is what FailNext asked for.
type failure struct {
	status     int
	retryAfter string
	left       atomic.Int64
}

// Cut breaks every open connection off, as a killed server would.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.raw.Close()
	}
}

// Close ends the server and every connection, and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.listener.Close()
	s.Cut()
	s.wait.Wait()
	return err
}

func (s *Server) accept() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		c := newConn(s, raw.(*net.TCPConn))
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = raw.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.wait.Go(func() {
			c.serve()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		})
		s.mu.Unlock()
	}
}

// id is a new identifier of 32 letters and digits.
func (s *Server) id() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	n := s.ids.Add(1)
	b := bytes.Repeat([]byte{'A'}, 32)
	for i := len(b) - 1; n > 0; i-- {
		b[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(b)
}
