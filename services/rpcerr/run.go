package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

// What ends a run before it is admitted.
var (
	ErrInvalidAPIKey   = errors.New("a valid API key is needed: send Authorization: Bearer KEY")
	ErrModelNotFound   = errors.New("this model does not exist; ListModels lists those that do")
	ErrModelNotAllowed = errors.New("this API key may not use this model; ListModels lists those that it may")
	ErrKeyLimit        = errors.New("this API key has as many requests running as it may; retry when one has ended")
	ErrCrowded         = errors.New("the server is receiving as many large requests as it can hold; retry later")
	ErrDraining        = errors.New("the server is shutting down; retry later")
)

// InvalidError is a request that breaks a rule which its message cannot state.
type InvalidError struct {
	Field string
	Why   string
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Why }

// TooLargeError is a request above edge.body_limit_bytes.
type TooLargeError struct{ Limit int64 } // bytes

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the request is larger than %d bytes", e.Limit)
}

// ReportedError is a provider's own error, as its node told of it.
type ReportedError struct{ Failure *inferencev1.Failure }

func (e *ReportedError) Error() string { return e.Failure.GetMessage() }

// reconnectCadence is what a client of a model without a provider is told: nodes
// try that often unless they are told otherwise.
const reconnectCadence = 10 * time.Second

type reason = inferencev1.FailureReason

// Run gives the error of a run its code and its detail, and returns the detail by
// itself as well. It is idempotent. known is false for an error that no row describes: its
// text is for the log only.
func Run(err error) (detail *inferencev1.Failure, known bool, failed error) {
	var done *connect.Error
	if errors.As(err, &done) {
		for _, d := range done.Details() {
			if m, e := d.Value(); e == nil {
				if f, ok := m.(*inferencev1.Failure); ok {
					return f, true, err
				}
			}
		}
		return &inferencev1.Failure{Reason: inferencev1.FailureReason_FAILURE_REASON_INVALID_REQUEST, Message: done.Message()}, true, err
	}
	code, f := failureOf(err)
	known = f != nil
	if !known {
		code = connect.CodeInternal
		f = &inferencev1.Failure{Reason: inferencev1.FailureReason_FAILURE_REASON_INTERNAL_ERROR, Message: errInternal.Error()}
	}
	e := connect.NewError(code, errors.New(f.GetMessage()))
	if d, err := connect.NewErrorDetail(f); err == nil {
		e.AddDetail(d)
	}
	if f.GetRetryAfterSeconds() > 0 {
		e.Meta().Set("Retry-After", strconv.Itoa(int(f.GetRetryAfterSeconds())))
	}
	return f, known, e
}

