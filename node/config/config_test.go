package nodeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

const identity = "node: {id: n, edge_url: \"http://127.0.0.1:8484\", token_env: IOP_TEST_TOKEN}\n"

func parse(t *testing.T, text string) *nodeconfig.Config {
	t.Helper()
	c, err := nodeconfig.Parse("node.yaml", []byte(text))
	require.NoError(t, err)
	return c
}

func TestExampleLoads(t *testing.T) {
	c := parse(t, configs.NodeExample)
	require.Empty(t, c.Warnings)
	require.Equal(t, "gx10", c.NodeID)
	require.Equal(t, "https://edge.local:8485", c.EdgeURL)
	require.Equal(t, "/etc/iop/edge.crt", c.CAFile)
	require.Equal(t, nodeconfig.Reconnect{Interval: 10 * time.Second, MaxAttempts: 0}, c.Reconnect)
	require.True(t, c.Reconnect.Unlimited())
	require.NoError(t, c.Endpoints.Allows("http://127.0.0.1:8000/v1"))
	require.Error(t, c.Endpoints.Allows("http://10.0.0.1:8000"))

	// What the example shows in comments loads too.
	text := strings.ReplaceAll(configs.NodeExample, "\n#   provider_credentials:\n#     - ", "\nprovider_credentials:\n  - ")
	require.Equal(t, []string{"vllm"}, parse(t, text).Providers())
}

func TestStopGracePresenceIsExplicit(t *testing.T) {
	for more, want := range map[string]time.Duration{
		"": 30 * time.Second, ", stop_grace_ms: ~": 30 * time.Second, ", stop_grace_ms: 0": 0, ", stop_grace_ms: 250": 250 * time.Millisecond,
	} {
		require.Equal(t, want, parse(t, strings.Replace(identity, "}", more+"}", 1)).StopGrace, more)
	}
	_, err := nodeconfig.Parse("node.yaml", []byte(strings.Replace(identity, "}", ", stop_grace_ms: 3600001}", 1)))
	require.ErrorContains(t, err, "node.stop_grace_ms")
}

func TestS17_ReconnectPresenceIsExplicit(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		text string
		want nodeconfig.Reconnect
		warn string
	}{
		{"", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 10}, ""},
		{"reconnect: ~", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 10}, ""},
		{"reconnect: {}", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 10}, ""},
		{"reconnect: {max_attempts: ~, interval_sec: null}", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 10}, ""},
		{"reconnect: {max_attempts: 0}", nodeconfig.Reconnect{Interval: 10 * s}, ""},
		{"reconnect: {max_attempts: 0, interval_sec: 3}", nodeconfig.Reconnect{Interval: 3 * s}, ""},
		{"reconnect: {max_attempts: 7}", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 7}, ""},
		{"reconnect: {interval_sec: 0.25}", nodeconfig.Reconnect{Interval: s / 4, MaxAttempts: 10}, ""},
		{"reconnect: {interval_sec: 1e-12}", nodeconfig.Reconnect{Interval: time.Millisecond, MaxAttempts: 10}, ""},
		{"reconnect: {interval_sec: 0}", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 10}, "found 0; attempts are paced at 10s"},
		{"reconnect: {interval_sec: -5, max_attempts: 3}", nodeconfig.Reconnect{Interval: 10 * s, MaxAttempts: 3}, "node.yaml:2:27: reconnect.interval_sec: found -5; attempts are paced at 10s"},
	} {
		got := parse(t, identity+c.text)
		require.Equal(t, c.want, got.Reconnect, c.text)
		if c.warn == "" {
			require.Empty(t, got.Warnings, c.text)
		} else {
			require.Len(t, got.Warnings, 1)
			require.Contains(t, got.Warnings[0], c.warn)
		}
	}
}

func TestS17_BadReconnectIsAValidationError(t *testing.T) {
	for text, want := range map[string]string{
		"reconnect: {max_attempts: -1}":                    "node.yaml:2:27: reconnect.max_attempts: found -1; expected at least 0",
		"reconnect: {max_attempts: 0, interval_sec: 0}":    "node.yaml:2:44: reconnect.interval_sec: found 0; unlimited attempts (max_attempts: 0) need a pause above 0",
		"reconnect: {max_attempts: 0, interval_sec: -1}":   "node.yaml:2:44: reconnect.interval_sec: found -1; unlimited attempts (max_attempts: 0) need a pause above 0",
		"reconnect: {max_attempts: ten}":                   `node.yaml:2:27: reconnect.max_attempts: found the text "ten"; expected a whole number`,
		"reconnect: {max_attempts: 1.5}":                   "node.yaml:2:27: reconnect.max_attempts: found 1.5; expected a whole number",
		"reconnect: {max_attempts: 99999999999}":           "node.yaml:2:27: reconnect.max_attempts: found 99999999999; at most 2147483647, or 0 = unlimited",
		"reconnect: {interval_sec: 100000}":                "node.yaml:2:27: reconnect.interval_sec: found 100000; at most 86400 (a day)",
		"reconnect: {interval_sec: .nan}":                  "node.yaml:2:27: reconnect.interval_sec: found .nan; expected a finite number",
		"reconnect: {max_atempts: 0}":                      `node.yaml:2:13: unknown key "max_atempts" (did you mean "max_attempts"?) in reconnect`,
		"reconnect: {max_attempts: 0, max_attempts: 10}":   `node.yaml:2:30: duplicate key "max_attempts" in reconnect (first on line 2)`,
		"reconnect:\n  interval_sec: 0\n  max_attempts: 0": "node.yaml:3:17: reconnect.interval_sec: found 0; unlimited attempts (max_attempts: 0) need a pause above 0",
	} {
		_, err := nodeconfig.Parse("node.yaml", []byte(identity+text))
		require.EqualError(t, err, want, text)
	}
}

