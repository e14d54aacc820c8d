//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
	"github.com/iop-dev/iop/e2e/link"
	"github.com/iop-dev/iop/e2e/load"
)

// rest is what a process holds when nothing happens.
type rest struct {
	files    int
	resident int64
}

// leave compares what processes hold after many clients have left with what they
// held after a few had; goroutines, which can be counted once only, with those of
// a second pair that saw the few.
func (p plan) leave(ctx context.Context) ([]figure.Row, error) {
	few, err := p.pair(ctx, 0)
	if err != nil {
		return nil, err
	}
	many, err := p.pair(ctx, p.cancels)
	if err != nil {
		return nil, err
	}
	var rows []figure.Row
	for i, name := range []string{"Edge", "Node"} {
		before, after := many.before[i], many.after[i]
		rows = append(rows,
			figure.Row{What: fmt.Sprintf("%s: files before and after %d clients have left", name, p.cancels),
				Value: fmt.Sprintf("%d → %d", before.files, after.files), Goal: "no more", Missed: after.files > before.files},
			figure.Row{What: name + ": goroutines", Value: fmt.Sprintf("%d → %d", few.goroutines[i], many.goroutines[i]),
				Goal: "no more", Missed: many.goroutines[i] > few.goroutines[i]},
			figure.Row{What: name + ": resident memory", Value: fmt.Sprintf("%.1f → %.1f MiB", mib(before.resident), mib(after.resident)),
				Goal: "+ ≤ 10 %", Missed: float64(after.resident) > 1.1*float64(before.resident)})
	}
	for i := range rows {
		if rows[i].Missed && !strings.Contains(rows[i].What, "memory") {
			err = errors.Join(err, fmt.Errorf("%s: %s; the goroutines: %s, before: %s", rows[i].What, rows[i].Value, many.by, few.by))
		}
	}
	return rows, err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// held is what an Edge and a Node held.
type held struct {
	before, after []rest
	goroutines    []int
	by            []string // goroutines by the function that began them
}

// warmUp is how many batches come before the first look: with them the pools,
// connections and stacks have their size.
const warmUp = 20

func (p plan) pair(ctx context.Context, cancels int) (*held, error) {
	servers := load.NewServers()
	defer servers.Close()
	site, err := link.StartSite(p.binary, servers.Setup(p.batch))
	if err != nil {
		return nil, err
	}
	defer site.Close()
	node, err := site.StartNode("a", site.URL())
	if err != nil {
		return nil, err
	}
	processes := []*link.Process{site.Edge, node}
	if err := letLeave(ctx, site, servers, warmUp*p.batch, p.batch); err != nil {
		return nil, err
	}
	h := new(held)
	if h.before, err = atRest(ctx, processes); err != nil {
		return nil, err
	}
	if cancels > 0 {
		if err := letLeave(ctx, site, servers, cancels, p.batch); err != nil {
			return nil, err
		}
		if h.after, err = atRest(ctx, processes); err != nil {
			return nil, err
		}
	}
	// The Node first: without an Edge it would begin to dial.
	h.goroutines, h.by = make([]int, len(processes)), make([]string, len(processes))
	for i, process := range slices.Backward(processes) {
		if process == site.Edge {
			err := site.Until("the Node is gone", link.Connected("a", false))
			site.Client.CloseIdleConnections()
			if err := errors.Join(err, pause(ctx, time.Second)); err != nil { // until the Edge has noticed both
				return nil, err
			}
		}
		total, by, err := process.Goroutines()
		if err != nil {
			return nil, err
		}
		h.goroutines[i] = total
		for _, begun := range slices.Sorted(maps.Keys(by)) {
			h.by[i] += fmt.Sprintf("%d × %s, ", by[begun], begun)
		}
	}
	return h, nil
}

func letLeave(ctx context.Context, site *link.Site, servers *load.Servers, n, batch int) error {
	cancels := load.NewCancels(site, servers)
	defer cancels.Close()
	return cancels.Leave(ctx, n, batch)
}

// atRest lets the idle go: the client's connections are closed, a node's spare
// streams end by halves at each heartbeat, and the collector and the return of
// memory to the system take their time.
func atRest(ctx context.Context, processes []*link.Process) ([]rest, error) {
	const settle = 20 * time.Second
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	var all []rest
	for _, process := range processes {
		files, err := process.Files()
		if err != nil {
			return nil, err
		}
		resident, err := process.Resident()
		if err != nil {
			return nil, err
		}
		all = append(all, rest{files: files, resident: resident})
	}
	return all, nil
}
