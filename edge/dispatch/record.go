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
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request_id", r.ID),
		slog.String("model", string(r.Group)),
		slog.String("outcome", outcome(ctx, err)),
		slog.Int("estimated_input_tokens", r.EstimatedTokens),
		slog.String("context_class", r.Class.String()),
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
	if reason := blockedBy(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	var failed *FailedError
	if errors.As(err, &failed) {
		attrs = append(attrs, slog.String("detail", failed.Message))
	}
	d.log.LogAttrs(ctx, level, "request ended", attrs...)
}

// outcome names a request's end.
func outcome(ctx context.Context, err error) string {
	var (
		failed  *FailedError
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
	)
	switch {
	case err == nil:
		return "completed"
	case errors.As(err, &failed):
		return failed.Code.String()
	case errors.As(err, &full):
		return "queue_full"
	case errors.As(err, &timeout):
		return "queue_timeout"
	case errors.As(err, &none):
		return "unavailable"
	case errors.Is(err, broker.ErrUnknownGroup):
		return "unknown_model"
	case ctx.Err() != nil:
		return "cancelled"
	default:
		return "client_gone"
	}
}

// blockedBy is the reason code of a request that was never admitted.
func blockedBy(err error) string {
	var (
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
	)
	switch {
	case errors.As(err, &full):
		return full.Reason.String()
	case errors.As(err, &timeout):
		return timeout.Reason.String()
	case errors.As(err, &none):
		return none.Reason.String()
	}
	return ""
}
