package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/iop-dev/iop/configs"
)

const pathListen = "edge.listen"

// hashOfNothing is the SHA-256 of an empty secret.
const hashOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// edge judges the pulse of node connections.
func (r *rules) edge() {
	h := r.cfg.GetEdge().GetHeartbeat()
	interval, timeout := uint32(DefaultHeartbeatIntervalMs), uint32(DefaultHeartbeatTimeoutMs)
	if h.GetIntervalMs() != 0 {
		interval = h.GetIntervalMs()
	}
	if h.GetTimeoutMs() != 0 {
		timeout = h.GetTimeoutMs()
	}
	if r.doc.Broken("edge.heartbeat.interval_ms") || r.doc.Broken("edge.heartbeat.timeout_ms") {
		return
	}
	if timeout <= interval {
		path := "edge.heartbeat.timeout_ms"
		if !r.doc.Has(path) {
			path = "edge.heartbeat.interval_ms"
		}
		r.problem(path, "interval_ms %d and timeout_ms %d: the timeout must be longer than the interval", interval, timeout)
	}
}

// listeners judges addresses, and what may be served off loopback.
func (r *rules) listeners() {
	e := r.cfg.GetEdge()
	open := map[string]bool{} // paths of listeners off loopback
	secured := e.GetTls() != nil || e.GetInsecureH2C() || r.doc.Broken("edge.tls") || r.doc.Broken("edge.insecure_h2c")
	for _, l := range []struct{ path, address string }{
		{pathListen, e.GetListen()}, {"edge.node_listen", e.GetNodeListen()}, {"edge.admin_listen", e.GetAdminListen()},
	} {
		if l.address == "" {
			continue
		}
		loopback, err := parseListen(l.address)
		if err != nil {
			r.problem(l.path, "found %q; %v", l.address, err)
			continue
		}
		if loopback {
			continue
		}
		open[l.path] = true
		if !secured {
			r.problem(l.path, "found %q, which other machines reach; give edge.tls a cert_file and key_file, or write insecure_h2c: true", l.address)
		}
	}
	keys := len(r.cfg.GetOpenai().GetApiKeys())
	switch mode := e.GetAuth().GetMode(); {
	case r.doc.Broken("openai.api_keys") || r.doc.Broken("edge.auth.mode"):
		// Who may call is not known.
	case mode == authKeys && keys == 0 && e.GetStateDir() != "":
		// Those of iop key create are asked for.
	case open[pathListen] && keys == 0 && mode != authNone:
		r.problem(pathListen, "found %q, which other machines reach, and no openai.api_keys; add a key, or write auth: {mode: none} to let everyone in", e.GetListen())
	case mode == authKeys && keys == 0:
		r.warn("edge.auth.mode", "keys are asked for and openai.api_keys has none: every API request is refused")
	case mode == authNone && keys > 0:
		r.warn("edge.auth.mode", "openai.api_keys are not asked for: everyone who reaches edge.listen is let in")
	}
	if t := e.GetTls(); t != nil && e.GetInsecureH2C() {
		r.warn("edge.insecure_h2c", "has no effect beside edge.tls")
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

// secrets judges names and hashes of keys and tokens: each name once in its
// list, each secret for one purpose, and none of the empty secret.
func (r *rules) secrets() {
	hashes := map[string]string{}
	judge := func(names *unique, name, hash, path string) {
		names.add(name, path+".name")
		r.hash(hash, path+".sha256")
		if hash = strings.ToLower(hash); hash == "" || r.doc.Broken(path+".sha256") {
			return
		}
		if first, taken := hashes[hash]; taken {
			r.problem(path+".sha256", "%q has the same secret as %s on %s; one secret serves one name", name, first, r.doc.Where(first))
			return
		}
		hashes[hash] = path
	}
	names := r.unique("API key name")
	known := modelNames(r.cfg)
	for i, k := range r.cfg.GetOpenai().GetApiKeys() {
		path := fmt.Sprintf("openai.api_keys[%d]", i)
		judge(names, k.GetName(), k.GetSha256(), path)
		for j, m := range k.GetModels() {
			if !slices.Contains(known, m) && !r.unlisted {
				r.problem(fmt.Sprintf("%s.models[%d]", path, j), "no model or route %q%s", m, hint(m, known))
			}
		}
	}
	names = r.unique("admin token name")
	for i, t := range r.cfg.GetEdge().GetAdminTokens() {
		judge(names, t.GetName(), t.GetSha256(), fmt.Sprintf("edge.admin_tokens[%d]", i))
	}
	names = r.unique("read token name")
	for i, t := range r.cfg.GetEdge().GetReadTokens() {
		judge(names, t.GetName(), t.GetSha256(), fmt.Sprintf("edge.read_tokens[%d]", i))
	}
	for i, n := range r.cfg.GetNodes() {
		r.hash(n.GetTokenSha256(), fmt.Sprintf("nodes[%d].token_sha256", i))
	}
}

// hash refuses the hash of the empty secret.
func (r *rules) hash(hash, path string) {
	if strings.ToLower(hash) == hashOfNothing {
		r.problem(path, "this is the SHA-256 of an empty secret; hash a secret that is not empty")
	}
}

// corsOrigins judges CORS origins, which are compared as they are written.
func (r *rules) corsOrigins() {
	for i, origin := range r.cfg.GetOpenai().GetCors().GetAllowedOrigins() {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || origin != u.Scheme+"://"+u.Host || strings.ToLower(origin) != origin {
			r.problem(fmt.Sprintf("openai.cors.allowed_origins[%d]", i),
				"found %q; expected an origin in lower case and without a path, as in https://chat.example", configs.RedactURL(origin))
		}
	}
}
