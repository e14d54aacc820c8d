package edged

import (
	"slices"
	"strings"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/services/introspect"
	"github.com/iop-dev/iop/services/rpcerr"
)

// mountIntrospection mounts gRPC's health protocol, for everybody as /readyz is, and
// reflection, for whoever holds any credential of a client or an operator.
func (e *Edge) mountIntrospection(mux *routes) {
	guard := e.browsers()
	path, h := introspect.Health(func() bool { return !e.typed.Draining() }, mux.names)
	mux.handle(path, guard.API(h))
	for path, h := range introspect.Reflection(mux.names) {
		mux.handle(path, guard.API(rpcerr.NeedsHTTP2(allowSecret(h, auth.ClientSecret, e.knows))))
	}
}

// knows reports whether the secret is an API key, a read or an admin token, or no
// key is asked for.
func (e *Edge) knows(secret string) bool {
	if e.keyring.Open() {
		return true
	}
	if _, ok := e.keyring.APIKey(secret); ok {
		return true
	}
	_, ok := e.keyring.Reader(secret) // admin tokens, too
	return ok
}

// names are the full names of the services mounted, in order.
func (rt *routes) names() []string {
	var names []string
	for path := range rt.services {
		names = append(names, strings.Trim(path, "/"))
	}
	slices.Sort(names)
	return names
}
