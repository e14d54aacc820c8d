package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
)

const (
	fileName = "overrides.json"
	format   = "iop-edge-overrides"
	version  = 1
	maxBytes = 64 << 20 // far above what the largest site can fill
)

// ErrNoDir says that nothing outlasts a restart, as nobody has said where.
var ErrNoDir = errors.New("edge.state_dir is not set: overrides last until the Edge restarts")

// file is overrides.json. The checksum is that of the overrides as compact JSON,
// so that people may look at the file in any layout, but not change it.
type file struct {
	Format    string          `json:"format"`
	Version   int             `json:"version"`
	SHA256    string          `json:"sha256"`
	Overrides json.RawMessage `json:"overrides"`
}

// Store is the folder of one running Edge. It is not safe for concurrent use.
type Store struct {
	dir string
	// holds is whether the file has overrides that would stand again after a restart.
	holds bool
	// foreign is a file that could not be read and not be set aside: it must not
	// be written over.
	foreign bool
}

// Open reads what stood when the Edge ended. A folder that cannot be used is
// never a reason not to start: err tells of it, and the store serves all the
// same. A file that cannot be used is set aside under another name. An empty dir
// is a store that keeps nothing.
func Open(dir string, now time.Time) (*Store, Overrides, error) {
	s := &Store{dir: dir}
	if dir == "" {
		return s, nil, nil
	}
	all, err := Read(dir)
	if err == nil {
		s.holds = len(all) > 0
		return s, all, nil
	}
	var unusable *UnusableError
	if !errors.As(err, &unusable) {
		s.foreign = true
		return s, nil, err
	}
	unusable.Aside, err = s.setAside(now)
	s.foreign = err != nil
	return s, nil, errors.Join(unusable, err)
}

// UnusableError is a state file whose content cannot be used.
type UnusableError struct {
	File  string
	Why   string
	Aside string // where it has been put; empty if it has not
}

func (e *UnusableError) Error() string {
	text := fmt.Sprintf("state file %s: %s; no override is in force", e.File, e.Why)
	if e.Aside != "" {
		text += ". It is kept as " + e.Aside + ": set the overrides again, then delete it"
	}
	return text
}

// Read returns the overrides that a folder holds and changes nothing: for those
// who look at an Edge that runs. No file means no overrides.
func Read(dir string) (Overrides, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("state file: %w", err)
	case !info.Mode().IsRegular():
		return nil, &UnusableError{File: path, Why: "it is no regular file"}
	case info.Size() > maxBytes:
		return nil, &UnusableError{File: path, Why: "it is larger than any that an Edge writes"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	all, why := parse(text)
	if why != "" {
		return nil, &UnusableError{File: path, Why: why}
	}
	return all, nil
}

// parse returns the overrides of a file's text, or why it cannot be used.
func parse(text []byte) (all Overrides, why string) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, "it is damaged (" + err.Error() + ")"
	}
	switch {
	case f.Format != format:
		return nil, fmt.Sprintf("it is damaged: its format is %q, not %q", f.Format, format)
	case f.Version > version:
		return nil, fmt.Sprintf("it has version %d, of a newer IOP; this one reads up to %d", f.Version, version)
	case f.Version != version:
		return nil, fmt.Sprintf("it is damaged: there is no version %d", f.Version)
	}
	sum, err := checksum(f.Overrides)
	if err != nil || sum != f.SHA256 {
		return nil, "it is damaged: its checksum does not match"
	}
	if err := json.Unmarshal(f.Overrides, &all); err != nil {
		return nil, "it is damaged (" + err.Error() + ")"
	}
	for _, o := range all {
		if o.Node == "" || o.Mode != Enabled && o.Mode != Disabled && o.Mode != Draining {
			return nil, fmt.Sprintf("it is damaged: override of %q with mode %q", o.Subject(), o.Mode)
		}
	}
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, func(a, b Override) bool { return compare(a, b) == 0 }), ""
}

func checksum(overrides []byte) (string, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, overrides); err != nil {
		return "", err
	}
	sum := sha256.Sum256(compact.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// setAside renames the file and returns its new name.
func (s *Store) setAside(now time.Time) (string, error) {
	path := filepath.Join(s.dir, fileName)
	first := path + ".unusable-" + now.UTC().Format("20060102T150405Z")
	aside := first
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); err != nil {
			break // the name is free, or the rename below says what is wrong
		}
		aside = first + "-" + strconv.Itoa(n)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set it aside: %w", err)
	}
	return aside, nil
}

// Save writes the overrides, all or nothing: after a crash at any moment the
// former file or this one is there, whole. An error is why they would not
// outlast a restart, or why those of the former file would come back with one.
func (s *Store) Save(all Overrides, now time.Time) error {
	switch {
	case len(all) == 0 && !s.holds:
		return nil
	case s.dir == "":
		return ErrNoDir
	}
	if s.foreign {
		if _, err := s.setAside(now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("state file that cannot be read: %w", err)
		}
		s.foreign = false
	}
	text, err := marshal(all)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	path := filepath.Join(s.dir, fileName)
	next := path + ".next"
	if err := writeWhole(next, text); err != nil {
		return fmt.Errorf("state file: %w", errors.Join(err, remove(next)))
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	s.holds = len(all) > 0
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

func marshal(all Overrides) ([]byte, error) {
	if all == nil {
		all = Overrides{}
	}
	list, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	sum, err := checksum(list)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(file{Format: format, Version: version, SHA256: sum, Overrides: list}, "", "  ")
	return append(text, '\n'), err
}

// writeWhole writes a file and returns once it is on the disk.
func writeWhole(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove takes away what a failed write has left; there may be nothing.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes a rename outlast a power cut. Windows cannot open folders, and
// journals renames.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
