package inference

import (
	"errors"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

const (
	// eventsType is the content type of a run's answer from a node.
	eventsType = "application/x-iop-run-events"
	// eventLimit bounds one event from a node, in bytes. It is below what clients
	// take as a message unless they are told otherwise (4 MiB).
	eventLimit = 3 << 20
)

// run passes the events of one run on to its client. It implements dispatch.Sink.
type run struct {
	send      func(*inferencev1.RunResponse) error
	simulated func(admission.ResourceKey) bool
	started   inferencev1.Started

	begun     bool // started has been sent
	completed bool // completed has been sent
	// target is the provider's name for the model; the tokens are what it has counted.
	target string
	usage  *inferencev1.Usage
	// said is whether the answer has any text, reasoning or tool call; cut, whether its length was used up.
	said, cut bool
	// reported is the provider's own error, as its node told of it.
	reported *inferencev1.Failure
	pending  []byte // of an event that has not come whole
}

// Complete implements dispatch.Sink.
func (r *run) Complete() bool { return r.completed }

// Tokens implements dispatch.Counter.
func (r *run) Tokens() (input, output int) {
	if r.usage == nil {
		return -1, -1
	}
	return int(min(r.usage.GetInputTokens(), math.MaxInt32)), int(min(r.usage.GetOutputTokens(), math.MaxInt32))
}

// Empty implements dispatch.Emptiable.
func (r *run) Empty() bool { return r.cut && !r.said }

// Frame implements dispatch.Sink.
func (r *run) Frame(g *dispatch.Grant, f *dispatch.Frame) error {
	if f.Head != nil {
		if !isRun(f.Head) {
			return lost(g, false, "the node's answer to a run is none")
		}
		if err := r.start(g); err != nil {
			return err
		}
	}
	if err := r.take(g, f.Body); err != nil {
		return err
	}
	switch {
	case !f.End, r.completed:
		return nil
	case r.reported.GetProviderStatus() != 0:
		return nil // a whole answer, like any other of that status
	case r.reported != nil:
		return lost(g, true, "the provider reported an error inside its stream")
	}
	return lost(g, true, "the node ended the run without its completion")
}

// start sends `started`.
func (r *run) start(g *dispatch.Grant) error {
	r.begun, r.target = true, g.Target
	s := &r.started
	s.NodeId, s.ProviderId, s.QueueMs = string(g.Node), string(g.Provider), uint64(g.QueueWait.Milliseconds())
	s.Simulated = r.simulated(admission.ResourceKey{Node: g.Node, Provider: g.Provider})
	return r.send(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Started{Started: s}})
}

// take passes on every event that is whole now.
func (r *run) take(g *dispatch.Grant, b []byte) error {
	if len(r.pending) > 0 {
		b = append(r.pending, b...)
		r.pending = b
	}
	for len(b) > 0 {
		size, n := protowire.ConsumeVarint(b)
		if n < 0 && len(b) < 10 {
			break // the length itself is not whole
		}
		if n < 0 || size > eventLimit {
			return lost(g, true, "the node sent an event that is too large or none")
		}
		if uint64(len(b)-n) < size {
			break
		}
		event := &inferencev1.RunResponse{}
		if err := proto.Unmarshal(b[n:n+int(size)], event); err != nil {
			return lost(g, true, "the node sent an event that is none")
		}
		b = b[n+int(size):]
		if err := r.pass(event); err != nil {
			return err
		}
	}
	r.pending = append(r.pending[:0], b...)
	return nil
}

// pass sends one event of the node; what this version does not know, and what
// comes after the end, is passed over.
func (r *run) pass(event *inferencev1.RunResponse) error {
	if r.completed || r.reported != nil {
		return nil
	}
	switch e := event.GetEvent().(type) {
	case *inferencev1.RunResponse_Usage:
		r.usage = e.Usage
	case *inferencev1.RunResponse_Completed:
		r.completed, r.cut = true, e.Completed.GetFinishReason() == inferencev1.FinishReason_FINISH_REASON_LENGTH
	case *inferencev1.RunResponse_Delta, *inferencev1.RunResponse_ReasoningDelta, *inferencev1.RunResponse_ToolCall:
		r.said = true
	case *inferencev1.RunResponse_Failed:
		r.reported = e.Failed
	case nil, *inferencev1.RunResponse_Started:
		return nil
	}
	return r.send(event)
}

// fail sends `failed` for a run that has begun and did not say so itself. Whether
// it arrives does not matter: the RPC's error says the same.
func (r *run) fail(f *inferencev1.Failure) {
	if r.begun && r.reported == nil {
		_ = r.send(&inferencev1.RunResponse{Event: &inferencev1.RunResponse_Failed{Failed: f}})
	}
}

func isRun(head *dispatch.Head) bool {
	for _, h := range head.Header {
		if strings.EqualFold(h.Name, "Content-Type") {
			return h.Value == eventsType
		}
	}
	return false
}

func lost(g *dispatch.Grant, started bool, why string) error {
	return &dispatch.FailedError{Code: dispatch.ProviderDisconnected, Message: why, Started: started, HandedOff: true, Grant: *g}
}

// drained is err, or the stop of the Edge where that has caused it: it takes the
// providers away from those who wait.
func drained(err error) error {
	var none *broker.UnavailableError
	if errors.As(err, &none) || errors.Is(err, broker.ErrUnknownGroup) {
		return rpcerr.ErrDraining
	}
	return err
}
