package edged

import (
	"cmp"
	"errors"
	"slices"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/state"
	"github.com/iop-dev/iop/services/admin"
	"github.com/iop-dev/iop/services/rpcerr"
)

// openState takes over what the operator said before the start, as far as the
// configuration has not changed it meanwhile. Whatever is wrong with the folder
// is told, and the Edge starts.
func (e *Edge) openState(snap *config.Snapshot) {
	store, all, err := state.Open(snap.Config.GetEdge().GetStateDir(), e.clock.Now())
	if err != nil {
		e.log.Error("overrides of the last run are not in force", "error", err)
	}
	e.store = store
	stand, cleared := all.Settle(nodesOf(snap), snap.Admission)
	e.overrides = stand
	for _, c := range cleared {
		e.log.Warn("an override ends", "override", c.Subject(), "mode", c.Mode, "why", c.Why)
	}
	for _, o := range stand {
		e.log.Warn("an override is in force", "override", o.Subject(), "mode", o.Mode, "since", o.Since, "token", o.By)
	}
	if len(cleared) > 0 {
		_ = e.keep(stand) // told of in the log; the next start clears them again
	}
}

// forgetEstimates gives up what the input estimate has learned of a served target.
func (e *Edge) forgetEstimates(by admin.Caller, target string) int {
	n := e.estimates.Reset(target)
	e.log.Info("admin call", "token", by.Token, "address", by.Address, "call", "reset estimates", "target", target, "forgotten", n)
	return n
}

// setOverride carries an operator's order out, and logs what became of it.
func (e *Edge) setOverride(by admin.Caller, order admin.Order) (admin.Outcome, error) {
	out, err := e.override(by, order)
	if err == nil && out.Override == nil {
		order.Mode = ""
	}
	e.log.Info("admin call", "token", by.Token, "address", by.Address, "call", "override", "node", order.Node, "provider", order.Provider,
		"order", cmp.Or(string(order.Mode), "reset"), "durable", err == nil && out.Lost == nil, "ok", err == nil)
	return out, err
}

// override is one step of the core, and then the state file.
func (e *Edge) override(by admin.Caller, order admin.Order) (admin.Outcome, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	if e.stopping {
		return admin.Outcome{}, rpcerr.ErrStopping
	}
	snap := e.snapshot()
	enabled, err := configured(snap, order)
	if err != nil {
		return admin.Outcome{}, err
	}
	if order.Provider == "" && order.Mode == state.Enabled {
		order.Mode = "" // a node has no `enabled` in the file that this could differ from
	}
	next := e.overrides
	switch before, _ := next.Of(order.Node, order.Provider); order.Mode {
	case before.Mode: // it stands, since then and by whom it was
	case "":
		next = next.Without(order.Node, order.Provider)
	default:
		next = next.With(state.Override{
			Node: order.Node, Provider: order.Provider, Mode: order.Mode,
			Since: e.clock.Now().UTC(), By: by.Token, Configured: enabled,
		})
	}
	e.mu.Lock()
	e.overrides = next
	e.broker.Reconfigure(next.Apply(snap.Admission))
	e.mu.Unlock()

	out := admin.Outcome{Lost: e.keep(next), InFlight: e.running(order)}
	if o, ok := next.Of(order.Node, order.Provider); ok {
		out.Override = &o
	} else if errors.Is(out.Lost, state.ErrNoDir) {
		out.Lost = nil // the file's word needs no keeping
	}
	return out, nil
}

// configured checks that an order's subject is configured, and returns `enabled`
// of a provider.
func configured(snap *config.Snapshot, order admin.Order) (enabled bool, err error) {
	if nodes := nodesOf(snap); !slices.Contains(nodes, order.Node) {
		return false, notConfigured("node", string(order.Node), names(nodes))
	}
	if order.Provider == "" {
		return false, nil
	}
	var providers []string
	for _, r := range snap.Admission.Resources {
		switch {
		case r.Key.Node != order.Node:
		case r.Key.Provider == order.Provider:
			return r.Enabled, nil
		default:
			providers = append(providers, r.Key.String())
		}
	}
	key := admission.ResourceKey{Node: order.Node, Provider: order.Provider}
	return false, notConfigured("provider", key.String(), providers)
}

func notConfigured(what, name string, known []string) error {
	nearest, _ := configs.Nearest(name, known)
	return &rpcerr.NotConfiguredError{What: what, Name: name, Nearest: nearest}
}

func names(ids []admission.NodeID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// running counts the leases on an order's subject.
func (e *Edge) running(order admin.Order) (n int) {
	for _, r := range e.broker.Snapshot().Resources {
		if r.Key.Node == order.Node && (order.Provider == "" || r.Key.Provider == order.Provider) {
			n += r.InFlight
		}
	}
	return n
}
