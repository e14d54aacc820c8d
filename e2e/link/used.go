//go:build !windows

package link

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Used is an Edge and a Node process whose parked work streams have each carried
// a request.
type Used struct {
	Site     *Site
	Node     *Process
	provider *Provider
}

// NewUsed starts both. Streams that stay idle over a heartbeat are ended:
// later than anybody measures.
func NewUsed(binary string, most int, env ...string) (*Used, error) {
	u := &Used{provider: NewProvider()}
	var err error
	u.Site, err = StartSite(binary, Setup{Heartbeat: Heartbeat{10 * time.Minute, 30 * time.Minute},
		Nodes:  []Object{Node("a", At(u.provider, "p", most, 1))},
		Models: []Object{Model("m", "a/p="+Hold), Model("once", "a/p="+Once)}}, env...)
	if err == nil {
		u.Node, err = u.Site.StartNode("a", u.Site.URL())
	}
	if err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// Grow runs n requests at once and ends them: each was on a stream of its own,
// which is parked then. A trickle of others, on one of the streams, lets the
// collectors of both processes run.
func (u *Used) Grow(n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range n {
		if _, err := u.Site.Run(ctx, "m"); err != nil {
			return err
		}
	}
	cancel()
	if err := u.Site.Settled(); err != nil {
		return err
	}
	const trickle = 1000
	for range trickle {
		answer, err := Wait(u.Site.Ask(context.Background(), "once"), "an answer of the trickle")
		if err != nil || answer.Status != http.StatusOK {
			return fmt.Errorf("a request of the trickle was answered %v: %w", answer, err)
		}
	}
	u.Site.Client.CloseIdleConnections()
	return nil
}

// Close ends both.
func (u *Used) Close() {
	if u.Site != nil {
		u.Site.Close()
	}
	u.provider.Close()
}
