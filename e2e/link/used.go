//go:build !windows

package link

import (
	"context"
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
	u.Site, err = StartSite(binary, Heartbeat{10 * time.Minute, 30 * time.Minute},
		[]Object{Node("a", At(u.provider, "p", most, 1))}, []Object{Model("m", "a/p="+Hold)}, env...)
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
// which is parked then.
func (u *Used) Grow(n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range n {
		if _, err := u.Site.Run(ctx, "m"); err != nil {
			return err
		}
	}
	cancel()
	u.Site.Client.CloseIdleConnections()
	return u.Site.Settled()
}

// Close ends both.
func (u *Used) Close() {
	if u.Site != nil {
		u.Site.Close()
	}
	u.provider.Close()
}
