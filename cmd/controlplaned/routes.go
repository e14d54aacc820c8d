package controlplaned

import (
	"net"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
	"github.com/iop-dev/iop/services/fleet"
	"github.com/iop-dev/iop/services/introspect"
	"github.com/iop-dev/iop/services/rpcerr"
	"github.com/iop-dev/iop/services/webui"
)

// maxRequest is the largest message that a caller may send, in bytes.
const maxRequest = 64 << 10

// siteName is what the dashboard calls the fleet.
const siteName = "fleet"

// routes are all that is served: the fleet API and gRPC's reflection for read
// tokens, gRPC's health for everybody, and the dashboard's files, which are the same
// for everybody. All else is nobody's.
func (c *ControlPlane) routes() http.Handler {
	guard := c.browsers()
	mux := http.NewServeMux()
	path, h := fleetv1connect.NewFleetServiceHandler(
		&fleet.Service{Fleet: c.fleet, Software: c.version, Nearest: c.nearest},
		connect.WithReadMaxBytes(maxRequest), connect.WithInterceptors(validate.NewInterceptor()),
	)
	mux.Handle(path, guard.API(c.allowReaders(h)))
	names := func() []string { return []string{fleetv1connect.FleetServiceName} }
	path, h = introspect.Health(func() bool { return c.life.Err() == nil }, names)
	mux.Handle(path, guard.API(h))
	for path, h := range introspect.Reflection(names) {
		mux.Handle(path, guard.API(rpcerr.NeedsHTTP2(c.allowReaders(h))))
	}
	page := guard.Page(webui.Handler(webui.Site{Kind: webui.Fleet, Name: siteName}))
	mux.Handle(webui.Path, page)
	mux.Handle(strings.TrimSuffix(webui.Path, "/"), page)
	mux.Handle("GET /{$}", http.RedirectHandler(webui.Path, http.StatusFound))
	return mux
}

// browsers is what the listener asks of pages.
func (c *ControlPlane) browsers() *webui.Guard {
	g := &webui.Guard{}
	if host, _, err := net.SplitHostPort(c.config.Listen); err == nil {
		g.Names = append(g.Names, host)
	}
	if name, err := os.Hostname(); err == nil {
		g.Names = append(g.Names, name)
	}
	return g
}

// allowReaders lets a call through whose bearer token may read the fleet, and
// refuses all others in the caller's own protocol, before a byte of the body is
// read.
func (c *ControlPlane) allowReaders(h http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, _ := auth.BearerToken(r.Header.Get("Authorization"))
		if _, ok := c.keyring.Reader(secret); ok || c.keyring.Open() {
			h.ServeHTTP(w, r)
			return
		}
		if !refuse.IsSupported(r) {
			http.Error(w, rpcerr.ErrUnauthenticated.Error(), http.StatusUnauthorized)
			return
		}
		_ = refuse.Write(w, r, rpcerr.From(rpcerr.ErrUnauthenticated)) // the caller has gone
	})
}

// nearest is the configured Edge that may be meant by an id.
func (c *ControlPlane) nearest(id string) string {
	var ids []string
	for _, e := range c.config.Edges {
		ids = append(ids, e.ID)
	}
	name, _ := configs.Nearest(id, ids)
	return name
}