func TestIdentityIsJudged(t *testing.T) {
	for text, want := range map[string]string{
		"":         "node.yaml:1:1: node: missing; it must be given",
		"node: {}": "edge_url: missing; it must be given",
		"node: {id: n, edge_url: 'edge:8485', token_env: T}":                                      "expected http:// or https://",
		"node: {id: n, edge_url: 'ftp://e', token_env: T}":                                        "expected http:// or https://",
		"node: {id: n, edge_url: 'https://e/path', token_env: T}":                                 "expected scheme, host and port only",
		"node: {id: n, edge_url: 'https://u:hunter2@e', token_env: T}":                            "https://***@e",
		"node: {id: n, edge_url: 'https://', token_env: T}":                                       "expected a host",
		"node: {id: n, edge_url: 'https://e:70000', token_env: T}":                                "expected a port",
		"node: {id: n, edge_url: 'https://e'}":                                                    "missing; give token_file or token_env",
		"node: {id: n, edge_url: 'https://e', token_env: T, token_file: f}":                       "token_file and token_env are both given; keep one",
		"node: {id: n, edge_url: 'https://e', token_env: T, credential_file: f}":                  "credential_file and token_env are both given; keep one",
		"node: {id: n, edge_url: 'https://e', token_file: f, credential_file: f}":                 "credential_file and token_file are both given; keep one",
		"node: {id: n, edge_url: 'https://e', token_env: 'the secret=='}":                         "expected the name of an environment variable",
		"node: {id: n, edge_url: 'https://e', token_env: T, ca_pin: abc}":                         "expected a SHA-256",
		"node: {id: n, edge_url: 'https://e', token_env: T, ca_file: f, ca_pin: " + pin + "}":     "ca_file and ca_pin are both given",
		"node: {id: n, edge_url: 'http://e', token_env: T, ca_file: f}":                           "has no certificate to check",
		identity + "allow_endpoints: []":                                                          "an empty list, which would allow no provider",
		identity + "provider_credentials: [{provider: p}]":                                        "provider_credentials[0]: missing; give key_file or key_env",
		identity + "provider_credentials: [{provider: p, key_env: A}, {provider: p, key_env: B}]": `provider "p" already has a credential on line 2`,
	} {
		_, err := nodeconfig.Parse("node.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "the secret")
	}
}

const pin = "A1B2c3d4A1B2c3d4A1B2c3d4A1B2c3d4A1B2c3d4A1B2c3d4A1B2c3d4A1B2c3d4"

func TestIdentityIsNormalised(t *testing.T) {
	c := parse(t, "node: {id: n, edge_url: 'https://e:8485/', token_env: T, ca_pin: "+pin+"}")
	require.Equal(t, "https://e:8485", c.EdgeURL)
	require.Equal(t, strings.ToLower(pin), c.CAPin)
}

func TestSecretsAreReadWhenAskedFor(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	t.Setenv("IOP_TEST_TOKEN", " from-env\n")
	c := parse(t, identity+"provider_credentials: [{provider: p, key_file: "+file("key", "MARK\n")+"}]")
	token, err := c.Token()
	require.NoError(t, err)
	require.Equal(t, "from-env", token)
	key, err := c.Credential("p")
	require.NoError(t, err)
	require.Equal(t, "MARK", key)
	key, err = c.Credential("other")
	require.NoError(t, err)
	require.Empty(t, key)

	var out strings.Builder
	require.NoError(t, c.Effective().Write(&out))
	require.NotContains(t, out.String(), "MARK")
	require.Contains(t, out.String(), "interval_sec: 10                             # default\n  max_attempts: 10 ")

	for text, want := range map[string]string{
		filepath.Join(dir, "not"):                    "no such file",
		file("empty", " \n"):                         "is empty",
		file("two", "MARK\nMARK"):                    "not a secret",
		file("large", strings.Repeat("MARK", 1<<16)): "not a secret",
		dir: "is a folder",
	} {
		c := parse(t, "node: {id: n, edge_url: 'http://e', token_file: "+text+"}")
		_, err := c.Token()
		require.ErrorContains(t, err, "node token: ", text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "MARK", text)
	}
	t.Setenv("IOP_TEST_TOKEN", "")
	_, err = c.Token()
	require.EqualError(t, err, "node token: environment variable IOP_TEST_TOKEN is empty or not set")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(configs.NodeExample))
	f.Add([]byte(identity + "allow_endpoints: ['http://[::1]:*', 'https://*.lan/x', 'http://*']"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := nodeconfig.Parse("f", text)
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v and error %v", c, err)
		}
		if c != nil && (c.Reconnect.Interval <= 0 || c.Reconnect.MaxAttempts < 0 || c.NodeID == "" || c.EdgeURL == "") {
			t.Fatalf("accepted: %+v", c)
		}
	})
}

func TestU04_TheTokenMayBeInAFileThatIsReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credential")
	c := parse(t, "node: {id: n, edge_url: 'https://e', credential_file: '"+filepath.ToSlash(file)+"'}")
	require.Equal(t, filepath.ToSlash(file), c.CredentialFile)
	require.Contains(t, c.CheckFiles().Missing.Error(), "node.credential_file")
	for _, secret := range []string{"iop-node-one", "iop-node-two"} {
		require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		got, err := c.Token()
		require.NoError(t, err)
		require.Equal(t, secret, got)
	}
	require.Empty(t, c.CheckFiles().All())
	require.Empty(t, parse(t, identity).CredentialFile)
}
