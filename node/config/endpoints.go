package nodeconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/iop-dev/iop/configs"
)

// Endpoints is the node's own limit on what a provider's base_url may be: the
// Edge chooses providers, the node which of its surroundings the Edge may
// reach. The zero value allows loopback and private address ranges.
type Endpoints struct{ patterns []pattern }

// pattern is one entry of allow_endpoints: scheme://host[:port][/path].
type pattern struct {
	text   string
	scheme string
	host   string       // lower case; "*.rest" = one label before rest; "*" = any
	prefix netip.Prefix // instead of a host name
	port   string       // "*" = any
	path   string       // leading part of the path, up to a slash
}

// Allows reports why a base_url may not be used, or nil.
func (e Endpoints) Allows(baseURL string) error {
	u, err := url.Parse(baseURL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not an http:// or https:// URL", configs.RedactURL(baseURL))
	}
	if u.User != nil || !validPort(u) || strings.Contains(u.Path, "..") {
		return fmt.Errorf("%q has a part that no provider needs", configs.RedactURL(baseURL))
	}
	if len(e.patterns) == 0 {
		if isNear(hostOf(u)) {
			return nil
		}
		return fmt.Errorf("%q is neither a loopback nor a private address; add it to allow_endpoints in node.yaml", configs.RedactURL(baseURL))
	}
	var texts []string
	for _, p := range e.patterns {
		if p.matches(u) {
			return nil
		}
		texts = append(texts, p.text)
	}
	return fmt.Errorf("%q is not allowed by allow_endpoints in node.yaml (%s)", configs.RedactURL(baseURL), strings.Join(texts, ", "))
}

// isNear reports whether the host is loopback or in a private range. Names count
// only where they cannot mean anything else: what a name resolves to is another
// party's to say.
func isNear(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsPrivate()
}

func (p pattern) matches(u *url.URL) bool {
	if p.scheme != u.Scheme || p.port != "*" && p.port != portOf(u) {
		return false
	}
	path := strings.TrimRight(u.Path, "/")
	if p.path != "" && path != p.path && !strings.HasPrefix(path, p.path+"/") {
		return false
	}
	host := hostOf(u)
	switch {
	case p.prefix.IsValid():
		if host == "localhost" {
			host = "127.0.0.1"
		}
		ip, err := netip.ParseAddr(host)
		return err == nil && p.prefix.Contains(ip.Unmap())
	case p.host == "*":
		return true
	case strings.HasPrefix(p.host, "*."):
		label, rest, found := strings.Cut(host, ".")
		return found && label != "" && rest == p.host[len("*."):]
	}
	return host == p.host
}

// endpoints reads allow_endpoints.
func (r *reader) endpoints() Endpoints {
	var e Endpoints
	for i, text := range r.msg.GetAllowEndpoints() {
		p, err := parsePattern(text)
		if err != nil {
			r.problem(fmt.Sprintf("allow_endpoints[%d]", i), "found %q; %v", configs.RedactURL(text), err)
			continue
		}
		e.patterns = append(e.patterns, p)
	}
	if len(r.msg.GetAllowEndpoints()) == 0 && r.doc.Has("allow_endpoints") {
		r.problem("allow_endpoints", "found an empty list, which would allow no provider; leave it out for loopback and private ranges")
	}
	return e
}

// parsePattern reads one pattern: the port may be "*", the host a name, an
// address, "*" for any, or "*.name" for one label before name.
func parsePattern(text string) (pattern, error) {
	p := pattern{text: text}
	scheme, rest, found := strings.Cut(text, "://")
	if p.scheme = strings.ToLower(scheme); !found || p.scheme != "http" && p.scheme != "https" {
		return p, errors.New(`expected http:// or https:// and a host, as in "http://127.0.0.1:*"`)
	}
	if strings.ContainsAny(rest, "@?# ") {
		return p, errors.New("expected no user, query, fragment or space")
	}
	host, path, _ := strings.Cut(rest, "/")
	if p.path = strings.TrimRight(path, "/"); p.path != "" {
		p.path = "/" + p.path
	}
	port := ""
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		host, port = host[:at], host[at+1:]
		if n, err := strconv.ParseUint(port, 10, 16); port != "*" && (err != nil || n == 0) {
			return p, errors.New(`expected a port from 1 to 65535, or "*", after the colon`)
		}
	}
	if p.port = port; port == "" {
		p.port = defaultPort(p.scheme)
	}
	return p, p.setHost(strings.ToLower(host))
}

func (p *pattern) setHost(host string) error {
	bare := host
	if in, bracketed := strings.CutPrefix(host, "["); bracketed {
		bare = strings.TrimSuffix(in, "]")
	} else if strings.Contains(host, ":") {
		return errors.New("expected an IPv6 address in brackets")
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		ip = ip.Unmap()
		p.prefix = netip.PrefixFrom(ip, ip.BitLen())
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	switch {
	case name == "":
		return errors.New(`expected a host; "*" stands for any`)
	case name == "localhost":
		p.prefix = netip.MustParsePrefix("127.0.0.1/32")
		return nil
	case name == "*":
	case strings.Contains(strings.TrimPrefix(name, "*."), "*"):
		return errors.New(`"*" stands for a whole host or for its first label, as in "http://*.lan:8000"`)
	case strings.ContainsAny(name, "[]:"):
		return errors.New("expected a host name or an address")
	}
	p.host = name
	return nil
}

func hostOf(u *url.URL) string { return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) }

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return defaultPort(u.Scheme)
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// validPort reports whether the port is left out or from 1 to 65535.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}
