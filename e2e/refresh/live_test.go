package refresh

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Each live field of queue and provider reaches a request that waits, with no
// other trigger: it goes, or ends, by the refresh itself. What runs stays.
func TestS08_R01_R03_EachLiveFieldReachesWaitersAtOnce(t *testing.T) {
	provider := func(f object) object { return f["nodes"].([]object)[0]["providers"].([]object)[0] }
	for _, c := range []struct {
		name   string
		model  string
		change func(f object)
		status int    // of the waiter; 0 = it is dispatched and runs
		code   string // of its error
	}{
		{"capacity up", "m", func(f object) { provider(f)["capacity"] = 2 }, 0, ""},
		{"capacity 0", "m", func(f object) { provider(f)["capacity"] = 0 }, http.StatusServiceUnavailable, "provider_unavailable"},
		{"disabled", "m", func(f object) { provider(f)["enabled"] = false }, http.StatusServiceUnavailable, "provider_unavailable"},
		{"unhealthy", "m", func(f object) { provider(f)["health"] = "unhealthy" }, http.StatusServiceUnavailable, "provider_unavailable"},
		{"queue timeout", "m", func(f object) { f["provider_pool"].(object)["queue_timeout_ms"] = 1 }, http.StatusServiceUnavailable, "queue_timeout"},
		{"another candidate", "m", func(f object) {
			f["models"].([]object)[0]["providers"] = []object{{"node": "n", "provider": "p"}, {"node": "n", "provider": "spare"}}
		}, 0, ""},
		{"the candidate taken away", "m", func(f object) {
			f["models"].([]object)[0]["providers"] = []object{}
		}, http.StatusServiceUnavailable, ""},
		{"the model removed", "m", func(f object) { f["models"] = []object{} }, http.StatusServiceUnavailable, ""},
		{"R03: the route's queue timeout", "route", func(f object) {
			f["openai"].(object)["model_routes"].([]object)[0]["queue_timeout_ms"] = 1
		}, http.StatusServiceUnavailable, "queue_timeout"},
		{"R03: the route inherits the pool's", "route", func(f object) {
			f["openai"].(object)["model_routes"].([]object)[0]["queue_timeout_ms"] = 0
			f["provider_pool"].(object)["queue_timeout_ms"] = 1
		}, http.StatusServiceUnavailable, "queue_timeout"},
		{"R01: another adapter", "route", func(f object) {
			f["openai"].(object)["model_routes"].([]object)[0]["adapter"] = "spare"
		}, 0, ""},
		{"R01: the route becomes a model", "route", func(f object) {
			delete(f["openai"].(object), "model_routes")
			f["models"] = append(f["models"].([]object), object{"id": "route", "providers": []object{{"node": "n", "provider": "spare"}}})
		}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			gate := make(chan struct{})
			b := newBackend(t, gate)
			file := func(change func(object)) object {
				return config(anyPort, "", b.URL, func(f object) {
					provider(f)["capacity"] = 1
					n := f["nodes"].([]object)[0]
					n["providers"] = append(n["providers"].([]object), object{"id": "spare", "type": "openai", "base_url": b.URL + "/spare"})
					f["openai"].(object)["model_routes"] = []object{{"model": "route", "adapter": "p", "max_queue": 4, "queue_timeout_ms": 50000}}
					if change != nil {
						change(f)
					}
				})
			}
			s := start(t, false, file(nil))
			running := s.background("m")
			s.eventually("one runs", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 1 })
			waiter := s.background(c.model)
			s.eventually("one waits", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() == 1 })
			s.reload(file(c.change))
			if c.status != 0 {
				a := <-waiter
				require.Equal(t, c.status, a.status, "%+v", a)
				if c.code != "" {
					require.Equal(t, c.code, a.code)
				}
			} else {
				s.eventually("both run", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 2 })
			}
			close(gate)
			require.Equal(t, http.StatusOK, (<-running).status, "what runs is never touched")
			if c.status == 0 {
				require.Equal(t, http.StatusOK, (<-waiter).status)
			}
			s.idle()
		})
	}
}

