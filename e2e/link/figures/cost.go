//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
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

func (p plan) nodeMemory(ctx context.Context) (figures []figure.Row, err error) {
	for _, collector := range collectors {
		f := figure.Row{What: "Edge memory of an idle connected node, " + collector.name}
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
		f.Value = fmt.Sprintf("%.0f KiB (slope over %d, 4 parked streams each)", size[0]/kib, p.nodes)
		figures = append(figures, f)
	}
	return figures, nil
}

func (p plan) streamMemory(ctx context.Context) (figures []figure.Row, err error) {
	value := func(sizes []float64) string {
		return fmt.Sprintf("%.1f + %.1f = %.1f KiB (slope over %d)", sizes[0]/kib, sizes[1]/kib, (sizes[0]+sizes[1])/kib, p.streams)
	}
	for i, collector := range collectors {
		sizes, err := p.freshStreams(ctx, collector.env)
		if err != nil {
			return nil, err
		}
		f := figure.Row{What: "memory of a parked work stream, Edge + Node, " + collector.name, Value: value(sizes)}
		if i == 0 {
			f.Goal, f.Missed = "16 + 32 KiB", sizes[0] > 16*kib || sizes[1] > 32*kib
		}
		figures = append(figures, f)
	}
	sizes, err := p.afterPeak(ctx)
	if err != nil {
		return nil, err
	}
	return append(figures, figure.Row{
		What: "what a peak of requests leaves resident for each, Edge + Node, as run", Value: value(sizes),
	}), nil
}

// freshStreams measures streams that were opened and parked, each end against a
// bare one in this process.
func (p plan) freshStreams(ctx context.Context, env string) ([]float64, error) {
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
func (p plan) afterPeak(ctx context.Context) ([]float64, error) {
	used, err := link.NewUsed(p.binary, p.streams)
	if err != nil {
		return nil, err
	}
	defer used.Close()
	return slopes(ctx, used, p.streams, used.Site.Edge, used.Node)
}

func (p plan) idleCPU(ctx context.Context) ([]figure.Row, error) {
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
	return []figure.Row{{
		What: "Edge CPU of an idle connected node, a minute (heartbeats of 5s)",
		Value: fmt.Sprintf("%.1f ms (%.2f %% of a core for %d nodes)",
			each/float64(time.Millisecond), 100*float64(with)/float64(period), p.nodes),
	}}, nil
}
