package edged

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
)

// reader is what a watch tells: every content that it has read.
type reader struct {
	mu   sync.Mutex
	last string
	n    int
}

func (r *reader) reload(read func() ([]byte, error)) bool {
	text, err := read()
	if errors.Is(err, errUnsettled) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != lookOf(text, err) {
		r.last = lookOf(text, err)
		r.n++
	}
	return true
}

func (r *reader) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last == lookOf([]byte(text), nil)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace is how editors save, and how ConfigMaps change.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+"~", text)
	require.NoError(t, os.Rename(path+"~", path))
}

// However a file changes, its watch reads it once it is left alone. Real notices
// wake it; the time is the test's.
func TestS08_Case_H01_TheFileIsReadAgainHoweverItChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		unix   bool
		setup  func(t *testing.T, dir, path string)
		change func(t *testing.T, dir, path, text string)
	}{
		{"written in place", false, nil, func(t *testing.T, _, path, text string) { write(t, path, text) }},
		{"renamed into place", false, nil, func(t *testing.T, _, path, text string) { replace(t, path, text) }},
		{"moved away, then made anew", false, nil, func(t *testing.T, _, path, text string) {
			require.NoError(t, os.Rename(path, path+".bak"))
			write(t, path, text)
		}},
		{"a ConfigMap", true, func(t *testing.T, dir, path string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "..first"), 0o700))
			write(t, filepath.Join(dir, "..first", "edge.yaml"), "first")
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink("..first", filepath.Join(dir, "..data")))
			require.NoError(t, os.Symlink(filepath.Join("..data", "edge.yaml"), path))
		}, func(t *testing.T, dir, _, text string) {
			next, err := os.MkdirTemp(dir, "..next")
			require.NoError(t, err)
			write(t, filepath.Join(next, "edge.yaml"), text)
			require.NoError(t, os.Symlink(filepath.Base(next), filepath.Join(dir, "..tmp")))
			require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		}},
		{"a link to another folder, written there", true, func(t *testing.T, dir, path string) {
			elsewhere := t.TempDir()
			write(t, filepath.Join(elsewhere, "real.yaml"), "first")
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink(filepath.Join(elsewhere, "real.yaml"), path))
		}, func(t *testing.T, _, path, text string) { write(t, path, text) }},
		{"the whole folder replaced", true, nil, func(t *testing.T, dir, path, text string) {
			require.NoError(t, os.Rename(dir, dir+".old"))
			require.NoError(t, os.Mkdir(dir, 0o700))
			write(t, path, text)
			t.Cleanup(func() { _ = os.RemoveAll(dir + ".old") })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && c.unix {
				t.Skip("links and folders in use are another matter there")
			}
			dir := filepath.Join(t.TempDir(), "conf")
			require.NoError(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "edge.yaml")
			write(t, path, "first")
			if c.setup != nil {
				c.setup(t, dir, path)
			}
			clock, r := clockwork.NewFakeClock(), &reader{}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			w := newWatch(path, clock, slog.New(slog.DiscardHandler), r.reload)
			running.Go(func() { w.run(ctx) })
			reads := func(text string) {
				t.Helper()
				require.Eventually(t, func() bool { clock.Advance(quietFor); return r.has(text) }, 20*time.Second, 2*time.Millisecond)
			}
			reads("first")
			c.change(t, dir, path, "second")
			reads("second")
			write(t, path, "third, after the change")
			reads("third, after the change")
		})
	}
}

// step is one watch without its loop: notices and time come one by one.
func step(t *testing.T) (w *watch, clock *clockwork.FakeClock, r *reader, path string) {
	path = filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, "whole")
	clock, r = clockwork.NewFakeClock(), &reader{}
	return newWatch(path, clock, slog.New(slog.DiscardHandler), r.reload), clock, r, path
}

// A file that is being written is not read before it is left alone, however long
// that takes.
func TestS08_AHalfWrittenFileIsNotRead(t *testing.T) {
	w, clock, r, path := step(t)
	for n := range 40 {
		write(t, path, fmt.Sprintf("%*s", n+10, "half")) // grows, in place
		require.True(t, w.noticed(true))
		require.LessOrEqual(t, w.wait(), quietFor)
		clock.Advance(quietFor / 2)
		write(t, path, fmt.Sprintf("%*s", n+100, "more")) // after the last notice
		require.False(t, w.reloaded(), "written since")
	}
	require.Zero(t, r.n)
	write(t, path, "whole again")
	require.True(t, w.noticed(true))
	require.True(t, w.reloaded())
	require.True(t, r.has("whole again"))
	require.False(t, w.noticed(true), "a notice of what has been read")
}

// One that is renamed into place again and again is whole every time: it is read
// once the patience ends, not before.
func TestS08_AFileThatIsReplacedForEverIsReadAllTheSame(t *testing.T) {
	w, clock, r, path := step(t)
	for n := 0; clock.Since(w.pending) < patience || n == 0; n++ {
		replace(t, path, fmt.Sprintf("whole %d", n))
		w.noticed(true)
		clock.Advance(quietFor / 2)
		replace(t, path, fmt.Sprintf("whole and newer %d", n))
		if clock.Since(w.pending) < patience {
			require.False(t, w.reloaded())
		}
	}
	require.Zero(t, w.wait())
	// The disk may give the new file the number of the one that was read.
	for n := 0; !w.reloaded(); n++ {
		require.Less(t, n, 10)
		replace(t, path, fmt.Sprintf("whole, once more %d", n))
	}
	require.Equal(t, 1, r.n)
}

func TestS08_AMissingFileIsReportedOnceAndReadWhenItIsBack(t *testing.T) {
	w, _, r, path := step(t)
	require.NoError(t, os.Remove(path))
	require.True(t, w.noticed(true))
	require.True(t, w.reloaded())
	require.Equal(t, 1, r.n)
	require.True(t, w.noticed(false), "the regular look")
	require.True(t, w.reloaded())
	require.Equal(t, 1, r.n)
	write(t, path, "back")
	require.True(t, w.noticed(true))
	require.True(t, w.reloaded())
	require.True(t, r.has("back"))
}
