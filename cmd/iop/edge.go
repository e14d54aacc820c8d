package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/config"
)

func newEdge(logs *logFlags, stderr io.Writer) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "edge -c edge.yaml",
		Short: "Run an Edge",
		Long: `Run an Edge: the OpenAI-compatible API, admission and the node link.

A changed file is read again by itself, and at SIGHUP or "iop config reload": a
good one takes effect at once, a bad one changes nothing. SIGINT and SIGTERM stop
it in order; a second one stops it at once.`,
		Args: noArgs,
		RunE: operation(func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("edge needs its configuration: -c edge.yaml")
			}
			log, err := logs.logger(stderr, slog.LevelInfo)
			if err != nil {
				return err
			}
			snapshot, err := config.Load(file)
			if err != nil {
				return refused(err)
			}
			if problems := snapshot.CheckFiles().All(); len(problems) > 0 {
				return refused(problems)
			}
			edge, err := edged.New(edged.Options{
				ConfigPath: file, Snapshot: snapshot, Watch: true, Logger: log, Version: currentVersion().Version,
			})
			if err != nil {
				return err
			}
			hangups, ignore := onHangup()
			defer ignore()
			return runWithReload(c.Context(), edge, hangups)
		}),
	}
	registerFile(c, &file, "edge.yaml")
	return c
}

// runWithReload runs an Edge and refreshes it at each hangup until it ends.
func runWithReload(ctx context.Context, edge *edged.Edge, hangups <-chan os.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- edge.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-hangups:
			_, _ = edge.Reload() // it tells the log what became of it
		}
	}
}

// refused is the error of a local configuration that cannot be used.
func refused(err error) error {
	var problems configs.Problems
	if errors.As(err, &problems) {
		err = &problemsError{problems}
	}
	return &exitError{exitRefused, err}
}

// problemsError heads the list of what is wrong with a file.
type problemsError struct{ configs.Problems }

func (e *problemsError) Error() string {
	return "the configuration is refused:\n" + e.Problems.Error()
}

// registerFile adds -c.
func registerFile(c *cobra.Command, file *string, name string) {
	c.Flags().StringVarP(file, "config", "c", "", "the configuration, such as "+name)
}
