package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/proto/framecodec"
)

type sessionConn = connect.BidiStreamForClient[runtimev1.SessionRequest, runtimev1.SessionResponse]

// session is the state of one Run.
type session struct {
	cfg    Config
	dialer *dialer
	// life ends with the session, and end ends it; the first cause counts.
	life context.Context
	end  context.CancelCauseFunc
	// closers close the streams when life ends.
	closers  sync.WaitGroup
	workers  sync.WaitGroup // reader, writer, pulse
	sessions *connect.Client[runtimev1.SessionRequest, runtimev1.SessionResponse]
	works    *connect.Client[runtimev1.WorkRequest, runtimev1.WorkResponse]
	accepted *runtimev1.Accepted // set before anything below is used
	began    time.Time
	out      chan *runtimev1.SessionRequest

	// Times since began, in nanoseconds; writing is 0 while no write is under way.
	lastSeen atomic.Int64
	writing  atomic.Int64

	received atomic.Uint64 // bytes that the work connections have brought

	pool pool

	keeping atomic.Bool // a next credential is on its way to the disk
}

// Run is one registration. It returns nil when ctx has ended, after running work
// had its grace, and otherwise an error that says why the session ended or never
// began: *RejectedError, *EdgeDrainingError, *NotHTTP2Error, *ConfigError,
// ErrEdgeSilent and so on. It returns after the requests that ran for the session
// have let go of their providers, or a bounded time has passed.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	s := &session{
		cfg:    cfg,
		dialer: &dialer{open: map[net.Conn]struct{}{}},
		out:    make(chan *runtimev1.SessionRequest, sessionQueue),
		began:  cfg.Clock.Now(),
	}
	s.pool.session = s
	s.pool.streams, s.pool.ended = map[uint32]*work{}, map[uint32]uint64{}
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.end(nil)

	// Two transports: a full work connection never holds up a heartbeat or a cancel.
	sessionTransport, workTransport := s.newTransport(new(atomic.Uint64)), s.newTransport(&s.received)
	options := []connect.ClientOption{
		connect.WithCodec(framecodec.Codec{}),
		connect.WithAcceptCompression("gzip", nil, nil),
	}
	base := strings.TrimRight(cfg.EdgeURL, "/")
	s.sessions = connect.NewClient[runtimev1.SessionRequest, runtimev1.SessionResponse](
		wholeFrames{sessionTransport}, base+runtimev1connect.NodeLinkServiceSessionProcedure,
		append(options, connect.WithReadMaxBytes(maxSessionMessage))...)
	s.works = connect.NewClient[runtimev1.WorkRequest, runtimev1.WorkResponse](
		wholeFrames{workTransport}, base+runtimev1connect.NodeLinkServiceWorkProcedure,
		append(options, connect.WithReadMaxBytes(framecodec.MaxRequestBody+framecodec.MaxOverhead))...)

	err := s.run(ctx)
	if errors.Is(err, errStopped) {
		err = nil
	}
	s.finish()
	sessionTransport.CloseIdleConnections()
	workTransport.CloseIdleConnections()
	return err
}

// run registers and serves until the session is over.
func (s *session) run(ctx context.Context) error {
	conn := s.sessions.CallBidiStream(s.life)
	conn.RequestHeader().Set("Authorization", "Bearer "+s.cfg.Token)
	s.closeWithLife(conn)
	if err := s.registerWith(ctx, conn); err != nil {
		return err
	}
	s.cfg.Logger.Info("registered with the edge", "edge", s.accepted.GetEdgeId(), "version", s.accepted.GetSoftwareVersion(),
		"protocol", s.accepted.GetProtocolVersion(), "providers", len(s.accepted.GetProviders().GetProviders()))

	s.cfg.Providers.ApplyAnew(s.accepted.GetProviders())
	s.workers.Go(func() { s.readAll(conn) })
	s.workers.Go(func() { s.writeAll(conn) })
	s.workers.Go(s.pulse)
	s.pool.want(framecodec.InitialStreams)
	if s.cfg.OnReady != nil {
		s.cfg.OnReady()
	}
	select {
	case <-s.life.Done():
	case <-ctx.Done():
		s.drain()
	}
	return context.Cause(s.life)
}

// errStopped is the cause of a session that ended because Run's context did.
var errStopped = errors.New("the node stops")

