package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/config"
)

const pointing = `edge:
  admin_tokens: [{name: me, token_env: IOP_TEST_ADMIN}]
  read_tokens: [{name: cp, token_file: %[1]s/read}]
openai:
  api_keys:
    - {name: laptop, key_file: %[1]s/key}
nodes:
  - id: n
    token_file: %[1]s/node
`

// Secrets may stand in files and environment variables instead of their hashes
// in the configuration. A refresh reads them again, and none is ever shown.
func TestSecretsByFileAndVariable(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	put("read", "MARK-read\n")
	put("key", "MARK-key")
	put("node", "MARK-node\r\n")
	t.Setenv("IOP_TEST_ADMIN", "MARK-admin")
	text := fmt.Appendf(nil, pointing, dir)

	s, err := config.Parse("edge.yaml", text)
	require.NoError(t, err)
	ring := auth.NewKeyring(s.Credentials)
	require.False(t, ring.Open(), "a key that is pointed to is a key")
	name, ok := ring.Admin("MARK-admin")
	require.True(t, ok)
	require.Equal(t, "me", name)
	_, ok = ring.Reader("MARK-read")
	require.True(t, ok)
	_, ok = ring.APIKey("MARK-key")
	require.True(t, ok)
	known, ok := ring.Node("n", "MARK-node")
	require.True(t, known && ok)

	var out strings.Builder
	require.NoError(t, s.Effective().Write(&out))
	require.NotContains(t, out.String(), "MARK")
	require.NotContains(t, out.String(), auth.HashToken("MARK-key"))
	require.Contains(t, out.String(), "sha256: (set)                            # inherited from key_file, line 6\n")

	put("key", "MARK-new")
	after, err := config.Parse("edge.yaml", text)
	require.NoError(t, err)
	changes, restart := config.Changes(s, after)
	require.Equal(t, []string{"openai.api_keys[laptop].sha256: changed"}, changes)
	require.Empty(t, restart)
	_, ok = auth.NewKeyring(after.Credentials).APIKey("MARK-key")
	require.False(t, ok)
}

func TestSecretsThatCannotBeReadAreNamedByTheirPlace(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"read": "MARK of two words", "key": "", "node": "MARK"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := config.Parse("edge.yaml", fmt.Appendf(nil, pointing+"    token_sha256: %[2]s\n  - {id: m}\n  - {id: o, token_file: %[1]s/none}\n  - {id: p, token_env: MARK=1}\n", dir, strings.Repeat("a1", 32)))
	require.ErrorContains(t, err, `edge.yaml:2:40: edge.admin_tokens[0].token_env: found "IOP_TEST_ADMIN"; that environment variable is empty or not set`)
	require.ErrorContains(t, err, `edge.yaml:3:40: edge.read_tokens[0].token_file: found "`+dir+`/read"; `)
	require.ErrorContains(t, err, `edge.yaml:6:32: openai.api_keys[0].key_file: found "`+dir+`/key"; `)
	require.ErrorContains(t, err, "edge.yaml:9:17: nodes[0].token_file: token_sha256 and token_file are given; keep one")
	require.ErrorContains(t, err, "edge.yaml:11:5: nodes[1]: missing; give token_sha256, the SHA-256 of the token, or token_file or token_env, which says where the token is")
	require.ErrorContains(t, err, `edge.yaml:12:25: nodes[2].token_file: found "`+dir+`/none"; there is no such file`)
	require.ErrorContains(t, err, "edge.yaml:13:24: nodes[3].token_env: found 6 characters; expected the name of an environment variable")
	require.NotContains(t, err.Error(), "MARK")
}

// On another machine than the file's, secrets that are not there are findings for
// whoever looks, and keep nobody from a migration.
func TestSecretsOfAnotherMachineAreFindings(t *testing.T) {
	text := []byte("openai: {api_keys: [{name: a, key_env: IOP_TEST_NOT_SET}, {name: b, key_file: no/such}]}\n" +
		"nodes:\n  - id: n\n    token_env: IOP_TEST_NOT_SET\n    providers: [{id: p, type: simulator, max_queue: 7}]\n")
	_, err := config.Parse("edge.yaml", text)
	require.ErrorContains(t, err, "IOP_TEST_NOT_SET")
	s, err := config.ParseElsewhere("edge.yaml", text)
	require.NoError(t, err)
	require.Len(t, s.CheckFiles().Missing, 3)
	require.Empty(t, s.CheckFiles().Wrong)
	m, err := config.Migrate("edge.yaml", text)
	require.NoError(t, err)
	require.Contains(t, string(m.Text), "max_queue: 7")
	require.Len(t, m.Changes, 2)
}
