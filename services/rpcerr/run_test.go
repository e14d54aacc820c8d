package rpcerr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
)

func TestRun(t *testing.T) {
	lost := func(code dispatch.FailureCode, handedOff bool) error {
		return &dispatch.FailedError{Code: code, Message: "secret detail", HandedOff: handedOff}
	}
	reported := func(status uint32) error {
		return &ReportedError{Failure: &inferencev1.Failure{Reason: inferencev1.FailureReason_FAILURE_REASON_PROVIDER_ERROR, ProviderStatus: status}}
	}
	for _, c := range []struct {
		err    error
		code   connect.Code
		reason string
		retry  uint32
		ran    bool
	}{
		{ErrInvalidAPIKey, connect.CodeUnauthenticated, "INVALID_API_KEY", 0, false},
		{ErrModelNotFound, connect.CodeNotFound, "MODEL_NOT_FOUND", 0, false},
		{broker.ErrUnknownGroup, connect.CodeNotFound, "MODEL_NOT_FOUND", 0, false},
		{ErrModelNotAllowed, connect.CodePermissionDenied, "MODEL_NOT_ALLOWED", 0, false},
		{ErrKeyLimit, connect.CodeResourceExhausted, "KEY_LIMIT", 1, false},
		{ErrDraining, connect.CodeUnavailable, "DRAINING", 10, false},
		{fmt.Errorf("stop: %w", dispatch.ErrStopped), connect.CodeUnavailable, "DRAINING", 10, false},
		{&InvalidError{Field: "num_ctx", Why: "is odd"}, connect.CodeInvalidArgument, "INVALID_REQUEST", 0, false},
		{&TooLargeError{Limit: 7}, connect.CodeResourceExhausted, "REQUEST_TOO_LARGE", 0, false},
		{&broker.QueueFullError{RetryAfter: 90 * time.Second}, connect.CodeResourceExhausted, "QUEUE_FULL", 60, false},
		{&broker.QueueFullError{}, connect.CodeResourceExhausted, "QUEUE_FULL", 1, false},
		{&broker.QueueTimeoutError{RetryAfter: 1500 * time.Millisecond}, connect.CodeUnavailable, "QUEUE_TIMEOUT", 2, false},
		{&broker.UnavailableError{Reason: admission.ReasonNoModel}, connect.CodeFailedPrecondition, "ENDPOINT_NOT_SUPPORTED", 0, false},
		{&broker.UnavailableError{Reason: admission.ReasonOffline}, connect.CodeUnavailable, "PROVIDER_UNAVAILABLE", 10, false},
		{lost(dispatch.ProviderBusy, false), connect.CodeUnavailable, "PROVIDER_BUSY", 1, false},
		{lost(dispatch.ProviderUnreachable, false), connect.CodeUnavailable, "PROVIDER_DISCONNECTED", 0, false},
		{lost(dispatch.NeverOpened, false), connect.CodeUnavailable, "PROVIDER_DISCONNECTED", 0, false},
		{lost(dispatch.ProviderDisconnected, true), connect.CodeAborted, "PROVIDER_DISCONNECTED", 0, true},
		{lost(dispatch.Cancelled, true), connect.CodeAborted, "PROVIDER_DISCONNECTED", 0, true},
		{lost(dispatch.ProviderTimeout, true), connect.CodeDeadlineExceeded, "PROVIDER_TIMEOUT", 0, true},
		{reported(400), connect.CodeInvalidArgument, "PROVIDER_ERROR", 0, false},
		{reported(401), connect.CodeFailedPrecondition, "PROVIDER_ERROR", 0, false},
		{reported(404), connect.CodeNotFound, "PROVIDER_ERROR", 0, false},
		{reported(429), connect.CodeResourceExhausted, "PROVIDER_ERROR", 0, false},
		{reported(500), connect.CodeUnknown, "PROVIDER_ERROR", 0, false},
		{reported(501), connect.CodeUnimplemented, "PROVIDER_ERROR", 0, false},
		{reported(503), connect.CodeUnavailable, "PROVIDER_ERROR", 0, false},
		{reported(0), connect.CodeUnknown, "PROVIDER_ERROR", 0, false},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded, "CANCELLED", 0, false},
		{context.Canceled, connect.CodeCanceled, "CANCELLED", 0, false},
	} {
		detail, known, got := Run(c.err)
		require.True(t, known, "%v", c.err)
		require.Equal(t, c.code, connect.CodeOf(got), "%v", c.err)
		require.Equal(t, c.reason, strings.TrimPrefix(detail.GetReason().String(), "FAILURE_REASON_"))
		require.Equal(t, c.retry, detail.GetRetryAfterSeconds(), "%v", c.err)
		require.Equal(t, c.ran, detail.GetMayHaveRun(), "%v", c.err)
		require.NotContains(t, got.Error(), "secret detail")
		var e *connect.Error
		require.ErrorAs(t, got, &e)
		if c.retry > 0 {
			require.Equal(t, fmt.Sprint(c.retry), e.Meta().Get("Retry-After"))
		}
		sameDetail, _, again := Run(got)
		require.Equal(t, got, again)
		require.Equal(t, detail.GetReason(), sameDetail.GetReason())
	}
	detail, _, _ := Run(&dispatch.FailedError{Code: dispatch.ProviderDisconnected, HandedOff: true, Stopped: true})
	require.Equal(t, "the server was shut down before the answer was complete", detail.GetMessage())
	detail, known, got := Run(errors.New("open /etc/iop/secret: denied"))
	require.False(t, known)
	require.Equal(t, connect.CodeInternal, connect.CodeOf(got))
	require.Equal(t, "internal error; the server's log has the details", detail.GetMessage())
}

// A refusal says why in its message, in the words of the reasons page.
func TestU11_RefusalsOfRunsNameTheirReason(t *testing.T) {
	for want, err := range map[string]error{
		"all providers of this model are busy and the queue is full (behind); retry later": &broker.QueueFullError{Reason: admission.ReasonBehind},
		"no provider became free within 4m0s (long_full); retry later":                     &broker.QueueTimeoutError{Waited: 4 * time.Minute, Reason: admission.ReasonLongFull},
		"no provider of this model is available (offline); retry later":                    &broker.UnavailableError{Reason: admission.ReasonOffline},
	} {
		detail, known, _ := Run(err)
		require.True(t, known)
		require.Equal(t, want, detail.GetMessage())
	}
}
