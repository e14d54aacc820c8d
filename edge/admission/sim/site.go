package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// The largest site.
const (
	maxNodes     = 64
	maxProviders = 8
	maxGroups    = 16
)

// site is what an administrator's configuration file says, in a form that is
// easy to change a little at a time.
type site struct {
	rng       *rand.Rand
	keys      []admission.ResourceKey // of every resource that may ever be configured
	perNode   int                     // keys of one node, one of them spare, for renames
	nodes     []admission.NodeID      // the last one is spare, for renames
	groupKeys []admission.GroupKey
	scopeKeys []admission.ScopeKey // of groupKeys, when they are routes

	selection admission.Selection
	rotate    int // where the list of resources begins in the file
	res       []siteResource
	groups    []siteGroup
	pool      admission.Scope

	spare admission.Config // what build fills; its memory is used again and again
}

type siteResource struct {
	present bool
	cfg     admission.Resource
}

type siteGroup struct {
	present bool
	route   bool
	policy  admission.Scope // of a route
	cands   []int
	targets []int
}

var (
	targets  = [...]string{"served", "served:q4", "served:q8", "served-long"}
	surfaces = [...]admission.Surface{
		admission.SurfaceChat | admission.SurfaceEmbeddings, admission.SurfaceChat | admission.SurfaceEmbeddings,
		admission.SurfaceChat, admission.SurfaceChat | admission.SurfaceMessages,
	}
)

// size draws from [1, most], mostly near 1; large draws evenly.
func size(rng *rand.Rand, most int, large bool) int {
	if large {
		return 1 + rng.IntN(most)
	}
	switch rng.IntN(40) {
	case 0:
		return 1 + rng.IntN(most)
	case 1, 2, 3, 4:
		return 1 + rng.IntN((most+1)/2)
	}
	return 1 + rng.IntN(min(most, 3))
}

// newSite draws a site.
func newSite(rng *rand.Rand) *site {
	large := rng.IntN(100) == 0
	s := &site{rng: rng, perNode: size(rng, maxProviders, large) + 1}
	for i := range size(rng, maxNodes, large) + 1 {
		s.nodes = append(s.nodes, admission.NodeID(fmt.Sprintf("n%02d", i)))
		for j := range s.perNode {
			s.keys = append(s.keys, admission.ResourceKey{Node: s.nodes[i], Provider: admission.ProviderID(fmt.Sprintf("p%d", j))})
		}
	}
	for i := range size(rng, maxGroups, large) + 1 {
		key := fmt.Sprintf("g%02d", i)
		s.groupKeys = append(s.groupKeys, admission.GroupKey(key))
		s.scopeKeys = append(s.scopeKeys, admission.ScopeKey("route:"+key))
	}
	s.res = make([]siteResource, len(s.keys))
	for i := range s.res {
		s.res[i] = siteResource{present: i/s.perNode < len(s.nodes)-1 && i%s.perNode < s.perNode-1, cfg: s.drawResource(i)}
	}
	s.groups = make([]siteGroup, len(s.groupKeys))
	for i := range s.groups {
		g := &s.groups[i]
		*g = siteGroup{present: i < len(s.groups)-1, route: rng.IntN(4) == 0, policy: s.drawScope(s.scopeKeys[i])}
		s.drawCandidates(g)
	}
	s.pool = s.drawScope(admission.PoolScope)
	s.selection = admission.Selection(rng.IntN(2))
	return s
}

func (s *site) drawResource(i int) admission.Resource {
	r := admission.Resource{
		Key: s.keys[i], Capacity: 1 + s.rng.IntN(3), LongCapacity: s.rng.IntN(3), Priority: s.rng.IntN(3),
		Enabled: s.rng.IntN(12) > 0, Health: admission.Healthy, Surfaces: surfaces[s.rng.IntN(len(surfaces))],
	}
	switch s.rng.IntN(16) {
	case 0:
		r.Capacity = 0
	case 1:
		r.Capacity = 8
	case 2:
		r.Health = admission.Unhealthy
	case 3:
		r.Health = admission.Degraded
	}
	return r
}

func (s *site) drawScope(key admission.ScopeKey) admission.Scope {
	sc := admission.Scope{Key: key, MaxQueue: s.rng.IntN(16), Timeout: time.Duration(1+s.rng.IntN(8000)) * time.Millisecond}
	if s.rng.IntN(8) == 0 {
		sc.MaxQueue = 60
	}
	return sc
}

