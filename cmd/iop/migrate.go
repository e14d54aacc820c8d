package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/config"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

func newConfigMigrate(stdout, stderr io.Writer) *cobra.Command {
	var file, output string
	c := &cobra.Command{
		Use:   "migrate -c FILE [-o FILE]",
		Short: "Write a configuration without its legacy keys",
		Long: `Write a configuration in its modern form: max_queue and queue_timeout_ms of
providers become those of provider_pool where it has none, and are removed. All
other lines, comments included, stay as they are, and the file means the same as
before. What was changed is told on stderr. Legacy values that differ are an
error that names every place. -o may name the file itself.`,
		Args: noArgs,
		RunE: operation(func(*cobra.Command, []string) error {
			if file == "" {
				return usagef("config migrate needs a file: -c FILE")
			}
			m, err := migrate(file)
			if err != nil {
				return err
			}
			if len(m.Changes) == 0 {
				m.Changes = []string{file + ": nothing to migrate"}
			}
			for _, change := range m.Changes {
				fmt.Fprintln(stderr, change)
			}
			if output != "" {
				return replaceFile(output, m.Text)
			}
			_, err = stdout.Write(m.Text)
			return err
		}),
	}
	registerFile(c, &file, "edge.yaml")
	c.Flags().StringVarP(&output, "output", "o", "", "the file to write, all at once; stdout when left out")
	return c
}

// migrate is the modern form of a file; a node's file has no other.
func migrate(file string) (config.Migration, error) {
	text, err := configs.ReadOnce(file)
	if err != nil {
		return config.Migration{}, err
	}
	if configs.KindOf(text) == configs.KindNode {
		_, err := nodeconfig.Parse(file, text)
		return config.Migration{Text: text}, err
	}
	return config.Migrate(file, text)
}

// replaceFile writes a file so that readers see the old text or the new one. A
// file that is there keeps its mode; a symbolic link keeps pointing to it. What
// is no regular file, such as /dev/stdout, is written to and never replaced.
func replaceFile(path string, text []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o644)
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: it is a folder; name the file in it", path)
	case err == nil && !info.Mode().IsRegular():
		return writeInto(path, text)
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: %w", path, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temporary.Name()))
	}
	return nil
}

// writeInto writes to a pipe or device.
func writeInto(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
