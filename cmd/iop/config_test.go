package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/state"
)

func TestConfigCheckSaysWhereEachValueComesFrom(t *testing.T) {
	file := write(t, "edge.yaml", `edge: {id: home}
nodes:
  - id: n
    token_sha256: a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1
    providers:
      - {id: p, type: vllm, base_url: "http://127.0.0.1:8000", max_queue: 8}
      - {id: q, type: simulator, max_queue: 8}
openai:
  model_routes: [{model: m, adapter: p, queue_timeout_ms: 5}]
`)
	code, stdout, stderr := iop(t, "config", "check", "-c", file)
	require.Equal(t, exitDone, code, stderr)
	for _, line := range []string{
		"  id: home                                     # line 1\n",
		"  node_listen: 127.0.0.1:8484                  # inherited from edge.listen\n",
		"  max_queue: 8                                 # legacy values of providers, lines 6 and 7\n",
		"  queue_timeout_ms: 240000                     # default\n",
		"      max_queue: 8                             # inherited from provider_pool.max_queue\n",
		"      queue_timeout_ms: 5                      # line 9\n",
		"    token_sha256: (set)                        # line 4\n",
	} {
		require.Contains(t, stdout, line)
	}

	code, stdout, _ = iop(t, "config", "check", "-o", "json", "-c", file)
	require.Equal(t, exitDone, code)
	var r checkResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	found := map[string]configs.Origin{}
	for _, v := range r.Values {
		found[v.Path] = v.Origin
	}
	require.Equal(t, configs.Origin{From: configs.FromFile, Lines: []int{1}}, found["edge.id"])
	require.Equal(t, configs.Origin{From: configs.FromDefault}, found["edge.stop_grace_ms"])
	require.Equal(t, configs.Origin{From: configs.FromLegacy, Lines: []int{6, 7}, Note: "values of providers"}, found["provider_pool.max_queue"])
	require.Equal(t, configs.Origin{From: configs.FromInherited, Note: "from edge.listen"}, found["edge.admin_listen"])

	code, _, _ = iop(t, "config", "check", "--strict", "-c", file)
	require.Equal(t, exitFailed, code, "legacy keys are worth a warning")
}

// What a file names and is not here is a warning, since the process may run
// elsewhere; what is here and of no use is an error. Both by line.
func TestConfigCheckLooksAtTheFilesThatAreNamed(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	cert, key := keyPair(t)
	_, otherKey := keyPair(t)
	crt, good, other := put("a.crt", cert), put("a.key", key), put("b.key", otherKey)
	notPEM, twoLines := put("notes", []byte("hello")), put("token", []byte("a\nb"))
	none := filepath.Join(dir, "none")

	edge := func(cert, key string) string {
		return "edge:\n  tls:\n    cert_file: " + cert + "\n    key_file: " + key + "\n"
	}
	node := func(rest string) string { return "node:\n  id: a\n  edge_url: https://127.0.0.1:1\n" + rest }
	for name, c := range map[string]struct {
		kind, text, say string
		check, run      int
	}{
		"no certificate":       {"edge", edge(none, good), ":3:16: edge.tls.cert_file: found \"" + none + "\"; there is no such file (looked for " + none + ")", exitDone, exitRefused},
		"no key":               {"edge", edge(crt, none), ":4:15: edge.tls.key_file: found \"" + none + "\"; there is no such file", exitDone, exitRefused},
		"the key of another":   {"edge", edge(crt, other), ":3:16: edge.tls.cert_file: found \"" + crt + "\"; with key_file", exitFailed, exitRefused},
		"a folder":             {"edge", edge(dir, good), ":3:16: edge.tls.cert_file: found \"" + dir + "\"; " + dir + " is a folder, not a file", exitFailed, exitRefused},
		"no token of an admin": {"edge", "edge:\n  admin_tokens:\n    - name: a\n      token_file: " + none + "\n", ":4:19: edge.admin_tokens[0].token_file: found \"" + none + "\"; there is no such file", exitDone, exitRefused},
		"no key of a client":   {"edge", "openai:\n  api_keys:\n    - {name: a, key_env: IOP_TEST_NOT_SET}\n    - {name: b, key_env: IOP_TEST_NOT_SET}\n", ":3:26: openai.api_keys[0].key_env: found \"IOP_TEST_NOT_SET\"; that environment variable is empty or not set", exitDone, exitRefused},
		"key of two lines":     {"edge", "openai:\n  api_keys:\n    - {name: a, key_file: " + twoLines + "}\n", ":3:27: openai.api_keys[0].key_file: found", exitFailed, exitRefused},
		"no authority":         {"node", node("  token_env: T\n  ca_file: " + none + "\n"), ":5:12: node.ca_file: found \"" + none + "\"; there is no such file", exitDone, exitRefused},
		"authority no PEM":     {"node", node("  token_env: T\n  ca_file: " + notPEM + "\n"), ":5:12: node.ca_file: found \"" + notPEM + "\"; there is no certificate in it", exitFailed, exitRefused},
		"no token":             {"node", node("  token_file: " + none + "\n"), ":4:15: node.token_file: found \"" + none + "\"; there is no such file", exitDone, exitRefused},
		"token of two lines":   {"node", node("  token_file: " + twoLines + "\n"), ":4:15: node.token_file: found", exitFailed, exitRefused},
		"variable not set":     {"node", node("  token_env: IOP_TEST_NOT_SET\n"), ":4:14: node.token_env: found \"IOP_TEST_NOT_SET\"; that environment variable is empty or not set", exitDone, exitRefused},
		"no key of a provider": {"node", node("  token_env: PATH\nprovider_credentials:\n  - {provider: p, key_file: " + none + "}\n"), ":6:29: provider_credentials[0].key_file: found", exitDone, exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, c.kind+".yaml", c.text)
			code, stdout, stderr := iop(t, "config", "check", "-c", file)
			require.Equal(t, c.check, code, stdout+stderr)
			require.Contains(t, stderr, file+c.say)
			code, _, _ = iop(t, "config", "check", "--strict", "-c", file)
			require.Equal(t, exitFailed, code)
			code, _, stderr = iop(t, c.kind, "-c", file)
			require.Equal(t, c.run, code, stderr)
			if c.kind == "edge" {
				require.Contains(t, stderr, "iop: the configuration is refused:\n"+file+c.say)
			}
		})
	}
	code, _, stderr := iop(t, "config", "check", "--strict", "-c", write(t, "edge.yaml", edge(crt, good)+"models: [{id: m, providers: [{node: n, provider: p}]}]\nnodes: [{id: n, token_sha256: a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1, providers: [{id: p, type: simulator}]}]\n"))
	require.Equal(t, exitDone, code, stderr)
}

