package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

const fileName = "overrides.json"

var overridesFile = kind{
	name: fileName, format: "iop-edge-overrides", content: "overrides", version: 1,
	without: "no override is in force", again: "set the overrides again",
}

// ErrNoDir says that nothing outlasts a restart, as nobody has said where.
var ErrNoDir = errors.New("edge.state_dir is not set: overrides last until the Edge restarts")

// Store keeps the overrides of one running Edge. It is not safe for concurrent use.
type Store struct {
	file file
	// holds is whether the file has overrides that would stand again after a restart.
	holds bool
}

// Open reads what stood when the Edge ended. A folder that cannot be used is
// never a reason not to start: err tells of it, and the store serves all the
// same. A file that cannot be used is set aside under another name. An empty dir
// is a store that keeps nothing.
func Open(dir string, now time.Time) (*Store, Overrides, error) {
	s := &Store{file: file{kind: overridesFile, dir: dir}}
	if dir == "" {
		return s, nil, nil
	}
	all, err := Read(dir)
	if err != nil {
		return s, nil, s.file.take(err, now)
	}
	s.holds = len(all) > 0
	return s, all, nil
}

// Read returns the overrides that a folder holds and changes nothing: for those
// who look at an Edge that runs. No file means no overrides.
func Read(dir string) (Overrides, error) {
	content, err := overridesFile.read(dir)
	if content == nil || err != nil {
		return nil, err
	}
	all, why := parse(content)
	if why != "" {
		return nil, overridesFile.unusable(dir, why)
	}
	return all, nil
}

// parse returns the overrides of a file's content, or why it cannot be used.
func parse(content []byte) (all Overrides, why string) {
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, damaged(err)
	}
	for _, o := range all {
		if o.Node == "" || o.Mode != Enabled && o.Mode != Disabled && o.Mode != Draining {
			return nil, fmt.Sprintf("it is damaged: override of %q with mode %q", o.Subject(), o.Mode)
		}
	}
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, func(a, b Override) bool { return compare(a, b) == 0 }), ""
}

// Save writes the overrides, all or nothing: after a crash at any moment the
// former file or this one is there, whole. An error is why they would not
// outlast a restart, or why those of the former file would come back with one.
func (s *Store) Save(all Overrides, now time.Time) error {
	switch {
	case len(all) == 0 && !s.holds:
		return nil
	case s.file.dir == "":
		return ErrNoDir
	case all == nil:
		all = Overrides{}
	}
	if err := s.file.write(all, now); err != nil {
		return err
	}
	s.holds = len(all) > 0
	return nil
}
