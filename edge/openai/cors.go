package openai

import (
	"net/http"
	"slices"
	"strings"
)

// exposed are the fields that a page may read besides the safe-listed ones.
const exposed = "X-Request-Id, Request-Id, X-Iop-Node, X-Iop-Provider, X-Iop-Queue-Ms, Retry-After, Retry-After-Ms, X-Should-Retry"

// crossOrigin marks the reply, whatever it becomes, as readable by a page of an allowed origin (I09).
func crossOrigin(w http.ResponseWriter, r *http.Request, s *active) {
	if len(s.AllowedOrigins) == 0 {
		return
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.ContainsFunc(s.AllowedOrigins, func(o string) bool { return o == "*" || strings.EqualFold(o, origin) }) {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
}

// options answers OPTIONS, a browser's preflight included: without a key, since browsers send none then (I05), and with whatever header
// names the page wants to send, since SDKs add their own (I04). Only the listed ones ever go on to a provider.
func options(w http.ResponseWriter, r *http.Request, allow string) {
	h := w.Header()
	allow += ", OPTIONS"
	h.Set("Allow", allow)
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", allow)
		if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
			h.Set("Access-Control-Allow-Headers", names)
		}
		if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
			h.Set("Access-Control-Allow-Private-Network", "true")
		}
		h.Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}
