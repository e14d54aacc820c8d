package edged

import (
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/services/admin"
)

// phases are the words of the control API.
var phases = map[dispatch.Phase]string{
	dispatch.Waiting: "waiting", dispatch.Prefill: "prefill", dispatch.Streaming: "streaming", dispatch.Leaving: "ending",
}

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
	return admin.Cancelled{Seq: was.Seq, ID: was.ID, State: phases[was.Phase]}, nil
}
