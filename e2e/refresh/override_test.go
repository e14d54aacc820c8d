package refresh

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	enable  = adminv1.OverrideAction_OVERRIDE_ACTION_ENABLE
	disable = adminv1.OverrideAction_OVERRIDE_ACTION_DISABLE
	drain   = adminv1.OverrideAction_OVERRIDE_ACTION_DRAIN
	reset   = adminv1.OverrideAction_OVERRIDE_ACTION_RESET
)

func (s *site) override(provider string, action adminv1.OverrideAction) *adminv1.SetOverrideResponse {
	s.t.Helper()
	res, err := s.admin.SetOverride(s.with(adminToken), &adminv1.SetOverrideRequest{Node: "n", Provider: provider, Action: action})
	require.NoError(s.t, err)
	return res
}

func (s *site) reload(file object) *adminv1.ReloadConfigResponse {
	s.t.Helper()
	s.write(file)
	res, err := s.admin.ReloadConfig(s.with(adminToken), &adminv1.ReloadConfigRequest{})
	require.NoError(s.t, err)
	return res
}

// Running work stays, a waiter without another candidate ends at once, and
// nothing new starts, until the reset.
func TestS08_AnOverrideActsAtOnceAndKeepsWhatRuns(t *testing.T) {
	for _, c := range []struct {
		name, provider string
		action         adminv1.OverrideAction
		reason         string
	}{
		{"disable a provider", "p", disable, "disabled"},
		{"drain a provider", "p", drain, "draining"},
		{"disable the node", "", disable, "disabled"},
		{"drain the node", "", drain, "draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := make(chan struct{})
			b := newBackend(t, gate)
			s := start(t, false, config(anyPort, t.TempDir(), b.URL, nil))
			first, second := s.background("m"), s.background("m")
			s.eventually("two run", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 2 })
			third := s.background("m")
			s.eventually("one waits", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() == 1 })

			res := s.override(c.provider, c.action)
			require.EqualValues(t, 2, res.GetInFlight())
			require.True(t, res.GetDurable(), res.GetNotDurableBecause())
			require.Equal(t, "me", res.GetOverride().GetBy())
			waiter := <-third
			require.Equal(t, http.StatusServiceUnavailable, waiter.status, "%+v", waiter)
			p := s.provider()
			require.Equal(t, c.reason, p.GetExcludedReason())
			require.Equal(t, "unavailable", p.GetStatus())
			require.EqualValues(t, 2, p.GetInFlight())
			shown := p.GetOverride()
			if c.provider == "" {
				require.Nil(t, shown)
				shown = s.snapshot().GetNodes()[0].GetOverride()
				require.Equal(t, c.action == drain, s.snapshot().GetNodes()[0].GetDraining())
			}
			require.Equal(t, res.GetOverride().GetMode(), shown.GetMode())
			require.Equal(t, res.GetOverride().GetSince().AsTime(), shown.GetSince().AsTime())
			require.Equal(t, "me", shown.GetBy())
			require.Equal(t, waiter.status, s.ask(apiKey, "m").status, "nothing new")

			again := s.override(c.provider, c.action)
			require.Equal(t, res.GetOverride().GetSince().AsTime(), again.GetOverride().GetSince().AsTime(), "it stands since it was set")

			close(gate)
			require.Equal(t, http.StatusOK, (<-first).status)
			require.Equal(t, http.StatusOK, (<-second).status)
			require.Nil(t, s.override(c.provider, reset).GetOverride())
			require.Equal(t, http.StatusOK, s.ask(apiKey, "m").status)
			s.idle()
		})
	}
}

// A reset is felt by who waits for another candidate, like a slot that returns.
func TestS08_AResetWakesWaiters(t *testing.T) {
	gate := make(chan struct{})
	b := newBackend(t, gate)
	s := start(t, false, config(anyPort, t.TempDir(), b.URL, func(f object) {
		n := f["nodes"].([]object)[0]
		n["providers"] = []object{
			{"id": "p", "type": "openai", "base_url": b.URL + "/a", "capacity": 1},
			{"id": "q", "type": "openai", "base_url": b.URL + "/b", "capacity": 1},
		}
		f["models"] = []object{{"id": "m", "providers": []object{{"node": "n", "provider": "p"}, {"node": "n", "provider": "q"}}}}
	}))
	s.override("q", disable)
	first := s.background("m")
	s.eventually("one runs", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 1 })
	second := s.background("m")
	s.eventually("one waits", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() == 1 })
	s.override("q", reset)
	s.eventually("both run", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 2 })
	close(gate)
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, http.StatusOK, (<-second).status)
	s.idle()
}

