package nodelink

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/gen/go/iop/runtime/v1/runtimev1connect"
	"github.com/iop-dev/iop/proto/framecodec"
)

// Service serves NodeLinkService and implements dispatch.Link.
type Service struct {
	cfg      Config
	counters counters
	log      repeats

	mu         sync.RWMutex
	nodes      map[admission.NodeID]*node
	tokens     tokens
	draining   bool
	retryAfter time.Duration
	closed     bool
	handlers   sync.WaitGroup // Add under mu, while not closed
}

// node is a node id that has registered at least once.
type node struct {
	id admission.NodeID // immutable

	// turn is held over a whole change of ownership, its event included: changes
	// and events of one node come one after the other. Taken before mu.
	turn sync.Mutex

	mu      sync.Mutex
	session *session // nil while offline
	last    NodeStatus
	rival   struct { // another process that claimed the id
		Rival
		count uint64
	}
}

// fenceLocked ends the ownership of the present session. It reports whether the
// core has fenced it just now: only that is an end to tell of.
func (n *node) fenceLocked(b Broker) (fenced bool) {
	old := n.session
	old.fenced.Store(true)
	fenced = b.Disconnect(n.id, old.generation)
	n.last = old.status()
	n.last.Connected, n.last.Draining, n.last.OfflineSince = false, false, old.since.Add(old.now())
	n.session = nil
	return fenced
}

var _ dispatch.Link = (*Service)(nil)

// New makes a Service. It fails only for a Config that is incomplete.
func New(cfg Config) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Service{
		cfg:    cfg,
		log:    repeats{clock: cfg.Clock, log: cfg.Logger, told: map[string]*repeat{}},
		nodes:  map[admission.NodeID]*node{},
		tokens: tokens{live: map[tokenHash]*session{}, past: map[tokenHash]struct{}{}},
	}, nil
}

// Handler is the service's path and HTTP handler. It needs HTTP/2, on a server
// set up with [ServerHTTP2Config]. Session messages are validated by their
// protovalidate rules; work frames are checked by code.
func (s *Service) Handler(options ...connect.HandlerOption) (path string, handler http.Handler) {
	options = append(options,
		connect.WithCodec(framecodec.Codec{}),
		connect.WithCompression("gzip", nil, nil),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.Procedure == runtimev1connect.NodeLinkServiceWorkProcedure {
				return []connect.HandlerOption{connect.WithReadMaxBytes(framecodec.MaxAnswerBody + framecodec.MaxOverhead)}
			}
			return []connect.HandlerOption{
				connect.WithReadMaxBytes(maxSessionMessage),
				connect.WithInterceptors(validate.NewInterceptor()),
			}
		}),
	)
	path, handler = runtimev1connect.NewNodeLinkServiceHandler(s, options...)
	return path, carry(handler)
}

// Work implements the Work RPC: the stream is parked, and waits here for its end.
func (s *Service) Work(ctx context.Context, conn *connect.BidiStream[runtimev1.WorkRequest, runtimev1.WorkResponse]) error {
	t := transportOf(ctx)
	if t == nil {
		return connect.NewError(connect.CodeInternal, errNoTransport)
	}
	if !s.enter() {
		return errStaleToken
	}
	defer s.handlers.Done()

	owner, id, err := s.vet(conn.RequestHeader())
	if err != nil {
		return s.refuseStream(err, conn.Peer().Addr)
	}
	// The response header tells the node that the stream stands.
	if err := conn.Conn().Send(nil); err != nil {
		return err
	}
	ws := &workStream{session: owner, id: id, conn: conn.Conn(), transport: t, gone: make(chan struct{})}
	if err := owner.add(ws); err != nil {
		return s.refuseStream(err, conn.Peer().Addr)
	}
	select {
	case <-ws.gone:
	case <-ctx.Done():
		owner.drop(ws)
		<-ws.gone
	}
	return nil
}

