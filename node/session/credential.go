package session

import (
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// keep takes the node's next credential, and shows it once it is on the disk. The
// reader of the session does not wait for that. Of offers that come faster than the
// disk takes them, those in between are dropped: the Edge makes others.
func (s *session) keep(credential string) {
	if s.cfg.KeepCredential == nil || credential == "" || !s.keeping.CompareAndSwap(false, true) {
		return
	}
	s.workers.Go(func() {
		defer s.keeping.Store(false)
		if err := s.cfg.KeepCredential(credential); err != nil {
			s.cfg.Logger.Error("the edge has replaced this node's credential, but the new one cannot be kept: the present one stays in use", "error", err)
			return
		}
		s.cfg.Logger.Info("this node's credential is replaced")
		s.enqueue(&runtimev1.SessionRequest{Message: &runtimev1.SessionRequest_CredentialTaken{
			CredentialTaken: &runtimev1.CredentialTaken{Credential: credential},
		}})
	})
}
