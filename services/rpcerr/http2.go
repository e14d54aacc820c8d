package rpcerr

import "net/http"

const refusedHTTP1 = "this call needs HTTP/2, and it came over HTTP/1.1: both ends write at once. " +
	"Without TLS, ask for HTTP/2 with prior knowledge (h2c); a proxy in between must speak HTTP/2 towards this server as well"

// NeedsHTTP2 refuses HTTP/1.1 with a sentence, where the framework has a status
// only (K01). A node tells by the status that there is a proxy.
func NeedsHTTP2(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			w.Header().Set("Connection", "close") // what else the client would send is of no use
			http.Error(w, refusedHTTP1, http.StatusHTTPVersionNotSupported)
			return
		}
		h.ServeHTTP(w, r)
	})
}
