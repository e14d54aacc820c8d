package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/config"
)

// An Edge is found by a file that it would refuse.
func TestCLI_LocateNeedsOnlyTheListeners(t *testing.T) {
	const plain, tls = "127.0.0.1:9000", "127.0.0.1:9001"
	for name, c := range map[string]struct {
		text string
		want config.Location
		err  string
	}{
		"default":         {"models: []\n", config.Location{AdminListen: config.DefaultListen}, ""},
		"empty":           {"", config.Location{AdminListen: config.DefaultListen}, ""},
		"inherited":       {"edge: {listen: '" + plain + "'}\n", config.Location{AdminListen: plain}, ""},
		"own":             {"edge: {listen: x, admin_listen: '" + plain + "'}\n", config.Location{AdminListen: plain}, ""},
		"tls":             {"edge:\n  listen: " + tls + "\n  tls: {cert_file: none.crt, key_file: none.key}\n", config.Location{AdminListen: tls, TLS: true, CertFile: "none.crt"}, ""},
		"bad value":       {"edge:\n  listen: " + plain + "\n  id: []\nnodes: [{id: n, providers: [{id: p, capacity: x}]}]\n", config.Location{AdminListen: plain}, ""},
		"absent secret":   {"edge: {listen: '" + plain + "'}\nnodes: [{id: n, token_env: IOP_TEST_NOT_SET}]\n", config.Location{AdminListen: plain}, ""},
		"no YAML below":   {"# first\nedge:\n  listen: " + plain + "\n# of models\nmodels: [\nedge:\n", config.Location{AdminListen: plain}, ""},
		"mark, no YAML":   {"\xef\xbb\xbfedge:\r\n  listen: " + plain + "\r\nmodels: {\r\n", config.Location{AdminListen: plain}, ""},
		"no YAML at all":  {"edge: {listen: x\n", config.Location{}, "edge.yaml:1:1: not YAML"},
		"no YAML, no key": {"models: [\n", config.Location{}, "edge.yaml:1:1: not YAML"},
		"another's":       {"node: {id: n}\n", config.Location{}, "this is a node's file"},
		"address unknown": {"edge:\n  listen: []\n", config.Location{}, "edge.listen cannot be read:\n"},
		"address misspelt": {"edge:\n  admin_listn: 127.0.0.1:9\n", config.Location{},
			`did you mean "admin_listen"?`},
		"tls unknown": {"edge:\n  tls: yes\n", config.Location{}, "edge.tls.cert_file cannot be read:\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "edge.yaml")
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			got, err := config.Locate(file)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.want, got)
		})
	}
	_, err := config.Locate(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
