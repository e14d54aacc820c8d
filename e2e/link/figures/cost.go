//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/iop-dev/iop/e2e/link"
)

// Memory is measured twice: as a process is run, where garbage that is not yet
// collected counts; and with a collector that leaves none, which is what the
// state itself needs.
var collectors = []struct{ name, env string }{
	{"state only", "GOGC=5"},
	{"as run", "GOGC=100"},
}

// grower is something whose size can be raised.
type grower interface{ Grow(int) error }

// settle is how long a process is left alone before its memory is read.
const settle = 5 * time.Second

// slopes raises a size in steps up to most, and returns for each process the
// bytes of memory that one more takes, by least squares.
func slopes(ctx context.Context, g grower, most int, of ...*link.Process) ([]float64, error) {
	const steps = 5
	sizes, resident := make([]float64, steps), make([][]float64, len(of))
	for i := range sizes {
		size := most * (i + 1) / steps
		if err := g.Grow(size); err != nil {
			return nil, err
		}
		if err := pause(ctx, settle); err != nil {
			return nil, err
		}
		sizes[i] = float64(size)
		for j, process := range of {
			bytes, err := process.Resident()
			if err != nil {
				return nil, err
			}
			resident[j] = append(resident[j], float64(bytes))
		}
	}
	results := make([]float64, len(of))
	for j := range of {
		results[j] = slope(sizes, resident[j])
	}
	return results, nil
}

// slope is that of the line through (x, y), by least squares.
func slope(x, y []float64) float64 {
	var n, sumX, sumY, sumXX, sumXY float64
	for i := range x {
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x[i], sumY+y[i], sumXX+x[i]*x[i], sumXY+x[i]*y[i]
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
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

const kib = 1 << 10

func nodeMemory(ctx context.Context, p plan) (figures []figure, err error) {
	for _, collector := range collectors {
		f := figure{what: "Edge memory of an idle connected node, " + collector.name}
		fleet, err := link.NewFleet(p.binary, p.nodes, link.Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second}, collector.env)
		if err != nil {
			return nil, err
		}
		size, err := slopes(ctx, fleet, p.nodes, fleet.Site.Edge)
		err = errors.Join(err, fleet.Err())
		fleet.Close()
		if err != nil {
			return nil, err
		}
		f.value = fmt.Sprintf("%.0f KiB (slope over %d, 4 parked streams each)", size[0]/kib, p.nodes)
		figures = append(figures, f)
	}
	return figures, nil
}

func streamMemory(ctx context.Context, p plan) (figures []figure, err error) {
	value := func(sizes []float64) string {
		return fmt.Sprintf("%.1f + %.1f = %.1f KiB (slope over %d)", sizes[0]/kib, sizes[1]/kib, (sizes[0]+sizes[1])/kib, p.streams)
	}
	for i, collector := range collectors {
		sizes, err := freshStreams(ctx, p, collector.env)
		if err != nil {
			return nil, err
		}
		f := figure{what: "memory of a parked work stream, Edge + Node, " + collector.name, value: value(sizes)}
		if i == 0 {
			f.goal, f.missed = "16 + 32 KiB", sizes[0] > 16*kib || sizes[1] > 32*kib
		}
		figures = append(figures, f)
	}
	sizes, err := afterPeak(ctx, p)
	if err != nil {
		return nil, err
	}
	return append(figures, figure{
		what: "what a peak of requests leaves resident for each, Edge + Node, as run", value: value(sizes),
	}), nil
}

// freshStreams measures streams that were opened and parked, each end against a
// bare one in this process.
func freshStreams(ctx context.Context, p plan, env string) ([]float64, error) {
	edge, err := link.NewParkedAtEdge(p.binary, env)
	if err != nil {
		return nil, err
	}
	atEdge, err := slopes(ctx, edge, p.streams, edge.Site.Edge)
	edge.Close()
	if err != nil {
		return nil, err
	}
	node, err := link.NewParkedAtNode(p.binary, env)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	atNode, err := slopes(ctx, node, p.streams, node.Node)
	return append(atEdge, atNode...), err
}

// afterPeak measures processes after many requests at once: their parked
// streams, and whatever else the runtime has not given back to the system.
func afterPeak(ctx context.Context, p plan) ([]float64, error) {
	used, err := link.NewUsed(p.binary, p.streams)
	if err != nil {
		return nil, err
	}
	defer used.Close()
	return slopes(ctx, used, p.streams, used.Site.Edge, used.Node)
}

func idleCPU(ctx context.Context, p plan) ([]figure, error) {
	fleet, err := link.NewFleet(p.binary, p.nodes, link.Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second})
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	period := 3 * time.Duration(p.seconds) * time.Second
	used := func() (time.Duration, error) {
		if err := pause(ctx, settle); err != nil {
			return 0, err
		}
		before, err := fleet.Site.Edge.CPU()
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, period); err != nil {
			return 0, err
		}
		after, err := fleet.Site.Edge.CPU()
		return after - before, errors.Join(err, fleet.Err())
	}
	alone, err := used()
	if err != nil {
		return nil, err
	}
	if err := fleet.Grow(p.nodes); err != nil {
		return nil, err
	}
	with, err := used()
	if err != nil {
		return nil, err
	}
	each := float64(with-alone) / float64(p.nodes) * float64(time.Minute) / float64(period)
	return []figure{{
		what: "Edge CPU of an idle connected node, a minute (heartbeats of 5s)",
		value: fmt.Sprintf("%.1f ms (%.2f %% of a core for %d nodes)",
			each/float64(time.Millisecond), 100*float64(with)/float64(period), p.nodes),
	}}, nil
}
