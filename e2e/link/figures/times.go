//go:build !windows

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/iop-dev/iop/e2e/link"
)

// quantile of sorted values, the nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(q*float64(len(sorted))+0.9999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// times is a figure of many measurements, with a goal for the 99th percentile; 0
// = none.
func times(what string, values []time.Duration, goal time.Duration) figure {
	slices.Sort(values)
	p99 := quantile(values, 0.99)
	f := figure{what: what, value: fmt.Sprintf("p50 %v, p99 %v, max %v (n = %d)",
		round(quantile(values, 0.5)), round(p99), round(values[len(values)-1]), len(values))}
	if goal > 0 {
		f.goal, f.missed = fmt.Sprintf("p99 ≤ %v", goal), p99 > goal
	}
	return f
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func kills(ctx context.Context, p plan) ([]figure, error) {
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
	return []figure{
		times("kill -9 of a node → waiter without another candidate has provider_unavailable", unavailable, goal),
		times("kill -9 of a node → last reserved request is at the other provider", moved, goal),
		times("kill -9 of a node → clients of running streams have provider_disconnected", told, goal),
	}, nil
}

func blackholes(ctx context.Context, p plan) ([]figure, error) {
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
	f := times(fmt.Sprintf("blackhole → excluded, later than the node's last bytes + %v", beat.Timeout), late, 0)
	f.value = fmt.Sprintf("min %v, %s", round(late[0]), f.value)
	return []figure{f}, nil
}

func reconnects(ctx context.Context, p plan) ([]figure, error) {
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
	return []figure{
		times("first byte of a returning node → waiting request is at its provider", sinceFirst, goal),
		times("registration accepted → waiting request is at its provider", sinceAccepted, goal),
	}, nil
}

func stalls(ctx context.Context, p plan) ([]figure, error) {
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
	figures := []figure{
		times("gap between tokens of a stream of one each 20ms, alone", without, 0),
		times(fmt.Sprintf("the same, beside %d stalled consumers", p.stalled), with, 0),
	}
	const goal = 20 * time.Millisecond
	delay := quantile(with, 0.99) - quantile(without, 0.99)
	return append(figures, figure{
		what: "what the stalled add to the p99", value: round(delay).String(),
		goal: fmt.Sprintf("≤ %v", goal), missed: delay > goal,
	}), nil
}
