package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// ErrUnknownGroup is returned by Acquire for a model that is not configured.
var ErrUnknownGroup = errors.New("broker: unknown model group")

// ErrFenced is returned by [Lease.Track] when the lease ended before hand-off,
// because its node disconnected. The request is already waiting again: call
// [Lease.Await].
var ErrFenced = errors.New("broker: lease fenced before hand-off")

// ErrRevoked is returned by [Lease.Await] when the lease had been handed off and
// its node has disconnected: the request has ended, and must say so.
var ErrRevoked = errors.New("broker: lease revoked")

// QueueFullError is returned when as many requests wait as the policy allows.
type QueueFullError struct {
	Seq        admission.Seq
	Reason     admission.Reason // why the request would have had to wait
	RetryAfter time.Duration    // estimate; 0 = not known yet
}

func (e *QueueFullError) Error() string {
	return "broker: queue full" + InBrackets(e.Reason)
}

// InBrackets is a reason as the end of a sentence, " (full)"; empty if there is
// none.
func InBrackets(r admission.Reason) string {
	if r == admission.ReasonNone {
		return ""
	}
	return " (" + r.String() + ")"
}

// QueueTimeoutError is returned when a request has waited for as long as its
// policy allows.
type QueueTimeoutError struct {
	Seq        admission.Seq
	Waited     time.Duration
	Reason     admission.Reason // what it waited for
	RetryAfter time.Duration    // estimate; 0 = not known yet
}

func (e *QueueTimeoutError) Error() string {
	return fmt.Sprintf("broker: no slot within %s%s", e.Waited, InBrackets(e.Reason))
}

// UnavailableError is returned when no candidate is live.
type UnavailableError struct {
	Seq    admission.Seq
	Reason admission.Reason // of the candidates' obstacles the weakest
	Waited bool             // it had live candidates once, and lost the last of them
	Bare   bool             // its group has no candidate configured, of whatever type
}

func (e *UnavailableError) Error() string {
	return "broker: no provider available" + InBrackets(e.Reason)
}

// NotServed reports whether no candidate's type serves the endpoint at all. Of a
// request that has waited one did: its model or its candidates were taken away;
// and of a group without candidates nobody knows.
func (e *UnavailableError) NotServed() bool {
	return e.Reason == admission.ReasonNoModel && !e.Waited && !e.Bare
}
