package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
)

func TestChangesNamesLiveFields(t *testing.T) {
	before := example(t)
	for _, c := range []struct{ name, from, to, want string }{
		{"capacity", "capacity: 4\n", "capacity: 2\n", "nodes[gx10].providers[vllm].capacity: 4 -> 2"},
		{"omitted", "        priority: 10\n", "", "nodes[gx10].providers[vllm].priority: 10 -> 0"},
		{"enabled", "enabled: true", "enabled: false", "nodes[gx10].providers[vllm].enabled: true -> false"},
		{"health", "health: healthy", "health: unhealthy", "nodes[gx10].providers[vllm].health: healthy -> unhealthy"},
		{"base_url", "http://127.0.0.1:8000", "http://127.0.0.1:8001/v1", "nodes[gx10].providers[vllm].base_url: http://127.0.0.1:8000 -> http://127.0.0.1:8001"},
		{"target", `target: "Qwen/Qwen3.6-35B-A3B-FP8"`, "", "models[qwen3.6:35b].providers[gx10/vllm].target: Qwen/Qwen3.6-35B-A3B-FP8 -> qwen3.6:35b"},
		{"pool", "  max_queue: 64", "  max_queue: 0", "provider_pool.max_queue: 64 -> 0"},
		{"route", "max_queue: 4, ", "max_queue: 5, ", "openai.model_routes[tiny].max_queue: 4 -> 5"},
		{"threshold", "tokens: 100000", "tokens: 99", "long_context_threshold_tokens: 100000 -> 99"},
		{"origins", "allowed_origins: []", "allowed_origins: [http://a]", "openai.cors.allowed_origins: (none) -> [http://a]"},
		{"body", "body_limit_bytes: 33554432", "body_limit_bytes: 2048", "edge.body_limit_bytes: 33554432 -> 2048"},
		{"auth", "auth: {mode: keys}", "auth: {mode: none}", "edge.auth.mode: keys -> none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, restart := config.Changes(before, replace(t, c.from, c.to))
			require.Equal(t, []string{c.want}, changes)
			require.Empty(t, restart)
		})
	}
}

func TestChangesNamesWhatNeedsARestart(t *testing.T) {
	before := example(t)
	for _, c := range []struct{ from, to, want string }{
		{"listen: 127.0.0.1:8484", "listen: 127.0.0.1:9", "edge.listen: 127.0.0.1:8484 -> 127.0.0.1:9"},
		{"0.0.0.0:8485", "0.0.0.0:9", "edge.node_listen: 0.0.0.0:8485 -> 0.0.0.0:9"},
		{"127.0.0.1:8486", "127.0.0.1:9", "edge.admin_listen: 127.0.0.1:8486 -> 127.0.0.1:9"},
		{"cert_file: edge.crt", "cert_file: other.crt", "edge.tls.cert_file: edge.crt -> other.crt"},
		{"state_dir: ./state", "", "edge.state_dir: ./state -> (none)"},
		{"timeout_ms: 15000", "timeout_ms: 16000", "edge.heartbeat.timeout_ms: 15000 -> 16000"},
	} {
		changes, restart := config.Changes(before, replace(t, c.from, c.to))
		require.Equal(t, []string{c.want}, changes)
		require.Equal(t, []string{c.want}, restart)
	}
}

func TestS08_AnotherEdgesFileIsRefused(t *testing.T) {
	before := example(t)
	require.NoError(t, config.Refuse("edge.yaml", before, before, replace(t, "capacity: 4\n", "capacity: 2\n", "listen: 127.0.0.1:8484", "listen: 127.0.0.1:9")))
	err := config.Refuse("edge.yaml", before, before, replace(t, "id: home", "id: away", "capacity: 4\n", "capacity: 2\n"))
	var refused *config.RefusedChangeError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{"edge.id: home -> away"}, refused.Changes)
	require.ErrorContains(t, err, "restart")
}

// A file that would be safe at the next start is not put into force while the
// process still listens where others reach it.
func TestS08_NoRefreshOpensAListenerThatOthersReach(t *testing.T) {
	parse := func(text string) *config.Snapshot {
		s, err := config.Parse("edge.yaml", []byte(text))
		require.NoError(t, err)
		return s
	}
	key := "openai: {api_keys: [{name: a, sha256: " + auth.HashToken("a") + "}]}\n"
	reached := parse("edge: {listen: 0.0.0.0:8484, insecure_h2c: true}\n" + key)
	between := parse("edge: {listen: 127.0.0.1:8484}\n" + key)
	open := parse("edge: {listen: 127.0.0.1:8484}\n")
	for _, before := range []*config.Snapshot{reached, between} {
		err := config.Refuse("edge.yaml", reached, before, open)
		require.ErrorContains(t, err, `edge.yaml:1:16: edge.listen: "127.0.0.1:8484" is served at the next start only; until then "0.0.0.0:8484" is`)
		require.ErrorContains(t, config.Refuse("edge.yaml", reached, before, parse("")), "keep a key until then")
		require.NoError(t, config.Refuse("edge.yaml", reached, before, between))
		require.NoError(t, config.Refuse("edge.yaml", reached, before, parse("edge: {listen: 127.0.0.1:8484, auth: {mode: none}}\n")), "said in so many words")
		require.NoError(t, config.Refuse("edge.yaml", between, before, open), "nobody else reaches it")
	}
}

func TestChangesTellsRenamesAndRemovals(t *testing.T) {
	before := example(t)
	changes, restart := config.Changes(before, replace(t, "  - id: gx10\n", "  - id: gx11\n", "node: gx10", "node: gx11"))
	require.Equal(t, []string{
		"models[qwen3.6:35b].providers[gx10/vllm]: removed",
		"models[qwen3.6:35b].providers[gx11/vllm]: added",
		"nodes[gx10]: removed",
		"nodes[gx11]: added",
	}, changes)
	require.Empty(t, restart)

	changes, _ = config.Changes(before, replace(t, `    - {model: tiny, adapter: lemonade, target: "Qwen3-0.6B-GGUF", max_queue: 4, queue_timeout_ms: 10000}`, ""))
	require.Equal(t, []string{"openai.model_routes[tiny]: removed"}, changes)

	// A route that inherits changes with the pool.
	inherits := replace(t, ", max_queue: 4, queue_timeout_ms: 10000", "")
	changes, _ = config.Changes(inherits, replace(t, ", max_queue: 4, queue_timeout_ms: 10000", "", "  max_queue: 64", "  max_queue: 9"))
	require.Equal(t, []string{"provider_pool.max_queue: 64 -> 9", "openai.model_routes[tiny].max_queue: 64 -> 9"}, changes)
}
