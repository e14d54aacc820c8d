package state_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/state"
)

// FuzzReadCredentials: what is read of a file, if anything, is written and read
// again the same, and has no entry without a secret's hash.
func FuzzReadCredentials(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "state")
	s, _, err := state.OpenCredentials(dir, since)
	require.NoError(f, err)
	require.NoError(f, s.Save(some(), since))
	path := filepath.Join(dir, credentialsName)
	good, err := os.ReadFile(path)
	require.NoError(f, err)
	for _, seed := range []string{
		string(good), "", "{}", "null", "[]", string(good[:len(good)/2]), strings.Replace(string(good), "laptop", "", 1),
		strings.Replace(string(good), `"credentials"`, `"overrides"`, 1), string(good) + "x",
		`{"format":"iop-edge-credentials","version":1,"sha256":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","credentials":null}`,
		`{"format":"iop-edge-credentials","version":1,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","credentials":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		all, err := state.ReadCredentials(dir)
		if err != nil {
			require.Empty(t, all)
			return
		}
		for _, k := range all.Keys {
			require.False(t, k.Hash.IsZero())
		}
		for _, n := range all.Nodes {
			require.False(t, n.Hash.IsZero())
		}
		require.NoError(t, s.Save(all, since))
		again, err := state.ReadCredentials(dir)
		require.NoError(t, err)
		require.Equal(t, len(all.Keys)+len(all.Joins)+len(all.Nodes), len(again.Keys)+len(again.Joins)+len(again.Nodes))
	})
}