// keyPair is a certificate and its key, in PEM.
func keyPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestS06_ConfigMigrateWritesTheModernFile(t *testing.T) {
	const legacy = "../../configs/examples/legacy-edge.yaml"
	golden, err := os.ReadFile("../../edge/config/testdata/legacy_migrated.yaml")
	require.NoError(t, err)

	code, stdout, stderr := iop(t, "config", "migrate", "-c", legacy)
	require.Equal(t, exitDone, code, stderr)
	require.Equal(t, string(golden), stdout)
	require.Contains(t, stderr, legacy+":29:9: nodes[0].providers[0].max_queue: removed\n")
	require.Contains(t, stderr, legacy+": provider_pool.max_queue: 16\n")

	// In place, through a link, which stays one, and with the mode of the file.
	dir := t.TempDir()
	text, err := os.ReadFile(legacy)
	require.NoError(t, err)
	file, link := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "link.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o640))
	require.NoError(t, os.Symlink(file, link))
	code, stdout, stderr = iop(t, "config", "migrate", "-c", link, "-o", link)
	require.Equal(t, exitDone, code, stderr)
	require.Empty(t, stdout)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	info, err = os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(golden), string(written))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "nothing temporary is left")

	code, stdout, stderr = iop(t, "config", "migrate", "-c", file)
	require.Equal(t, exitDone, code)
	require.Equal(t, string(golden), stdout)
	require.Equal(t, file+": nothing to migrate\n", stderr)

	code, stdout, _ = iop(t, "config", "migrate", "-c", "../../configs/node.yaml")
	require.Equal(t, exitDone, code)
	require.Equal(t, configs.NodeExample, stdout)
}

func TestS06_ConfigMigrateNamesEveryPlaceOfAConflict(t *testing.T) {
	hash := "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"
	file := write(t, "edge.yaml", "nodes:\n  - id: n\n    token_sha256: "+hash+"\n    providers:\n"+
		"      - {id: a, type: simulator, max_queue: 8}\n      - {id: b, type: simulator, max_queue: 8}\n      - {id: c, type: simulator, max_queue: 9}\n")
	target := filepath.Join(t.TempDir(), "new.yaml")
	code, stdout, stderr := iop(t, "config", "migrate", "-c", file, "-o", target)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, file+":5:45: nodes[0].providers[0].max_queue: found 8 here, 8 on line 6 (nodes[0].providers[1].max_queue), 9 on line 7 (nodes[0].providers[2].max_queue)")
	require.NoFileExists(t, target)

	code, _, stderr = iop(t, "config", "migrate")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "config migrate needs a file")
}

// What an admin has set on the running Edge is shown as such, from its state
// folder, which is only looked at.
func TestConfigCheckShowsOverrides(t *testing.T) {
	dir := t.TempDir()
	store, _, err := state.Open(dir, time.Unix(0, 0))
	require.NoError(t, err)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, store.Save(state.Overrides{
		{Node: "n", Provider: "p", Mode: state.Disabled, Since: since, By: "me", Configured: true},
		{Node: "o", Mode: state.Draining, Since: since, By: "me"},
	}, since))
	text := "edge: {state_dir: " + dir + "}\nmodels: [{id: m, providers: [{node: n, provider: p}]}]\n" +
		"nodes:\n  - {id: n, token_sha256: a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1, providers: [{id: p, type: simulator, enabled: true}]}\n" +
		"  - {id: o, token_sha256: b1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1, providers: [{id: p, type: simulator}]}\n"
	file := write(t, "edge.yaml", text)
	code, stdout, stderr := iop(t, "config", "check", "-c", file)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "enabled: false                         # override by me at 2026-01-02T03:04:05Z, before true, line 4\n")
	require.Contains(t, stdout, "enabled: draining                      # override by me at 2026-01-02T03:04:05Z, before true\n")

	// A file that says otherwise has the last word.
	code, stdout, stderr = iop(t, "config", "check", "-c", write(t, "edge.yaml", strings.Replace(text, "enabled: true", "enabled: false", 1)))
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "enabled: false                         # line 4\n")

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o600))
	code, _, stderr = iop(t, "config", "check", "-c", file)
	require.Equal(t, exitDone, code)
	require.Contains(t, stderr, "warning: "+file+": overrides of admins are not known: ")
	require.FileExists(t, files[0], "nothing is set aside by a check")
}
