package edged

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/configs"
)

// When a changed file is read.
const (
	// quietFor is how long the file must have been left alone: whoever writes in
	// place is done by then.
	quietFor = 100 * time.Millisecond
	// patience is how long a file that is never left alone is waited for. Then it
	// is read all the same, if it is another file than last time: one that was
	// renamed into its place is whole, while one that is written in place may be
	// half a file at any moment.
	patience = time.Second
	// regularly is how often the file is looked at without any notice: for file
	// systems that give none, folders that were replaced, and links that lead
	// through folders which nobody watches.
	regularly = 5 * time.Second
)

// watch has a file read again after it may have changed. It watches folders, not
// the file: editors rename a new file into the old one's place, and a ConfigMap
// is a chain of links, one of which is replaced.
//
// Notices only say that it is time to look: whether the file is another one is
// decided by what it is and, in the end, by its content.
type watch struct {
	path  string
	clock clockwork.Clock
	log   *slog.Logger
	// reload is called with what reads the file; it reports whether the change is
	// dealt with.
	reload func(read func() ([]byte, error)) (done bool)

	seen    look // at the last notice
	read    look // by the last reload
	pending time.Time
}

// look is what tells a file from another, or from itself as it was.
type look struct {
	real string // the path without links; empty = there is no such file
	info os.FileInfo
}

func (w *watch) look() look {
	real, err := filepath.EvalSymlinks(w.path)
	if err != nil {
		return look{}
	}
	info, err := os.Stat(real)
	if err != nil {
		return look{}
	}
	return look{real, info}
}

// same reports whether nothing can have been written in between.
func (a look) same(b look) bool {
	return !a.replaced(b) && (a.info == nil || a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()))
}

// replaced reports whether the two are different files.
func (a look) replaced(b look) bool {
	if a.info == nil || b.info == nil {
		return a.real != b.real
	}
	return a.real != b.real || !os.SameFile(a.info, b.info)
}

func newWatch(path string, clock clockwork.Clock, log *slog.Logger, reload func(func() ([]byte, error)) bool) *watch {
	w := &watch{path: path, clock: clock, log: log, reload: reload}
	w.seen = w.look()
	w.read = w.seen
	return w
}

// run watches until ctx ends.
func (w *watch) run(ctx context.Context) {
	var changes <-chan fsnotify.Event // nil = there are no notices
	var troubles <-chan error
	notices, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("no notices of changed files here: the configuration is looked at every few seconds", "error", err)
	} else {
		changes, troubles = notices.Events, notices.Errors
		defer func() { _ = notices.Close() }()
	}
	w.follow(notices)
	regular := w.clock.NewTicker(regularly)
	defer regular.Stop()
	quiet := w.clock.NewTimer(quietFor) // the file may have changed before the watch began
	defer quiet.Stop()
	w.pending = w.clock.Now()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case _, ok := <-changes:
			if !ok {
				changes = nil
			}
			again = w.noticed(true)
		case err, ok := <-troubles:
			if !ok {
				troubles = nil
			}
			// Such as too many notices at once: some were lost.
			w.log.Debug("notices of changed files", "error", err)
			again = w.noticed(false)
		case <-regular.Chan():
			w.follow(notices)
			again = w.noticed(false)
		case <-quiet.Chan():
			if !w.reloaded() {
				quiet.Reset(quietFor)
			}
			w.follow(notices)
		}
		if again {
			quiet.Reset(w.wait())
		}
	}
}

// noticed looks whether the file is another one than at the last notice. Without
// trust in the notices the content has to be compared too: then a look is due
// whatever it is. It reports whether the quiet time begins anew.
func (w *watch) noticed(trust bool) bool {
	now := w.look()
	changed := !now.same(w.seen)
	w.seen = now
	if trust && !changed {
		return false
	}
	if !changed && !w.pending.IsZero() {
		return false
	}
	if w.pending.IsZero() {
		w.pending = w.clock.Now()
	}
	return true
}

// wait is how long the file must be left alone from now on, within patience.
func (w *watch) wait() time.Duration {
	return min(quietFor, max(0, w.pending.Add(patience).Sub(w.clock.Now())))
}

// reloaded has the file read, and reports whether the change is dealt with.
func (w *watch) reloaded() bool {
	before := w.look()
	impatient := !w.clock.Now().Before(w.pending.Add(patience))
	settled := before.same(w.seen) || impatient && before.replaced(w.read)
	w.seen = before
	done := settled && w.reload(func() ([]byte, error) {
		text, err := configs.Read(w.path)
		if !w.look().same(before) && !(impatient && before.replaced(w.read)) {
			return nil, errUnsettled
		}
		return text, err
	})
	if done {
		w.read, w.pending = before, time.Time{}
	}
	return done
}

// follow watches the folders in which the file and what it links to are. It is
// repeated: a folder may have been replaced, or another be linked to.
func (w *watch) follow(notices *fsnotify.Watcher) {
	if notices == nil {
		return
	}
	folders := []string{filepath.Dir(w.path)}
	if real := w.look().real; real != "" && filepath.Dir(real) != folders[0] {
		folders = append(folders, filepath.Dir(real))
	}
	for _, folder := range folders {
		// A folder that is away now is looked for again.
		_ = notices.Add(folder)
	}
}
