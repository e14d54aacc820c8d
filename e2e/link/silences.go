//go:build !windows

package link

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Silences is a site whose node a is reached through a proxy: its network goes
// dead, or is cut and comes back. Node b is a second candidate, of capacity 1.
type Silences struct {
	site                *Site
	beat                Heartbeat
	proxy               *Proxy
	first, solo, second *Provider
}

// NewSilences starts the site and both nodes.
func NewSilences(binary string, beat Heartbeat) (*Silences, error) {
	s := &Silences{beat: beat, first: NewProvider(), solo: NewProvider(), second: NewProvider()}
	var err error
	s.site, err = StartSite(binary, Setup{Heartbeat: beat,
		Nodes: []Object{
			Node("a", At(s.first, "main", 1, 10), At(s.solo, "solo", 1, 10)),
			Node("b", At(s.second, "main", 1, 1)),
		},
		Models: []Object{Model("both", "a/main="+Once, "b/main="+Once), Model("b", "b/main="+Hold), Model("only", "a/solo="+Hold)}})
	if err == nil {
		s.proxy, err = NewProxy(s.site.Address)
	}
	if err == nil {
		_, err = s.site.StartNode("a", s.proxy.URL())
	}
	if err == nil {
		_, err = s.site.StartNode("b", s.site.URL())
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the site.
func (s *Silences) Close() {
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.site != nil {
		s.site.Close()
	}
	for _, p := range []*Provider{s.first, s.solo, s.second} {
		p.Close()
	}
}

// Blackhole makes a's network dead, waits until a is excluded, and lets it come
// back. It returns how long after the node's last bytes a waiter of a was told
// so, less the heartbeat timeout.
func (s *Silences) Blackhole(ctx context.Context) (late time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runs, err := s.site.Run(ctx, "only")
	if err != nil {
		return 0, err
	}
	waits := s.site.Ask(ctx, "only")
	if err := s.site.Until("one waits for a", Waiting(1)); err != nil {
		return 0, err
	}
	s.proxy.Blackhole()
	waiter, err := Wait(waits, "the waiter of a")
	if err != nil {
		return 0, err
	}
	if waiter.Status != http.StatusServiceUnavailable || !strings.Contains(waiter.Body, `"provider_unavailable"`) {
		return 0, fmt.Errorf("the waiter of a was answered %d %s %w", waiter.Status, waiter.Body, waiter.Err)
	}
	_, last, ok := s.proxy.Session()
	if !ok {
		return 0, fmt.Errorf("no session went through the proxy")
	}
	end, err := Wait(runs.End, "the end of the running stream")
	if err != nil {
		return 0, err
	}
	if !strings.Contains(end.Body, `"provider_disconnected"`) || strings.Contains(end.Body, "[DONE]") {
		return 0, fmt.Errorf("the running stream ended with %q", end.Body)
	}
	if err := s.site.Settled(); err != nil {
		return 0, err
	}
	s.proxy.Open()
	return waiter.At.Sub(last) - s.beat.Timeout, s.site.Until("a back", Connected("a", true))
}

// Return is how soon a waiting request reached the provider of a returning node.
type Return struct {
	SinceFirstByte time.Duration // of the node's new session, at the proxy
	SinceAccepted  time.Duration // by the Edge, as its log says
}

// Reconnect cuts a off, lets a request wait for b, which is full, and lets a
// come back.
func (s *Silences) Reconnect(ctx context.Context) (r Return, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = s.site.Run(ctx, "b")
	if err != nil {
		return r, err
	}
	s.proxy.Cut()
	if err := s.site.Until("a offline", Connected("a", false)); err != nil {
		return r, err
	}
	waits := s.site.Ask(ctx, "both")
	if err := s.site.Until("one waits", Waiting(1)); err != nil {
		return r, err
	}
	for len(s.first.Arrivals) > 0 {
		<-s.first.Arrivals
	}
	known := s.site.Edge.Count("node connected")
	s.proxy.Open()
	arrived, err := Wait(s.first.Arrivals, "the waiting request at the provider of a")
	if err != nil {
		return r, err
	}
	first, _, ok := s.proxy.Session()
	if !ok {
		return r, fmt.Errorf("no session went through the proxy")
	}
	accepted, err := s.site.Edge.Await("node connected", known+1)
	if err != nil {
		return r, err
	}
	answer, err := Wait(waits, "the answer of the waiting request")
	if err != nil {
		return r, err
	}
	if answer.Status != http.StatusOK {
		return r, fmt.Errorf("the waiting request was answered %d %s %w", answer.Status, answer.Body, answer.Err)
	}
	cancel()
	return Return{SinceFirstByte: arrived.Sub(first), SinceAccepted: arrived.Sub(accepted.Time)}, s.site.Settled()
}
