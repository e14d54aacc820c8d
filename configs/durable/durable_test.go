package durable_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs/durable"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestAFileIsReplacedWholeAndForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("a former and longer one"), 0o644))
	require.NoError(t, os.WriteFile(path+".next", []byte("what a crash has left, which is even longer"), 0o644))
	require.NoError(t, durable.Write(path, []byte("new")))
	require.Equal(t, "new", read(t, path))
	require.NoFileExists(t, path+".next")
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestAWriteThatFailsLeavesTheFormerFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(path, []byte("former"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(path+".next", "in the way"), 0o700))
	require.Error(t, durable.Write(path, []byte("new")))
	require.Equal(t, "former", read(t, path))
	require.NoError(t, os.RemoveAll(path+".next"))

	if _, err := os.Stat("/dev/full"); err == nil {
		require.NoError(t, os.Symlink("/dev/full", path+".next"))
		require.Error(t, durable.Write(path, []byte("new")))
		require.Equal(t, "former", read(t, path))
		require.NoFileExists(t, path+".next")
	}
	require.Error(t, durable.Write(filepath.Join(dir, "no folder", "f"), []byte("new")))

	// A rename that cannot be leaves nothing behind either.
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "inside"), 0o700))
	require.Error(t, durable.Write(folder, []byte("new")))
	require.NoFileExists(t, folder+".next")
}
