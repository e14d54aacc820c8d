//go:build !windows

package link

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Deaths is a site on which a Node is killed again and again: node a, preferred,
// with a provider that node b can stand in for and one that nobody can.
type Deaths struct {
	site                *Site
	main, solo, standIn *Provider
}

// NewDeaths starts the site, and node b for good.
func NewDeaths(binary string) (*Deaths, error) {
	d := &Deaths{main: NewProvider(), solo: NewProvider(), standIn: NewProvider()}
	var err error
	d.site, err = StartSite(binary, Setup{Heartbeat: Heartbeat{5 * time.Second, 15 * time.Second},
		Nodes: []Object{
			Node("a", At(d.main, "main", 16, 10), At(d.solo, "solo", 1, 10)),
			Node("b", At(d.standIn, "main", 64, 1)),
		},
		Models: []Object{Model("both", "a/main="+Hold, "b/main="+Once), Model("only", "a/solo="+Hold)}})
	if err == nil {
		_, err = d.site.StartNode("b", d.site.URL())
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close ends the site.
func (d *Deaths) Close() {
	if d.site != nil {
		d.site.Close()
	}
	for _, p := range []*Provider{d.main, d.solo, d.standIn} {
		p.Close()
	}
}

// Death is what one kill of node a led to, in times since the kill.
type Death struct {
	// Unavailable is when a waiter without another candidate had its
	// provider_unavailable.
	Unavailable time.Duration
	// Told is when the client of a running request had its provider_disconnected.
	Told time.Duration
	// Moved is when each request that was granted on a, and not yet sent, arrived
	// at the provider of b.
	Moved []time.Duration
}

// Kill starts node a, loads it, kills it and waits for all that must follow.
//
// A waiter whose other candidate is free would have been granted there long
// before. So the requests that must move are granted on a while it is frozen and
// has no parked stream left: reserved, and with nothing sent.
func (d *Deaths) Kill(ctx context.Context) (death Death, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := d.site.StartNode("a", d.site.URL())
	if err != nil {
		return death, err
	}
	defer a.Kill()
	runs, err := d.site.Run(ctx, "both")
	if err != nil {
		return death, err
	}
	holds, err := d.site.Run(ctx, "only")
	if err != nil {
		return death, err
	}
	waits := d.site.Ask(ctx, "only")
	if err := d.site.Until("one waits for a", Waiting(1)); err != nil {
		return death, err
	}
	if err := a.Freeze(); err != nil {
		return death, err
	}
	const more = 8
	var sent [more]<-chan Answer
	for i := range sent {
		sent[i] = d.site.Ask(ctx, "both")
	}
	if err := d.site.Until("all are granted on a", InFlight("a", 2+more)); err != nil {
		return death, err
	}
	for len(d.standIn.Arrivals) > 0 {
		<-d.standIn.Arrivals
	}

	killed := time.Now()
	if err := a.Signal(syscall.SIGKILL); err != nil {
		return death, err
	}
	waiter, err := Wait(waits, "the waiter without another candidate")
	if err != nil {
		return death, err
	}
	if waiter.Status != http.StatusServiceUnavailable || !strings.Contains(waiter.Body, `"provider_unavailable"`) {
		return death, fmt.Errorf("the waiter without another candidate was answered %d %s %w", waiter.Status, waiter.Body, waiter.Err)
	}
	death.Unavailable = waiter.At.Sub(killed)
	for _, r := range []*Running{runs, holds} {
		end, err := Wait(r.End, "the end of a running stream")
		if err != nil {
			return death, err
		}
		if !strings.Contains(end.Body, `"provider_disconnected"`) || strings.Contains(end.Body, "[DONE]") {
			return death, fmt.Errorf("a running stream ended with %q", end.Body)
		}
		death.Told = max(death.Told, end.At.Sub(killed))
	}
	for _, s := range sent {
		end, err := Wait(s, "the answer of a granted request")
		switch {
		case err != nil:
			return death, err
		case end.Status == http.StatusOK:
			arrived, err := Wait(d.standIn.Arrivals, "an arrival at the stand-in")
			if err != nil {
				return death, err
			}
			death.Moved = append(death.Moved, arrived.Sub(killed))
		case end.Status == http.StatusBadGateway: // sent into the frozen node: perhaps it ran
		default:
			return death, fmt.Errorf("a granted request was answered %d %s", end.Status, end.Body)
		}
	}
	if len(death.Moved) == 0 {
		return death, fmt.Errorf("none of %d granted requests moved to the other provider", more)
	}
	if err := d.site.Until("a offline", Connected("a", false)); err != nil {
		return death, err
	}
	return death, d.site.Settled()
}
