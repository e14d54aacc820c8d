package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/state"
)

var since = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func on(node, provider string, mode state.Mode) state.Override {
	return state.Override{Node: admission.NodeID(node), Provider: admission.ProviderID(provider), Mode: mode, Since: since, By: "me", Configured: true}
}

func resource(node, provider string, enabled bool) admission.Resource {
	return admission.Resource{Key: admission.ResourceKey{Node: admission.NodeID(node), Provider: admission.ProviderID(provider)}, Capacity: 1, Enabled: enabled}
}

func TestS08_AnOverrideStandsAboveTheConfiguration(t *testing.T) {
	for _, c := range []struct {
		name       string
		configured bool
		overrides  []state.Override
		enabled    bool
		drain      bool
	}{
		{"none", true, nil, true, false},
		{"of another provider", true, []state.Override{on("n", "q", state.Disabled), on("m", "p", state.Disabled)}, true, false},
		{"disable", true, []state.Override{on("n", "p", state.Disabled)}, false, false},
		{"enable", false, []state.Override{on("n", "p", state.Enabled)}, true, false},
		{"drain", true, []state.Override{on("n", "p", state.Draining)}, true, true},
		{"drain what the file disables", false, []state.Override{on("n", "p", state.Draining)}, false, true},
		{"disable the node", true, []state.Override{on("n", "", state.Disabled)}, false, false},
		{"drain the node", true, []state.Override{on("n", "", state.Draining)}, true, true},
		{"the node's exclusion beats the provider's enabling", false, []state.Override{on("n", "", state.Disabled), on("n", "p", state.Enabled)}, false, false},
		{"the node drains, the provider is enabled", true, []state.Override{on("n", "", state.Draining), on("n", "p", state.Enabled)}, true, true},
		{"the last word", true, []state.Override{on("n", "p", state.Disabled), on("n", "p", state.Draining)}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all state.Overrides
			for _, o := range c.overrides {
				all = all.With(o)
			}
			given := admission.Config{Resources: []admission.Resource{resource("n", "p", c.configured)}}
			told := all.Apply(given)
			require.Equal(t, c.enabled, told.Resources[0].Enabled)
			require.Equal(t, c.drain, told.Resources[0].Drain)
			require.Equal(t, []admission.Resource{resource("n", "p", c.configured)}, given.Resources, "the configuration itself is not touched")
			for _, o := range c.overrides {
				all = all.Without(o.Node, o.Provider)
			}
			require.Empty(t, all)
			require.Equal(t, given, all.Apply(given))
		})
	}
}

func TestS08_OverridesEndWhenTheFileChangesEnabledOrTheirSubjectGoes(t *testing.T) {
	off := on("n", "q", state.Enabled)
	off.Configured = false
	var all state.Overrides
	for _, o := range []state.Override{on("n", "p", state.Disabled), off, on("n", "", state.Draining), on("gone", "", state.Disabled), on("n", "gone", state.Draining)} {
		all = all.With(o)
	}
	nodes := []admission.NodeID{"n"}
	stand, cleared := all.Settle(nodes, admission.Config{Resources: []admission.Resource{resource("n", "p", true), resource("n", "q", false)}})
	require.Equal(t, state.Overrides{on("n", "", state.Draining), on("n", "p", state.Disabled), off}, stand)
	require.Len(t, cleared, 2)
	require.Equal(t, "override of gone: disabled -> (none), it is no longer configured", cleared[0].String())
	require.Equal(t, "override of n/gone: draining -> (none), it is no longer configured", cleared[1].String())

	stand, cleared = stand.Settle(nodes, admission.Config{Resources: []admission.Resource{resource("n", "p", false), resource("n", "q", true)}})
	require.Equal(t, state.Overrides{on("n", "", state.Draining)}, stand, "a node's override is not about enabled")
	require.Len(t, cleared, 2)
	require.Contains(t, cleared[0].String(), "n/p: disabled -> (none), the file has changed its enabled")
}

func TestOverridesAreNeverChangedInPlace(t *testing.T) {
	one := state.Overrides{}.With(on("n", "p", state.Disabled))
	two := one.With(on("n", "p", state.Draining)).With(on("a", "", state.Disabled))
	none := one.Without("n", "p")
	require.Equal(t, state.Overrides{on("n", "p", state.Disabled)}, one)
	require.Equal(t, state.Overrides{on("a", "", state.Disabled), on("n", "p", state.Draining)}, two)
	require.Empty(t, none)
	require.Equal(t, one, one.Without("n", ""), "the node has none")
}
