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
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, _ := auth.BearerToken(r.Header.Get("Authorization"))
		if may(secret) {
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
		secret, _ := auth.BearerToken(r.Header.Get("Authorization"))
		name, _ := e.keyring.Admin(secret)
		ctx := admin.WithCaller(r.Context(), admin.Caller{Token: name, Address: r.RemoteAddr})
		h.ServeHTTP(w, r.WithContext(ctx))
	})
	return allow(named, func(secret string) bool {
		_, ok := e.keyring.Admin(secret)
		return ok
	})
}
