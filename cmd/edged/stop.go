package edged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/iop-dev/iop/edge/dispatch"
)

const (
	// closeLimit is what a stop takes at most after the grace, whatever a client or
	// a node does: for telling those whose requests are ended, and for the last
	// bytes to leave.
	closeLimit = 2 * time.Second
	// returnAfter is when nodes are told to come back: about what a restart takes.
	// One that comes while this Edge still stops is told so, and waits again.
	returnAfter = 2 * time.Second
)

// hasty is the cause of a stop that has a limit of its own.
type hasty struct{ limit time.Duration }

func (h *hasty) Error() string { return fmt.Sprintf("told to stop within %s", h.limit) }

// StopLimit is what a Node's stop asks of its cause.
func (h *hasty) StopLimit() time.Duration { return h.limit }

// StopWithin is a cause for the end of Run's context: whoever ends it knows that
// the process will be gone after limit, as with a Windows that shuts down.
func StopWithin(limit time.Duration) error { return &hasty{limit} }

// graceOf is how long running requests may go on: as configured, or what a hasty
// stop leaves of it.
func graceOf(ctx context.Context, configured time.Duration) time.Duration {
	var h *hasty
	if errors.As(context.Cause(ctx), &h) {
		return max(0, min(configured, h.limit-closeLimit))
	}
	return configured
}

// stop ends an Edge's work in order:
//
//	at once            the surface refuses, waiters are told, nodes are told
//	up to the grace    running requests go on; a node whose work is done is let go
//	end of the grace   what still runs is ended, and its client told
//	then               the last bytes leave, and Run closes everything
func (e *Edge) stop(ctx context.Context) {
	grace := graceOf(ctx, time.Duration(e.snapshot().Config.GetEdge().GetStopGraceMs())*time.Millisecond)
	e.log.Info("stopping: nothing new is admitted", "grace", grace.String())
	e.surface.Drain(grace)
	e.typed.Drain()
	e.link.Drain(returnAfter)
	e.rejectWaiters()

	running, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if !e.requests.wait(running) {
		e.log.Warn("requests were still running at the end of the grace: they are ended", "in_flight", e.broker.Snapshot().InFlight)
	}

	// In this order: who learns of the link's end first would take it for the
	// node's.
	e.cut(dispatch.ErrStopped)
	closing, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(e.link.Close) // returns when the requests have let go of their streams, or the servers are closed
	if !e.requests.wait(closing) {
		e.log.Warn("clients that do not read were cut off")
	}
	var shut sync.WaitGroup
	for _, s := range e.servers {
		// What a handler has written may still be on its way to the socket.
		shut.Go(func() { _ = s.http.Shutdown(closing) })
	}
	shut.Wait()
	for _, s := range e.servers {
		s.close()
	}
	parts.Wait()
}

// rejectWaiters takes every model away: waiting requests have no provider any
// more, running ones keep theirs. No refresh and no override comes after it.
func (e *Edge) rejectWaiters() {
	e.applying.Lock()
	defer e.applying.Unlock()
	e.stopping = true
	cfg := e.overrides.Apply(e.snapshot().Admission)
	cfg.Groups = nil
	e.broker.Reconfigure(cfg)
}
