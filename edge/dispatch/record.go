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
func (d *Dispatcher) record(ctx context.Context, r *Request, x *exchange, e *Ending) {
	level := slog.LevelInfo
	if !d.log.Enabled(ctx, level) {
		return
	}
	weighed := e.Class == admission.Long
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("request_id", e.ID),
		slog.String("model", string(e.Group)),
		slog.String("outcome", e.Outcome),
		slog.Int("estimated_input_tokens", e.Estimated),
		slog.Int("uncalibrated_input_tokens", r.Input.Estimate.Tokens()),
		slog.Int("long_context_threshold_tokens", e.Threshold),
		slog.String("context_class", e.Class.String()),
	)
	if e.Client != "" {
		attrs = append(attrs, slog.String("client", e.Client))
	}
	if e.Grant.Node != "" {
		attrs = append(attrs,
			slog.String("node", string(e.Grant.Node)),
			slog.String("provider", string(e.Grant.Provider)),
			slog.Int64("queue_ms", e.Grant.QueueWait.Milliseconds()),
			slog.Int("attempts", e.Attempts),
		)
	}
	if e.Status >= 400 {
		attrs = append(attrs, slog.Int("provider_status", e.Status))
	}
	if x != nil && e.Grant.Node != "" && x.lease.WaitReason != admission.ReasonNone {
		weighed = true
		attrs = append(attrs, slog.String("wait_reason", x.lease.WaitReason.String()))
	}
	if e.Empty {
		attrs = append(attrs, slog.Bool("empty", true))
	}
	if e.Seq != 0 {
		attrs = append(attrs, slog.Uint64("enqueue_seq", uint64(e.Seq)))
	}
	if e.Reason != admission.ReasonNone {
		weighed = true
		attrs = append(attrs, slog.String("reason", e.Reason.String()))
	}
	if weighed && e.Seq != 0 {
		if rec, ok := d.broker.Record(e.Seq); ok {
			attrs = decision(attrs, &rec)
		}
	}
	if e.Detail != "" {
		attrs = append(attrs, slog.String("detail", e.Detail))
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

// endingOf is what an error says of a request's end.
func endingOf(ctx context.Context, err error) Ending {
	var failed *FailedError
	outcome, seq, reason := rejected(err)
	switch {
	case err == nil:
		return Ending{Outcome: "completed"}
	case errors.As(err, &failed):
		detail := failed.Message[:min(len(failed.Message), keptDetail)]
		return Ending{Outcome: failed.Code.String(), Detail: strings.ToValidUTF8(detail, "")} // a cut may go through a character
	case outcome != "":
		return Ending{Outcome: outcome, Seq: seq, Reason: reason}
	case errors.Is(err, broker.ErrUnknownGroup):
		return Ending{Outcome: "unknown_model"}
	case errors.Is(err, ErrStopped):
		return Ending{Outcome: "draining"}
	case ctx.Err() != nil:
		return Ending{Outcome: "cancelled"}
	default:
		return Ending{Outcome: "client_gone"}
	}
}
