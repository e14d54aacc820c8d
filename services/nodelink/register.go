package nodelink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/proto/framecodec"
)

// Session implements the Session RPC: one registration, to its end.
func (s *Service) Session(ctx context.Context, conn *sessionConn) error {
	t := transportOf(ctx)
	if t == nil {
		return connect.NewError(connect.CodeInternal, errNoTransport)
	}
	if !s.enter() {
		return connect.NewError(connect.CodeUnavailable, errors.New("the Edge is shutting down"))
	}
	defer s.handlers.Done()

	guard := s.cfg.Clock.AfterFunc(registerTimeout, t.sever)
	defer guard.Stop()
	first, err := conn.Receive()
	if err != nil {
		return err
	}
	register := first.GetRegister()
	if register == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the first message of a session must be register"))
	}
	secret, _ := auth.BearerToken(conn.RequestHeader().Get("Authorization"))
	accepted, refusal := s.admit(register, secret, t, conn.Peer().Addr)
	if refusal != nil {
		s.counters.rejected(refusal.Reason)
		if refusal.Reason != runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER { // duplicate has told of it
			reason := reasonName(refusal.Reason)
			s.log.warn("node "+register.NodeId+" "+reason+" "+register.InstanceId, "node rejected", "node", register.NodeId, "reason", reason,
				"instance", register.InstanceId, "remote", conn.Peer().Addr, "message", refusal.Message)
		}
		return conn.Send(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Rejected{Rejected: refusal}})
	}
	guard.Stop()
	if s.cfg.Credentials != nil {
		s.cfg.Credentials.Used(register.NodeId, secret)
	}
	// A refresh or a stop that came while the registration was judged has not
	// reached its session.
	s.bringInLine(accepted)
	if s.isDraining() {
		s.letGo(accepted)
	}
	return accepted.serve(conn)
}

// reasonName is the reason in logs and counters: "duplicate_owner".
func reasonName(r runtimev1.RejectReason) string {
	return strings.ToLower(strings.TrimPrefix(r.String(), "REJECT_REASON_"))
}

func reject(reason runtimev1.RejectReason, format string, args ...any) *runtimev1.Rejected {
	return &runtimev1.Rejected{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// judge decides a registration on its own merits.
//
// Who presents no token at all learns nothing. Who presents one learns whether
// the node id exists: the contract asks that a node whose id is not configured
// yet keeps trying, while one whose credential is wrong stops, so the two must
// differ; node ids are no secrets (clients see them in x-iop-node).
func (s *Service) judge(register *runtimev1.Register, secret string) (version uint32, refusal *runtimev1.Rejected) {
	if secret == "" {
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL,
			"no node token was sent: set token_file or token_env in the node's configuration")
	}
	known, ok := s.cfg.Authenticator.Node(register.NodeId, secret)
	switch {
	case !known:
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_UNKNOWN_NODE,
			"node %q is not in the Edge's configuration: add it under nodes and reload", register.NodeId)
	case !ok && s.cfg.Credentials != nil && s.cfg.Credentials.Replaced(register.NodeId, secret):
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL,
			"this credential of node %q was replaced by another, which was used since: a copy of it is shown, or this machine has lost the new one; "+
				"if it is this machine's, join again by \"iop node token create %s\"", register.NodeId, register.NodeId)
	case !ok:
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL,
			"the node token is not that of node %q: its SHA-256 has to be token_sha256 there, or the node has to join by \"iop node token create\"", register.NodeId)
	}
	version, ok = framecodec.Version(register.ProtocolVersion)
	if !ok {
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_VERSION_SKEW,
			"the node speaks protocol version %d, the Edge %d to %d: update the node",
			register.ProtocolVersion, framecodec.OldestProtocolVersion, framecodec.ProtocolVersion)
	}
	if s.isDraining() {
		return 0, reject(runtimev1.RejectReason_REJECT_REASON_DRAINING, "the Edge is stopping: come back later")
	}
	return version, nil
}

