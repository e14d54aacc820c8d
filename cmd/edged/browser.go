package edged

import (
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/iop-dev/iop/services/webui"
)

// browsers is what the Edge's listeners ask of pages. It asks for the origins in
// force each time: a refresh changes them.
func (e *Edge) browsers() *webui.Guard {
	g := &webui.Guard{Origins: func() []string { return e.snapshot().Config.GetOpenai().GetCors().GetAllowedOrigins() }}
	edge := e.started.Config.GetEdge()
	for _, address := range []string{edge.GetListen(), edge.GetAdminListen()} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			g.Names = append(g.Names, host)
		}
	}
	if name, err := os.Hostname(); err == nil {
		g.Names = append(g.Names, name)
	}
	return g
}

// Dashboard is the address at which a browser on this machine finds the dashboard.
func (e *Edge) Dashboard() string {
	for _, s := range e.servers {
		if s.http.Handler.(*routes).page != nil {
			return s.url(webui.Path)
		}
	}
	return ""
}

// url is where a program on this machine finds a path of the server.
func (s *server) url(path string) string {
	u := url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: path}
	if s.tls {
		u.Scheme = "https"
	}
	if at, ok := s.listener.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", strconv.Itoa(at.Port))
	}
	return u.String()
}
