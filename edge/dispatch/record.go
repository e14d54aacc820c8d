package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

// record writes the one log line of a request: what was asked, how it was
// classed, where it ran, how long it waited and for what, and how it ended. What
// admission had to weigh (the class is long, or it waited, or was rejected) is
// told with every candidate as it stood at the last decision, so that the decision
// can be made again from the line (L08).
func (d *Dispatcher) record(ctx context.Context, r *Request, x *exchange, err error) {
	level := slog.LevelInfo
	if !d.log.Enabled(ctx, level) {
		return
	}
	e := endingOf(ctx, err)
	class := r.Input.Class()
	attrs := make([]slog.Attr, 0, 18)
	attrs = append(attrs,
		slog.String("request_id", r.ID),
		slog.String("model", string(r.Group)),
		slog.String("outcome", e.outcome),
		slog.Int("estimated_input_tokens", r.Input.Tokens),
		slog.Int("uncalibrated_input_tokens", r.Input.Estimate.Tokens()),
		slog.Int("long_context_threshold_tokens", r.Input.Threshold),
		slog.String("context_class", class.String()),
	)
	seq, weighed := e.seq, class == admission.Long
	if x != nil {
		seq = x.lease.Seq()
		attrs = append(attrs,
			slog.String("node", string(x.grant.Node)),
			slog.String("provider", string(x.grant.Provider)),
			slog.Int64("queue_ms", x.grant.QueueWait.Milliseconds()),
			slog.Int("attempts", x.attempts),
		)
		if wait := x.lease.WaitReason; wait != admission.ReasonNone {
			weighed = true
			attrs = append(attrs, slog.String("wait_reason", wait.String()))
		}
	}
	if seq != 0 {
		attrs = append(attrs, slog.Uint64("enqueue_seq", uint64(seq)))
	}
	if e.reason != admission.ReasonNone {
		weighed = true
		attrs = append(attrs, slog.String("reason", e.reason.String()))
	}
	if weighed && seq != 0 {
		if rec, ok := d.broker.Record(seq); ok {
			attrs = decision(attrs, &rec)
		}
	}
	if e.detail != "" {
		attrs = append(attrs, slog.String("detail", e.detail))
	}
	d.log.LogAttrs(ctx, level, "request ended", attrs...)
}

// loggedCandidates is how many candidates a log line has; the decision record has
// them all.
const loggedCandidates = 16

// decision adds the last decision of a record: the candidates as they stood, and
// the long slots of the one chosen.
func decision(attrs []slog.Attr, rec *admission.Record) []slog.Attr {
	for i := len(rec.Moments) - 1; i >= 0; i-- {
		m := &rec.Moments[i]
		if len(m.Verdicts) == 0 {
			continue
		}
		var out strings.Builder
		for n, v := range m.Verdicts {
			if n == loggedCandidates {
				fmt.Fprintf(&out, " and %d more", len(m.Verdicts)+m.More-n)
				break
			}
			if n > 0 {
				out.WriteByte(' ')
			}
			reason := v.Reason.String()
			if v.Reason == admission.ReasonNone {
				reason = "free"
			}
			fmt.Fprintf(&out, "%s=%s(%d/%d,long:%d/%d)", v.Resource, reason, v.Slots.InFlight, v.Slots.Capacity, v.Slots.LongInFlight, v.Slots.LongCapacity)
			if m.Kind == admission.AtGrant && v.Resource == m.Resource {
				attrs = append(attrs, slog.Int("long_context_capacity", int(v.Slots.LongCapacity)), slog.Int("long_in_flight", int(v.Slots.LongInFlight)))
			}
		}
		return append(attrs, slog.String("decided", m.Kind.String()), slog.String("candidates", out.String()))
	}
	return attrs
}

// ending is how a request ended.
type ending struct {
	outcome string
	seq     admission.Seq    // of one that was never admitted
	reason  admission.Reason // why it was not
	detail  string           // what a failure says for logs
}

func endingOf(ctx context.Context, err error) ending {
	if err == nil {
		return ending{outcome: "completed"}
	}
	var (
		failed  *FailedError
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
	)
	switch {
	case errors.As(err, &failed):
		return ending{outcome: failed.Code.String(), detail: failed.Message}
	case errors.As(err, &full):
		return ending{"queue_full", full.Seq, full.Reason, ""}
	case errors.As(err, &timeout):
		return ending{"queue_timeout", timeout.Seq, timeout.Reason, ""}
	case errors.As(err, &none):
		return ending{"unavailable", none.Seq, none.Reason, ""}
	case errors.Is(err, broker.ErrUnknownGroup):
		return ending{outcome: "unknown_model"}
	case errors.Is(err, ErrStopped):
		return ending{outcome: "draining"}
	case ctx.Err() != nil:
		return ending{outcome: "cancelled"}
	default:
		return ending{outcome: "client_gone"}
	}
}
