//go:build !windows

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
	"github.com/iop-dev/iop/e2e/link"
	"github.com/iop-dev/iop/e2e/load"
)

const (
	pace   = 200 * time.Millisecond // five tokens a second
	tokens = 40                     // of an answer on average: 1000 slots are handed on every eight seconds
	settle = 2 * time.Second        // from when all have begun until gaps count
)

// cost is what a process has used over some time.
type cost struct {
	name     string
	process  *link.Process
	cpu      time.Duration
	resident int64 // bytes, the most of any look
}

func (c *cost) look() error {
	now, err := c.process.Resident()
	c.resident = max(c.resident, now)
	return err
}

// streams compares the gaps between tokens of many streams, with others that wait
// behind them, with those of the same client straight at the provider, in turn.
func (p plan) streams(ctx context.Context) ([]figure.Row, error) {
	provider := link.NewProvider()
	defer provider.Close()
	provider.Tokens, provider.Pace = tokens, pace
	site, err := link.StartSite(p.binary, load.FullSetup(provider, p.running, p.waiting))
	if err != nil {
		return nil, err
	}
	defer site.Close()
	node, err := site.StartNode("a", site.URL())
	if err != nil {
		return nil, err
	}
	full := load.NewFull(site, provider, p.running, p.waiting)
	costs := []*cost{{name: "Edge", process: site.Edge}, {name: "Node", process: node}}
	var direct, through []time.Duration
	var answers int
	var period time.Duration
	for range p.rounds {
		straight, err := p.straight(ctx, provider)
		if err != nil {
			return nil, err
		}
		direct = append(direct, straight.Gaps()...)
		tally, err := full.Hold(ctx, func(ctx context.Context, tally *load.Tally) error {
			if err := pause(ctx, settle); err != nil {
				return err
			}
			tally.Measure(true)
			defer tally.Measure(false)
			from := time.Now()
			defer func() { period += time.Since(from) }()
			return p.watch(ctx, costs)
		})
		if err != nil {
			return nil, err
		}
		for way, t := range map[string]*load.Tally{"straight at the provider": straight, "through Edge and Node": tally} {
			if f, s, examples := t.Bad(); f+s > 0 {
				return nil, fmt.Errorf("%s: of %d answers %d were errors and %d too short, such as: %w\nthe Node:\n%s\nthe Edge:\n%s", way, t.Answers(), f, s, examples, node.Log(), site.Edge.Log())
			}
			answers += t.Answers()
		}
		through = append(through, tally.Gaps()...)
	}
	const goal = 20 * time.Millisecond
	rows := []figure.Row{
		figure.Times(fmt.Sprintf("gap between tokens of %d streams of one each %v, straight at the provider", p.running, pace), direct, 0),
		figure.Times(fmt.Sprintf("the same through Edge and Node, %d more waiting", p.waiting), through, 0),
	}
	more := figure.Quantile(through, 0.99) - figure.Quantile(direct, 0.99)
	rows = append(rows,
		figure.Row{What: "what Edge and Node add to the p99", Value: figure.Round(more).String(), Goal: fmt.Sprintf("≤ %v", goal), Missed: more > goal},
		figure.Row{What: "errors and short answers", Value: fmt.Sprintf("0 of %d", answers), Goal: "0"}) // else there is no table
	for _, c := range costs {
		rows = append(rows, figure.Row{What: c.name + " meanwhile", Value: fmt.Sprintf("%d MiB resident at most, %.0f %% of a core, %.0f µs a token",
			c.resident>>20, 100*float64(c.cpu)/float64(period), float64(c.cpu.Microseconds())/float64(len(through)))})
	}
	return rows, nil
}

// watch lets a slice pass, and adds up what the processes use.
func (p plan) watch(ctx context.Context, costs []*cost) error {
	for _, c := range costs {
		before, err := c.process.CPU()
		if err != nil {
			return err
		}
		defer func() {
			if after, err := c.process.CPU(); err == nil {
				c.cpu += after - before
			}
		}()
	}
	const looks = 20
	for range looks {
		if err := pause(ctx, p.slice/looks); err != nil {
			return err
		}
		for _, c := range costs {
			if err := c.look(); err != nil {
				return err
			}
		}
	}
	return nil
}

// straight has the crowd ask the provider itself for a slice.
func (p plan) straight(ctx context.Context, provider *link.Provider) (*load.Tally, error) {
	provider.Hurry(false)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	client := load.NewClient(false)
	defer client.CloseIdleConnections()
	crowd := &load.Crowd{Client: client, URL: provider.URL, Model: link.Paced, Tokens: tokens, Tally: new(load.Tally)}
	enough, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		crowd.Run(ctx, p.running, enough)
	}()
	err := pause(ctx, settle)
	if err == nil {
		crowd.Measure(true)
		err = pause(ctx, p.slice)
		crowd.Measure(false)
	}
	if err != nil {
		leave()
	}
	close(enough)
	provider.Hurry(true)
	<-gone
	return crowd.Tally, err
}