// registerWith sends Register and takes the answer.
func (s *session) registerWith(ctx context.Context, conn *sessionConn) error {
	guard := s.cfg.Clock.AfterFunc(connectTimeout, func() { s.end(ErrConnectTimeout) })
	defer guard.Stop()
	defer context.AfterFunc(ctx, func() { s.end(errStopped) })()

	// A failed Send says only that the stream is over; Receive says why.
	sendErr := conn.Send(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Register{Register: &runtimev1.Register{
		ProtocolVersion: framecodec.ProtocolVersion,
		NodeId:          s.cfg.NodeID,
		InstanceId:      s.cfg.InstanceID,
		SoftwareVersion: s.cfg.SoftwareVersion,
		Os:              runtime.GOOS,
		Arch:            runtime.GOARCH,
		ProviderTypes:   s.cfg.ProviderTypes,
		TakesCredential: s.cfg.KeepCredential != nil,
	}}})
	if sendErr != nil && !errors.Is(sendErr, io.EOF) && s.life.Err() == nil {
		return s.explain(sendErr)
	}
	first, err := conn.Receive()
	switch {
	case s.life.Err() != nil:
		return context.Cause(s.life)
	case err != nil:
		return s.explain(err)
	}
	switch m := first.Message.(type) {
	case *runtimev1.SessionResponse_Rejected:
		return &RejectedError{Reason: m.Rejected.GetReason(), Message: m.Rejected.GetMessage()}
	case *runtimev1.SessionResponse_Accepted:
		s.accepted = m.Accepted
	default:
		return fmt.Errorf("register with %s: the edge answered neither accepted nor rejected", s.cfg.EdgeURL)
	}
	if v := s.accepted.GetProtocolVersion(); v < framecodec.OldestProtocolVersion || v > framecodec.ProtocolVersion {
		return &RejectedError{
			Reason: runtimev1.RejectReason_REJECT_REASON_VERSION_SKEW,
			Message: fmt.Sprintf("the edge chose protocol version %d, the node speaks %d to %d: update the older of the two",
				v, framecodec.OldestProtocolVersion, framecodec.ProtocolVersion),
		}
	}
	if s.accepted.GetHeartbeatIntervalMs() == 0 || s.accepted.GetHeartbeatTimeoutMs() == 0 {
		return fmt.Errorf("register with %s: the edge sent no heartbeat times", s.cfg.EdgeURL)
	}
	return nil
}

// closable is the client's side of a stream.
type closable interface {
	CloseRequest() error
	CloseResponse() error
}

// closeWithLife closes both sides of a stream when the session ends: the end of a
// client's context alone does not unblock a Receive. It returns a function that
// closes it now.
func (s *session) closeWithLife(conn closable) (closeEarly func()) {
	s.closers.Add(1)
	closeBoth := sync.OnceFunc(func() {
		defer s.closers.Done()
		_ = conn.CloseRequest()
		_ = conn.CloseResponse()
	})
	stop := context.AfterFunc(s.life, closeBoth)
	return func() {
		stop()
		closeBoth()
	}
}

// drain is the orderly stop: no new work, the Edge ends the session when the
// running work has, and the grace bounds that. Without a grace the session just
// ends.
func (s *session) drain() {
	s.pool.drain()
	var limit time.Duration
	if s.cfg.Grace != nil {
		limit = s.cfg.Grace()
	}
	if limit <= 0 {
		s.end(errStopped)
		return
	}
	grace := s.cfg.Clock.NewTimer(limit) // before the Edge can know
	defer grace.Stop()
	s.enqueue(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Drain{
		Drain: &runtimev1.NodeDrain{GraceMs: uint32(min(limit.Milliseconds(), 1<<32-1))},
	}})
	select {
	case <-s.life.Done():
	case <-grace.Chan():
	}
	s.end(errStopped)
}

// finish ends what the session still holds and waits, for a bounded time, until
// the requests that ran for it have let go.
func (s *session) finish() {
	s.end(ErrEdgeClosed)
	s.pool.close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.pool.loops.Wait() // the loops add closers
		s.workers.Wait()
		s.closers.Wait()
	}()
	limit := s.cfg.Clock.NewTimer(lingerLimit)
	defer limit.Stop()
	select {
	case <-over:
	case <-limit.Chan():
		s.cfg.Logger.Warn("session ended before all its requests let go of their providers", "waited", lingerLimit)
	}
	s.dialer.close()
}

func (s *session) now() time.Duration { return s.cfg.Clock.Since(s.began) }

func (s *session) heartbeat() (interval, timeout time.Duration) {
	return time.Duration(s.accepted.GetHeartbeatIntervalMs()) * time.Millisecond,
		time.Duration(s.accepted.GetHeartbeatTimeoutMs()) * time.Millisecond
}

