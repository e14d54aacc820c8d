package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/noded"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

func newNode(logs *logFlags, stdout, stderr io.Writer) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "node -c node.yaml",
		Short: "Run a Node",
		Long: `Run a Node: it dials its Edge, registers, and runs what the Edge sends against
the inference servers on this machine.

SIGINT, SIGTERM and the close of its terminal stop it in order: running work is
finished first; a second signal stops it at once. Exit code 3: the finite number of attempts to reach the
Edge has failed. 4: the Edge refused the token, or the configuration is bad.`,
		Args: noArgs,
		RunE: operation(func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("node needs its configuration: -c node.yaml")
			}
			log, err := logs.logger(stderr, slog.LevelInfo)
			if err != nil {
				return err
			}
			config, err := nodeconfig.Load(file)
			if err != nil {
				return refused(err)
			}
			if problems := config.CheckFiles().All(); len(problems) > 0 {
				return refused(problems)
			}
			ctx, release := untilHangup(c.Context())
			defer release()
			return noded.Run(ctx, noded.Options{
				Config: config, Logger: log, Version: currentVersion().Version,
			})
		}),
	}
	registerFile(c, &file, "node.yaml")
	c.AddCommand(newNodeOverrides(stdout, stderr)...)
	c.AddCommand(newNodeToken(stdout, stderr))
	return c
}
