// Package durable replaces small files so that they are whole after a crash at any
// moment: what was there before, or what was written.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Write replaces a file and returns once it is on the disk. Only its owner may
// read it (0600). After an error the former file is there, whole; only if the folder
// alone could not be synced it may be the new one.
func Write(path string, text []byte) error {
	next := path + ".next"
	if err := writeWhole(next, text); err != nil {
		return errors.Join(err, remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return errors.Join(err, remove(next))
	}
	return syncDir(filepath.Dir(path))
}

func writeWhole(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(0o600) // what a crash has left may be of another mode
	if runtime.GOOS == "windows" || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	if err == nil {
		_, err = f.Write(text)
	}
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