// admit makes the caller the owner of its node id, or says why not. A former
// owner is fenced first if it may be: the same process coming back, or one
// silent past the heartbeat timeout. A live owner is never disturbed (S12).
func (s *Service) admit(register *runtimev1.Register, secret string, t *transport, remote string) (*session, *runtimev1.Rejected) {
	if _, refusal := s.judge(register, secret); refusal != nil {
		return nil, refusal
	}
	n := s.nodeOf(admission.NodeID(register.NodeId))
	n.turn.Lock()
	defer n.turn.Unlock()
	// Whoever revokes takes the turn after the credential has ceased to pass.
	version, refusal := s.judge(register, secret)
	if refusal != nil {
		return nil, refusal
	}

	token := auth.NewToken("")
	now := s.cfg.Clock.Now()
	set := s.cfg.Providers(n.id)
	next := &session{
		service: s, node: n, register: register, tokenHash: hashToken(token),
		transport: t, since: now, remote: remote, providers: set,
		out:     make(chan *runtimev1.SessionResponse, sessionQueue),
		done:    make(chan struct{}),
		streams: map[uint32]*workStream{},
		wished:  framecodec.InitialStreams,
		taken:   make(chan struct{}, 1),
	}
	next.secret.Store(&secret)
	next.out <- &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Accepted{Accepted: &runtimev1.Accepted{
		GenerationToken:     token,
		ProtocolVersion:     version,
		HeartbeatIntervalMs: milliseconds(s.cfg.HeartbeatInterval),
		HeartbeatTimeoutMs:  milliseconds(s.cfg.HeartbeatTimeout),
		Providers:           next.revised(set),
		EdgeId:              s.cfg.EdgeID,
		SoftwareVersion:     s.cfg.SoftwareVersion,
		BodyLimitBytes:      uint64(s.cfg.BodyLimit),
	}}}

	n.mu.Lock()
	former := n.session
	cause := ""
	switch {
	case former == nil:
	case former.register.InstanceId == register.InstanceId:
		cause = "the same process connected again"
	case former.isSilent():
		cause = "silent past the heartbeat timeout while another process connected"
	default:
		n.rival.count++
		n.rival.Rival = Rival{
			InstanceID: register.InstanceId, SoftwareVersion: register.SoftwareVersion,
			OS: register.Os, Arch: register.Arch, Remote: remote, At: now,
		}
		n.mu.Unlock()
		return nil, s.duplicate(former, register, remote)
	}
	fenced := false
	if former != nil {
		fenced = n.fenceLocked(s.cfg.Broker)
	}
	// Streams are looked up under n.mu: a grant made the moment Connect returns
	// finds the session.
	next.generation = s.cfg.Broker.Connect(n.id)
	n.session = next
	s.setToken(next)
	n.mu.Unlock()

	if former != nil {
		s.bury(former, cause, abrupt, fenced)
	}
	if s.cfg.Events != nil {
		s.cfg.Events.NodeConnected(n.id)
	}
	s.cfg.Logger.Info("node connected", "node", n.id, "remote", remote, "version", register.SoftwareVersion,
		"os", register.Os, "arch", register.Arch, "protocol", version)
	return next, nil
}

// duplicate reports that two processes are configured with one node id, to the
// operator of the Edge and to that of the newcomer: either may be the one who has
// to change it.
func (s *Service) duplicate(owner *session, register *runtimev1.Register, remote string) *runtimev1.Rejected {
	id, held := register.NodeId, s.cfg.Clock.Since(owner.since).Round(time.Second)
	s.log.warn("duplicate "+id+" "+owner.register.InstanceId+" "+register.InstanceId,
		"two processes use one node id: stop one of them, or give it an id of its own in node.yaml and under nodes here",
		"node", id,
		slog.Group("owner", "instance", owner.register.InstanceId, "remote", owner.remote, "version", owner.register.SoftwareVersion,
			"os", owner.register.Os, "arch", owner.register.Arch, "connected_for", held),
		slog.Group("refused", "instance", register.InstanceId, "remote", remote, "version", register.SoftwareVersion,
			"os", register.Os, "arch", register.Arch))
	return reject(runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER,
		"another process (version %.40s on %.20s/%.20s, from %s, instance %.40s) is connected as node %q since %v: stop one of the two, "+
			"or give this one an id of its own in node.yaml and in the Edge's configuration; it is served here as soon as the other has gone",
		owner.register.SoftwareVersion, owner.register.Os, owner.register.Arch, owner.remote, owner.register.InstanceId, id, held)
}

// end fences a session's generation, ends its streams, then tells the world: in
// this order. It does nothing for a session that is not the owner any more, so a
// stale close changes nothing (S12). It waits for nobody.
func (s *Service) end(old *session, cause string, how manner) {
	n := old.node
	n.turn.Lock()
	defer n.turn.Unlock()
	n.mu.Lock()
	owner := n.session == old
	fenced := owner && n.fenceLocked(s.cfg.Broker)
	n.mu.Unlock()
	if owner {
		s.bury(old, cause, how, fenced)
	}
}

// bury ends a fenced session's streams and publishes the end, if it was the core
// that has fenced it. Called with node.turn, so that the events of a node are in
// order.
func (s *Service) bury(old *session, cause string, how manner, fenced bool) {
	s.dropToken(old)
	old.close(how)
	if s.cfg.Events != nil && fenced {
		s.cfg.Events.NodeDisconnected(old.node.id, cause)
	}
	s.cfg.Logger.Info("node disconnected", "node", old.node.id, "cause", cause,
		"connected_for", s.cfg.Clock.Since(old.since).Round(time.Millisecond))
}

// drainNode takes a node's notice of an orderly stop: no new work, and the
// session ends when the running work has.
func (s *Service) drainNode(old *session, grace time.Duration) {
	if !s.cfg.Broker.Drain(old.node.id, old.generation) {
		return
	}
	s.cfg.Logger.Info("node drains", "node", old.node.id, "grace", grace)
	old.drain()
}
