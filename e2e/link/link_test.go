//go:build !windows

package link

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	// What the binary is made of, so that the test cache knows when it changes.
	_ "github.com/iop-dev/iop/cmd/edged"
	_ "github.com/iop-dev/iop/cmd/noded"
)

var binary string

func TestMain(m *testing.M) { os.Exit(build(m)) }

// build makes the binary once for all tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "iop-link-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "iop")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/iop-dev/iop/cmd/iop").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build iop: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestS13_AKilledNodesWaitersMoveOrAreUnavailable(t *testing.T) {
	d, err := NewDeaths(binary)
	require.NoError(t, err)
	defer d.Close()
	for range 3 {
		death, err := d.Kill(t.Context())
		require.NoError(t, err)
		t.Logf("%+v", death)
	}
}

// Long enough for a machine that is busy with other tests.
var (
	usual = Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second}
	quick = Heartbeat{Interval: 500 * time.Millisecond, Timeout: 4 * time.Second}
)

func TestS12_Case_G02_G04_ABlackholedNodeIsExcludedAndComesBack(t *testing.T) {
	s, err := NewSilences(binary, quick)
	require.NoError(t, err)
	defer s.Close()
	late, err := s.Blackhole(t.Context())
	require.NoError(t, err)
	t.Logf("%v after the timeout", late)
}

func TestS15_AReturningNodeTakesTheWaitingRequest(t *testing.T) {
	s, err := NewSilences(binary, usual)
	require.NoError(t, err)
	defer s.Close()
	for range 3 {
		r, err := s.Reconnect(t.Context())
		require.NoError(t, err)
		t.Logf("%+v", r)
	}
}

func TestStalledConsumersDoNotStopAnHonestStream(t *testing.T) {
	s, err := NewStalls(binary, 50, 10*time.Millisecond)
	require.NoError(t, err)
	defer s.Close()
	leave, err := s.Stall(t.Context(), 20)
	require.NoError(t, err)
	_, err = s.Honest(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(20), s.flood.Running(), "the others are stalled still")
	require.NoError(t, leave())
}
