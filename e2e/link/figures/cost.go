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
const settle = 2 * time.Second

// slope raises a size in steps up to most and returns the bytes of memory for
// one more, by least squares.
func slope(ctx context.Context, g grower, of *link.Process, most int) (bytes float64, err error) {
	const steps = 5
	var n, sumX, sumY, sumXX, sumXY float64
	for i := 1; i <= steps; i++ {
		size := most * i / steps
		if err := g.Grow(size); err != nil {
			return 0, err
		}
		if err := pause(ctx, settle); err != nil {
			return 0, err
		}
		resident, err := of.Resident()
		if err != nil {
			return 0, err
		}
		x, y := float64(size), float64(resident)
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX), nil
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
		size, err := slope(ctx, fleet, fleet.Site.Edge, p.nodes)
		err = errors.Join(err, fleet.Err())
		fleet.Close()
		if err != nil {
			return nil, err
		}
		f.value = fmt.Sprintf("%.0f KiB (slope over %d, 4 parked streams each)", size/kib, p.nodes)
		figures = append(figures, f)
	}
	return figures, nil
}

func streamMemory(ctx context.Context, p plan) (figures []figure, err error) {
	for _, collector := range collectors {
		edge, err := link.NewParkedAtEdge(p.binary, collector.env)
		if err != nil {
			return nil, err
		}
		atEdge, err := slope(ctx, edge, edge.Site.Edge, p.streams)
		edge.Close()
		if err != nil {
			return nil, err
		}
		node, err := link.NewParkedAtNode(p.binary, collector.env)
		if err != nil {
			return nil, err
		}
		atNode, err := slope(ctx, node, node.Node, p.streams)
		node.Close()
		if err != nil {
			return nil, err
		}
		f := figure{
			what:  "memory of a parked work stream, Edge + Node, " + collector.name,
			value: fmt.Sprintf("%.1f + %.1f = %.1f KiB (slope over %d)", atEdge/kib, atNode/kib, (atEdge+atNode)/kib, p.streams),
		}
		if collector.env == collectors[0].env {
			f.goal, f.missed = "16 + 32 KiB", atEdge > 16*kib || atNode > 32*kib
		}
		figures = append(figures, f)
	}
	return figures, nil
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
	each := float64(with-alone) / float64(p.nodes) * float64(time.Minute)/float64(period)
	return []figure{{
		what: "Edge CPU of an idle connected node, a minute (heartbeats of 5s)",
		value: fmt.Sprintf("%.1f ms (%.2f %% of a core for %d nodes)",
			each/float64(time.Millisecond), 100*float64(with)/float64(period), p.nodes),
	}}, nil
}
