//go:build unix

package configs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// A refresh that waits for a pipe to be written, or reads a device without end,
// would keep every other refresh, override and stop from having its turn.
func TestS08_PipesAndDevicesAreNotRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	want := pipe + " is a pipe or device; expected a regular file"
	_, err := configs.Read(pipe)
	require.EqualError(t, err, "read configuration: "+want)
	_, err = configs.Secret{File: pipe}.Read()
	require.EqualError(t, err, want)

	go func() { _ = os.WriteFile(pipe, []byte("edge:\n"), 0) }()
	text, err := configs.ReadOnce(pipe)
	require.NoError(t, err)
	require.Equal(t, "edge:\n", string(text))
	_, err = configs.ReadOnce("/dev/zero")
	require.ErrorContains(t, err, "at most that many are read")
	_, err = configs.ReadOnce(filepath.Dir(pipe))
	require.ErrorContains(t, err, "read configuration: ")

	doc, problems := configs.Decode("edge.yaml", nil, &configv1.EdgeConfig{})
	require.Empty(t, problems)
	var files configs.FileProblems
	files.AddAuthorities(doc, "node.ca_file", pipe)
	files.AddKeyPair(doc, "edge.tls.cert_file", pipe, "edge.tls.key_file", pipe)
	require.Len(t, files.Wrong, 3)
	for _, p := range files.Wrong {
		require.Contains(t, p.Message, want)
	}
}
