package edged

import (
	"slices"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/services/inference"
)

// target finds what a run is for.
func (e *Edge) target(id string) (inference.Target, bool) {
	snap := e.snapshot()
	for _, m := range snap.Models {
		if m.ID == id {
			return inference.Target{Group: m.Group, Targets: targets(snap, m.Group), ContextWindow: m.ContextWindow}, true
		}
	}
	return inference.Target{}, false
}

// targets are the names under which a group is served, each once.
func targets(snap *config.Snapshot, group admission.GroupKey) []string {
	var names []string
	for _, g := range snap.Admission.Groups {
		if g.Key != group {
			continue
		}
		for _, c := range g.Candidates {
			if !slices.Contains(names, c.Target) {
				names = append(names, c.Target)
			}
		}
	}
	return names
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
