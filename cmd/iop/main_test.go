package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/node/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// iop runs a command line in this process.
func iop(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// write puts a file into a folder of its own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// freePort is an address where nobody listens, below those that the kernel gives
// away by itself.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000))); err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	require.FailNow(t, "no free port")
	return ""
}

const usageHint = "Run \"iop --help\" or \"iop COMMAND --help\" for usage.\n"

func TestCLI_WrongUsageIsExitCode2AndSaysWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"bogus":                                 `iop: unknown command "bogus" for "iop"`,
		"edge":                                  `iop: edge needs its configuration: -c edge.yaml`,
		"edge extra":                            `iop: "extra" is too much: a file is named by -c, as in iop edge -c extra`,
		"config check edge.yaml":                `iop: "edge.yaml" is too much: a file is named by -c, as in iop config check -c edge.yaml`,
		"config migrate edge.yaml":              `iop: "edge.yaml" is too much: a file is named by -c, as in iop config migrate -c edge.yaml`,
		"config reload edge.yaml":               `iop: "edge.yaml" is too much: a file is named by -c, as in iop config reload -c edge.yaml`,
		"node node.yaml":                        `iop: "node.yaml" is no subcommand of iop node; a file is named by -c, as in iop node -c node.yaml`,
		"up edge.yaml":                          `iop: "edge.yaml" is too much: iop up takes flags only`,
		"version 1":                             `iop: "1" is too much: iop version takes flags only`,
		"provider drain":                        `iop: iop provider drain needs one NODE/PROVIDER, as in iop provider drain gx10/vllm; found 0`,
		"node drain -c edge.yaml":               `iop: iop node drain needs one NODE, as in iop node drain gx10; found 0`,
		"node drain a b":                        `iop: iop node drain needs one NODE, as in iop node drain gx10; found 2`,
		"estimate reset a b":                    `iop: iop estimate reset takes one TARGET at most; found 2`,
		"edge -c":                               `iop: flag needs an argument: 'c' in -c`,
		"node":                                  `iop: node needs its configuration: -c node.yaml`,
		"node --nope":                           `iop: unknown flag: --nope`,
		"config":                                `iop: config needs a subcommand: check, migrate, reload`,
		"config bogus":                          `iop: unknown command "bogus" for "iop config"`,
		"config check":                          `iop: config check needs a file: -c FILE`,
		"version -o xml":                        `iop: invalid argument "xml" for "-o, --output" flag: text or json`,
		"edge -c x --log-format xml":            `iop: --log-format "xml": text or json`,
		"edge -c x --log-level loud":            `iop: --log-level "loud": one of debug, info, warn, error`,
		"up --provider ollama":                  `iop: --provider "ollama": expected type=url, as in ollama=http://127.0.0.1:11434`,
		"up --simulator --capacity ollama=2":    `iop: --capacity ollama: no such provider; there is simulator`,
		"up --simulator --capacity simulator=0": `iop: --capacity simulator=0: expected 1 or more`,
		"up --simulator --capacity ollama":      `iop: invalid argument "ollama" for "--capacity" flag: ollama must be formatted as key=value`,
		"up --listen 0.0.0.0:8484": `iop: --listen "0.0.0.0:8484": other machines would reach this, and iop up has neither keys nor TLS; ` +
			`use a loopback address, or write an edge.yaml with openai.api_keys and edge.tls and run "iop edge -c edge.yaml"`,
		"up --lan": `iop: unknown flag: --lan`,
	} {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := iop(t, strings.Fields(line)...)
			require.Equal(t, want+"\n"+usageHint, stderr)
			require.Equal(t, exitUsage, code)
			require.Empty(t, stdout)
		})
	}
}

