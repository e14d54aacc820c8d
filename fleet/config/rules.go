package fleetconfig

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/iop-dev/iop/configs"
)

// listener judges the address, and what may be served off loopback.
func (r *reader) listener() {
	const path = "controlplane.listen"
	m := r.msg.GetControlplane()
	loopback, err := parseListen(m.GetListen())
	if err != nil {
		r.problem(path, "found %q; %v", m.GetListen(), err)
		return
	}
	secured := m.GetTls() != nil || m.GetInsecureH2C() || r.doc.Broken("controlplane.tls") || r.doc.Broken("controlplane.insecure_h2c")
	if !loopback && !secured {
		r.problem(path, "found %q, which other machines reach; give controlplane.tls a cert_file and key_file, or write insecure_h2c: true", m.GetListen())
	}
	tokens := len(m.GetReadTokens())
	switch mode := m.GetAuth().GetMode(); {
	case r.doc.Broken("controlplane.read_tokens") || r.doc.Broken("controlplane.auth.mode"):
		// Who may read is not known.
	case !loopback && tokens == 0 && mode != authNone:
		r.problem(path, "found %q, which other machines reach, and no read_tokens; add one, or write auth: {mode: none} to let everyone in", m.GetListen())
	case mode == authTokens && tokens == 0:
		r.warn("controlplane.auth.mode", "tokens are asked for and read_tokens has none: every call is refused")
	case mode == authNone && tokens > 0:
		r.warn("controlplane.auth.mode", "read_tokens are not asked for: everyone who reaches controlplane.listen is let in")
	}
	if m.GetTls() != nil && m.GetInsecureH2C() {
		r.warn("controlplane.insecure_h2c", "has no effect beside controlplane.tls")
	}
}

// parseListen judges host:port and says whether only this machine reaches it.
func parseListen(address string) (loopback bool, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("expected host:port, as in %s", DefaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Errorf("expected a port from 0 to 65535 after the colon, found %q", port)
	}
	if strings.EqualFold(host, "localhost") {
		return true, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback(), nil
	}
	if strings.ContainsAny(host, "/@ \t") {
		return false, fmt.Errorf("expected a host name or address before the colon, found %q", host)
	}
	return false, nil
}

// edges judges each Edge, and that each is there once.
func (r *reader) edges() (out []Edge) {
	ids, urls := map[string]string{}, map[string]string{}
	for i, m := range r.msg.GetEdges() {
		path := fmt.Sprintf("edges[%d]", i)
		e := Edge{ID: m.GetId(), URL: r.url(path, m.GetUrl(), m.GetCaFile() != "", m.GetCaPin() != "")}
		e.CAFile, e.CAPin = m.GetCaFile(), strings.ToLower(strings.TrimPrefix(m.GetCaPin(), "sha256:"))
		if first, taken := ids[e.ID]; taken && e.ID != "" {
			r.problem(path+".id", "Edge %q is configured on %s", e.ID, r.doc.Where(first))
		}
		ids[e.ID] = path + ".id"
		if first, taken := urls[e.URL]; taken && e.URL != "" {
			r.problem(path+".url", "found %q, which is configured on %s: an Edge is read once", e.URL, r.doc.Where(first))
		}
		urls[e.URL] = path + ".url"
		e.token = r.source(path, m.GetTokenFile(), m.GetTokenEnv())
		out = append(out, e)
	}
	if len(out) == 0 && !r.doc.Broken("edges") {
		r.warn("edges", "there are none: the fleet is empty")
	}
	return out
}

// source judges that exactly one of the two is given.
func (r *reader) source(path, file, env string) configs.Secret {
	switch {
	case r.doc.Broken(path+".token_file") || r.doc.Broken(path+".token_env"):
		// Something is given, which is not known.
	case file == "" && env == "":
		r.problem(path, "missing; give token_file or token_env, which says where the Edge's read token is")
	case file != "" && env != "":
		r.problem(path+".token_env", "token_file and token_env are both given; keep one")
	case env != "" && !configs.IsVariable(env):
		// Not repeated: it looks like a secret in the place of its name.
		r.problem(path+".token_env", "found %d characters; expected the name of an environment variable", len(env))
	}
	return configs.Secret{File: file, Env: env}
}

// url judges an Edge's address and how its certificate is checked. Empty = it is
// not usable.
func (r *reader) url(path, text string, file, pin bool) string {
	if text == "" {
		return "" // another rule has said so
	}
	u, err := url.Parse(text)
	if file && pin {
		r.problem(path+".ca_pin", "ca_file and ca_pin are both given; keep one")
	}
	path += ".url"
	switch {
	case err != nil:
		r.problem(path, "found %q; not a URL", configs.RedactURL(text))
	case u.Scheme != "http" && u.Scheme != "https":
		r.problem(path, "found %q; expected http:// or https://", configs.RedactURL(text))
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Path != "" && u.Path != "/":
		r.problem(path, "found %q; expected scheme, host and port only, as in https://edge.local:8486", configs.RedactURL(text))
	case u.Hostname() == "":
		r.problem(path, "found %q; expected a host, as in https://edge.local:8486", text)
	case !validPort(u):
		r.problem(path, "found %q; expected a port from 1 to 65535", text)
	case u.Scheme == "http" && (file || pin):
		r.problem(path, "found http://, which has no certificate to check; write https://, or remove ca_file and ca_pin")
	default:
		if loopback, err := parseListen(net.JoinHostPort(u.Hostname(), "0")); u.Scheme == "http" && err == nil && !loopback {
			r.warn(path, "found %q: without TLS the read token crosses the network in clear", u.Scheme+"://"+u.Host)
		}
		return u.Scheme + "://" + u.Host
	}
	return ""
}

// validPort reports whether the port is left out or from 1 to 65535.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}
