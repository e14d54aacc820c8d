package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/state"
)

const name = "overrides.json"

// saved is a folder with these overrides.
func saved(t *testing.T, all state.Overrides) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, _, err := state.Open(dir, since)
	require.NoError(t, err)
	require.NoError(t, s.Save(all, since))
	return dir
}

// files are the names in a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStore_KeepsOverridesOverARestart(t *testing.T) {
	all := state.Overrides{on("n", "", state.Draining), on("n", "p", state.Disabled), on("n", "q", state.Enabled)}
	dir := saved(t, all)
	require.Equal(t, []string{name}, files(t, dir), "nothing else is left behind")
	s, again, err := state.Open(dir, since)
	require.NoError(t, err)
	require.Equal(t, all, again)
	looked, err := state.Read(dir)
	require.NoError(t, err)
	require.Equal(t, all, looked)

	require.NoError(t, s.Save(nil, since))
	_, again, err = state.Open(dir, since)
	require.NoError(t, err)
	require.Empty(t, again)

	info, err := os.Stat(dir)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Zero(t, info.Mode().Perm()&0o077, "nobody else may look")
	}
}

func TestStore_LayoutIsFreeContentIsNot(t *testing.T) {
	dir := saved(t, state.Overrides{on("n", "p", state.Disabled)})
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var any map[string]any
	require.NoError(t, json.Unmarshal(text, &any))
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(strings.Fields(string(text)), " ")), 0o600))
	all, err := state.Read(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
}

// Nothing that stands in the file keeps an Edge from starting: it is set aside,
// the message says why and where to, and the next save works.
func TestStore_WhatCannotBeUsedIsSetAside(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(saved(t, state.Overrides{on("n", "p", state.Disabled)}), name))
	require.NoError(t, err)
	for what, c := range map[string]struct{ text, why string }{
		"empty":              {"", "damaged"},
		"half":               {string(good[:len(good)/2]), "damaged"},
		"zeros":              {strings.Repeat("\x00", 512), "damaged"},
		"a flipped word":     {strings.Replace(string(good), `"disabled"`, `"enabled"`, 1), "checksum"},
		"a flipped node":     {strings.Replace(string(good), `"node": "n"`, `"node": "m"`, 1), "checksum"},
		"no checksum":        {strings.Replace(string(good), `"sha256"`, `"sha255"`, 1), "checksum"},
		"another format":     {`{"format":"x","version":1}`, `"x"`},
		"a newer version":    {strings.Replace(string(good), `"version": 1`, `"version": 2`, 1), "newer IOP"},
		"no version":         {`{"format":"iop-edge-overrides"}`, "no version 0"},
		"text":               {"overrides: []\n", "damaged"},
		"more than one JSON": {string(good) + string(good), "damaged"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := state.Read(dir)
			require.ErrorContains(t, err, c.why)
			require.Equal(t, []string{name}, files(t, dir), "looking changes nothing")

			s, all, err := state.Open(dir, since)
			require.Empty(t, all)
			var unusable *state.UnusableError
			require.ErrorAs(t, err, &unusable)
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "no override is in force")
			require.Equal(t, path+".unusable-20260301T120000Z", unusable.Aside)
			kept, err := os.ReadFile(unusable.Aside)
			require.NoError(t, err)
			require.Equal(t, c.text, string(kept))

			require.NoError(t, s.Save(state.Overrides{on("n", "q", state.Draining)}, since))
			all, err = state.Read(dir)
			require.NoError(t, err)
			require.Len(t, all, 1)
		})
	}
}

func TestStore_ASecondUnusableFileOfOneSecondTakesNothingFromTheFirst(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"one", "two", "three"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		_, _, err := state.Open(dir, since)
		require.Error(t, err)
	}
	require.Len(t, files(t, dir), 3)
}

func TestStore_WithoutAFolderNothingIsKept(t *testing.T) {
	s, all, err := state.Open("", since)
	require.NoError(t, err)
	require.Empty(t, all)
	require.NoError(t, s.Save(nil, since))
	require.ErrorIs(t, s.Save(state.Overrides{on("n", "p", state.Disabled)}, since), state.ErrNoDir)
}

// A folder that cannot be used is told of at the start and at each save, and is
// no reason to fail.
func TestStore_AFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s, all, err := state.Open(filepath.Join(file, "state"), since)
	require.Empty(t, all)
	if runtime.GOOS != "windows" { // where this is simply no such file
		require.ErrorContains(t, err, "not a directory")
	}
	require.Error(t, s.Save(state.Overrides{on("n", "p", state.Disabled)}, since))
}

// A disk that fills up during a save leaves the former file whole.
func TestStore_AFullDiskLeavesTheFormerFile(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	before := state.Overrides{on("n", "p", state.Disabled)}
	dir := saved(t, before)
	s, _, err := state.Open(dir, since)
	require.NoError(t, err)
	next := filepath.Join(dir, name+".next")
	require.NoError(t, os.Symlink("/dev/full", next))
	require.ErrorContains(t, s.Save(before.With(on("n", "q", state.Draining)), since), "no space left")
	all, err := state.Read(dir)
	require.NoError(t, err)
	require.Equal(t, before, all)
	require.Equal(t, []string{name}, files(t, dir))

	// There is room again.
	require.NoError(t, s.Save(nil, since))
	all, err = state.Read(dir)
	require.NoError(t, err)
	require.Empty(t, all)
}

// What cannot be read may be another's: it is never written over.
func TestStore_AForeignThingOfThatNameIsKept(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, name, "precious")
	require.NoError(t, os.MkdirAll(inside, 0o700))
	s, _, err := state.Open(dir, since)
	require.ErrorContains(t, err, "no regular file")
	require.NoError(t, s.Save(state.Overrides{on("n", "p", state.Disabled)}, since))
	require.DirExists(t, filepath.Join(dir, name+".unusable-20260301T120000Z", "precious"))
}

// A reset that cannot be written says so: the former word would come back with a
// restart. Where none was kept there is nothing to say.
func TestS08_AResetThatCannotBeKeptSaysSo(t *testing.T) {
	dir := saved(t, state.Overrides{on("n", "p", state.Disabled)})
	s, _, err := state.Open(dir, since)
	require.NoError(t, err)
	inTheWay := filepath.Join(dir, name+".next", "inside")
	require.NoError(t, os.MkdirAll(inTheWay, 0o700))
	require.Error(t, s.Save(nil, since))
	require.Error(t, s.Save(nil, since), "still")
	require.NoError(t, os.RemoveAll(filepath.Dir(inTheWay)))
	require.NoError(t, s.Save(nil, since))
	require.NoError(t, os.MkdirAll(inTheWay, 0o700))
	require.NoError(t, s.Save(nil, since), "nothing is kept that could come back")
}
