package openai

import (
	"net/http"
	"strings"

	"github.com/iop-dev/iop/edge/dispatch"
)

// toProvider is what may travel with a request besides Content-Type and x-request-id (I01, I07): never credentials, cookies, Host, Origin or forwarding fields.
var toProvider = []string{"Accept", "Openai-Beta", "Anthropic-Version", "Anthropic-Beta", "X-Session-Id"}

func requestHeader(r *http.Request, e *endpoint, id string) []dispatch.Header {
	out := make([]dispatch.Header, 0, len(toProvider)+2)
	for _, name := range toProvider {
		for _, v := range r.Header[name] {
			out = append(out, dispatch.Header{Name: strings.ToLower(name), Value: v})
		}
	}
	ct := r.Header.Get("Content-Type") // the one that was checked
	if ct == "" || e.body == ollamaJSON {
		ct = "application/json"
	}
	out = append(out, dispatch.Header{Name: "content-type", Value: ct})
	return append(out, dispatch.Header{Name: "x-request-id", Value: id})
}

// toClient reports whether a provider's header field reaches the client. Content-Length is recomputed; Date, Server, cookies and
// anything about the connection or the bytes' identity are not the client's business; the request's id is the Edge's own.
func toClient(name string) bool {
	switch name {
	case "content-type", "cache-control", "content-encoding", "content-language", "retry-after", "retry-after-ms", "x-should-retry":
		return true
	}
	return strings.HasPrefix(name, "openai-") || strings.HasPrefix(name, "x-ratelimit-") || strings.HasPrefix(name, "anthropic-ratelimit-")
}

// headerSize is what the fields of a request take, about as they came.
func headerSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}
