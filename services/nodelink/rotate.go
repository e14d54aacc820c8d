package nodelink

import (
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// passes reports whether the node would be let in by what it has shown.
func (s *session) passes() bool {
	known, ok := s.service.cfg.Authenticator.Node(string(s.node.id), *s.secret.Load())
	return known && ok
}

// rotate offers the node its next credential when it is time for one: at the
// beginning of a session, or during it. An offer that is not answered is not made
// again in the same session: the node may have it, and would lose it by another.
func (s *session) rotate() {
	id := string(s.node.id)
	tick := s.service.cfg.Clock.NewTicker(rotationCheck)
	defer tick.Stop()
	alive := func() bool { return !s.fenced.Load() }
	offered := false
	for {
		if !offered {
			if next := s.service.cfg.Credentials.Next(id, *s.secret.Load(), alive); next != "" {
				offered = true
				s.service.cfg.Logger.Info("node is offered its next credential", "node", id)
				s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_NextCredential{
					NextCredential: &runtimev1.NextCredential{Credential: next},
				}})
			}
		}
		select {
		case <-tick.Chan():
		case <-s.taken:
			offered = false
		case <-s.done:
			return
		}
	}
}

// takeCredential notes the proof that the node keeps a credential: from now on it is
// the one of this session, and the former one passes no more.
func (s *session) takeCredential(credential string) {
	if credential == *s.secret.Load() {
		return
	}
	id := string(s.node.id)
	if known, ok := s.service.cfg.Authenticator.Node(id, credential); !known || !ok || s.service.cfg.Credentials == nil {
		s.service.log.warn("node "+id+" proof", "node shows a next credential that is not its own: it is ignored", "node", id, "remote", s.remote)
		return
	}
	s.secret.Store(&credential)
	s.service.cfg.Credentials.Used(id, credential)
	s.service.cfg.Logger.Info("node keeps its next credential", "node", id)
	select {
	case s.taken <- struct{}{}:
	default:
	}
}
