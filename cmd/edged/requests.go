package edged

import "github.com/iop-dev/iop/services/admin"

// cancelRequest ends a live request for an administrator.
func (e *Edge) cancelRequest(by admin.Caller, t admin.Target) (admin.Cancelled, error) {
	was, err := e.dispatcher.Cancel(t.Seq, t.ID)
	if err != nil {
		was.Seq, was.ID = t.Seq, t.ID // the log names what was asked for
	}
	e.log.Info("admin call", "token", by.Token, "address", by.Address, "call", "cancel", "enqueue_seq", uint64(was.Seq), "request_id", was.ID, "ok", err == nil)
	if err != nil {
		return admin.Cancelled{}, err
	}
	return admin.Cancelled{Seq: was.Seq, ID: was.ID, State: was.Phase.String()}, nil
}
