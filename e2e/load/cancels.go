//go:build !windows

package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/iop-dev/iop/e2e/link"
)

// manner is a moment of a request at which its client leaves.
type manner struct {
	model  string
	stream bool
	// begun is whether the answer has begun by then.
	begun bool
}

var manners = []manner{
	{"queued", true, false},
	{"queued", false, false},
	{"prefill", true, false},
	{"whole", false, false}, // an answer in one piece, still being made
	{"stream", true, true},
	{"stream", true, true},
}

// Servers are the providers of a site whose clients leave.
type Servers struct{ many, one *link.Provider }

// NewServers starts them.
func NewServers() *Servers { return &Servers{many: link.NewProvider(), one: link.NewProvider()} }

// Close ends them.
func (s *Servers) Close() {
	s.many.Close()
	s.one.Close()
}

// Setup is the configuration of a site for batches of so many requests.
func (s *Servers) Setup(batch int) link.Setup {
	return link.Setup{
		Heartbeat: link.Heartbeat{Interval: 500 * time.Millisecond, Timeout: 15 * time.Second},
		Nodes:     []link.Object{link.Node("a", link.At(s.many, "many", batch, 1), link.At(s.one, "one", 1, 1))},
		Models: []link.Object{
			link.Model("prefill", "a/many="+link.Silent), link.Model("whole", "a/many="+link.Silent), link.Model("stream", "a/many="+link.Hold),
			link.Model("queued", "a/one="+link.Silent),
		},
		MaxQueue: batch + 1,
	}
}

// Cancels are clients of a site that all leave before their answer is complete.
type Cancels struct {
	site    *link.Site
	servers *Servers
	clients []*http.Client // by HTTP version
}

// NewCancels is for a site that was started with the servers' setup.
func NewCancels(site *link.Site, servers *Servers) *Cancels {
	return &Cancels{site: site, servers: servers, clients: []*http.Client{NewClient(false), NewClient(true)}}
}

// Close lets go of the clients' connections.
func (c *Cancels) Close() {
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

// Leave lets n clients come and leave, in batches of a size: every other batch
// leaves at once when each request is where its manner wants it, the other ones
// one by one, at random times. After each batch nothing runs and nothing waits.
func (c *Cancels) Leave(ctx context.Context, n, size int) error {
	for batch := 0; n > 0; batch++ {
		now := min(n, size)
		n -= now
		var err error
		if batch%2 == 0 {
			err = c.together(ctx, now)
		} else {
			err = c.anyTime(ctx, now)
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", batch, err)
		}
		if err := c.site.Settled(); err != nil {
			return fmt.Errorf("after batch %d: %w", batch, err)
		}
		if err := c.site.Until("the providers are idle", func(*link.Snapshot) bool { return c.servers.many.Running()+c.servers.one.Running() == 0 }); err != nil {
			return fmt.Errorf("after batch %d: %w", batch, err)
		}
	}
	return nil
}

// together brings n requests to where they shall be, and ends all at once. A
// request that holds the one slot of those that wait leaves last.
func (c *Cancels) together(ctx context.Context, n int) error {
	ctx, leave := context.WithCancel(ctx)
	holding, letGo := context.WithCancel(context.WithoutCancel(ctx))
	var clients sync.WaitGroup
	defer func() {
		leave()
		letGo()
		clients.Wait()
	}()
	held := make(chan error, 1)
	clients.Go(func() { held <- c.one(holding, c.clients[0], manner{model: "queued", stream: true}, nil) })
	if err := c.site.Until("the slot is held", link.InFlight("a", 1)); err != nil {
		return err
	}
	ended := make(chan error, n)
	begun := make(chan struct{}, n)
	var streams, waiting int
	for i := range n {
		m := manners[i%len(manners)]
		switch {
		case m.begun:
			streams++
		case m.model == "queued":
			waiting++
		}
		clients.Go(func() { ended <- c.one(ctx, c.clients[i/len(manners)%len(c.clients)], m, begun) })
	}
	for range streams {
		if _, err := link.Wait(begun, "a stream that begins"); err != nil {
			return err
		}
	}
	err := c.site.Until("every request is where it shall be", func(s *link.Snapshot) bool {
		return s.GetQueueTotal() == uint32(waiting) && s.GetInFlightTotal() == uint32(n-waiting+1)
	})
	leave()
	for range n {
		err = errors.Join(err, <-ended)
	}
	letGo()
	return errors.Join(err, <-held)
}

// anyTime lets each of n requests last for a random time.
func (c *Cancels) anyTime(ctx context.Context, n int) error {
	var clients sync.WaitGroup
	ended := make(chan error, n)
	for i := range n {
		clients.Go(func() {
			const longest = 30 * time.Millisecond // past the begin of a stream on an idle machine
			ctx, leave := context.WithTimeout(ctx, rand.N(longest))
			defer leave()
			ended <- c.one(ctx, c.clients[i%len(c.clients)], manners[i%len(manners)], nil)
		})
	}
	clients.Wait()
	close(ended)
	var err error
	for one := range ended {
		err = errors.Join(err, one)
	}
	return err
}

// one asks and waits until its context ends. Any other end is an error.
func (c *Cancels) one(ctx context.Context, client *http.Client, m manner, begun chan<- struct{}) error {
	response, err := ask(ctx, client, c.site.URL(), m.model, m.stream, 1)
	if err != nil {
		return ended(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !m.begun {
		return fmt.Errorf("%s: answered with status %d before its client left", m.model, response.StatusCode)
	}
	lines := bufio.NewReader(response.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		return ended(ctx, err)
	}
	if begun != nil {
		begun <- struct{}{}
	}
	_, err = lines.ReadString(0)
	return ended(ctx, err)
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("a request ended before its client left: %w", err)
}