func (s *Service) nodeOf(id admission.NodeID) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		n = &node{id: id, last: NodeStatus{Node: id}}
		s.nodes[id] = n
	}
	return n
}

// owner is the node's present session, nil while it is offline.
func (n *node) owner() *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.session
}

// Take implements dispatch.Link.
func (s *Service) Take(ctx context.Context, id admission.NodeID, gen admission.Generation) (dispatch.Stream, error) {
	s.mu.RLock()
	n := s.nodes[id]
	s.mu.RUnlock()
	if n == nil {
		return nil, dispatch.ErrLinkLost
	}
	owner := n.owner()
	if owner == nil || owner.generation != gen {
		return nil, dispatch.ErrLinkLost
	}
	h, err := owner.take(ctx)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// PushProviders brings every connected node in line with the live configuration:
// call it after each refresh. A node that is no longer configured, or whose token
// was revoked, gets no new work and is disconnected when its running work has
// ended; a refresh never cancels work.
func (s *Service) PushProviders() {
	for _, owner := range s.owners() {
		s.bringInLine(owner)
	}
}

// bringInLine brings one connected node in line with the live configuration.
func (s *Service) bringInLine(owner *session) {
	// In turn with another of the kind, which could else push what it has read
	// before the refresh after this.
	owner.node.turn.Lock()
	owner.pushProviders(s.cfg.Providers(owner.node.id))
	owner.node.turn.Unlock()
	if owner.passes() {
		return
	}
	if s.cfg.Broker.Drain(owner.node.id, owner.generation) {
		s.cfg.Logger.Info("node no longer allowed: it drains", "node", owner.node.id)
		owner.drain()
	}
}

// Revoke ends the session of a node whose credential passes no more, at once: its
// generation is fenced, and what runs on it ends as when the node is lost. It
// reports whether there was such a session. Call it when the credential has ceased
// to pass: no session begins by it afterwards.
func (s *Service) Revoke(id admission.NodeID) (ended bool) {
	s.mu.RLock()
	n := s.nodes[id]
	s.mu.RUnlock()
	if n == nil {
		return false
	}
	// A registration that was judged before has its session when its turn is over.
	n.turn.Lock()
	owner := n.owner()
	n.turn.Unlock()
	if owner == nil || owner.passes() {
		return false
	}
	s.end(owner, "its credential was revoked", abrupt)
	return true
}

// Drain begins an orderly stop of the Edge: registrations are rejected, every
// node is told to come back after retryAfter, and each session ends as soon as
// no work stream is held. Call it when no request is queued any more.
func (s *Service) Drain(retryAfter time.Duration) {
	s.mu.Lock()
	s.draining, s.retryAfter = true, retryAfter
	s.mu.Unlock()
	for _, owner := range s.owners() {
		s.letGo(owner)
	}
}

// letGo tells a node that the Edge stops, and ends its session when its work is done.
func (s *Service) letGo(owner *session) {
	s.mu.RLock()
	after := s.retryAfter
	s.mu.RUnlock()
	owner.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Drain{
		Drain: &runtimev1.EdgeDrain{RetryAfterMs: milliseconds(after)},
	}})
	owner.drain()
}

func (s *Service) isDraining() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.draining
}

// Close ends every session and waits for the handlers to return: until then the
// requests under way must be given the chance to let go of their streams. It is
// idempotent.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed, s.draining = true, true
	s.mu.Unlock()
	for _, owner := range s.owners() {
		s.end(owner, "the Edge stops", gentle)
	}
	s.handlers.Wait()
}

// enter counts a handler; false after Close.
func (s *Service) enter() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// owners is every present session, by node id.
func (s *Service) owners() []*session {
	var owners []*session
	for _, n := range s.known() {
		if o := n.owner(); o != nil {
			owners = append(owners, o)
		}
	}
	return owners
}

func (s *Service) known() []*node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*node, 0, len(s.nodes))
	for _, n := range s.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.id, b.id) })
	return all
}
