package nodelink

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

type sessionConn = connect.BidiStream[runtimev1.SessionRequest, runtimev1.SessionResponse]

// session is one accepted node connection. Any failure ends it; it never comes
// back.
type session struct {
	// Immutable.
	service    *Service
	node       *node
	register   *runtimev1.Register
	generation admission.Generation
	tokenHash  tokenHash
	transport  *transport
	since      time.Time // accepted
	remote     string
	out        chan *runtimev1.SessionResponse // to writeAll; never closed
	done       chan struct{}                   // closed at the end

	// lastSeen and writing are times since "since", in nanoseconds: the monotonic
	// clock, so that a step of the system's clock loses no node. writing is 0
	// while no write is under way.
	lastSeen atomic.Int64
	writing  atomic.Int64
	cause    atomic.Pointer[string] // of fail
	revision atomic.Uint64          // of the provider list sent last
	secret   atomic.Pointer[string] // what the node has shown last: a token or a credential
	taken    chan struct{}          // of capacity 1: a next credential was shown
	// fenced is set before the core is told, so that nothing of this connection
	// passes for current once the core has fenced it.
	fenced atomic.Bool

	mu        sync.Mutex
	ended     bool
	draining  bool // ends as soon as no stream is held and nobody waits
	providers *runtimev1.ProviderSet
	streams   map[uint32]*workStream
	used      usedIDs
	idle      []*workStream // parked, most recently used last
	leastIdle int           // fewest parked since the last trim
	served    time.Duration // when a waiting Take last got a stream, by now; 0 = never
	heldCount int
	wished    int       // streams the node was asked to keep open
	waiters   []*waiter // longest waiting first
}

func (s *session) now() time.Duration { return s.service.cfg.Clock.Since(s.since) }

// isStale reports, and counts, that something came of a generation that is over:
// it must be dropped.
func (s *session) isStale() bool {
	stale := s.fenced.Load()
	if stale {
		s.service.counters.staleFrames.Add(1)
	}
	return stale
}

// silence is the time since the last message received.
func (s *session) silence() time.Duration { return s.now() - time.Duration(s.lastSeen.Load()) }

// isSilent reports whether the heartbeat timeout is over. Far beyond it, this
// process was stopped, as pulse has not ended the session: pulse then decides, once
// what the node has sent meanwhile is read.
func (s *session) isSilent() bool {
	late := s.silence() - s.service.cfg.HeartbeatTimeout
	return late >= 0 && late <= stopped
}

// enqueue hands a message to the writer and never blocks. A session whose queue
// is full is stuck, and ends.
func (s *session) enqueue(m *runtimev1.SessionResponse) {
	select {
	case s.out <- m:
	case <-s.done:
	default:
		s.service.counters.overflows.Add(1)
		s.fail("the node does not read its session stream")
	}
}

// fail breaks the session stream, whose handler then ends the session; the first
// cause given is the one told. Any goroutine may call it, with any lock.
func (s *session) fail(cause string) {
	s.cause.CompareAndSwap(nil, &cause)
	s.transport.sever()
}

// serve runs an accepted session to its end.
func (s *session) serve(conn *sessionConn) error {
	var workers sync.WaitGroup
	workers.Go(func() { s.writeAll(conn) })
	workers.Go(s.pulse)
	if s.service.cfg.Credentials != nil && s.register.GetTakesCredential() {
		workers.Go(s.rotate)
	}
	cause, err := s.readAll(conn)
	s.service.end(s, cause, abrupt)
	workers.Wait()
	return err
}

// readAll takes the node's messages until the session ends, and returns why it
// did, for people and for the node.
func (s *session) readAll(conn *sessionConn) (cause string, err error) {
	for {
		m, err := conn.Receive()
		if err != nil {
			select {
			case <-s.done: // ended on this side
				return "", nil
			default:
			}
			if cause := s.cause.Load(); cause != nil {
				return *cause, nil
			}
			if errors.Is(err, io.EOF) {
				return "the node closed the session", nil
			}
			return "session lost: " + err.Error(), err
		}
		if s.isStale() {
			return "", nil
		}
		s.hear()
		switch m := m.Message.(type) {
		case *runtimev1.SessionRequest_Register:
			err := connect.NewError(connect.CodeInvalidArgument, errors.New("register is for the first message of a session only"))
			return "protocol error: second register", err
		case *runtimev1.SessionRequest_Drain:
			s.service.drainNode(s, time.Duration(m.Drain.GetGraceMs())*time.Millisecond)
		case *runtimev1.SessionRequest_QueryResult:
			s.queryResult(m.QueryResult)
		case *runtimev1.SessionRequest_CredentialTaken:
			s.takeCredential(m.CredentialTaken.GetCredential())
		}
	}
}

