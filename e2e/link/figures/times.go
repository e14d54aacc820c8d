//go:build !windows

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/iop-dev/iop/e2e/figure"
	"github.com/iop-dev/iop/e2e/link"
)

func (p plan) kills(ctx context.Context) ([]figure.Row, error) {
	site, err := link.NewDeaths(p.binary)
	if err != nil {
		return nil, err
	}
	defer site.Close()
	var unavailable, told, moved []time.Duration
	for range p.repeats {
		death, err := site.Kill(ctx)
		if err != nil {
			return nil, err
		}
		unavailable = append(unavailable, death.Unavailable)
		told = append(told, death.Told)
		moved = append(moved, slices.Max(death.Moved))
	}
	const goal = 100 * time.Millisecond
	return []figure.Row{
		figure.Times("kill -9 of a node → waiter without another candidate has provider_unavailable", unavailable, goal),
		figure.Times("kill -9 of a node → last reserved request is at the other provider", moved, goal),
		figure.Times("kill -9 of a node → clients of running streams have provider_disconnected", told, goal),
	}, nil
}

func (p plan) blackholes(ctx context.Context) ([]figure.Row, error) {
	beat := link.Heartbeat{Interval: 200 * time.Millisecond, Timeout: time.Second}
	site, err := link.NewSilences(p.binary, beat)
	if err != nil {
		return nil, err
	}
	defer site.Close()
	var late []time.Duration
	for range max(p.repeats/5, 1) {
		l, err := site.Blackhole(ctx)
		if err != nil {
			return nil, err
		}
		late = append(late, l)
	}
	slices.Sort(late)
	f := figure.Times(fmt.Sprintf("blackhole → excluded, later than the node's last bytes + %v", beat.Timeout), late, 0)
	f.Value = fmt.Sprintf("min %v, %s", figure.Round(late[0]), f.Value)
	return []figure.Row{f}, nil
}

func (p plan) reconnects(ctx context.Context) ([]figure.Row, error) {
	site, err := link.NewSilences(p.binary, link.Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second})
	if err != nil {
		return nil, err
	}
	defer site.Close()
	var sinceFirst, sinceAccepted []time.Duration
	for range p.repeats {
		r, err := site.Reconnect(ctx)
		if err != nil {
			return nil, err
		}
		sinceFirst = append(sinceFirst, r.SinceFirstByte)
		sinceAccepted = append(sinceAccepted, r.SinceAccepted)
	}
	const goal = 50 * time.Millisecond
	return []figure.Row{
		figure.Times("first byte of a returning node → waiting request is at its provider", sinceFirst, goal),
		figure.Times("registration accepted → waiting request is at its provider", sinceAccepted, goal),
	}, nil
}

func (p plan) stalls(ctx context.Context) ([]figure.Row, error) {
	const pace = 20 * time.Millisecond
	site, err := link.NewStalls(p.binary, int(time.Duration(p.seconds)*time.Second/pace), pace)
	if err != nil {
		return nil, err
	}
	defer site.Close()
	var without, with []time.Duration
	for range p.rounds {
		gaps, err := site.Honest(ctx)
		if err != nil {
			return nil, err
		}
		without = append(without, gaps...)
		leave, err := site.Stall(ctx, p.stalled)
		if err != nil {
			return nil, err
		}
		gaps, err = site.Honest(ctx)
		if err != nil {
			return nil, err
		}
		with = append(with, gaps...)
		if err := leave(); err != nil {
			return nil, err
		}
	}
	figures := []figure.Row{
		figure.Times("gap between tokens of a stream of one each 20ms, alone", without, 0),
		figure.Times(fmt.Sprintf("the same, beside %d stalled consumers", p.stalled), with, 0),
	}
	const goal = 20 * time.Millisecond
	delay := figure.Quantile(with, 0.99) - figure.Quantile(without, 0.99)
	return append(figures, figure.Row{
		What: "what the stalled add to the p99", Value: figure.Round(delay).String(),
		Goal: fmt.Sprintf("≤ %v", goal), Missed: delay > goal,
	}), nil
}
