//go:build !windows

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/iop-dev/iop/e2e/figure"
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
	parts := []figure.Part{
		{Name: "kill", Measure: p.kills},
		{Name: "blackhole", Measure: p.blackholes},
		{Name: "reconnect", Measure: p.reconnects},
		{Name: "stalled", Measure: p.stalls},
		{Name: "node-memory", Measure: p.nodeMemory},
		{Name: "stream-memory", Measure: p.streamMemory},
		{Name: "idle-cpu", Measure: p.idleCPU},
	}
	if err := figure.Print(ctx, parts, only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