// An override outlasts refreshes, the node's reconnect and a restart of the Edge.
// It ends when the file changes `enabled` of its provider, while the Edge runs or
// not.
func TestS08_AnOverrideLastsUntilTheFileChangesEnabled(t *testing.T) {
	b := newBackend(t, nil)
	listen, dir := freePort(t), t.TempDir()
	site := func(capacity int, enabled bool) object {
		return config(listen, dir, b.URL, func(f object) {
			p := f["nodes"].([]object)[0]["providers"].([]object)[0]
			p["capacity"], p["enabled"] = capacity, enabled
		})
	}
	s := start(t, false, site(1, true))
	s.override("p", disable)
	s.override("", drain)
	stands := func() {
		t.Helper()
		s.eventually("connected", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetNodes()[0].GetConnected() })
		require.Equal(t, "disabled", s.provider().GetOverride().GetMode())
		require.Equal(t, "disabled", s.provider().GetExcludedReason())
		require.Equal(t, "draining", s.snapshot().GetNodes()[0].GetOverride().GetMode())
	}
	restart := func() {
		t.Helper()
		s.stop()
		s.client.CloseIdleConnections()
		s.startEdge()
	}
	stands()
	s.reload(site(2, true))
	stands()
	restart() // and the node reconnects
	stands()

	res := s.reload(site(2, false))
	require.Contains(t, res.GetChanges(), "override of n/p: disabled -> (none), the file has changed its enabled")
	require.Nil(t, s.provider().GetOverride())
	require.Equal(t, "disabled", s.provider().GetExcludedReason(), "by the file now")
	require.Equal(t, "draining", s.snapshot().GetNodes()[0].GetOverride().GetMode(), "a node has no enabled")
	s.override("", reset)

	require.Equal(t, "enabled", s.override("p", enable).GetOverride().GetMode())
	require.Empty(t, s.provider().GetExcludedReason())
	require.Equal(t, http.StatusOK, s.ask(apiKey, "m").status)
	restart()
	s.eventually("connected", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetNodes()[0].GetConnected() })
	require.Equal(t, http.StatusOK, s.ask(apiKey, "m").status, "enabled above the file")

	s.stop()
	s.write(site(2, true))
	s.startEdge()
	require.Nil(t, s.provider().GetOverride(), "the file changed it while the Edge was away")
	s.override("p", disable)

	// What is no longer configured has no override.
	res = s.reload(config(listen, dir, b.URL, func(f object) {
		f["nodes"].([]object)[0]["providers"] = []object{{"id": "renamed", "type": "openai", "base_url": b.URL}}
		f["models"] = []object{{"id": "m", "providers": []object{{"node": "n", "provider": "renamed"}}}}
	}))
	require.Contains(t, res.GetChanges(), "override of n/p: disabled -> (none), it is no longer configured")
	require.Nil(t, s.provider().GetOverride())
	s.eventually("it takes work once its node is back", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetNodes()[0].GetProviders()[0].GetExcludedReason() == ""
	})
}

// A state folder that cannot be used is no reason not to act, or not to start.
func TestS08_AnOverrideThatCannotBeKeptActsAndSaysSo(t *testing.T) {
	b := newBackend(t, nil)
	for name, c := range map[string]struct{ dir, why string }{
		"no folder named": {"", "edge.state_dir is not set"},
		"no folder":       {filepath.Join(os.Args[0], "state"), "state"}, // below a file
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, false, config(anyPort, c.dir, b.URL, nil))
			res := s.override("p", drain)
			require.False(t, res.GetDurable())
			require.Contains(t, res.GetNotDurableBecause(), c.why)
			require.Equal(t, "draining", s.provider().GetExcludedReason())
			require.Contains(t, s.snapshot().GetOverridesNotDurable(), c.why)
			s.override("p", reset)
			require.Empty(t, s.snapshot().GetOverridesNotDurable())
			require.Empty(t, s.provider().GetExcludedReason())
		})
	}
	t.Run("a damaged file", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "overrides.json"), []byte("{"), 0o600))
		s := start(t, false, config(anyPort, dir, b.URL, nil))
		require.Empty(t, s.provider().GetExcludedReason())
		require.True(t, s.override("p", drain).GetDurable())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 2, "the damaged one is kept beside it")
	})
}

// Who may do what: each procedure with each kind of credential.
func TestS08_OnlyAdminTokensChangeAnEdge(t *testing.T) {
	b := newBackend(t, nil)
	s := start(t, false, config(anyPort, "", b.URL, nil))
	calls := map[string]func(token string) error{
		"SetOverride": func(token string) error {
			_, err := s.admin.SetOverride(s.with(token), &adminv1.SetOverrideRequest{Node: "n", Provider: "p", Action: drain})
			return err
		},
		"ResetEstimates": func(token string) error {
			_, err := s.admin.ResetEstimates(s.with(token), &adminv1.ResetEstimatesRequest{})
			return err
		},
		"ReloadConfig": func(token string) error {
			_, err := s.admin.ReloadConfig(s.with(token), &adminv1.ReloadConfigRequest{})
			return err
		},
		"GetEdgeNodeSnapshot": func(token string) error {
			_, err := s.control.GetEdgeNodeSnapshot(s.with(token), &controlv1.GetEdgeNodeSnapshotRequest{})
			return err
		},
	}
	for _, c := range []struct {
		role, token string
		may         map[string]bool
	}{
		{"nobody", "", nil},
		{"a stranger", "wrong", nil},
		{"a client", apiKey, nil},
		{"a node", nodeToken, nil},
		{"a reader", readToken, map[string]bool{"GetEdgeNodeSnapshot": true}},
	} {
		for name, call := range calls {
			err := call(c.token)
			if c.may[name] {
				require.NoError(t, err, "%s as %s", name, c.role)
				continue
			}
			require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), "%s as %s", name, c.role)
		}
	}
	require.Nil(t, s.provider().GetOverride(), "nothing has happened")
	for name, call := range calls {
		require.NoError(t, call(adminToken), name)
	}
	for _, bad := range []*adminv1.SetOverrideRequest{
		{Provider: "p", Action: drain}, {Node: "n", Provider: "p"}, {Node: "n", Provider: "p", Action: 9},
	} {
		_, err := s.admin.SetOverride(s.with(adminToken), bad)
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), bad)
	}
	for _, unknown := range []*adminv1.SetOverrideRequest{
		{Node: "x", Action: drain}, {Node: "n", Provider: "x", Action: drain},
	} {
		_, err := s.admin.SetOverride(s.with(adminToken), unknown)
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(err), unknown)
	}
}
