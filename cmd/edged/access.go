package edged

import (
	"net/http"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/rpcerr"
)

// allow lets a call through whose bearer token may make it, and refuses all
// others in the caller's own protocol, before a byte of the body is read.
func allow(h http.Handler, may func(secret string) bool) http.Handler {
	return allowSecret(h, bearer, may)
}

func bearer(h http.Header) string {
	secret, _ := auth.BearerToken(h.Get("Authorization"))
	return secret
}

// allowSecret is allow for callers whose secret is where secretOf finds it.
func allowSecret(h http.Handler, secretOf func(http.Header) string, may func(secret string) bool) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if may(secretOf(r.Header)) {
			h.ServeHTTP(w, r)
			return
		}
		if !refuse.IsSupported(r) {
			http.Error(w, rpcerr.ErrUnauthenticated.Error(), http.StatusUnauthorized)
			return
		}
		_ = refuse.Write(w, r, rpcerr.From(rpcerr.ErrUnauthenticated))
	})
}

// allowAdmin lets admin tokens through, and tells the handler whose it is.
func (e *Edge) allowAdmin(h http.Handler) http.Handler {
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := e.keyring.Admin(bearer(r.Header))
		ctx := admin.WithCaller(r.Context(), admin.Caller{Token: name, Address: r.RemoteAddr})
		h.ServeHTTP(w, r.WithContext(ctx))
	})
	return allow(named, func(secret string) bool {
		_, ok := e.keyring.Admin(secret)
		return ok
	})
}
