package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// rules judges a file across its messages. Each rule adds all it finds.
type rules struct {
	doc      *configs.Document
	cfg      *configv1.EdgeConfig
	problems configs.Problems
	warnings []string
	origins  *configs.Origins
	// elsewhere is whether secrets may be absent: those that are, are noted.
	elsewhere bool
	absent    configs.Problems

	providers map[string]*configv1.Provider // by "node/provider"
	// unnamed is true when the id of some node or provider is not known: what
	// seems to be named nowhere may be that one.
	unnamed bool
	// unlisted is the same of models and routes.
	unlisted bool
}

func (r *rules) all() {
	r.credentials()
	r.nodes()
	r.models()
	r.routes()
	r.tokens()
	r.long()
	r.legacy()
	r.edge()
	r.listeners()
	r.secrets()
	r.corsOrigins()
}

// problem adds a finding, unless the value itself has been complained about.
func (r *rules) problem(path, format string, args ...any) {
	if r.doc.Broken(path) {
		return
	}
	r.problems = append(r.problems, r.doc.Problemf(path, format, args...))
}

func (r *rules) warn(path, format string, args ...any) {
	r.warnings = append(r.warnings, r.doc.Problemf(path, format, args...).String())
}

// unique notes where names were first used and complains about their next use.
type unique struct {
	rules *rules
	what  string
	first map[string]string // name → path
}

func (r *rules) unique(what string) *unique {
	return &unique{rules: r, what: what, first: map[string]string{}}
}

// add reports whether name is new; the problem names both places. Empty names
// are another rule's business.
func (u *unique) add(name, path string) bool {
	if name == "" {
		return true
	}
	if first, taken := u.first[name]; taken {
		u.rules.problem(path, "%s %q is already used by %s on %s", u.what, name, first, u.rules.doc.Where(first))
		return false
	}
	u.first[name] = path
	return true
}

// nodes judges nodes and their providers on their own.
func (r *rules) nodes() {
	r.providers = map[string]*configv1.Provider{}
	r.unnamed = r.doc.Broken("nodes")
	ids := r.unique("node id")
	tokens := map[string]string{}
	for i, n := range r.cfg.GetNodes() {
		path := fmt.Sprintf("nodes[%d]", i)
		ids.add(n.GetId(), path+".id")
		r.unnamed = r.unnamed || r.unknown(n.GetId(), path+".id") || r.doc.Broken(path+".providers")
		if hash := strings.ToLower(n.GetTokenSha256()); hash != "" {
			if other, shared := tokens[hash]; shared {
				r.warn(path+".token_sha256", "node %q shares its token with node %q: each can register as the other", n.GetId(), other)
			}
			tokens[hash] = n.GetId()
		}
		own, servers := r.unique("provider id"), map[string]string{}
		for j, p := range n.GetProviders() {
			at := fmt.Sprintf("%s.providers[%d]", path, j)
			r.unnamed = r.unnamed || r.unknown(p.GetId(), at+".id")
			if own.add(p.GetId(), at+".id") {
				r.providers[n.GetId()+"/"+p.GetId()] = p
			}
			r.provider(p, at, n.GetId(), servers)
		}
	}
}

// provider judges one provider; servers are the node's base URLs so far.
func (r *rules) provider(p *configv1.Provider, path, node string, servers map[string]string) {
	simulated := p.GetType() == typeSimulator
	if p.GetSimulator() != nil && !simulated && !r.doc.Broken(path+".type") {
		r.problem(path+".simulator", "found settings of a simulator for type %q; only type simulator takes them", p.GetType())
	}
	switch {
	case r.doc.Broken(path + ".type"):
		return // what it needs is not known
	case simulated && p.GetBaseUrl() != "":
		r.problem(path+".base_url", "found %q; a simulator runs inside the node and has none", configs.RedactURL(p.GetBaseUrl()))
		return
	case simulated:
		return
	case p.GetBaseUrl() == "":
		r.problem(path+".base_url", "missing; provider %q of type %q needs the URL at which node %q reaches it", p.GetId(), p.GetType(), node)
		return
	}
	server, err := parseBaseURL(p.GetBaseUrl())
	if err != nil {
		r.problem(path+".base_url", "found %q; %v", configs.RedactURL(p.GetBaseUrl()), err)
		return
	}
	if first, taken := servers[server.identity]; taken {
		r.problem(path+".base_url", "found %q: the same server as %s on %s; a server is one provider, which any number of models may name",
			p.GetBaseUrl(), first, r.doc.Where(first))
		return
	}
	servers[server.identity] = path + ".base_url"
	if p.GetLongContextCapacity() > capacityOf(p) {
		r.warn(path+".long_context_capacity", "found %d, more than capacity %d: a long request takes a normal slot too", p.GetLongContextCapacity(), capacityOf(p))
	}
}

