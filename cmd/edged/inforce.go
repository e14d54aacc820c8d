package edged

import (
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/services/control"
)

// inForce is a configuration, and what is asked of it all the time. Nobody changes
// it.
type inForce struct {
	*config.Snapshot
	catalogue    []control.Model                  // every model and route, with where it may run
	types        map[admission.ResourceKey]string // of the providers
	needsRestart []string
}

// adopt puts a configuration into force for whoever looks.
func (e *Edge) adopt(snap *config.Snapshot) *inForce {
	f := &inForce{Snapshot: snap, types: map[admission.ResourceKey]string{}}
	_, f.needsRestart = config.Changes(e.started, snap)
	candidates := map[admission.GroupKey][]admission.Candidate{}
	for _, g := range snap.Admission.Groups {
		candidates[g.Key] = g.Candidates
	}
	for _, m := range snap.Models {
		f.catalogue = append(f.catalogue, control.Model{ID: m.ID, ContextWindow: m.ContextWindow, Route: m.Route, Candidates: candidates[m.Group]})
	}
	for _, n := range snap.Config.GetNodes() {
		for _, p := range n.GetProviders() {
			f.types[admission.ResourceKey{Node: admission.NodeID(n.GetId()), Provider: admission.ProviderID(p.GetId())}] = p.GetType()
		}
	}
	e.current.Store(f)
	return f
}

// snapshot is the configuration in force.
func (e *Edge) snapshot() *config.Snapshot { return e.current.Load().Snapshot }

// typeOf is the configured type of a provider; empty if it is not configured.
func (e *Edge) typeOf(key admission.ResourceKey) string { return e.current.Load().types[key] }

// simulated reports whether a provider is IOP's own simulator.
func (e *Edge) simulated(key admission.ResourceKey) bool { return e.typeOf(key) == "simulator" }
