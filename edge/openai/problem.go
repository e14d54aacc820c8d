package openai

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
)

// problem is one row of the contract's error table, filled in.
type problem struct {
	status  int
	code    string
	kind    string // error.type
	message string
	param   string // "" = null
	// retryAfter in whole seconds; 0 = no header.
	retryAfter int
	// noRetry tells SDKs not to repeat by themselves: the provider may have done the work.
	noRetry bool
	allow   string // of a 405
	// requestID is filled in where the problem is written.
	requestID string
	// hangUp ends an HTTP/1 connection whose request was not read to its end.
	hangUp bool
}

const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
	rateLimit      = "rate_limit_error"
)

// internalSentence is all that a client learns of a bug of ours.
const internalSentence = "The server had an internal error. Quote the request id when you report it."

var internalProblem = problem{status: http.StatusInternalServerError, code: "internal_error", kind: serverError, message: internalSentence}

// problemOf maps what dispatch returns. known is false for an error that no row describes: its text is for the log only.
func problemOf(err error, reconnect time.Duration) (p problem, known bool) {
	var (
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
		failed  *dispatch.FailedError
	)
	switch {
	case errors.As(err, &full):
		return problem{status: http.StatusTooManyRequests, code: "queue_full", kind: rateLimit, retryAfter: seconds(full.RetryAfter),
			message: "All providers of this model are busy and the queue is full" + broker.InBrackets(full.Reason) + ". Retry later."}, true
	case errors.As(err, &timeout):
		return problem{status: http.StatusServiceUnavailable, code: "queue_timeout", kind: serverError, retryAfter: seconds(timeout.RetryAfter),
			message: fmt.Sprintf("No provider became free within %s%s. Retry later.", timeout.Waited.Round(time.Millisecond), broker.InBrackets(timeout.Reason))}, true
	case errors.As(err, &none) && none.NotServed():
		return problem{status: http.StatusBadRequest, code: "endpoint_not_supported", kind: invalidRequest, param: "model",
			message: "No provider of this model serves this endpoint."}, true
	case errors.As(err, &none):
		return problem{status: http.StatusServiceUnavailable, code: "provider_unavailable", kind: serverError, retryAfter: seconds(reconnect),
			message: "No provider of this model is available" + broker.InBrackets(none.Reason) + ". Retry later."}, true
	case errors.Is(err, broker.ErrUnknownGroup):
		return problem{status: http.StatusNotFound, code: "model_not_found", kind: invalidRequest, param: "model",
			message: "This model was removed while the request arrived."}, true
	case errors.As(err, &failed):
		return failureProblem(failed), true
	}
	return internalProblem, false
}

func failureProblem(f *dispatch.FailedError) problem {
	switch f.Code {
	case dispatch.ProviderBusy:
		return problem{status: http.StatusServiceUnavailable, code: "provider_busy", kind: serverError, retryAfter: 1,
			message: "The provider has no free slot. Retry later."}
	case dispatch.ProviderTimeout:
		return problem{status: http.StatusGatewayTimeout, code: "provider_timeout", kind: serverError, noRetry: true,
			message: "The provider did not answer in time."}
	case dispatch.Cancelled:
		return problem{status: http.StatusBadGateway, code: "provider_disconnected", kind: serverError, noRetry: true,
			message: "The request was cancelled at the server."}
	case dispatch.ProviderUnreachable:
		return problem{status: http.StatusBadGateway, code: "provider_disconnected", kind: serverError,
			message: "The provider cannot be reached from its node."}
	default:
		return problem{status: http.StatusBadGateway, code: "provider_disconnected", kind: serverError, noRetry: f.HandedOff,
			message: "The connection to the provider was lost before the answer was complete."}
	}
}

// seconds rounds up to the whole seconds of Retry-After, between 1 and 60: clients read a longer one badly and retry at once without one.
func seconds(d time.Duration) int {
	return int(min(max(math.Ceil(d.Seconds()), 1), 60))
}

// write answers with p. Nothing may have been sent before.
func (p problem) write(w http.ResponseWriter, as *dialect) {
	h := w.Header()
	p.requestID = h.Get("X-Request-Id")
	body := as.body(p)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.noRetry {
		h.Set("X-Should-Retry", "false")
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.hangUp {
		h.Set("Connection", "close")
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
