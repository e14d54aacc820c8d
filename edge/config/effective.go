package config

import (
	"fmt"

	"github.com/iop-dev/iop/configs"
)

// Override is what an admin has set on the running Edge in the place of the
// file's nodes[].providers[].enabled.
type Override struct {
	// Provider is empty where the whole node is meant.
	Node, Provider string
	// Value is shown in the place of the file's.
	Value string
	// By says who has set it, and when.
	By string
}

// Effective are the values in force, secrets masked, each with where it comes
// from: the file, a default, a key that governs it, promoted legacy keys, or an
// override. Of two overrides of one provider the later one is shown.
func (s *Snapshot) Effective(overrides ...Override) configs.Effective {
	values := configs.Values(s.Config,
		"iop.config.v1.Provider.max_queue", "iop.config.v1.Provider.queue_timeout_ms")
	s.origins.Fill(values)
	if len(overrides) == 0 {
		return values
	}
	byPath := map[string]Override{}
	for i, n := range s.Config.GetNodes() {
		for j, p := range n.GetProviders() {
			for _, o := range overrides {
				if o.Node == n.GetId() && (o.Provider == "" || o.Provider == p.GetId()) {
					byPath[fmt.Sprintf("nodes[%d].providers[%d].enabled", i, j)] = o
				}
			}
		}
	}
	for i, v := range values {
		if o, ok := byPath[v.Path]; ok {
			values[i].Value = o.Value
			values[i].From = configs.FromOverride
			values[i].Note = fmt.Sprintf("by %s, before %s", o.By, v.Value)
		}
	}
	return values
}
