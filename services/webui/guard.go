package webui

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// exposed are the fields of a reply that a page of another origin may read
// besides the safe-listed ones: where gRPC-Web, and an error of it without a body,
// carries its status (K14).
const exposed = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, X-Request-Id, X-Iop-Node, X-Iop-Provider, X-Iop-Queue-Ms, Retry-After"

// Guard says which pages may call, and under which names of this server. Callers
// that are no browser send neither Origin nor Sec-Fetch-Site and pass: their token
// decides.
type Guard struct {
	// Origins are the other origins whose pages may call, as an operator has
	// configured them ("https://chat.example.org"; "*" = all). It is asked for each
	// request. nil = none.
	Origins func() []string
	// Names are host names of this server besides those that nobody on the internet
	// can point at it: addresses, names without a dot, and those for local use.
	Names []string
}

// API lets through to h what pages of the server's own origin and of the
// configured ones send, and refuses the rest, preflights included, before h sees
// it. Own pages send none.
func (g *Guard) API(h http.Handler) http.Handler {
	own := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		w.Header().Add("Vary", "Origin")
		preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
		switch {
		case g.allows(origin):
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", exposed)
			if preflight {
				allow(w, r)
				return
			}
		case preflight:
			hurry(w, bodyPatience)
			http.Error(w, "pages of this origin may not call; openai.cors.allowed_origins names those that may", http.StatusForbidden)
			return
		case origin == "" && r.Header.Get("Sec-Fetch-Site") == "":
		case !g.knows(r):
			g.refuseHost(w)
			return
		case own.Check(r) != nil:
			hurry(w, bodyPatience)
			http.Error(w, "pages of other origins may not call; openai.cors.allowed_origins names those that may", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Page lets through to h who has asked for this server by a name of its own: a page
// under a name that somebody else has pointed here would share its origin with
// theirs (DNS rebinding).
func (g *Guard) Page(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.knows(r) {
			g.refuseHost(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (g *Guard) refuseHost(w http.ResponseWriter) {
	hurry(w, bodyPatience)
	http.Error(w, "this server is not known under that host name; use its address, or name the origin in openai.cors.allowed_origins", http.StatusForbidden)
}

func (g *Guard) origins() []string {
	if g.Origins == nil {
		return nil
	}
	return g.Origins()
}

func (g *Guard) allows(origin string) bool {
	return origin != "" && slices.ContainsFunc(g.origins(), func(o string) bool { return o == "*" || strings.EqualFold(o, origin) })
}

// allow answers a preflight. Which fields a client adds is its own affair.
func allow(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// localDomains are the endings of names that the public DNS never has (RFC 6761,
// 6762, 8375, and ICANN's .internal).
var localDomains = []string{".localhost", ".local", ".home.arpa", ".internal"}

// knows reports whether the request's host is a name of this server. Over TLS the
// certificate has already said so.
func (g *Guard) knows(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	if !strings.Contains(host, ".") {
		return true
	}
	if slices.ContainsFunc(localDomains, func(domain string) bool { return strings.HasSuffix(host, domain) }) {
		return true
	}
	if slices.ContainsFunc(g.Names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	return slices.ContainsFunc(g.origins(), func(origin string) bool {
		u, err := url.Parse(origin)
		return origin == "*" || err == nil && strings.EqualFold(u.Hostname(), host)
	})
}
