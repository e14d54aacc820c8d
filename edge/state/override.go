package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// Mode is what an override makes of a provider, or of each provider of a node.
type Mode string

// The modes.
const (
	Enabled  Mode = "enabled"  // takes work, whatever the file says; providers only
	Disabled Mode = "disabled" // takes nothing new
	Draining Mode = "draining" // takes nothing new, and is meant to become idle
)

// Override is an operator's word about a provider or a whole node.
type Override struct {
	Node     admission.NodeID     `json:"node"`
	Provider admission.ProviderID `json:"provider,omitempty"` // empty = the node
	Mode     Mode                 `json:"mode"`
	Since    time.Time            `json:"since"`
	By       string               `json:"by"` // name of the admin token
	// Configured is `enabled` of the provider as the file had it: once the file
	// says otherwise, it has the last word.
	Configured bool `json:"configured_enabled"`
}

// Subject is "node/provider", or the node's id.
func (o Override) Subject() string {
	if o.Provider == "" {
		return string(o.Node)
	}
	return admission.ResourceKey{Node: o.Node, Provider: o.Provider}.String()
}

// Overrides are all that stand, at most one for each subject, in their order.
// They are never changed: what changes them returns others.
type Overrides []Override

// Of finds the override of a provider, or of the node where provider is empty.
func (all Overrides) Of(node admission.NodeID, provider admission.ProviderID) (Override, bool) {
	at, ok := all.find(node, provider)
	if !ok {
		return Override{}, false
	}
	return all[at], true
}

// With adds an override, in place of a former one of the same subject.
func (all Overrides) With(o Override) Overrides {
	next := slices.Clone(all)
	at, ok := next.find(o.Node, o.Provider)
	if ok {
		next[at] = o
		return next
	}
	return slices.Insert(next, at, o)
}

// Without takes an override away, if there is one.
func (all Overrides) Without(node admission.NodeID, provider admission.ProviderID) Overrides {
	at, ok := all.find(node, provider)
	if !ok {
		return all
	}
	return slices.Delete(slices.Clone(all), at, at+1)
}

func (all Overrides) find(node admission.NodeID, provider admission.ProviderID) (int, bool) {
	return slices.BinarySearchFunc(all, Override{Node: node, Provider: provider}, compare)
}

func compare(a, b Override) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Provider, b.Provider))
}

// Apply returns the configuration as the core is to be told it: the resources
// with the operator's word in them. A node's exclusion holds for all its
// providers, enabled ones included.
func (all Overrides) Apply(cfg admission.Config) admission.Config {
	if len(all) == 0 {
		return cfg
	}
	cfg.Resources = slices.Clone(cfg.Resources)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if o, ok := all.Of(r.Key.Node, r.Key.Provider); ok {
			r.Enabled = o.Mode == Enabled || o.Mode == Draining && r.Enabled
			r.Drain = o.Mode == Draining
		}
		if o, ok := all.Of(r.Key.Node, ""); ok {
			r.Enabled = r.Enabled && o.Mode != Disabled
			r.Drain = r.Drain || o.Mode == Draining
		}
	}
	return cfg
}

// Cleared is an override that a configuration has ended.
type Cleared struct {
	Override
	Why string
}

// String is a line for the list of a refresh's changes.
func (c Cleared) String() string {
	return fmt.Sprintf("override of %s: %s -> (none), %s", c.Subject(), c.Mode, c.Why)
}

// Settle parts the overrides that still stand under a configuration from those
// that it ends: because it changes `enabled` of their provider, or because it
// does not have their subject any more. Nodes are all its nodes.
func (all Overrides) Settle(nodes []admission.NodeID, cfg admission.Config) (stand Overrides, cleared []Cleared) {
	enabled := make(map[admission.ResourceKey]bool, len(cfg.Resources))
	for _, r := range cfg.Resources {
		enabled[r.Key] = r.Enabled
	}
	for _, o := range all {
		now, configured := enabled[admission.ResourceKey{Node: o.Node, Provider: o.Provider}]
		switch {
		case o.Provider == "" && !slices.Contains(nodes, o.Node), o.Provider != "" && !configured:
			cleared = append(cleared, Cleared{o, "it is no longer configured"})
		case o.Provider != "" && now != o.Configured:
			cleared = append(cleared, Cleared{o, "the file has changed its enabled"})
		default:
			stand = append(stand, o)
		}
	}
	return stand, cleared
}
