//go:build clients

package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programLimit is how long one program of others may take on a busy machine.
const programLimit = 2 * time.Minute

// program runs a program to its end, in dir, with variables added to the
// environment, and gives what it said.
func program(t *testing.T, dir string, variables []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variables...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s %v:\n%s", name, args, &out)
	return out.String()
}

func (s *site) variables(more ...string) []string {
	return append([]string{
		"IOP_EDGE=" + s.url, "IOP_KEY=" + apiKey, "IOP_READ_TOKEN=" + readToken, "IOP_ADMIN_TOKEN=" + adminToken,
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
	}, more...)
}

// TestCase_K03_K05_TypeScript runs docs/examples/ts, built from the npm package, over each
// transport, without and with TLS. Cases K03 and K05: 64-bit numbers are numbers
// and add up.
func TestCase_K03_K05_TypeScript(t *testing.T) {
	dir := os.Getenv("IOP_CLIENTS_TS")
	require.NotEmpty(t, dir, "run make e2e-clients: it builds the example")
	for _, tls := range []bool{false, true} {
		s := start(t, tls)
		for _, transport := range []string{"connect", "connect-json", "grpc", "grpc-web", "web-connect", "web-grpc-web"} {
			t.Run(fmt.Sprintf("%s tls=%t", transport, tls), func(t *testing.T) {
				out := program(t, dir, s.variables("NODE_EXTRA_CA_CERTS="+s.caFile), "node", "dist/example.js", transport)
				require.Contains(t, out, "models: simulator\n")
				require.Contains(t, out, "runs on: n1/sim\n")
				require.Regexp(t, `answer: .+ \((STOP|LENGTH)\)`, out)
				require.Contains(t, out, "refused: NotFound 3\n")
				require.Regexp(t, `watch: clients 5 slots, \d granted\n`, out, "two nodes' slots are added, not joined")
				require.Contains(t, out, "watch: 2 updates\n")
			})
		}
	}
}

// TestCase_K01_Python runs docs/examples/python over gRPC, without and with TLS.
func TestCase_K01_Python(t *testing.T) {
	for _, tls := range []bool{false, true} {
		s := start(t, tls)
		t.Run(fmt.Sprintf("tls=%t", tls), func(t *testing.T) {
			generated, err := filepath.Abs(filepath.Join(root, "bin", "python"))
			require.NoError(t, err)
			out := program(t, filepath.Join(root, "docs", "examples", "python"),
				s.variables("IOP_EDGE="+s.host, "IOP_CA="+s.caFile, "PYTHONPATH="+generated, "PYTHONDONTWRITEBYTECODE=1"), "/usr/bin/python3", "example.py")
			require.Contains(t, out, "healthy: True\n")
			require.Contains(t, out, "models: simulator\n")
			require.Contains(t, out, "runs on: n1/sim\n")
			require.Regexp(t, `answer: .+ \(FINISH_REASON_(STOP|LENGTH)\)`, out)
			require.Contains(t, out, "refused: NOT_FOUND")
			require.Regexp(t, `watch: clients 5 slots, \d granted\n`, out)
			require.Contains(t, out, "watch: 2 updates\n")
		})
	}
}

// TestU20_EveryCommandOfTheDocument runs every command of docs/api.md as it stands there.
func TestU20_EveryCommandOfTheDocument(t *testing.T) {
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	path := strings.Join([]string{filepath.Join(top, ".tools", "bin"), filepath.Join(top, ".tools", "node_modules", ".bin"), os.Getenv("PATH")}, ":")
	s := start(t, false)
	_, found := snippets(t)
	require.Greater(t, len(found), 10)
	for i, sn := range found {
		t.Run(fmt.Sprintf("%d %s", i, sn.heading), func(t *testing.T) {
			// Without pipefail: a watch that head ends has failed.
			out := program(t, top, s.variables("PATH="+path), "bash", "-euc", sn.commands)
			if i > 0 { // the first sets variables
				require.NotEmpty(t, sn.expected, "a block of commands needs a line #>")
			}
			for _, want := range sn.expected {
				require.Contains(t, flat(out), flat(want), out)
			}
		})
	}
}

// flat is text without spaces: whether JSON has one behind a colon differs from
// program to program and on purpose from build to build.
func flat(text string) string { return strings.ReplaceAll(text, " ", "") }
