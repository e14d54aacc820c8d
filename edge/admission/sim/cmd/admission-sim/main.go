// Command admission-sim simulates the admission core with everything that can go
// wrong around it, and exits 1 with the seed, the step and the last commands when
// an invariant is violated. `make sim` builds and runs it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/iop-dev/iop/edge/admission/sim"
)

// proven bounds the steps that are run four times, for the invariants that
// compare whole runs.
const proven = 200_000

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "admission-sim:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("admission-sim", flag.ContinueOnError)
	var o sim.Options
	flags.Uint64Var(&o.Seed, "seed", 0, "of the random numbers; 0 = from the time")
	flags.IntVar(&o.Steps, "steps", 2_000_000, "least number of steps")
	flags.IntVar(&o.Episode, "episode", 0, "run this episode alone")
	flags.IntVar(&o.Tail, "tail", 0, "commands and effects to show with a violation; 0 = 48")
	flags.Float64Var(&o.DropEvents, "drop", 0.5, "share of events dropped")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Episodes leave much behind and little of it lives.
	debug.SetGCPercent(800)
	start := time.Now() //nolint:forbidigo // the rate is one of real seconds; the simulation's time is its own
	if o.Seed == 0 {
		o.Seed = uint64(start.UnixNano())
	}
	fmt.Fprintf(out, "seed %d, %d steps\n", o.Seed, o.Steps)
	result, err := sim.Run(o)
	took := time.Since(start) //nolint:forbidigo // see above
	fmt.Fprintf(out, "%s%.0f steps/s, %s\n", result, float64(result.Steps)/took.Seconds(), took.Round(time.Millisecond))
	if err != nil {
		return err
	}
	o.Steps = min(o.Steps, proven)
	if err := sim.Prove(o); err != nil {
		return err
	}
	fmt.Fprintf(out, "0 violations; the first %d steps gave the same trace again, and with events dropped at 0, 50 and 100 %%\n", o.Steps)
	return nil
}
