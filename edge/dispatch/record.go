package dispatch

import (
	"context"
	"errors"
	"log/slog"

	"github.com/iop-dev/iop/edge/broker"
)

// record writes the one log line of a request: what was asked, how it was
// classed, where it ran, how long it waited and for what, and how it ended (L08).
func (d *Dispatcher) record(ctx context.Context, r *Request, x *exchange, err error) {
	level := slog.LevelInfo
	if !d.log.Enabled(ctx, level) {
		return
	}
	outcome, reason, detail := ending(ctx, err)
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request_id", r.ID),
		slog.String("model", string(r.Group)),
		slog.String("outcome", outcome),
		slog.Int("estimated_input_tokens", r.Input.Tokens),
		slog.String("context_class", r.Input.Class().String()),
	)
	if x != nil {
		attrs = append(attrs,
			slog.String("node", string(x.grant.Node)),
			slog.String("provider", string(x.grant.Provider)),
			slog.Int64("queue_ms", x.grant.QueueWait.Milliseconds()),
			slog.Uint64("enqueue_seq", uint64(x.lease.Seq())),
			slog.Int("attempts", x.attempts),
		)
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if detail != "" {
		attrs = append(attrs, slog.String("detail", detail))
	}
	d.log.LogAttrs(ctx, level, "request ended", attrs...)
}

// ending names a request's end; reason is the reason code of one that was never
// admitted, detail what a failure says for logs.
func ending(ctx context.Context, err error) (outcome, reason, detail string) {
	if err == nil {
		return "completed", "", ""
	}
	var (
		failed  *FailedError
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
	)
	switch {
	case errors.As(err, &failed):
		return failed.Code.String(), "", failed.Message
	case errors.As(err, &full):
		return "queue_full", full.Reason.String(), ""
	case errors.As(err, &timeout):
		return "queue_timeout", timeout.Reason.String(), ""
	case errors.As(err, &none):
		return "unavailable", none.Reason.String(), ""
	case errors.Is(err, broker.ErrUnknownGroup):
		return "unknown_model", "", ""
	case errors.Is(err, ErrStopped):
		return "draining", "", ""
	case ctx.Err() != nil:
		return "cancelled", "", ""
	default:
		return "client_gone", "", ""
	}
}
