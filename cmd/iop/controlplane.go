package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/controlplaned"
	fleetconfig "github.com/iop-dev/iop/fleet/config"
)

func newControlPlane(logs *logFlags, stderr io.Writer) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "controlplane -c controlplane.yaml",
		Short: "Run a Control Plane",
		Long: `Run a Control Plane: it reads many Edges, shows them together on one dashboard
and over one API, and keeps their last 24 hours. It changes nothing at them.

The configuration is read once: restart it after a change, which costs one pull of
each Edge. SIGINT and SIGTERM stop it at once.`,
		Args: noArgs,
		RunE: operation(func(c *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("controlplane needs its configuration: -c controlplane.yaml")
			}
			log, err := logs.logger(stderr, slog.LevelInfo)
			if err != nil {
				return err
			}
			config, err := fleetconfig.Load(file)
			if err != nil {
				return refused(err)
			}
			if problems := config.CheckFiles().All(); len(problems) > 0 {
				return refused(problems)
			}
			plane, err := controlplaned.New(controlplaned.Options{Config: config, Logger: log, Version: currentVersion().Version})
			if err != nil {
				return err
			}
			hangups, ignore := onHangup()
			defer ignore()
			return runUnmoved(c.Context(), plane, hangups, log)
		}),
	}
	registerFile(c, &file, "controlplane.yaml")
	return c
}

// runUnmoved runs a Control Plane, which a hangup neither ends nor makes read its
// file again.
func runUnmoved(ctx context.Context, plane *controlplaned.ControlPlane, hangups <-chan os.Signal, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- plane.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-hangups:
			log.Warn("a Control Plane reads its configuration at the start only: restart it")
		}
	}
}