// drawCandidates gives the group some of the resources that there are.
func (s *site) drawCandidates(g *siteGroup) {
	g.cands, g.targets = g.cands[:0], g.targets[:0]
	want := 1 + s.rng.IntN(4)
	if s.rng.IntN(16) == 0 {
		want = 24
	}
	for range want {
		s.addCandidate(g)
	}
}

func (s *site) addCandidate(g *siteGroup) {
	i := s.rng.IntN(len(s.res))
	for try := 0; try < 4 && !s.res[i].present; try++ {
		i = s.rng.IntN(len(s.res))
	}
	if s.res[i].present && !slices.Contains(g.cands, i) {
		g.cands = append(g.cands, i)
		g.targets = append(g.targets, s.rng.IntN(len(targets)))
	}
}

// build writes the configuration as it is now into spare memory. Candidates that
// are no longer configured are left out, as a valid file would.
func (s *site) build() *admission.Config {
	cfg := &s.spare
	cfg.Selection = s.selection
	cfg.Scopes = append(cfg.Scopes[:0], s.pool)
	cfg.Resources = cfg.Resources[:0]
	for i := range s.res {
		if r := &s.res[(i+s.rotate)%len(s.res)]; r.present {
			cfg.Resources = append(cfg.Resources, r.cfg)
		}
	}
	used := 0
	for i := range s.groups {
		g := &s.groups[i]
		if !g.present {
			continue
		}
		if used == len(cfg.Groups) {
			cfg.Groups = append(cfg.Groups, admission.Group{})
		}
		out := &cfg.Groups[used]
		used++
		*out = admission.Group{Key: s.groupKeys[i], Scope: admission.PoolScope, Candidates: out.Candidates[:0]}
		if g.route {
			out.Scope = s.scopeKeys[i]
			cfg.Scopes = append(cfg.Scopes, g.policy)
		}
		for j, id := range g.cands {
			if s.res[id].present {
				out.Candidates = append(out.Candidates, admission.Candidate{Resource: s.keys[id], Target: targets[g.targets[j]]})
			}
		}
	}
	cfg.Groups = cfg.Groups[:used]
	return cfg
}

// spoil overwrites what build filled, as a loader does whose next file turns out
// invalid: nothing in force may have been kept in that memory.
func (s *site) spoil() {
	for i := range s.spare.Resources {
		s.spare.Resources[i] = admission.Resource{}
	}
	for i := range s.spare.Groups {
		for j := range s.spare.Groups[i].Candidates {
			s.spare.Groups[i].Candidates[j] = admission.Candidate{}
		}
	}
	for i := range s.spare.Scopes {
		s.spare.Scopes[i] = admission.Scope{}
	}
}

// change makes one change of a live field or of the inventory and says which.
func (s *site) change() string {
	i := s.rng.IntN(len(s.res))
	r := &s.res[i]
	gi := s.rng.IntN(len(s.groups))
	g := &s.groups[gi]
	switch s.rng.IntN(26) {
	case 0, 1, 2:
		r.cfg.Capacity = s.rng.IntN(5)
		return "capacity"
	case 3, 4:
		r.cfg.LongCapacity = s.rng.IntN(3)
		return "long capacity"
	case 5:
		r.cfg.Priority = s.rng.IntN(4)
		return "priority"
	case 6, 7:
		r.cfg.Enabled = !r.cfg.Enabled || s.rng.IntN(3) == 0
		return "enabled"
	case 8:
		r.cfg.Health = admission.Health(s.rng.IntN(3))
		return "health"
	case 9:
		r.cfg.Surfaces = surfaces[s.rng.IntN(len(surfaces))]
		return "type"
	case 10, 11:
		r.present = !r.present
		if s.rng.IntN(2) == 0 {
			r.cfg = s.drawResource(i)
		}
		return "provider added or removed"
	case 12:
		return s.renameProvider(i)
	case 13:
		return s.changeNode(i / s.perNode)
	case 14:
		g.present = !g.present || s.rng.IntN(3) > 0
		return "group added or removed"
	case 15:
		s.drawCandidates(g)
		return "candidates"
	case 16:
		if n := len(g.cands); n > 0 && s.rng.IntN(2) == 0 {
			at := s.rng.IntN(n)
			g.cands, g.targets = slices.Delete(g.cands, at, at+1), slices.Delete(g.targets, at, at+1)
		} else {
			s.addCandidate(g)
		}
		return "candidate"
	case 17:
		if len(g.targets) > 0 {
			g.targets[s.rng.IntN(len(g.targets))] = s.rng.IntN(len(targets))
		}
		return "served target"
	case 18:
		g.route = !g.route
		return "group becomes route or model"
	case 19:
		s.selection = 1 - s.selection
		return "selection"
	case 20:
		s.rotate = s.rng.IntN(len(s.res))
		return "order in the file"
	case 21:
		return s.override(i)
	}
	if g.route && s.rng.IntN(2) == 0 {
		g.policy = s.drawScope(s.scopeKeys[gi])
	} else {
		s.pool = s.drawScope(admission.PoolScope)
	}
	return "queue policy"
}

