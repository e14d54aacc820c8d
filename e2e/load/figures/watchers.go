//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
	"github.com/iop-dev/iop/e2e/link"
	"github.com/iop-dev/iop/e2e/load"
)

const (
	every  = 5 * time.Millisecond // a request begins, whatever became of those before
	atOnce = 1000                 // slots: nobody waits for another's answer
)

// watchers compares how long short requests take with nobody watching the Edge's
// state and with many who do, some of them stuck, in turn.
func (p plan) watchers(ctx context.Context) ([]figure.Row, error) {
	provider := link.NewProvider()
	defer provider.Close()
	site, err := link.StartSite(p.binary, load.WatchedSetup(provider, atOnce))
	if err != nil {
		return nil, err
	}
	defer site.Close()
	if _, err := site.StartNode("a", site.URL()); err != nil {
		return nil, err
	}
	if _, err := p.steady(ctx, site); err != nil { // warm
		return nil, err
	}
	var alone, watched, aloneTails, watchedTails []time.Duration
	var updates int64
	edge := cost{name: "Edge", process: site.Edge}
	for range p.rounds {
		took, err := p.steady(ctx, site)
		if err != nil {
			return nil, err
		}
		alone, aloneTails = append(alone, took...), append(aloneTails, tail(took))

		watchers, err := load.Watch(ctx, site, p.watching, p.stuck)
		if err != nil {
			return nil, err
		}
		before, err := edge.process.CPU()
		if err == nil {
			took, err = p.steady(ctx, site)
		}
		after, cpu := edge.process.CPU()
		edge.cpu += after - before
		updates += watchers.Updates()
		err = errors.Join(err, cpu, edge.look(), watchers.Err())
		watchers.Close()
		if err != nil {
			return nil, err
		}
		watched, watchedTails = append(watched, took...), append(watchedTails, tail(took))
	}
	who := fmt.Sprintf("%d watchers of the state, %d of them stuck", p.watching+p.stuck, p.stuck)
	worst := slices.Max(aloneTails)
	slices.Sort(watchedTails)
	middle := watchedTails[len(watchedTails)/2]
	return []figure.Row{
		figure.Times(fmt.Sprintf("a short request, one each %v, nobody watching", every), alone, 0),
		figure.Times("the same beside "+who, watched, 0),
		{
			What: "p99 of a slice: nobody watching, and beside them", Value: fmt.Sprintf("%v, and %v", rounded(aloneTails), rounded(watchedTails)),
			Goal: "the middle one within the others' range", Missed: middle > worst,
		},
		{What: "Edge beside them", Value: fmt.Sprintf("%d MiB resident, %.0f %% of a core, %.1f updates a second to each", edge.resident>>20,
			100*edge.cpu.Seconds()/(float64(p.rounds)*p.slice.Seconds()), float64(updates)/float64(p.watching)/float64(p.rounds)/p.slice.Seconds())},
	}, nil
}

// steady begins a request at each step of a slice, and is how long each took.
func (p plan) steady(ctx context.Context, site *link.Site) (took []time.Duration, err error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var mu sync.Mutex
	var requests sync.WaitGroup
	for range p.slice / every {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		requests.Go(func() {
			d, failed := load.Once(ctx, site)
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, d), errors.Join(err, failed)
		})
	}
	requests.Wait()
	return took, errors.Join(err, site.Settled())
}

func tail(took []time.Duration) time.Duration {
	sorted := slices.Clone(took)
	slices.Sort(sorted)
	return figure.Quantile(sorted, 0.99)
}

func rounded(all []time.Duration) (out []time.Duration) {
	for _, d := range all {
		out = append(out, figure.Round(d))
	}
	return out
}
