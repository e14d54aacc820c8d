//go:build unix

package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// As root, "-o /dev/null" must not put a file in the place of the device.
func TestConfigMigrateWritesIntoPipesAndDevices(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink("pipe", link))
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // opening waits for nobody
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	for _, target := range []string{pipe, link} {
		require.NoError(t, replaceFile(target, []byte("text")))
		got := make([]byte, 4)
		_, err = io.ReadFull(reader, got)
		require.NoError(t, err)
		require.Equal(t, "text", string(got))
	}
	info, err := os.Lstat(pipe)
	require.NoError(t, err)
	require.Equal(t, fs.ModeNamedPipe, info.Mode().Type())

	require.ErrorContains(t, replaceFile(dir, nil), "it is a folder")
}