// failureOf is the table: what a run can end with, and how clients are told. A
// code that gRPC clients retry by themselves is given only where repeating does
// no harm.
func failureOf(err error) (connect.Code, *inferencev1.Failure) {
	var (
		full     *broker.QueueFullError
		timeout  *broker.QueueTimeoutError
		none     *broker.UnavailableError
		failed   *dispatch.FailedError
		reported *ReportedError
		invalid  *InvalidError
		large    *TooLargeError
	)
	row := func(code connect.Code, r reason, message string, after time.Duration) (connect.Code, *inferencev1.Failure) {
		return code, &inferencev1.Failure{Reason: r, Message: message, RetryAfterSeconds: seconds(after)}
	}
	switch {
	case errors.Is(err, ErrInvalidAPIKey):
		return row(connect.CodeUnauthenticated, inferencev1.FailureReason_FAILURE_REASON_INVALID_API_KEY, ErrInvalidAPIKey.Error(), 0)
	case errors.Is(err, ErrModelNotFound), errors.Is(err, broker.ErrUnknownGroup):
		return row(connect.CodeNotFound, inferencev1.FailureReason_FAILURE_REASON_MODEL_NOT_FOUND, ErrModelNotFound.Error(), 0)
	case errors.Is(err, ErrModelNotAllowed):
		return row(connect.CodePermissionDenied, inferencev1.FailureReason_FAILURE_REASON_MODEL_NOT_ALLOWED, ErrModelNotAllowed.Error(), 0)
	case errors.Is(err, ErrKeyLimit):
		return row(connect.CodeResourceExhausted, inferencev1.FailureReason_FAILURE_REASON_KEY_LIMIT, ErrKeyLimit.Error(), time.Second)
	case errors.Is(err, ErrDraining), errors.Is(err, dispatch.ErrStopped):
		return row(connect.CodeUnavailable, inferencev1.FailureReason_FAILURE_REASON_DRAINING, ErrDraining.Error(), reconnectCadence)
	case errors.Is(err, ErrCrowded):
		return row(connect.CodeUnavailable, inferencev1.FailureReason_FAILURE_REASON_DRAINING, ErrCrowded.Error(), 5*time.Second)
	case errors.As(err, &invalid):
		return row(connect.CodeInvalidArgument, inferencev1.FailureReason_FAILURE_REASON_INVALID_REQUEST, invalid.Error(), 0)
	case errors.As(err, &large):
		return row(connect.CodeResourceExhausted, inferencev1.FailureReason_FAILURE_REASON_REQUEST_TOO_LARGE, large.Error(), 0)
	case errors.As(err, &full):
		return row(connect.CodeResourceExhausted, inferencev1.FailureReason_FAILURE_REASON_QUEUE_FULL,
			"all providers of this model are busy and the queue is full"+broker.InBrackets(full.Reason)+"; retry later", max(full.RetryAfter, 1))
	case errors.As(err, &timeout):
		return row(connect.CodeUnavailable, inferencev1.FailureReason_FAILURE_REASON_QUEUE_TIMEOUT,
			fmt.Sprintf("no provider became free within %s%s; retry later", timeout.Waited.Round(time.Millisecond), broker.InBrackets(timeout.Reason)), max(timeout.RetryAfter, 1))
	case errors.As(err, &none) && none.NotServed():
		return row(connect.CodeFailedPrecondition, inferencev1.FailureReason_FAILURE_REASON_ENDPOINT_NOT_SUPPORTED,
			"no provider of this model serves runs", 0)
	case errors.As(err, &none):
		return row(connect.CodeUnavailable, inferencev1.FailureReason_FAILURE_REASON_PROVIDER_UNAVAILABLE,
			"no provider of this model is available"+broker.InBrackets(none.Reason)+"; retry later", reconnectCadence)
	case errors.As(err, &reported):
		return statusCode(reported.Failure.GetProviderStatus()), reported.Failure
	case errors.As(err, &failed):
		return dispatchFailure(failed)
	case errors.Is(err, context.DeadlineExceeded):
		return row(connect.CodeDeadlineExceeded, inferencev1.FailureReason_FAILURE_REASON_CANCELLED, "the client's deadline is over", 0)
	case errors.Is(err, context.Canceled):
		return row(connect.CodeCanceled, inferencev1.FailureReason_FAILURE_REASON_CANCELLED, "the client cancelled", 0)
	}
	return 0, nil
}

func dispatchFailure(f *dispatch.FailedError) (connect.Code, *inferencev1.Failure) {
	d := &inferencev1.Failure{Reason: inferencev1.FailureReason_FAILURE_REASON_PROVIDER_DISCONNECTED, MayHaveRun: f.HandedOff,
		Message: "the connection to the provider was lost before the answer was complete"}
	code := connect.CodeUnavailable
	if f.HandedOff {
		code = connect.CodeAborted
	}
	if f.Stopped {
		d.Message = "the server was shut down before the answer was complete"
		return code, d
	}
	switch f.Code {
	case dispatch.ProviderBusy:
		d.Reason, d.Message, d.RetryAfterSeconds = inferencev1.FailureReason_FAILURE_REASON_PROVIDER_BUSY, "the provider has no free slot; retry later", 1
	case dispatch.ProviderTimeout:
		d.Reason, d.Message = inferencev1.FailureReason_FAILURE_REASON_PROVIDER_TIMEOUT, "the provider did not answer in time"
		code = connect.CodeDeadlineExceeded
	case dispatch.ProviderUnreachable:
		d.Message = "the provider cannot be reached from its node"
	case dispatch.Cancelled:
		d.Message = "the request was cancelled at the server"
	}
	return code, d
}

// statusCode is the code of a provider's own HTTP status. 401 and 403 are the
// node's credential, not the client's.
func statusCode(status uint32) connect.Code {
	switch status {
	case 400, 413, 422:
		return connect.CodeInvalidArgument
	case 404:
		return connect.CodeNotFound
	case 429:
		return connect.CodeResourceExhausted
	case 503:
		return connect.CodeUnavailable
	case 501:
		return connect.CodeUnimplemented
	}
	if status >= 400 && status < 500 {
		return connect.CodeFailedPrecondition
	}
	return connect.CodeUnknown
}

// seconds rounds up to whole seconds between 1 and 60; 0 stays 0.
func seconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min(max(math.Ceil(d.Seconds()), 1), 60))
}
