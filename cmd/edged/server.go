package edged

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/gen/go/iop/admin/v1/adminv1connect"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/control"
	"github.com/iop-dev/iop/services/nodelink"
	"github.com/iop-dev/iop/services/rpcerr"
	"github.com/iop-dev/iop/services/webui"
)

// maxRPCMessage is the largest message of the typed APIs in bytes.
const maxRPCMessage = 4 << 20

// maxHeader is what a peer may send before it is known.
const maxHeader = 256 << 10 // bytes; the surface refuses far less, in JSON

// allowance is how long a connection may take for what.
type allowance struct {
	head time.Duration // for a request's head, and for a TLS handshake, once it has begun
	idle time.Duration // between requests, and before the first
}

// usual lets connections idle for longer than clients keep them for later (90 s in
// Go).
var usual = allowance{head: 10 * time.Second, idle: 2 * time.Minute}

// server is one listener and what is served on it.
type server struct {
	listener net.Listener
	http     *http.Server
	tls      bool
	serves   string
}

func (s *server) serve() error {
	var err error
	if s.tls {
		err = s.http.ServeTLS(s.listener, "", "")
	} else {
		err = s.http.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *server) close() {
	_ = s.http.Close()
	_ = s.listener.Close() // where serve was never called
}

// part is one of the three audiences of an Edge.
type part struct {
	address string
	name    string
	mount   func(*routes)
}

// listen opens a listener for each address that the configuration names; parts
// with the same address share one. The API comes first.
func (e *Edge) listen(cfg *configv1.EdgeConfig) (servers []*server, err error) {
	edge := cfg.GetEdge()
	byAddress := map[string]*routes{}
	for _, p := range []part{
		{edge.GetListen(), "api", e.mountAPI},
		{edge.GetNodeListen(), "nodes", e.mountNodes},
		{edge.GetAdminListen(), "control and admin", e.mountAdmin},
	} {
		if mux := byAddress[p.address]; mux != nil {
			p.mount(mux)
			continue
		}
		mux := &routes{}
		p.mount(mux)
		e.mountIntrospection(mux)
		byAddress[p.address] = mux
		s, err := e.open(p, edge.GetTls(), mux)
		if err != nil {
			for _, s := range servers {
				s.close()
			}
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func (e *Edge) open(p part, files *configv1.Tls, h http.Handler) (*server, error) {
	s := &server{serves: p.name, http: &http.Server{
		Handler: h, ReadHeaderTimeout: e.allowance.head, IdleTimeout: e.allowance.idle, MaxHeaderBytes: maxHeader,
		HTTP2: nodelink.ServerHTTP2Config(), Protocols: new(http.Protocols),
		ErrorLog:    slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return e.life },
	}}
	s.http.Protocols.SetHTTP1(true)
	if files != nil {
		pair, err := tls.LoadX509KeyPair(files.GetCertFile(), files.GetKeyFile())
		if err != nil {
			return nil, fmt.Errorf("edge.tls: %w", err)
		}
		s.tls = true
		s.http.Protocols.SetHTTP2(true)
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	} else {
		s.http.Protocols.SetUnencryptedHTTP2(true)
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return nil, fmt.Errorf("listener for %s: %w", p.name, err)
	}
	s.listener = unhurried{listener, e.allowance}
	return s, nil
}

// mountAPI mounts what clients with an API key call.
func (e *Edge) mountAPI(mux *routes) {
	mux.rest = e.requests.around(e.surface)
	// The size of a request is guarded on its way in, by the limit in force.
	path, h := inferencev1connect.NewInferenceServiceHandler(e.typed,
		connect.WithReadMaxBytes(config.MaxBodyLimitBytes), connect.WithInterceptors(validate.NewInterceptor()),
		connect.WithCompressMinBytes(4<<10)) // events of a few bytes are not worth it
	mux.handle(path, e.browsers().API(e.requests.around(e.typed.Account(allowSecret(e.typed.Guard(h), auth.ClientSecret, func(secret string) bool {
		_, ok := e.keyring.APIKey(secret)
		return ok || e.keyring.Open()
	})))))
}

// mountNodes mounts the node link, which judges node tokens itself.
func (e *Edge) mountNodes(mux *routes) {
	path, h := e.link.Handler()
	mux.handle(path, rpcerr.NeedsHTTP2(h))
	e.mountJoin(mux)
}

// mountAdmin mounts what read and admin tokens are for, and the page that asks for
// one.
func (e *Edge) mountAdmin(mux *routes) {
	edgeID := e.snapshot().Config.GetEdge().GetId()
	shown := &control.Service{
		EdgeID: edgeID, Software: e.version, Instance: e.instance, StartedAt: e.startedAt, State: e.state, History: &e.past,
		Record: e.broker.Record, Find: e.dispatcher.Find, Explain: e.dispatcher.Explain,
	}
	shown.Watch(e.clock)
	path, h := controlv1connect.NewControlServiceHandler(shown, handlerOptions()...)
	browsers := e.browsers()
	mux.handle(path, browsers.API(allow(endStuck(h, stuckAfter), func(secret string) bool {
		_, ok := e.keyring.Reader(secret)
		return ok
	})))
	path, h = adminv1connect.NewAdminServiceHandler(&admin.Service{
		Reload: e.reloadByAdmin, Check: e.check, Cancel: e.cancelRequest, Override: e.setOverride, Forget: e.forgetEstimates,
		Credentials: secretsOf{e},
	}, handlerOptions()...)
	mux.handle(path, browsers.API(e.allowAdmin(h)))
	mux.scrape = browsers.API(e.scrape())
	mux.page = browsers.Page(webui.Handler(webui.Site{Kind: webui.Edge, Name: edgeID}))
}

func handlerOptions() []connect.HandlerOption {
	return []connect.HandlerOption{connect.WithReadMaxBytes(maxRPCMessage), connect.WithInterceptors(validate.NewInterceptor())}
}