// enqueue hands a message to the writer and never blocks.
func (s *session) enqueue(m *runtimev1.SessionRequest) {
	select {
	case s.out <- m:
	default:
		s.end(ErrStuck)
	}
}

func (s *session) writeAll(conn *sessionConn) {
	for {
		select {
		case m := <-s.out:
			s.writing.Store(max(1, int64(s.now())))
			err := conn.Send(m)
			s.writing.Store(0)
			if err != nil {
				// The reader knows better why.
				return
			}
		case <-s.life.Done():
			return
		}
	}
}

// pulse sends heartbeats, watches for the Edge's silence and for a stuck write.
func (s *session) pulse() {
	interval, timeout := s.heartbeat()
	beat := s.cfg.Clock.NewTicker(interval)
	defer beat.Stop()
	limit := s.cfg.Clock.NewTimer(timeout)
	defer limit.Stop()
	var probe struct { // under way while limit is set
		limit <-chan time.Time
		began time.Duration
	}
	var stuck struct { // a write under way
		write int64 // when it began
		beats int   // since then
	}
	woken := false // the silence is given one more interval
	for {
		select {
		case <-beat.Chan():
			// Counted in beats, not read off the clock: a leap of the clock (the
			// machine slept) says nothing of a write.
			if began := s.writing.Load(); began == 0 || began != stuck.write {
				stuck.write, stuck.beats = began, 0
			} else if stuck.beats++; time.Duration(stuck.beats)*interval >= timeout {
				s.end(ErrStuck)
				return
			}
			s.beat()
		case <-s.cfg.Probe:
			// A peer that has given this session up answers the heartbeat with a
			// reset; one that lives sends its own within an interval.
			s.beat()
			if probe.limit == nil {
				probe.began = s.now()
				probe.limit = s.cfg.Clock.After(interval*3/2 + probeSlack)
			}
		case <-probe.limit:
			probe.limit = nil
			if time.Duration(s.lastSeen.Load()) <= probe.began {
				s.end(ErrNoSign)
				return
			}
		case <-limit.Chan():
			left := timeout - (s.now() - time.Duration(s.lastSeen.Load()))
			switch {
			case left < -stopped && !woken:
				// The timer is far behind its time: this process was stopped, and what
				// the Edge has sent meanwhile is not read yet.
				woken = true
				limit.Reset(interval)
			case left <= 0:
				s.end(ErrEdgeSilent)
				return
			default:
				woken = false
				limit.Reset(left)
			}
		case <-s.life.Done():
			return
		}
	}
}

func (s *session) beat() {
	s.enqueue(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_Heartbeat{Heartbeat: &runtimev1.Heartbeat{}}})
}

// readAll takes the Edge's messages until the session ends.
func (s *session) readAll(conn *sessionConn) {
	s.lastSeen.Store(int64(s.now()))
	var draining *EdgeDrainingError
	for {
		m, err := conn.Receive()
		if err != nil {
			switch {
			case draining != nil:
				s.end(draining)
			case s.pool.isDraining():
				s.end(errStopped)
			case errors.Is(err, io.EOF):
				s.end(ErrEdgeClosed)
			default:
				s.end(fmt.Errorf("session with %s lost: %w", s.cfg.EdgeURL, err))
			}
			return
		}
		s.lastSeen.Store(int64(s.now()))
		switch m := m.Message.(type) {
		case *runtimev1.SessionResponse_Providers:
			s.cfg.Providers.Apply(m.Providers)
		case *runtimev1.SessionResponse_Cancel:
			s.pool.cancel(m.Cancel.GetStreamId(), m.Cancel.GetRequestNumber())
		case *runtimev1.SessionResponse_Query:
			id, number := m.Query.GetStreamId(), m.Query.GetRequestNumber()
			s.pool.query(id, number, func(seen bool) {
				s.enqueue(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_QueryResult{QueryResult: &runtimev1.QueryResult{
					StreamId: id, RequestNumber: number, Seen: seen,
				}}})
			})
		case *runtimev1.SessionResponse_WorkStreams:
			s.pool.want(int(min(m.WorkStreams.GetTotal(), maxStreams)))
		case *runtimev1.SessionResponse_NextCredential:
			s.keep(m.NextCredential.GetCredential())
		case *runtimev1.SessionResponse_Drain:
			draining = &EdgeDrainingError{RetryAfter: time.Duration(m.Drain.GetRetryAfterMs()) * time.Millisecond}
			s.pool.edgeLeaves()
			s.cfg.Logger.Info("the edge stops: running work goes on", "retry_after", draining.RetryAfter)
		}
	}
}
