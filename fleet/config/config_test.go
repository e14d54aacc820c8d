package fleetconfig_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	fleetconfig "github.com/iop-dev/iop/fleet/config"
)

func parse(t *testing.T, text string) *fleetconfig.Config {
	t.Helper()
	c, err := fleetconfig.Parse("controlplane.yaml", []byte(text))
	require.NoError(t, err)
	return c
}

const home = "edges: [{id: home, url: 'http://127.0.0.1:8486', token_env: T}]\n"

func TestExampleLoads(t *testing.T) {
	c := parse(t, configs.ControlPlaneExample)
	require.Empty(t, c.Warnings)
	require.Equal(t, "127.0.0.1:8490", c.Listen)
	require.Equal(t, "./cp-state", c.StateDir)
	require.Len(t, c.Edges, 1)
	require.Equal(t, "https://edge.local:8486", c.Edges[0].URL)
	require.False(t, c.Open)
}

func TestDefaults(t *testing.T) {
	c := parse(t, home)
	require.Empty(t, c.Warnings)
	require.Equal(t, []any{"127.0.0.1:8490", "", 2 * time.Second, 1500 * time.Millisecond, 10 * time.Second, true},
		[]any{c.Listen, c.StateDir, c.PullInterval, c.PullTimeout, c.StaleAfter, c.Open})
	var shown strings.Builder
	require.NoError(t, c.Effective().Write(&shown))
	require.Regexp(t, `(?m)^  pull_interval_ms: 2000 +# default$`, shown.String())
	require.Regexp(t, `(?m)^    url: http://127.0.0.1:8486 +# line 1$`, shown.String())
	require.Len(t, parse(t, "").Warnings, 1, "no Edges")
}

func TestWhoMayReadIsWritten(t *testing.T) {
	token := "\n  read_tokens: [{name: me, sha256: " + strings.Repeat("a1", 32) + "}]\n"
	for _, c := range []struct {
		text string
		open bool
		want string // of the error
		warn string
	}{
		{"controlplane: {}\n", true, "", ""},
		{"controlplane:" + token, false, "", ""},
		{"controlplane:\n  auth: {mode: none}" + token, true, "", "read_tokens are not asked for"},
		{"controlplane: {auth: {mode: tokens}}\n", false, "", "every call is refused"},
		{"controlplane: {listen: '0.0.0.0:1', insecure_h2c: true}\n", false, "no read_tokens", ""},
		{"controlplane: {listen: '0.0.0.0:1', insecure_h2c: true, auth: {mode: none}}\n", true, "", ""},
		{"controlplane:\n  listen: 0.0.0.0:1" + token, false, "insecure_h2c: true", ""},
		{"controlplane:\n  listen: localhost:1" + token, false, "", ""},
		{"controlplane:\n  listen: '[::1]:1'" + token, false, "", ""},
	} {
		got, err := fleetconfig.Parse("controlplane.yaml", []byte(c.text+home))
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c.text)
			continue
		}
		require.NoError(t, err, c.text)
		require.Equal(t, c.open, got.Open, c.text)
		if c.warn == "" {
			require.Empty(t, got.Warnings, c.text)
		} else {
			require.Contains(t, strings.Join(got.Warnings, "\n"), c.warn)
		}
	}
}

func TestSecretsStayWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("hunter2-MARK\n"), 0o600))
	c := parse(t, "controlplane: {read_tokens: [{name: me, token_file: '"+file+"'}]}\nedges: [{id: home, url: 'https://e', token_file: '"+file+"', ca_pin: 'sha256:"+strings.Repeat("A1", 32)+"'}]")
	sum := sha256.Sum256([]byte("hunter2-MARK"))
	require.Equal(t, []fleetconfig.ReadToken{{Name: "me", Hash: hex.EncodeToString(sum[:])}}, c.ReadTokens)
	token, err := c.Edges[0].Token()
	require.NoError(t, err)
	require.Equal(t, "hunter2-MARK", token)
	require.Equal(t, strings.Repeat("a1", 32), c.Edges[0].CAPin)
	require.Empty(t, c.CheckFiles().All())
	var shown strings.Builder
	require.NoError(t, c.Effective().Write(&shown))
	require.NotContains(t, shown.String(), "MARK")
	require.NotContains(t, shown.String(), hex.EncodeToString(sum[:8]))
}

// A file for another machine is read all the same; what is missing is told.
func TestFilesElsewhereAreMissing(t *testing.T) {
	text := []byte("controlplane: {read_tokens: [{name: me, token_file: /nowhere/me}]}\nedges: [{id: home, url: 'https://e', token_file: /nowhere/home, ca_file: /nowhere/ca}]")
	_, err := fleetconfig.Parse("controlplane.yaml", text)
	require.ErrorContains(t, err, "there is no such file")
	c, err := fleetconfig.ParseElsewhere("controlplane.yaml", text)
	require.NoError(t, err)
	require.Len(t, c.CheckFiles().Missing, 3)
	require.Empty(t, c.CheckFiles().Wrong)
}

func TestATokenInClearIsWarnedOf(t *testing.T) {
	require.Contains(t, parse(t, "edges: [{id: home, url: 'http://10.0.0.7:8486', token_env: T}]").Warnings[0], "in clear")
	require.Contains(t, parse(t, "controlplane: {stale_after_ms: 3000}\n"+home).Warnings[0], "one slow answer")
}
