package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/dispatch"
)

// It goes through the contract's table row by row, as far as dispatch's results go.
func TestCase_A13_C15_ErrorTable(t *testing.T) {
	failed := func(code dispatch.FailureCode, handedOff bool) error {
		return &dispatch.FailedError{Code: code, Message: "secret detail", HandedOff: handedOff, Grant: grant}
	}
	for _, c := range []struct {
		name       string
		err        error
		status     int
		code, kind string
		retryAfter string
		retry      string
		leased     bool
	}{
		{"queue full", &broker.QueueFullError{Reason: admission.ReasonFull, RetryAfter: 2500 * time.Millisecond}, 429, "queue_full", "rate_limit_error", "3", "", false},
		{"C15 at least 1", &broker.QueueFullError{}, 429, "queue_full", "rate_limit_error", "1", "", false},
		{"C15 at most 60", &broker.QueueFullError{RetryAfter: time.Hour}, 429, "queue_full", "rate_limit_error", "60", "", false},
		{"queue timeout", &broker.QueueTimeoutError{Waited: 240 * time.Second, Reason: admission.ReasonLongFull, RetryAfter: 7 * time.Second}, 503, "queue_timeout", "server_error", "7", "", false},
		{"no live candidate", &broker.UnavailableError{Reason: admission.ReasonOffline}, 503, "provider_unavailable", "server_error", "10", "", false},
		{"endpoint nobody serves", &broker.UnavailableError{Reason: admission.ReasonNoModel}, 400, "endpoint_not_supported", "invalid_request_error", "", "", false},
		{"wrapped", fmt.Errorf("dispatch: %w", &broker.UnavailableError{Reason: admission.ReasonDraining}), 503, "provider_unavailable", "server_error", "10", "", false},
		{"model removed meanwhile", broker.ErrUnknownGroup, 404, "model_not_found", "invalid_request_error", "", "", false},
		{"gate refused", failed(dispatch.ProviderBusy, false), 503, "provider_busy", "server_error", "1", "", true},
		{"connection refused", failed(dispatch.ProviderUnreachable, false), 502, "provider_disconnected", "server_error", "", "", true},
		{"never opened", failed(dispatch.NeverOpened, false), 502, "provider_disconnected", "server_error", "", "", true},
		{"lost after hand-off", failed(dispatch.ProviderDisconnected, true), 502, "provider_disconnected", "server_error", "", "false", true},
		{"provider timeout", failed(dispatch.ProviderTimeout, true), 504, "provider_timeout", "server_error", "", "false", true},
		{"cancelled by an operator", failed(dispatch.Cancelled, true), 502, "provider_disconnected", "server_error", "", "false", true},
		{"total timeout while queued", &dispatch.FailedError{Code: dispatch.ProviderTimeout}, 504, "provider_timeout", "server_error", "", "false", false},
		{"a bug", errors.New("secret detail"), 500, "internal_error", "server_error", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			over(t, refuse(c.err), settings(), func(r *rig) {
				for _, stream := range []string{hello, `{"stream":true,` + hello[1:]} { // A13: the same for both
					got := r.chat(stream)
					r.requireError(got, c.status, c.code, c.kind)
					require.Equal(r, c.retryAfter, got.Header.Get("Retry-After"))
					require.Equal(r, c.retry, got.Header.Get("X-Should-Retry"))
					require.NotContains(r, got.body, "secret detail")
					node := ""
					if c.leased {
						node = "gx10"
						require.Equal(r, "12", got.Header.Get("X-Iop-Queue-Ms"))
					}
					require.Equal(r, node, got.Header.Get("X-Iop-Node"))
				}
				if c.status == 500 {
					require.Contains(r, r.log.String(), "secret detail")
				} else {
					require.Empty(r, r.log.String())
				}
			})
		})
	}
}