// override is an operator's word about one provider or a whole node: disable,
// drain, or what the file says. A refresh that comes later may undo it.
func (s *site) override(i int) string {
	first, last := i, i+1
	if s.rng.IntN(3) == 0 {
		first = i - i%s.perNode
		last = first + s.perNode
	}
	what := s.rng.IntN(4)
	for i := first; i < last; i++ {
		r := &s.res[i].cfg
		switch what {
		case 0:
			r.Enabled = false
		case 1:
			r.Drain = true
		default:
			r.Enabled, r.Drain = true, false
		}
	}
	return [...]string{"override: disable", "override: drain", "override: reset", "override: reset"}[what]
}

// renameProvider moves a resource's configuration, and its place among the
// candidates, to another name on its node.
func (s *site) renameProvider(i int) string {
	to := i - i%s.perNode + s.rng.IntN(s.perNode)
	if !s.res[i].present || s.res[to].present {
		return "rename, to a name in use"
	}
	s.move(i, to)
	return "provider renamed"
}

func (s *site) move(from, to int) {
	cfg := s.res[from].cfg
	cfg.Key = s.keys[to]
	s.res[from].present = false
	s.res[to] = siteResource{present: true, cfg: cfg}
	for g := range s.groups {
		for j, id := range s.groups[g].cands {
			if id == from && !slices.Contains(s.groups[g].cands, to) {
				s.groups[g].cands[j] = to
			}
		}
	}
}

// changeNode removes a node with all its providers, brings it back, or renames
// it.
func (s *site) changeNode(n int) string {
	rename, other := s.rng.IntN(2) == 0, s.rng.IntN(len(s.nodes))
	configured := s.configured(n)
	for j := range s.perNode {
		i := n*s.perNode + j
		switch {
		case configured && rename:
			if to := other*s.perNode + j; s.res[i].present && !s.res[to].present {
				s.move(i, to)
			}
		default:
			s.res[i].present = !configured
		}
	}
	return "node added, removed or renamed"
}

// configured reports whether the configuration names the node.
func (s *site) configured(n int) bool {
	for j := range s.perNode {
		if s.res[n*s.perNode+j].present {
			return true
		}
	}
	return false
}

// repair undoes what keeps every request from being served.
func (s *site) repair() {
	for i := range s.res {
		r := &s.res[i]
		r.present = r.present || i%s.perNode == 0 && s.rng.IntN(2) == 0
		r.cfg.Enabled, r.cfg.Drain, r.cfg.Health = true, false, admission.Healthy
		r.cfg.Capacity = max(r.cfg.Capacity, 1)
	}
	s.res[0].present = true
	for i := range s.groups {
		g := &s.groups[i]
		g.present = g.present || i == 0 || s.rng.IntN(2) == 0
		if !slices.ContainsFunc(g.cands, func(id int) bool { return s.res[id].present }) {
			s.drawCandidates(g)
		}
	}
}

// heal makes a site on which every request can be served.
func (s *site) heal() {
	s.repair()
	for i := range s.res {
		s.res[i].cfg.Surfaces = 0xff
	}
	s.pool.MaxQueue, s.pool.Timeout = 1000, time.Hour
	for i := range s.groups {
		g := &s.groups[i]
		g.policy.MaxQueue, g.policy.Timeout = 1000, time.Hour
		if !slices.ContainsFunc(g.cands, func(id int) bool { return s.res[id].present }) {
			g.cands, g.targets = append(g.cands[:0], 0), append(g.targets[:0], 0)
		}
	}
}
