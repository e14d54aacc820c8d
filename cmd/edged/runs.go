package edged

import (
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/services/inference"
)

// target finds what a run is for.
func (e *Edge) target(id string) (inference.Target, bool) {
	for _, m := range e.snapshot().Models {
		if m.ID == id {
			return inference.Target{Group: m.Group, ContextWindow: m.ContextWindow}, true
		}
	}
	return inference.Target{}, false
}

// runSettings is what the typed API is told of the configuration in force.
func (e *Edge) runSettings() inference.Settings {
	cfg := e.snapshot().Config
	return inference.Settings{
		LongThreshold: int(cfg.GetLongContextThresholdTokens()), BodyLimit: int64(cfg.GetEdge().GetBodyLimitBytes()),
		IdleTimeout:  time.Duration(cfg.GetOpenai().GetIdleTimeoutMs()) * time.Millisecond,
		TotalTimeout: time.Duration(cfg.GetOpenai().GetTimeoutSec()) * time.Second,
	}
}

// simulated reports whether a provider is IOP's own simulator.
func (e *Edge) simulated(key admission.ResourceKey) bool {
	for _, n := range e.snapshot().Config.GetNodes() {
		if n.GetId() != string(key.Node) {
			continue
		}
		for _, p := range n.GetProviders() {
			if p.GetId() == string(key.Provider) {
				return p.GetType() == "simulator"
			}
		}
	}
	return false
}
