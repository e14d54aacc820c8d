package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/state"
)

const credentialsName = "credentials.json"

func hashed(b byte) (h state.Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

func some() state.Credentials {
	return state.Credentials{
		Keys:  []state.Key{{Name: "laptop", Hash: hashed(1), Created: since, By: "me", Models: []string{"m"}, MaxConcurrent: 2}, {Name: "phone", Hash: hashed(2), Created: since}},
		Joins: []state.Join{{ID: "j1", Node: "n", Hash: hashed(3), Created: since, Expires: since.Add(time.Hour), By: "me"}},
		Nodes: []state.Node{{Node: "m", Hash: hashed(4), Since: since, Former: hashed(5), Past: hashed(6), Join: "j0", Offered: true}, {Node: "n", Hash: hashed(7), Since: since, Used: since}},
	}
}

func savedCredentials(t *testing.T, all state.Credentials) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, _, err := state.OpenCredentials(dir, since)
	require.NoError(t, err)
	require.NoError(t, s.Save(all, since))
	return dir
}

func TestCredentials_AreKeptOverARestart(t *testing.T) {
	dir := savedCredentials(t, some())
	require.Equal(t, []string{credentialsName}, files(t, dir), "nothing else is left behind")
	_, again, err := state.OpenCredentials(dir, since)
	require.NoError(t, err)
	require.Equal(t, some(), again)
	looked, err := state.ReadCredentials(dir)
	require.NoError(t, err)
	require.Equal(t, some(), looked)
	info, err := os.Stat(filepath.Join(dir, credentialsName))
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

// Both files are in one folder, and neither knows of the other.
func TestCredentials_AndOverridesShareAFolder(t *testing.T) {
	dir := savedCredentials(t, some())
	s, _, err := state.Open(dir, since)
	require.NoError(t, err)
	require.NoError(t, s.Save(state.Overrides{on("n", "p", state.Disabled)}, since))
	require.Equal(t, []string{credentialsName, name}, files(t, dir))
	all, err := state.Read(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	looked, err := state.ReadCredentials(dir)
	require.NoError(t, err)
	require.Equal(t, some(), looked)
}

// Of a file that is wrong in any way nothing passes, it is set aside, and the
// message says what to do.
func TestCredentials_OfAFileThatCannotBeUsedNothingPasses(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(savedCredentials(t, some()), credentialsName))
	require.NoError(t, err)
	overrides, err := os.ReadFile(filepath.Join(saved(t, state.Overrides{on("n", "p", state.Disabled)}), name))
	require.NoError(t, err)
	for what, text := range map[string]string{
		"empty":              "",
		"half":               string(good[:len(good)/2]),
		"zeros":              strings.Repeat("\x00", 512),
		"a flipped name":     strings.Replace(string(good), `"laptop"`, `"laptoq"`, 1),
		"a flipped hash":     strings.Replace(string(good), strings.Repeat("01", 32), strings.Repeat("09", 32), 1),
		"another's file":     string(overrides),
		"a newer version":    strings.Replace(string(good), `"version": 1`, `"version": 2`, 1),
		"more than one JSON": string(good) + string(good),
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, credentialsName)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			s, all, err := state.OpenCredentials(dir, since)
			require.Empty(t, all)
			require.ErrorContains(t, err, "none of the API keys, join tokens and node credentials in it passes")
			require.ErrorContains(t, err, path+".unusable-20260301T120000Z")
			require.NoError(t, s.Save(some(), since))
			all, err = state.ReadCredentials(dir)
			require.NoError(t, err)
			require.Equal(t, some(), all)
		})
	}
}

// What is whole and yet makes no sense is not used by half.
func TestCredentials_ThatContradictThemselvesAreRefused(t *testing.T) {
	for what, change := range map[string]func(*state.Credentials){
		"no name":              func(c *state.Credentials) { c.Keys[0].Name = "" },
		"a name twice":         func(c *state.Credentials) { c.Keys[1].Name = "laptop" },
		"no hash":              func(c *state.Credentials) { c.Keys[0].Hash = state.Hash{} },
		"a secret twice":       func(c *state.Credentials) { c.Joins[0].Hash = c.Keys[0].Hash },
		"less than no limit":   func(c *state.Credentials) { c.Keys[0].MaxConcurrent = -1 },
		"a token of no node":   func(c *state.Credentials) { c.Joins[0].Node = "" },
		"a token without end":  func(c *state.Credentials) { c.Joins[0].Expires = time.Time{} },
		"a node twice":         func(c *state.Credentials) { c.Nodes[1].Node = "m" },
		"a former one of two":  func(c *state.Credentials) { c.Nodes[1].Former = c.Nodes[0].Hash },
		"a node without proof": func(c *state.Credentials) { c.Nodes[1].Hash = state.Hash{} },
	} {
		t.Run(what, func(t *testing.T) {
			all := some()
			change(&all)
			_, err := state.ReadCredentials(savedCredentials(t, all))
			require.ErrorContains(t, err, "damaged")
		})
	}
}

func TestCredentials_WithoutAFolderNothingIsKept(t *testing.T) {
	s, all, err := state.OpenCredentials("", since)
	require.NoError(t, err)
	require.Empty(t, all)
	require.ErrorIs(t, s.Save(some(), since), state.ErrNoCredentialsDir)
}

func TestCase_I12_NothingPrintsKeptHashes(t *testing.T) {
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(format, some())
		require.NotContains(t, text, "0101", format)
		require.NotContains(t, text, "1 1 1", format)
		require.NotContains(t, text, "0x1, 0x1", format)
	}
}

func TestCredentials_AreFoundByName(t *testing.T) {
	all := some()
	before := all.Clone()
	require.Equal(t, "phone", all.Key("phone").Name)
	require.Nil(t, all.Key("tablet"))
	require.Equal(t, "n", all.Node("n").Node)
	require.Nil(t, all.Node("o"))
	next := all.Clone()
	next.AddKey(state.Key{Name: "a", Hash: hashed(8)})
	next.RemoveKey("laptop")
	next.SetNode(state.Node{Node: "a", Hash: hashed(9)})
	next.SetNode(state.Node{Node: "n", Hash: hashed(10)})
	next.RemoveNode("m")
	require.Equal(t, before, all, "a clone is changed alone")
	require.Equal(t, "a phone", next.Keys[0].Name+" "+next.Keys[1].Name)
	require.Equal(t, "a n", next.Nodes[0].Node+" "+next.Nodes[1].Node)
	require.Equal(t, hashed(10), next.Nodes[1].Hash)
}
