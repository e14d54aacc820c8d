package nodeconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	nodeconfig "github.com/iop-dev/iop/node/config"
)

func TestEndpointsByDefaultAreLoopbackAndPrivate(t *testing.T) {
	var e nodeconfig.Endpoints
	for _, url := range []string{
		"http://127.0.0.1:8000", "http://localhost:11434/v1", "http://LOCALHOST.", "https://127.3.2.1", "http://[::1]:8080",
		"http://10.0.0.7:8000", "http://172.16.1.1", "http://172.31.255.255", "http://192.168.1.5:1234", "http://[fd00::1]:8000", "http://[::ffff:10.0.0.1]:1",
	} {
		require.NoError(t, e.Allows(url), url)
	}
	for _, url := range []string{
		"http://8.8.8.8", "http://172.32.0.1", "http://169.254.169.254/latest", "http://0.0.0.0:8000", "http://[fe80::1]:1", "http://[::]:1",
		"http://example.com", "http://localhost.example.com", "http://10.0.0.1.example.com", "http://100.64.0.1",
		"ftp://127.0.0.1", "http://", "127.0.0.1:8000", "http://u:hunter2@127.0.0.1", "http://127.0.0.1:0", "http://127.0.0.1/../x", "unix:///x",
		"http://2130706433/", "http://0x7f.1",
	} {
		err := e.Allows(url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.EqualError(t, e.Allows("http://8.8.8.8"), `"http://8.8.8.8" is neither a loopback nor a private address; add it to allow_endpoints in node.yaml`)
}

func TestEndpointPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"http://127.0.0.1:*", []string{"http://127.0.0.1:8000/v1", "http://localhost:1", "http://127.0.0.1"}, []string{"https://127.0.0.1:8000", "http://127.0.0.2:8000", "http://10.0.0.1:1"}},
		{"http://localhost:8000", []string{"http://127.0.0.1:8000", "http://localhost:8000"}, []string{"http://localhost:8001", "http://localhost"}},
		{"http://127.0.0.1", []string{"http://127.0.0.1:80/"}, []string{"http://127.0.0.1:8000"}},
		{"https://GPU.lan:*", []string{"https://gpu.lan", "https://gpu.LAN.:1"}, []string{"https://xgpu.lan", "https://gpu.lan.evil.com", "http://gpu.lan"}},
		{"http://*.lan:8000", []string{"http://a.lan:8000"}, []string{"http://lan:8000", "http://a.b.lan:8000", "http://a.lan.evil:8000", "http://alan:8000"}},
		{"http://*:8000", []string{"http://anything:8000", "http://8.8.8.8:8000", "http://[::1]:8000"}, []string{"http://anything:8001"}},
		{"http://[::1]:*", []string{"http://[::1]:8000", "http://[0:0:0:0:0:0:0:1]:1"}, []string{"http://127.0.0.1:1"}},
		{"http://10.0.0.1:8000/llm", []string{"http://10.0.0.1:8000/llm", "http://10.0.0.1:8000/llm/v1"}, []string{"http://10.0.0.1:8000/llmx", "http://10.0.0.1:8000/", "http://10.0.0.1:8000/llm/../admin"}},
	} {
		e := parse(t, identity+"allow_endpoints: ['"+c.pattern+"']").Endpoints
		for _, url := range c.yes {
			require.NoError(t, e.Allows(url), "%s %s", c.pattern, url)
		}
		for _, url := range c.no {
			require.Error(t, e.Allows(url), "%s %s", c.pattern, url)
		}
	}
	e := parse(t, identity+"allow_endpoints: ['http://a:1', 'http://b:2']").Endpoints
	require.NoError(t, e.Allows("http://b:2"))
	require.EqualError(t, e.Allows("http://c:3"), `"http://c:3" is not allowed by allow_endpoints in node.yaml (http://a:1, http://b:2)`)
	require.Error(t, e.Allows("http://127.0.0.1:1"), "a list replaces the default")
}

func TestBadEndpointPatternsAreRefused(t *testing.T) {
	for _, pattern := range []string{
		"127.0.0.1:*", "tcp://127.0.0.1", "http://", "http://:8000", "http://127.0.0.1:", "http://127.0.0.1:0", "http://127.0.0.1:70000", "http://127.0.0.1:80*",
		"http://gpu*.lan", "http://*.*.lan", "http://a.*.lan", "http://u:hunter2@h", "http://h?x", "http://h#x", "http://[::1", "http://::1:80", "",
	} {
		_, err := nodeconfig.Parse("node.yaml", []byte(identity+"allow_endpoints: ['"+pattern+"']"))
		require.ErrorContains(t, err, "node.yaml:2:19: allow_endpoints[0]: found", pattern)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
