package e2e

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/edge/events/eventstest"
)

// stuckEdge, in the environment, makes the test binary an Edge process whose event
// bus is saturated for good: the product has no switch for that, and needs none.
// It is put together from cmd/edged as cmd/iop does it.
const stuckEdge = "IOP_E2E_STUCK_EDGE"

// runStuckEdge runs such an Edge to its end, and returns its exit code.
func runStuckEdge(file string) int {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	edge, err := edged.New(edged.Options{ConfigPath: file, Logger: log, Version: "stuck"})
	if err != nil {
		log.Error("no edge", "error", err)
		return 1
	}
	eventstest.Saturate(edge.Events())
	log.Info("the event bus is saturated for good", "dropped", edge.Events().Dropped())
	ended := make(chan error, 1)
	go func() { ended <- edge.Run(ctx) }()
	for {
		select {
		case <-hangups:
			if _, err := edge.Reload(); err != nil {
				log.Error("configuration not reloaded", "error", err)
				continue
			}
			log.Info("configuration reloaded")
		case err := <-ended:
			if err != nil {
				log.Error("the edge failed", "error", err)
				return 1
			}
			return 0
		}
	}
}
