//go:build !windows

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
)

// plan is how much of everything.
type plan struct {
	binary  string
	running int
	waiting int
	rounds  int
	slice   time.Duration
	cancels int
	batch   int

	watching int
	stuck    int
}

func main() {
	var p plan
	var only string
	flag.StringVar(&p.binary, "iop", "bin/iop", "the binary to measure")
	flag.StringVar(&only, "only", "", "measure only the parts whose name matches")
	flag.IntVar(&p.running, "running", 1000, "streams at once")
	flag.IntVar(&p.waiting, "waiting", 5000, "requests that wait behind them")
	flag.IntVar(&p.rounds, "rounds", 3, "slices straight at the provider, and as many through Edge and Node, in turn")
	flag.DurationVar(&p.slice, "slice", 20*time.Second, "length of a slice")
	flag.IntVar(&p.cancels, "cancels", 10_000, "clients that leave")
	flag.IntVar(&p.batch, "batch", 200, "clients that leave at once")
	flag.IntVar(&p.watching, "watching", 90, "watchers of the Edge's state that read")
	flag.IntVar(&p.stuck, "stuck", 10, "watchers that do not")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	parts := []figure.Part{{Name: "streams", Measure: p.streams}, {Name: "cancels", Measure: p.leave}, {Name: "watchers", Measure: p.watchers}}
	if err := figure.Print(ctx, parts, only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
