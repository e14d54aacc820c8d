package config

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// surfaces are the endpoint families that each type of server serves. A family
// that only newer versions of a server have counts as served: an older one
// answers for itself. openai stands for servers unknown, and may serve all.
var surfaces = map[string]admission.Surface{
	"openai": texts | admission.SurfaceCountTokens | vectors | admission.SurfaceTranscription | admission.SurfaceTranslation |
		admission.SurfaceSpeech | admission.SurfaceImages,
	"vllm":      texts | admission.SurfaceCountTokens | vectors | admission.SurfaceTranscription | admission.SurfaceTranslation,
	"llamacpp":  texts | admission.SurfaceCountTokens | vectors | admission.SurfaceTranscription,
	"ollama":    texts | admission.SurfaceEmbeddings | admission.SurfaceImages | admission.SurfaceOllama,
	"lemonade":  texts | admission.SurfaceCountTokens | vectors | admission.SurfaceTranscription | admission.SurfaceSpeech | admission.SurfaceImages,
	"lmstudio":  texts | admission.SurfaceEmbeddings,
	"mlx":       admission.SurfaceChat | admission.SurfaceCompletions,
	"simulator": texts | admission.SurfaceCountTokens | admission.SurfaceEmbeddings,
}

const (
	texts   = admission.SurfaceChat | admission.SurfaceCompletions | admission.SurfaceResponses | admission.SurfaceMessages
	vectors = admission.SurfaceEmbeddings | admission.SurfaceRerank
)

// admissionOf is what the core is told, all in the order of the file. Defaults
// are filled in and the rules hold.
func admissionOf(cfg *configv1.EdgeConfig) admission.Config {
	pool := cfg.GetProviderPool()
	out := admission.Config{Scopes: []admission.Scope{{
		Key:      admission.PoolScope,
		MaxQueue: int(pool.GetMaxQueue()),
		Timeout:  time.Duration(pool.GetQueueTimeoutMs()) * time.Millisecond,
	}}}
	if pool.GetSelection() == selectionPriority {
		out.Selection = admission.PriorityFirst
	}
	for _, n := range cfg.GetNodes() {
		for _, p := range n.GetProviders() {
			out.Resources = append(out.Resources, resourceOf(n, p))
		}
	}
	for _, m := range cfg.GetModels() {
		g := admission.Group{Key: admission.GroupKey(m.GetId()), Scope: admission.PoolScope}
		for _, c := range m.GetProviders() {
			g.Candidates = append(g.Candidates, admission.Candidate{Resource: key(c.GetNode(), c.GetProvider()), Target: c.GetTarget()})
		}
		out.Groups = append(out.Groups, g)
	}
	for _, route := range cfg.GetOpenai().GetModelRoutes() {
		scope := admission.Scope{
			Key:      admission.ScopeKey("route:" + route.GetModel()),
			MaxQueue: int(route.GetMaxQueue()),
			Timeout:  time.Duration(route.GetQueueTimeoutMs()) * time.Millisecond,
		}
		g := admission.Group{Key: admission.GroupKey(route.GetModel()), Scope: scope.Key}
		for _, resource := range candidatesOf(cfg, route) {
			g.Candidates = append(g.Candidates, admission.Candidate{Resource: resource, Target: route.GetTarget()})
		}
		out.Scopes = append(out.Scopes, scope)
		out.Groups = append(out.Groups, g)
	}
	return out
}

func resourceOf(n *configv1.Node, p *configv1.Provider) admission.Resource {
	return admission.Resource{
		Key:          key(n.GetId(), p.GetId()),
		Capacity:     int(p.GetCapacity()),
		LongCapacity: int(p.GetLongContextCapacity()),
		Priority:     int(p.GetPriority()),
		Enabled:      p.GetEnabled(),
		Health: map[string]admission.Health{
			healthHealthy:   admission.Healthy,
			healthDegraded:  admission.Degraded,
			healthUnhealthy: admission.Unhealthy,
		}[p.GetHealth()],
		Surfaces: surfaces[p.GetType()],
	}
}

// candidatesOf are the resources that a route's adapter names: the provider of
// that id on every node that has it, or the one resource "node/provider".
func candidatesOf(cfg *configv1.EdgeConfig, route *configv1.ModelRoute) []admission.ResourceKey {
	var keys []admission.ResourceKey
	for _, n := range cfg.GetNodes() {
		for _, p := range n.GetProviders() {
			k := key(n.GetId(), p.GetId())
			if p.GetId() == route.GetAdapter() || k.String() == route.GetAdapter() {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

func key(node, provider string) admission.ResourceKey {
	return admission.ResourceKey{Node: admission.NodeID(node), Provider: admission.ProviderID(provider)}
}

func modelNames(cfg *configv1.EdgeConfig) []string {
	var names []string
	for _, m := range modelsOf(cfg) {
		names = append(names, m.ID)
	}
	return names
}

// credentialsOf translates hashes, which the rules have judged.
func credentialsOf(cfg *configv1.EdgeConfig) auth.Credentials {
	c := auth.Credentials{Open: cfg.GetEdge().GetAuth().GetMode() == authNone}
	for _, k := range cfg.GetOpenai().GetApiKeys() {
		c.Keys = append(c.Keys, auth.Key{Name: k.GetName(), Hash: mustHash(k.GetSha256()), Models: k.GetModels(), MaxConcurrent: int(k.GetMaxConcurrent())})
	}
	for _, t := range cfg.GetEdge().GetAdminTokens() {
		c.Admin = append(c.Admin, auth.Token{Name: t.GetName(), Hash: mustHash(t.GetSha256())})
	}
	for _, t := range cfg.GetEdge().GetReadTokens() {
		c.Read = append(c.Read, auth.Token{Name: t.GetName(), Hash: mustHash(t.GetSha256())})
	}
	for _, n := range cfg.GetNodes() {
		if n.GetTokenSha256() == "" {
			c.Joined = append(c.Joined, n.GetId())
			continue
		}
		c.Nodes = append(c.Nodes, auth.Token{Name: n.GetId(), Hash: mustHash(n.GetTokenSha256())})
	}
	return c
}

// mustHash reads a hash whose form a rule of the message has already judged; a
// failure is a bug of ours, and letting it pass would accept an all-zero hash.
func mustHash(text string) auth.Hash {
	h, err := auth.ParseHash(text)
	if err != nil {
		panic(err)
	}
	return h
}