// A file that is named and not there has its place, whoever reads it.
func TestCLI_ANodeWithoutItsFilesSaysWhichLineNamesThem(t *testing.T) {
	file := write(t, "node.yaml", `node:
  id: gx10
  edge_url: https://127.0.0.1:9
  ca_file: none.crt
  token_file: none.token
provider_credentials: [{provider: vllm, key_env: IOP_TEST_NOT_SET}]
`)
	code, stdout, stderr := iop(t, "node", "-c", file)
	require.Equal(t, exitRefused, code)
	require.Empty(t, stdout)
	for _, want := range []string{
		`:4:12: node.ca_file: found "none.crt"; there is no such file (looked for `,
		`:5:15: node.token_file: found "none.token"; there is no such file (looked for `,
		`:6:50: provider_credentials[0].key_env: found "IOP_TEST_NOT_SET"; that environment variable is empty or not set`,
	} {
		require.Contains(t, stderr, file+want)
	}
}

func TestCLI_HelpIsDataAndExitCode0(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"edge", "--help"}, {"help"}} {
		code, stdout, stderr := iop(t, args...)
		require.Equal(t, exitDone, code)
		require.Contains(t, stdout, "Usage:")
		require.Empty(t, stderr)
	}
}

func TestCLI_Version(t *testing.T) {
	version, commit = "v9.9.9", "abc123"
	t.Cleanup(func() { version, commit = "", "" })
	code, stdout, stderr := iop(t, "version")
	require.Equal(t, exitDone, code)
	require.Contains(t, stdout, "iop v9.9.9 (commit abc123, go1.")
	require.Contains(t, stdout, "protocol 1)\n")
	require.Empty(t, stderr)

	code, stdout, _ = iop(t, "version", "-o", "json")
	require.Equal(t, exitDone, code)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &v))
	require.Equal(t, "v9.9.9", v["version"])
	require.Equal(t, "abc123", v["commit"])
	require.Equal(t, []any{1.0}, v["protocol_versions"])

	version, commit = "", ""
	require.NotEmpty(t, currentVersion().Version)
	require.NotEmpty(t, currentVersion().Commit)
}

func TestU18_ConfigCheckOfTheShippedExamplesPrintsTheEffectiveValues(t *testing.T) {
	for file, want := range map[string]string{
		"../../configs/edge.yaml": "long_context_threshold_tokens: 100000",
		"../../configs/node.yaml": "edge_url: https://edge.local:8485",
	} {
		code, stdout, stderr := iop(t, "config", "check", "-c", file)
		require.Equal(t, exitDone, code, stderr)
		require.Contains(t, stdout, want)
	}
}

func TestU18_ConfigCheckNamesEveryErrorByItsPlace(t *testing.T) {
	file := write(t, "edge.yaml", "edge: {id: a}\nmodels:\n  - id: m\n    capacty: 3\nopenai:\n  keepalive_ms: never\n")
	code, stdout, stderr := iop(t, "config", "check", "-c", file)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	require.Len(t, lines, 2, stderr)
	require.Contains(t, lines[0], file+":4:5: ")
	require.Contains(t, lines[0], "capacty")
	require.Contains(t, lines[1], file+":6:17: ")

	code, stdout, stderr = iop(t, "config", "check", "-o", "json", "-c", file)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stderr)
	var r checkResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.False(t, r.Valid)
	require.Equal(t, configs.KindEdge, r.Kind)
	require.Len(t, r.Problems, 2)
	require.Equal(t, 4, r.Problems[0].Line)
	require.Equal(t, 5, r.Problems[0].Column)
}

func TestS17_ConfigCheckOfANodeFile(t *testing.T) {
	const head = "node: {id: a, edge_url: 'http://127.0.0.1:1', token_env: T}\n"
	for tail, c := range map[string]struct {
		code int
		say  string
	}{
		"":                                {exitDone, "max_attempts: 10"},
		"reconnect: {max_attempts: null}": {exitDone, "max_attempts: 10"},
		"reconnect: {max_attempts: 0}":    {exitDone, "max_attempts: 0"},
		"reconnect: {max_attempts: -1}":   {exitFailed, "reconnect.max_attempts"},
		"reconnect: {max_attempts: 0, interval_sec: 0}":    {exitFailed, "reconnect.interval_sec"},
		"reconnect: {max_attempts: 3, interval_sec: -1}":   {exitDone, "warning: "},
		"reconnect: {max_attempts: 3, interval_sec: soon}": {exitFailed, ":2:"},
	} {
		t.Run(tail, func(t *testing.T) {
			code, stdout, stderr := iop(t, "config", "check", "-c", write(t, "node.yaml", head+tail+"\n"))
			require.Equal(t, c.code, code, stdout+stderr)
			require.Contains(t, stdout+stderr, c.say)
		})
	}
}

func TestU18_ConfigCheckBindsNoPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	code, stdout, stderr := iop(t, "config", "check", "-c", write(t, "edge.yaml", fmt.Sprintf("edge: {listen: %q}\n", l.Addr())))
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, l.Addr().String())
}

func TestCLI_AFileThatCannotBeReadIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	for line, code := range map[string]int{"config check": exitFailed, "edge": exitRefused, "node": exitRefused} {
		got, _, stderr := iop(t, append(strings.Fields(line), "-c", missing)...)
		require.Equal(t, code, got, line)
		require.Contains(t, stderr, missing)
	}
}

func TestS17_ABadConfigurationIsExitCode4(t *testing.T) {
	for command, text := range map[string]string{
		"edge": "edge: {listen: '0.0.0.0:8484'}\n",
		"node": "node: {id: a, edge_url: 'http://127.0.0.1:1', token_env: T}\nreconnect: {max_attempts: -1}\n",
	} {
		t.Run(command, func(t *testing.T) {
			file := write(t, command+".yaml", text)
			code, _, stderr := iop(t, command, "-c", file)
			require.Equal(t, exitRefused, code)
			require.Contains(t, stderr, "iop: the configuration is refused:\n"+file+":")
		})
	}
}

// node is a node.yaml for an Edge at an address.
func node(t *testing.T, address, tokenFile string, attempts int) string {
	t.Helper()
	return write(t, "node.yaml", fmt.Sprintf(
		"node: {id: a, edge_url: 'http://%s', token_file: %q}\nreconnect: {max_attempts: %d, interval_sec: 0.01}\n", address, tokenFile, attempts))
}

func TestS17_ATokenThatCannotBeReadIsExitCode4WithoutADial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	code, _, stderr := iop(t, "node", "-c", node(t, l.Addr().String(), filepath.Join(t.TempDir(), "no.token"), 0))
	require.Equal(t, exitRefused, code)
	require.Contains(t, stderr, "no.token")
}

func TestS17_ExhaustionIsExitCode3(t *testing.T) {
	code, _, stderr := iop(t, "node", "--log-format", "json", "-c", node(t, freePort(t), write(t, "token", "secret-token"), 3))
	require.Equal(t, exitExhausted, code, stderr)
	require.Contains(t, stderr, "gave up after 3 failed attempts")
	require.Contains(t, stderr, "connection refused")
	require.Equal(t, 2, strings.Count(stderr, "will retry"), "three attempts have two waits")
	require.NotContains(t, stderr, "secret-token")
}

func TestS17_ShutdownIsExitCode0(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := execute(ctx, []string{"node", "-c", node(t, freePort(t), write(t, "token", "x"), 0)}, &out, &errs)
	require.Equal(t, exitDone, code, errs.String())
	code = execute(ctx, []string{"edge", "-c", write(t, "edge.yaml", "edge: {listen: '127.0.0.1:0'}\n")}, &out, &errs)
	require.Equal(t, exitDone, code, errs.String())
}

func TestCLI_UpWithAProviderThatIsNotThereIsExitCode1(t *testing.T) {
	code, _, stderr := iop(t, "up", "--provider", "vllm=http://"+freePort(t))
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "iop: --provider vllm: vllm at http://127.0.0.1:")
	require.Contains(t, stderr, "connection refused")
	code, _, stderr = iop(t, "up", "--provider", "tgi=http://127.0.0.1:1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, `unknown provider type "tgi"; one of lemonade, `)
}

func TestCLI_CodesOfErrors(t *testing.T) {
	require.Equal(t, exitExhausted, codeOf(fmt.Errorf("node: %w", &supervisor.ExhaustedError{Last: supervisor.MarkFinal(os.ErrExist)})))
	require.Equal(t, exitRefused, codeOf(supervisor.MarkFinal(os.ErrExist)))
	require.Equal(t, exitFailed, codeOf(os.ErrExist))
}