func TestPanicIsAnInternalErrorOrACut(t *testing.T) {
	over(t, doFunc(func(context.Context, *dispatch.Request, dispatch.Sink) error { panic("secret detail") }), settings(), func(r *rig) {
		got := r.chat(hello, "X-Request-Id", "abc")
		r.requireError(got, 500, "internal_error", "server_error")
		require.NotContains(r, got.body, "secret detail")
		require.Equal(r, "abc", got.Header.Get("X-Request-Id"))
		require.Contains(r, r.log.String(), "request_id=abc")
	})
	begun := doFunc(func(ctx context.Context, q *dispatch.Request, s dispatch.Sink) error {
		_ = answer(dispatch.Frame{Head: head(200, "application/json"), Body: []byte(`{"a":`)})(ctx, q, s)
		panic("late")
	})
	over(t, begun, settings(), func(r *rig) {
		require.Error(r, r.chat(hello).err)
	})
}

func TestCase_A22_E23_Routing(t *testing.T) {
	over(t, answer(whole(200, "application/json", `{}`)), settings(), func(r *rig) {
		for _, c := range []struct {
			method, path string
			status       int
			code, allow  string
		}{
			{"GET", "/nope", 404, "not_found", ""},
			{"POST", "/v1/foo", 404, "not_found", ""},
			{"POST", "/v1/chat/completions/", 404, "not_found", ""},
			{"GET", "/v1/models/", 404, "not_found", ""},
			{"POST", "//v1/chat/completions", 404, "not_found", ""},
			{"GET", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
			{"PUT", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
			{"DELETE", "/v1/models/m", 405, "method_not_allowed", "GET, HEAD"},
			{"POST", "/healthz", 405, "method_not_allowed", "GET, HEAD"},
		} {
			got := r.do(r.request(c.method, c.path, ""))
			r.requireError(got, c.status, c.code, "invalid_request_error")
			require.Equal(r, c.allow, got.Header.Get("Allow"), "%s %s", c.method, c.path)
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/models", "/healthz"} {
			got := r.do(r.request(http.MethodOptions, path, ""))
			require.Equal(r, 204, got.StatusCode)
			require.Contains(r, got.Header.Get("Allow"), "OPTIONS")
		}
	})
}

func TestDraining(t *testing.T) {
	over(t, answer(whole(200, "application/json", `{}`)), settings(), func(r *rig) {
		require.Equal(r, 200, r.do(r.request("GET", "/readyz", "")).StatusCode)
		r.handler.Drain(30 * time.Second)
		got := r.chat(hello)
		r.requireError(got, 503, "draining", "server_error")
		require.Contains(r, []string{"30", "29"}, got.Header.Get("Retry-After"))
		require.Equal(r, 503, r.do(r.request("GET", "/readyz", "")).StatusCode)
		require.Equal(r, 200, r.do(r.request("GET", "/healthz", "")).StatusCode)
		require.Equal(r, 200, r.do(r.request("GET", "/v1/models", "")).StatusCode)
	})
}

// Whoever waits when the Edge stops, or has sent its body only then, loses its
// providers to the stop; neither model nor provider is to blame.
func TestDrainingIsWhatWaitersAreTold(t *testing.T) {
	for _, err := range []error{
		&broker.UnavailableError{Reason: admission.ReasonNoModel},
		&broker.UnavailableError{Reason: admission.ReasonDraining},
		broker.ErrUnknownGroup,
	} {
		var stop func()
		stopsMeanwhile := func(context.Context, *dispatch.Request, dispatch.Sink) error {
			stop()
			return err
		}
		over(t, doFunc(stopsMeanwhile), settings(), func(r *rig) {
			stop = func() { r.handler.Drain(30 * time.Second) }
			r.requireError(r.chat(hello), 503, "draining", "server_error")
		})
	}
}

// A refusal says why in its message, in the words of the reasons page.
func TestU11_RefusalsNameTheirReason(t *testing.T) {
	for want, err := range map[string]error{
		"All providers of this model are busy and the queue is full (behind). Retry later.": &broker.QueueFullError{Reason: admission.ReasonBehind},
		"All providers of this model are busy and the queue is full. Retry later.":          &broker.QueueFullError{},
		"No provider became free within 4m0s (long_full). Retry later.":                     &broker.QueueTimeoutError{Waited: 4 * time.Minute, Reason: admission.ReasonLongFull},
		"No provider of this model is available (offline). Retry later.":                    &broker.UnavailableError{Reason: admission.ReasonOffline},
	} {
		p, known := problemOf(err, time.Second)
		require.True(t, known)
		require.Equal(t, want, p.message)
	}
}
