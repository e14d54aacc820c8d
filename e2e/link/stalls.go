//go:build !windows

package link

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Stalls is a site of one node with two providers: one that floods its clients,
// and one that sends a token every now and then.
type Stalls struct {
	site         *Site
	flood, paced *Provider
}

// NewStalls starts the site. An honest stream has so many tokens, one each pace.
func NewStalls(binary string, tokens int, pace time.Duration) (*Stalls, error) {
	s := &Stalls{flood: NewProvider(), paced: NewProvider()}
	s.paced.Tokens, s.paced.Pace = tokens, pace
	var err error
	s.site, err = StartSite(binary, Setup{Heartbeat: Heartbeat{5 * time.Second, 15 * time.Second},
		Nodes:  []Object{Node("a", At(s.flood, "flood", 1000, 1), At(s.paced, "paced", 4, 1))},
		Models: []Object{Model("flood", "a/flood="+Endless), Model("paced", "a/paced="+Paced)}})
	if err == nil {
		_, err = s.site.StartNode("a", s.site.URL())
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the site.
func (s *Stalls) Close() {
	if s.site != nil {
		s.site.Close()
	}
	s.flood.CloseClientConnections()
	s.flood.Close()
	s.paced.Close()
}

// Stall makes n clients that read the head of an endless answer and nothing
// more, and returns when back-pressure has stopped all their providers. The
// function it returns lets them leave, and waits for the slots.
func (s *Stalls) Stall(ctx context.Context, n int) (leave func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	giveUp := time.AfterFunc(patience, cancel)
	defer giveUp.Stop()
	dialer := net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			const small = 16 << 10 // bytes that the kernel takes for a client that does not read
			err = c.(*net.TCPConn).SetReadBuffer(small)
		}
		return c, err
	}}
	client := &http.Client{Transport: transport}
	var open []*http.Response
	leave = func() error {
		cancel()
		for _, r := range open {
			r.Body.Close()
		}
		transport.CloseIdleConnections()
		return s.site.Settled()
	}
	for range n {
		response, err := post(ctx, client, s.site.URL(), "flood")
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("a flood was answered %v", read(response, nil))
		}
		if err != nil {
			cancel()
			return nil, err
		}
		open = append(open, response)
	}
	// Stalled is: all run, and nothing was written for a while.
	const still = time.Second
	poll := time.NewTicker(still)
	defer poll.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for before := int64(-1); ; {
		select {
		case <-poll.C:
		case <-limit.C:
			cancel()
			return nil, fmt.Errorf("%d clients that do not read: their providers still write after %v", n, patience)
		}
		now := s.flood.Sent()
		if now == before && s.flood.Running() == int64(n) {
			return leave, nil
		}
		before = now
	}
}

// Honest reads one paced stream to its end and returns the time between each two
// of its tokens.
func (s *Stalls) Honest(ctx context.Context) (gaps []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(s.paced.Tokens)*s.paced.Pace)
	defer cancel()
	response, err := s.site.Post(ctx, "paced")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var last time.Time
	whole := false
	scan := bufio.NewScanner(response.Body)
	for scan.Scan() {
		switch line := scan.Text(); {
		case line == "data: [DONE]":
			whole = true
		case strings.Contains(line, `"token `):
			now := time.Now()
			if !last.IsZero() {
				gaps = append(gaps, now.Sub(last))
			}
			last = now
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("the honest stream broke: %w", err)
	}
	if !whole || len(gaps) != s.paced.Tokens-1 {
		return nil, fmt.Errorf("the honest stream ended after %d of %d tokens, [DONE]: %t", len(gaps)+1, s.paced.Tokens, whole)
	}
	return gaps, nil
}
