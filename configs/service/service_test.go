package service

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// longestStop is the seconds that a stop takes at most with the default grace: a
// node's 30, then 15 for its providers; an Edge's 30 and 2.
const longestStop = 45

// unit reads a unit's settings; a later one of the same name wins.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[key] = value
		}
	}
	return settings
}

func TestUnitsAreHardenedAndRestartCrashesOnly(t *testing.T) {
	for name, command := range map[string]string{
		"iop-edge.service": "/usr/local/bin/iop edge -c /etc/iop/edge.yaml",
		"iop-node.service": "/usr/local/bin/iop node -c /etc/iop/node.yaml",
	} {
		u := unit(t, name)
		require.Equal(t, command, u["ExecStart"])
		require.Equal(t, "exec", u["Type"])
		require.Equal(t, "on-failure", u["Restart"])
		require.Equal(t, "1 3 4", u["RestartPreventExitStatus"], "the program has said why: waiting for people")
		for key, want := range map[string]string{
			"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": "",
		} {
			have, ok := u[key]
			require.True(t, ok, key)
			require.Equal(t, want, have, key)
		}
		stop, err := strconv.Atoi(u["TimeoutStopSec"])
		require.NoError(t, err)
		require.Greater(t, stop, longestStop)
		require.NotEmpty(t, u["LoadCredential"], "secrets are no files of the service's user")
	}
}

func TestSystemdTakesTheUnits(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	judge := func(name, text string) (string, error) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/iop", self)), 0o600))
		out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", file).CombinedOutput()
		return string(out), err
	}
	if out, err := judge("plain.service", "[Service]\nExecStart=/usr/local/bin/iop\n"); err != nil {
		t.Skip("systemd-analyze takes no unit here, as in some containers: ", out)
	}
	for _, name := range []string{"iop-edge.service", "iop-node.service"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		out, err := judge(name, string(text))
		require.NoError(t, err, out)
		require.NotContains(t, out, name, "a warning")
	}
}

// plist reads the top dictionary of a property list: each key with the text of its
// value, dictionaries and arrays flattened.
func plist(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	d := xml.NewDecoder(file)
	values, key, depth := map[string]string{}, "", 0
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return values
		}
		require.NoError(t, err, name)
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			text.Reset()
			if name := token.Name.Local; name == "true" || name == "false" {
				text.WriteString(name)
			}
		case xml.CharData:
			text.Write(token)
		case xml.EndElement:
			depth--
			switch said := strings.TrimSpace(text.String()); {
			case token.Name.Local == "key" && depth == 2:
				key = said
			case said != "":
				values[key] = strings.TrimSpace(values[key] + " " + said)
			}
			text.Reset()
		}
	}
}

func TestDaemonsAreWellFormedAndRestartCrashesOnly(t *testing.T) {
	for _, kind := range []string{"edge", "node"} {
		p := plist(t, "dev.iop."+kind+".plist")
		require.Equal(t, "dev.iop."+kind, p["Label"])
		require.Equal(t, "/usr/local/bin/iop "+kind+" -c /usr/local/etc/iop/"+kind+".yaml", p["ProgramArguments"])
		require.Equal(t, "Crashed true", p["KeepAlive"])
		require.Equal(t, "true", p["RunAtLoad"])
		stop, err := strconv.Atoi(p["ExitTimeOut"])
		require.NoError(t, err)
		require.Greater(t, stop, longestStop)
	}
}