// writeAll sends what is enqueued until the session ends.
func (s *session) writeAll(conn *sessionConn) {
	for {
		select {
		case m := <-s.out:
			s.write(conn, m)
			continue
		case <-s.done:
		}
		for { // what was enqueued before the end
			select {
			case m := <-s.out:
				s.write(conn, m)
			default:
				return
			}
		}
	}
}

func (s *session) write(conn *sessionConn, m *runtimev1.SessionResponse) {
	s.writing.Store(max(1, int64(s.now())))
	err := conn.Send(m)
	s.writing.Store(0)
	if err != nil {
		s.fail("session lost: " + err.Error())
	}
}

// pulse sends heartbeats, watches for the node's silence and for a stuck write.
func (s *session) pulse() {
	cfg := &s.service.cfg
	beat := cfg.Clock.NewTicker(cfg.HeartbeatInterval)
	defer beat.Stop()
	limit := cfg.Clock.NewTimer(cfg.HeartbeatTimeout)
	defer limit.Stop()
	var stuck struct { // a write under way
		write int64 // when it began
		beats int   // since then
	}
	woken := false
	for {
		select {
		case <-beat.Chan():
			// Counted in beats, not read off the clock: a leap of the clock (the
			// machine slept) says nothing of a write.
			if began := s.writing.Load(); began == 0 || began != stuck.write {
				stuck.write, stuck.beats = began, 0
			} else if stuck.beats++; time.Duration(stuck.beats)*cfg.HeartbeatInterval >= cfg.HeartbeatTimeout {
				s.fail("the node does not read its session stream")
				return
			}
			s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}})
			s.trim()
		case <-limit.Chan():
			left := cfg.HeartbeatTimeout - s.silence()
			if left < -stopped && !woken {
				// The timer is far behind its time: this process was stopped, and what
				// the node has sent meanwhile is not read yet.
				woken = true
				limit.Reset(wakePatience)
				continue
			}
			if left <= 0 {
				s.service.end(s, fmt.Sprintf("heartbeat timeout: nothing received for %v", cfg.HeartbeatTimeout), abrupt)
				return
			}
			woken = false
			limit.Reset(left)
		case <-s.done:
			return
		}
	}
}

// manner is how a session's streams end: gentle lets what is enqueued go out and
// ends them so that the node reads a clean end; abrupt resets them.
type manner bool

const (
	gentle manner = true
	abrupt manner = false
)

// close ends the session's streams, once, after the generation is fenced.
func (s *session) close(how manner) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	close(s.done)
	for _, w := range s.waiters {
		close(w.ready)
	}
	for _, ws := range s.idle {
		s.releaseLocked(ws)
	}
	s.waiters, s.idle = nil, nil
	held := make([]*workStream, 0, len(s.streams))
	for _, ws := range s.streams {
		held = append(held, ws)
	}
	s.mu.Unlock()

	for _, ws := range held {
		ws.transport.sever()
	}
	if how == gentle {
		s.transport.stopReading()
		// A node that does not read cannot hold up the end for long.
		s.service.cfg.Clock.AfterFunc(s.service.cfg.HeartbeatInterval, s.transport.sever)
		return
	}
	s.transport.sever()
}

// finishIfDrained ends a draining session that nothing needs any more.
func (s *session) finishIfDrained() {
	s.mu.Lock()
	idle := s.draining && !s.ended && s.heldCount == 0 && len(s.waiters) == 0
	s.mu.Unlock()
	if idle {
		s.service.end(s, "drained", gentle)
	}
}

// drain makes the session end as soon as its work is done.
func (s *session) drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.finishIfDrained()
}

// pushProviders sends the node its providers if they differ from what it has.
// Called with node.turn, taken before set was read.
func (s *session) pushProviders(set *runtimev1.ProviderSet) {
	s.mu.Lock()
	same := proto.Equal(s.providers, set)
	s.providers = set
	s.mu.Unlock()
	if !same {
		s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Providers{Providers: s.revised(set)}})
	}
}

// revised is set as the next list of this session. Its number is in force before
// the list is on its way: a request that is granted because of the list names it,
// and waits for it at the node if it arrives first.
func (s *session) revised(set *runtimev1.ProviderSet) *runtimev1.ProviderSet {
	return &runtimev1.ProviderSet{Providers: set.GetProviders(), Revision: s.revision.Add(1)}
}