// models judges the model groups and their references.
func (r *rules) models() {
	ids := r.unique("model")
	r.unlisted = r.doc.Broken("models") || r.doc.Broken("openai.model_routes")
	for i, m := range r.cfg.GetModels() {
		path := fmt.Sprintf("models[%d]", i)
		ids.add(m.GetId(), path+".id")
		r.unlisted = r.unlisted || r.unknown(m.GetId(), path+".id")
		r.name(m.GetId(), path+".id")
		if len(m.GetProviders()) == 0 {
			r.warn(path, "model %q has no providers: it is listed, and every request for it is refused", m.GetId())
		}
		candidates := r.unique("candidate")
		for j, c := range m.GetProviders() {
			at := fmt.Sprintf("%s.providers[%d]", path, j)
			if r.resource(c.GetNode(), c.GetProvider(), at) {
				candidates.add(c.GetNode()+"/"+c.GetProvider(), at)
			}
		}
	}
	for i, route := range r.cfg.GetOpenai().GetModelRoutes() {
		at := fmt.Sprintf("openai.model_routes[%d].model", i)
		r.unlisted = r.unlisted || r.unknown(route.GetModel(), at)
		if route.GetModel() == "" {
			r.problem(at, "missing; a route needs the model id that clients use")
		}
		ids.add(route.GetModel(), at)
		r.name(route.GetModel(), at)
	}
	if len(ids.first) == 0 && !r.unlisted {
		r.warn("", "no models and no routes: every request is answered model_not_found")
	}
}

// unknown reports whether an id could not be read, or is not what was meant.
func (r *rules) unknown(id, path string) bool { return id == "" || r.doc.Broken(path) }

// name refuses ids that would break a log line or a header.
func (r *rules) name(id, path string) {
	if strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f }) || strings.TrimSpace(id) != id {
		r.problem(path, "found %q; a model id has no control characters and no space around it", id)
	}
}

// resource judges a reference to a provider resource.
func (r *rules) resource(node, provider, path string) bool {
	if node == "" || provider == "" {
		return false
	}
	if _, ok := r.providers[node+"/"+provider]; ok {
		return true
	}
	if r.unnamed {
		return false
	}
	var nodes, here, elsewhere []string
	for _, n := range r.cfg.GetNodes() {
		nodes = append(nodes, n.GetId())
		for _, p := range n.GetProviders() {
			if n.GetId() == node {
				here = append(here, p.GetId())
			} else if p.GetId() == provider {
				elsewhere = append(elsewhere, n.GetId())
			}
		}
	}
	if !slices.Contains(nodes, node) {
		r.problem(path+".node", "no node %q%s", node, hint(node, nodes))
		return false
	}
	suggestion := hint(provider, here)
	if configs.DidYouMean(provider, here) == "" && len(elsewhere) > 0 {
		suggestion = fmt.Sprintf(" (node %q has one)", elsewhere[0])
	}
	r.problem(path+".provider", "node %q has no provider %q%s", node, provider, suggestion)
	return false
}

// routes judges what a direct route points to.
func (r *rules) routes() {
	for i, route := range r.cfg.GetOpenai().GetModelRoutes() {
		if route.GetAdapter() == "" || r.unnamed || len(candidatesOf(r.cfg, route)) > 0 {
			continue
		}
		var names []string
		for _, n := range r.cfg.GetNodes() {
			for _, p := range n.GetProviders() {
				names = append(names, p.GetId(), n.GetId()+"/"+p.GetId())
			}
		}
		r.problem(fmt.Sprintf("openai.model_routes[%d].adapter", i), "no node has a provider %q%s", route.GetAdapter(), hint(route.GetAdapter(), names))
	}
}

// hint is the nearest right name, or all of a few.
func hint(word string, names []string) string {
	if near := configs.DidYouMean(word, names); near != "" {
		return near
	}
	switch {
	case len(names) == 0:
		return " (there are none)"
	case len(names) > 8:
		return ""
	}
	return " (there are: " + strings.Join(names, ", ") + ")"
}
