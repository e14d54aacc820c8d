//go:build !windows

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"text/tabwriter"
)

// plan is what to measure, and how often.
type plan struct {
	binary  string
	repeats int
	rounds  int // of the stalled consumers
	stalled int // clients that do not read
	nodes   int // idle ones
	streams int // parked ones
	seconds int // of an honest stream, and of the CPU figure × 3
}

func main() {
	var p plan
	var only string
	flag.StringVar(&p.binary, "iop", "bin/iop", "the binary to measure")
	flag.StringVar(&only, "only", "", "measure only the parts whose name matches")
	flag.IntVar(&p.repeats, "repeats", 100, "kills and reconnects; blackholes are a fifth")
	flag.IntVar(&p.rounds, "rounds", 4, "honest streams with stalled consumers, and as many without")
	flag.IntVar(&p.stalled, "stalled", 200, "stalled consumers")
	flag.IntVar(&p.nodes, "nodes", 200, "idle nodes")
	flag.IntVar(&p.streams, "streams", 1000, "parked work streams")
	flag.IntVar(&p.seconds, "seconds", 20, "length of an honest stream; idle CPU is read for three times as long")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, p, only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figure is one row of the table.
type figure struct {
	what, value string
	goal        string // "" = none is set
	missed      bool
}

// part measures some figures that belong together.
type part struct {
	name string
	run  func(context.Context, plan) ([]figure, error)
}

var parts = []part{
	{"kill", kills},
	{"blackhole", blackholes},
	{"reconnect", reconnects},
	{"stalled", stalls},
	{"node-memory", nodeMemory},
	{"stream-memory", streamMemory},
	{"idle-cpu", idleCPU},
}

func measure(ctx context.Context, p plan, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tMEASURED\tGOAL\t")
	var failures []error
	for _, part := range parts {
		if !wanted.MatchString(part.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s … (load %s)\n", part.name, load())
		figures, err := part.run(ctx, p)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", part.name, err))
		}
		for _, f := range figures {
			verdict := ""
			switch {
			case f.goal == "":
			case f.missed:
				verdict = "missed"
			default:
				verdict = "met"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.what, f.value, f.goal, verdict)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		failures = append(failures, errors.New("interrupted"))
	}
	return errors.Join(failures...)
}

// load is the machine's load average over one minute, as far as it tells.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