// Keys change at once, for newcomers only; who is waiting goes on.
func TestS08_KeysAreRotatedUnderLoad(t *testing.T) {
	gate := make(chan struct{})
	b := newBackend(t, gate)
	s := start(t, false, config(anyPort, "", b.URL, nil))
	running := []<-chan answer{s.background("m"), s.background("m"), s.background("m")}
	s.eventually("two run, one waits", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetInFlightTotal() == 2 && s.GetQueueTotal() == 1
	})
	res := s.reload(config(anyPort, "", b.URL, func(f object) {
		f["openai"] = object{"api_keys": []object{{"name": "client", "sha256": auth.HashToken("next-key")}}}
	}))
	require.Equal(t, []string{"openai.api_keys[client].sha256: changed"}, res.GetChanges(), "and no secret")
	require.Equal(t, http.StatusUnauthorized, s.ask(apiKey, "m").status)
	close(gate)
	for _, r := range running {
		require.Equal(t, http.StatusOK, (<-r).status)
	}
	require.Equal(t, http.StatusOK, s.ask("next-key", "m").status)
	s.idle()
}

// A total context that is too small is refused at a refresh as at load; the long
// limit in force holds, across groups.
func TestS04_ABadTotalContextIsRefusedAtARefresh(t *testing.T) {
	b := newBackend(t, nil)
	site := func(total, long int) object {
		return config(anyPort, "", b.URL, func(f object) {
			p := f["nodes"].([]object)[0]["providers"].([]object)[0]
			p["long_context_capacity"], p["total_context_tokens"] = long, total
			f["models"] = []object{
				{"id": "m", "context_window_tokens": 1000, "providers": []object{{"node": "n", "provider": "p"}}},
				{"id": "m2", "context_window_tokens": 1000, "providers": []object{{"node": "n", "provider": "p"}}},
			}
		})
	}
	s := start(t, false, site(1000, 1))
	s.write(site(1999, 2))
	_, err := s.admin.ReloadConfig(s.with(adminToken), &adminv1.ReloadConfigRequest{})
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "total_context_tokens")
	require.EqualValues(t, 1, s.provider().GetLongContextCapacity())
	snap := s.snapshot()
	require.EqualValues(t, 1, snap.GetConfigRevision())
	require.Contains(t, snap.GetLastRefreshError(), "total_context_tokens")
	require.Len(t, snap.GetRefreshes(), 2)
	require.Contains(t, snap.GetRefreshes()[0].GetError(), "total_context_tokens")
	require.Equal(t, "start", snap.GetRefreshes()[1].GetSource())

	require.Empty(t, s.reload(site(2000, 2)).GetNeedsRestart())
	require.EqualValues(t, 2, s.provider().GetLongContextCapacity())
	require.Empty(t, s.snapshot().GetLastRefreshError())
}

// What needs a restart is named until it is in force or taken back; another
// Edge's file is refused as a whole.
func TestS08_WhatNeedsARestartIsNamedAndWhatIsRefusedChangesNothing(t *testing.T) {
	b := newBackend(t, nil)
	s := start(t, false, config(anyPort, "", b.URL, nil))
	site := func(id, stateDir string, capacity int) object {
		return config(anyPort, stateDir, b.URL, func(f object) {
			f["edge"].(object)["id"] = id
			f["nodes"].([]object)[0]["providers"].([]object)[0]["capacity"] = capacity
		})
	}
	pending := []string{"edge.state_dir: (none) -> elsewhere"}
	require.Equal(t, pending, s.reload(site("refresh", "elsewhere", 2)).GetNeedsRestart())
	res := s.reload(site("refresh", "elsewhere", 5))
	require.Equal(t, []string{"nodes[n].providers[p].capacity: 2 -> 5"}, res.GetChanges())
	require.Equal(t, pending, res.GetNeedsRestart(), "still")
	require.Equal(t, pending, s.snapshot().GetNeedsRestart())

	s.write(site("another", "", 1))
	_, err := s.admin.ReloadConfig(s.with(adminToken), &adminv1.ReloadConfigRequest{})
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "edge.id: refresh -> another")
	require.EqualValues(t, 5, s.provider().GetConfiguredCapacity())

	require.Empty(t, s.reload(site("refresh", "", 5)).GetNeedsRestart(), "taken back")
}
