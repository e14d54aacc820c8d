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
	"strconv"
	"time"

	"github.com/iop-dev/iop/configs/durable"
)

const maxBytes = 64 << 20 // far above what the largest site can fill

// kind is one of the files of a state folder.
type kind struct {
	name    string
	format  string
	content string // key of what the file is about
	version int
	// without is what follows from a file that cannot be used, and again what to do
	// about it: parts of a sentence.
	without, again string
}

// envelope is what the files have in common. The checksum is that of the content
// as compact JSON, so that people may look at a file in any layout, but not change
// it.
type envelope struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	SHA256  string `json:"sha256"`
}

// UnusableError is a state file whose content cannot be used.
type UnusableError struct {
	File  string
	Why   string
	Aside string // where it has been put; empty if it has not

	kind kind
}

func (e *UnusableError) Error() string {
	text := fmt.Sprintf("state file %s: %s; %s", e.File, e.Why, e.kind.without)
	if e.Aside != "" {
		text += ". It is kept as " + e.Aside + ": " + e.kind.again + ", then delete it"
	}
	return text
}

// read returns the content of the file in a folder, and changes nothing. No file
// is no content.
func (k kind) read(dir string) (json.RawMessage, error) {
	path := filepath.Join(dir, k.name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("state file: %w", err)
	case !info.Mode().IsRegular():
		return nil, k.unusable(dir, "it is no regular file")
	case info.Size() > maxBytes:
		return nil, k.unusable(dir, "it is larger than any that an Edge writes")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	content, why := k.open(text)
	if why != "" {
		return nil, k.unusable(dir, why)
	}
	return content, nil
}

func (k kind) unusable(dir, why string) error {
	return &UnusableError{File: filepath.Join(dir, k.name), Why: why, kind: k}
}

// open returns the content of a file's text, or why it cannot be used.
func (k kind) open(text []byte) (content json.RawMessage, why string) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, damaged(err)
	}
	switch {
	case e.Format != k.format:
		return nil, fmt.Sprintf("it is damaged: its format is %q, not %q", e.Format, k.format)
	case e.Version > k.version:
		return nil, fmt.Sprintf("it has version %d, of a newer IOP; this one reads up to %d", e.Version, k.version)
	case e.Version != k.version:
		return nil, fmt.Sprintf("it is damaged: there is no version %d", e.Version)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, damaged(err)
	}
	content = parts[k.content]
	if sum, err := checksum(content); err != nil || sum != e.SHA256 {
		return nil, "it is damaged: its checksum does not match"
	}
	return content, ""
}

func damaged(err error) string { return "it is damaged (" + err.Error() + ")" }

// seal is the text of a file with this content.
func (k kind) seal(content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	sum, err := checksum(raw)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(envelope{Format: k.format, Version: k.version, SHA256: sum})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	whole := fmt.Appendf(nil, "%s,%q:%s}", head[:len(head)-1], k.content, raw)
	err = json.Indent(&out, whole, "", "  ")
	return append(out.Bytes(), '\n'), err
}

func checksum(content []byte) (string, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, content); err != nil {
		return "", err
	}
	sum := sha256.Sum256(compact.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// file is one file of a state folder that an Edge writes.
type file struct {
	kind
	dir string // empty = nothing is kept
	// foreign is a file that could not be read and not be set aside: it must not
	// be written over.
	foreign bool
}

// take sets the file aside because of err, if that is about its content, and
// returns what is to be told.
func (f *file) take(err error, now time.Time) error {
	var unusable *UnusableError
	if !errors.As(err, &unusable) {
		f.foreign = true
		return err
	}
	unusable.Aside, err = f.setAside(now)
	f.foreign = err != nil
	return errors.Join(unusable, err)
}

// setAside renames the file and returns its new name.
func (f *file) setAside(now time.Time) (string, error) {
	path := filepath.Join(f.dir, f.name)
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

// write replaces the content, all or nothing: after a crash at any moment the
// former file or this one is there, whole.
func (f *file) write(content any, now time.Time) error {
	if f.foreign {
		if _, err := f.setAside(now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("state file that cannot be read: %w", err)
		}
		f.foreign = false
	}
	text, err := f.seal(content)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	if err := durable.Write(filepath.Join(f.dir, f.name), text); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}
