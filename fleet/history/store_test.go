package history_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	"github.com/iop-dev/iop/fleet/history"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func minute(n int) fleet.Minute {
	end := noon.Add(time.Duration(n) * time.Minute)
	return fleet.Minute{
		Point:   &controlv1.HistoryPoint{At: timestamppb.New(end), Queued: uint32(n), Outcomes: map[string]uint32{"completed": 1}},
		Through: end.Add(-time.Second),
	}
}

func open(t *testing.T, dir string) *history.Store {
	t.Helper()
	s, err := history.Open(dir, noon)
	require.NoError(t, err)
	return s
}

func put(t *testing.T, s *history.Store, edge string, minutes ...fleet.Minute) {
	t.Helper()
	require.NoError(t, s.Put(t.Context(), edge, minutes, noon))
}

func levels(t *testing.T, s *history.Store, edge string) (out []uint32) {
	t.Helper()
	points, err := s.Since(t.Context(), edge, noon.Add(-time.Hour))
	require.NoError(t, err)
	for _, p := range points {
		out = append(out, p.GetQueued())
	}
	return out
}

func TestMinutesOutlastARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with spaces?&#%41", "state")
	if runtime.GOOS == "windows" {
		dir = filepath.Join(t.TempDir(), "with spaces", "state")
	}
	s := open(t, dir)
	require.Empty(t, s.Notice())
	none, err := s.Last(t.Context(), "home")
	require.NoError(t, err)
	require.Nil(t, none.Point)
	put(t, s, "home", minute(1), minute(2))
	put(t, s, "lab", minute(7))
	require.NoError(t, s.Close())

	s = open(t, dir)
	defer s.Close()
	require.Empty(t, s.Notice())
	require.FileExists(t, filepath.Join(dir, history.FileName))
	require.Equal(t, []uint32{1, 2}, levels(t, s, "home"))
	last, err := s.Last(t.Context(), "home")
	require.NoError(t, err)
	require.True(t, proto.Equal(minute(2).Point, last.Point))
	require.True(t, minute(2).Through.Equal(last.Through))

	again := minute(2)
	again.Point.Queued = 9
	put(t, s, "home", again, minute(3))
	require.Equal(t, []uint32{1, 9, 3}, levels(t, s, "home"))
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "home", minute(1), minute(2), minute(3))
	put(t, s, "gone", minute(1))
	require.NoError(t, s.Put(t.Context(), "home", []fleet.Minute{minute(4)}, noon.Add(3*time.Minute)))
	require.Equal(t, []uint32{3, 4}, levels(t, s, "home"))
	require.Equal(t, []uint32{1}, levels(t, s, "gone"))
	require.NoError(t, s.Close())
	s, err := history.Open(dir, noon.Add(4*time.Minute))
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []uint32{4}, levels(t, s, "home"))
	require.Empty(t, levels(t, s, "gone"), "an Edge that is configured no more")
}

// Whatever the file is, there is a history, and the operator is told.
func TestADamagedFileIsSetAside(t *testing.T) {
	for name, damage := range map[string]func(whole []byte) []byte{
		"text": func([]byte) []byte { return bytes.Repeat([]byte("not a database "), 1000) },
		"overwritten": func(whole []byte) []byte {
			for i := 4096; i < len(whole); i++ {
				whole[i] = 0x5a
			}
			return whole
		},
		"half": func(whole []byte) []byte { return whole[:len(whole)/2+100] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, history.FileName)
			s := open(t, dir)
			var day []fleet.Minute
			for n := range 600 {
				day = append(day, minute(n))
			}
			put(t, s, "home", day...)
			require.NoError(t, s.Close())
			whole, err := os.ReadFile(file)
			require.NoError(t, err)
			damaged := damage(bytes.Clone(whole))
			require.NoError(t, os.WriteFile(file, damaged, 0o600))

			s = open(t, dir)
			require.Contains(t, s.Notice(), "the history was damaged")
			put(t, s, "home", minute(1))
			require.Equal(t, []uint32{1}, levels(t, s, "home"))
			require.NoError(t, s.Close())
			aside, err := filepath.Glob(file + ".damaged-*")
			require.NoError(t, err)
			require.Len(t, aside, 1)
			kept, err := os.ReadFile(aside[0])
			require.NoError(t, err)
			require.Equal(t, len(damaged), len(kept), "nothing is thrown away")

			s = open(t, dir)
			defer s.Close()
			require.Empty(t, s.Notice())
			require.Equal(t, []uint32{1}, levels(t, s, "home"))
		})
	}
}

// A file that another process has, or a newer version, is left alone.
func TestAFileOfAnotherIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	put(t, first, "home", minute(1))
	second := open(t, dir)
	require.Contains(t, second.Notice(), "will not survive a restart")
	require.Contains(t, second.Notice(), "locked")
	put(t, second, "home", minute(2))
	require.Equal(t, []uint32{2}, levels(t, second, "home"))
	require.NoError(t, second.Close())
	require.Equal(t, []uint32{1}, levels(t, first, "home"))
	require.NoError(t, first.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestAFolderThatCannotBeIsSaidSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s := open(t, filepath.Join(file, "state"))
	defer s.Close()
	require.Contains(t, s.Notice(), "will not survive a restart")
	put(t, s, "home", minute(1))
	require.Equal(t, []uint32{1}, levels(t, s, "home"))
}

// A file that is removed in use takes what is written, and gives nothing back: each
// Put says so, and the plots go on.
func TestAFileThatVanishesIsSaidSo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("nobody can remove a file in use")
	}
	for name, vanish := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"replaced": func(dir string) error {
			file := filepath.Join(dir, history.FileName)
			return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			s := open(t, dir)
			defer s.Close()
			put(t, s, "home", minute(1))
			require.NoError(t, vanish(dir))
			for n := 2; n < 4; n++ {
				err := s.Put(t.Context(), "home", []fleet.Minute{minute(n)}, noon)
				require.EqualError(t, err, "the file "+filepath.Join(dir, history.FileName)+" was removed or replaced while in use: restart the Control Plane")
			}
			require.Equal(t, []uint32{1, 2, 3}, levels(t, s, "home"))
		})
	}
}

// A full disk is an error of one Put, after which the next one may succeed.
func TestAFullDiskIsAnErrorOnly(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	put(t, s, "home", minute(1))
	require.NoError(t, s.LimitPages(2))
	var failed error
	for n := 2; n < 400 && failed == nil; n++ {
		failed = s.Put(t.Context(), "home", []fleet.Minute{minute(n)}, noon)
	}
	require.ErrorContains(t, failed, "full")
	before := levels(t, s, "home")
	require.NoError(t, s.LimitPages(1000))
	put(t, s, "home", minute(500))
	require.Equal(t, append(before, 500), levels(t, s, "home"))
}
