package nodelink

import (
	"time"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// milliseconds is d on the wire: rounded up, so that a limit never becomes "none".
func milliseconds(d time.Duration) uint32 {
	const most = 1<<32 - 1
	return uint32(min((max(d, 0)+time.Millisecond-1)/time.Millisecond, most))
}

// wireBegin names the revision of the provider list that the node was sent last.
func wireBegin(b *dispatch.Begin, revision uint64) *runtimev1.RequestBegin {
	if b == nil {
		return nil
	}
	slab := make([]runtimev1.Header, len(b.Header))
	headers := make([]*runtimev1.Header, len(b.Header))
	for i, h := range b.Header {
		slab[i].Name, slab[i].Value = h.Name, h.Value
		headers[i] = &slab[i]
	}
	return &runtimev1.RequestBegin{
		ProviderId:     string(b.Provider),
		Path:           b.Path,
		ContentLength:  uint64(max(b.ContentLength, 0)),
		Headers:        headers,
		IdleTimeoutMs:  milliseconds(b.IdleTimeout),
		RequestId:      b.RequestID,
		TotalTimeoutMs: milliseconds(b.TotalTimeout),

		ProviderRevision:    revision,
		ContextWindowTokens: uint64(max(b.ContextWindow, 0)),
		Target:              b.Target,
	}
}

func domainHead(h *runtimev1.ResponseHead) *dispatch.Head {
	if h == nil {
		return nil
	}
	head := &dispatch.Head{Status: int(h.Status), Header: make([]dispatch.Header, len(h.Headers))}
	for i, field := range h.Headers {
		head.Header[i] = dispatch.Header{Name: field.Name, Value: field.Value}
	}
	return head
}

// domainFailure translates a failure. A code of a later version counts as a
// provider lost: the one reading that claims neither that the request may be
// repeated nor that it was cancelled.
func domainFailure(f *runtimev1.Failure) *dispatch.Failure {
	if f == nil {
		return nil
	}
	code := dispatch.ProviderDisconnected
	switch f.Code {
	case runtimev1.FailureCode_FAILURE_CODE_NEVER_OPENED:
		code = dispatch.NeverOpened
	case runtimev1.FailureCode_FAILURE_CODE_PROVIDER_BUSY:
		code = dispatch.ProviderBusy
	case runtimev1.FailureCode_FAILURE_CODE_PROVIDER_UNREACHABLE:
		code = dispatch.ProviderUnreachable
	case runtimev1.FailureCode_FAILURE_CODE_PROVIDER_TIMEOUT:
		code = dispatch.ProviderTimeout
	case runtimev1.FailureCode_FAILURE_CODE_CANCELLED:
		code = dispatch.Cancelled
	}
	return &dispatch.Failure{Code: code, Message: f.Message}
}
