package provider

import (
	"net/http"
	"strings"
	"unicode/utf8"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// requestHeaders may go to a provider; the Edge filters by the same list, and
// the node does not rely on it. Authorization, cookies, Host, Origin, Referer
// and forwarding headers never pass (I07).
var requestHeaders = map[string]bool{
	"Accept":            true,
	"Content-Type":      true,
	"Openai-Beta":       true,
	"Anthropic-Version": true,
	"Anthropic-Beta":    true,
	"X-Request-Id":      true,
	"X-Session-Id":      true,
}

// requestHeader is the header of an upstream request. bearer is the provider's
// own credential, empty for none.
func requestHeader(fields []*runtimev1.Header, bearer string) http.Header {
	h := make(http.Header, len(fields)+4)
	for _, f := range fields {
		if name := http.CanonicalHeaderKey(f.GetName()); requestHeaders[name] {
			h[name] = append(h[name], f.GetValue())
		}
	}
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = []string{"application/json"}
	}
	// The model name is spliced into answers on the way back, so they are asked
	// for without a content coding.
	h["Accept-Encoding"] = []string{"identity"}
	h["User-Agent"] = []string{"iop-node"}
	if bearer != "" {
		h["Authorization"] = []string{"Bearer " + bearer}
	}
	return h
}

// responseHeaders may go from a provider to a client, next to openai-*,
// x-ratelimit-* and anthropic-ratelimit-*. Hop-by-hop fields, cookies, digests and the length do not pass:
// the length is computed anew, and the model value may change.
var responseHeaders = map[string]bool{
	"Content-Type":     true,
	"Cache-Control":    true,
	"Retry-After":      true,
	"Retry-After-Ms":   true,
	"X-Should-Retry":   true,
	"Content-Encoding": true,
	"Content-Language": true,
}

// responseHead is the head of an answer as it crosses the wire.
func responseHead(resp *http.Response, eventStream bool) *runtimev1.ResponseHead {
	head := &runtimev1.ResponseHead{Status: uint32(resp.StatusCode)}
	for name, values := range resp.Header {
		allowed := responseHeaders[name] || strings.HasPrefix(name, "Openai-") || strings.HasPrefix(name, "X-Ratelimit-") ||
			strings.HasPrefix(name, "Anthropic-Ratelimit-")
		if !allowed || eventStream && name == "Cache-Control" {
			continue
		}
		for _, value := range values {
			// Protobuf strings are UTF-8; a value that is not has no meaning we could carry.
			if utf8.ValidString(value) {
				head.Headers = append(head.Headers, &runtimev1.Header{Name: name, Value: value})
			}
		}
	}
	return head
}
