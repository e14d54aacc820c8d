//go:build !windows

package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/iop-dev/iop/e2e/link"
)

// Tally is what many clients have seen together.
type Tally struct {
	mu        sync.Mutex
	answers   int
	errors    []error // at most keptErrors
	failed    int     // answers that were none
	truncated int     // answers that broke off, or have not every token in its place
	gaps      []time.Duration

	begun     atomic.Int64
	measuring atomic.Bool
}

const keptErrors = 10

// Answers is how many requests have ended.
func (t *Tally) Answers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers
}

// Begun is how many answers have begun.
func (t *Tally) Begun() int64 { return t.begun.Load() }

// Bad is how many requests got an error, and how many a short or wrong answer;
// err has examples.
func (t *Tally) Bad() (failed, truncated int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed, t.truncated, errors.Join(t.errors...)
}

// Measure begins and ends the time whose gaps between tokens are kept.
func (t *Tally) Measure(on bool) { t.measuring.Store(on) }

// Gaps are those between two tokens of one stream as its client saw them.
func (t *Tally) Gaps() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gaps
}

func (t *Tally) end(gaps []time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers++
	t.gaps = append(t.gaps, gaps...)
	if err == nil {
		return
	}
	var short *shortError
	if errors.As(err, &short) {
		t.truncated++
	} else {
		t.failed++
	}
	if len(t.errors) < keptErrors {
		t.errors = append(t.errors, err)
	}
}

// shortError is an answer that is not the whole one.
type shortError struct{ what string }

func (e *shortError) Error() string { return "truncated: " + e.what }

// Crowd is many clients that each read one paced stream after another.
type Crowd struct {
	Client *http.Client
	URL    string
	Model  string // as the crowd asks for it
	Tokens int    // of an answer: between half and one and a half times as many
	*Tally
}

// NewClient returns a client whose connections are its own, over HTTP/1.1 or
// HTTP/2, both without TLS.
func NewClient(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true, MaxIdleConnsPerHost: 10_000}}
}

// Run keeps n clients asking until more is over, and returns when each has read
// its last answer to the end.
func (c *Crowd) Run(ctx context.Context, n int, more <-chan struct{}) {
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			for {
				c.end(c.read(ctx))
				select {
				case <-more:
					return
				case <-ctx.Done():
					return
				default:
				}
			}
		})
	}
	clients.Wait()
}

// read asks once and reads the answer: every token in its order, the end marker,
// and the end of a whole body.
func (c *Crowd) read(ctx context.Context) (gaps []time.Duration, err error) {
	tokens := c.Tokens/2 + rand.IntN(c.Tokens+1) // in step they would all end at once
	response, err := ask(ctx, c.Client, c.URL, c.Model, true, tokens)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	c.begun.Add(1)
	lines := bufio.NewReader(response.Body)
	var last time.Time
	for n, done := 0, false; ; {
		line, err := lines.ReadString('\n')
		now := time.Now()
		switch {
		case errors.Is(err, io.EOF) && done && line == "":
			return gaps, nil
		case err != nil:
			return gaps, &shortError{fmt.Sprintf("after %d of %d tokens: %v", n, tokens, err)}
		case line == "\n":
		case line == "data: [DONE]\n" && n == tokens:
			done = true
		case n < tokens && strings.Contains(line, fmt.Sprintf(`"token %d"`, n)):
			if n > 0 && c.measuring.Load() {
				gaps = append(gaps, now.Sub(last))
			}
			n, last = n+1, now
		default:
			return gaps, &shortError{fmt.Sprintf("after %d of %d tokens: %q", n, tokens, line)}
		}
	}
}

// ask sends a chat request for an answer of so many tokens. The caller closes the body.
func ask(ctx context.Context, client *http.Client, url, model string, stream bool, tokens int) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"go"}]}`, model, stream, tokens)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return client.Do(request)
}

// Full is a site whose one provider is kept full, with others that wait.
type Full struct {
	Site     *link.Site
	Provider *link.Provider
	running  int
	waiting  int
}

// FullSetup is the configuration of a site with room for so many streams, and for
// as many more to wait.
func FullSetup(p *link.Provider, running, waiting int) link.Setup {
	return link.Setup{
		Heartbeat: link.Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second},
		Nodes:     []link.Object{link.Node("a", link.At(p, "p", running, 1))},
		Models:    []link.Object{link.Model("m", "a/p="+link.Paced)},
		MaxQueue:  waiting + running, // who asks again may be faster than the slot's return
	}
}

// NewFull is for a site that was started with [FullSetup].
func NewFull(s *link.Site, p *link.Provider, running, waiting int) *Full {
	return &Full{Site: s, Provider: p, running: running, waiting: waiting}
}

// Hold runs a crowd through the site: it waits until all slots and places are
// taken, lets during happen, and then has the provider answer at once until
// everybody is served.
func (f *Full) Hold(ctx context.Context, during func(context.Context, *Tally) error) (*Tally, error) {
	f.Provider.Hurry(false)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	client := NewClient(false)
	defer client.CloseIdleConnections()
	crowd := &Crowd{Client: client, URL: f.Site.URL(), Model: "m", Tokens: f.Provider.Tokens, Tally: new(Tally)}
	enough, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		crowd.Run(ctx, f.running+f.waiting, enough)
	}()
	err := f.Site.Until("all slots and all places are taken", func(s *link.Snapshot) bool {
		return s.GetInFlightTotal() == uint32(f.running) && s.GetQueueTotal() >= uint32(f.waiting*9/10)
	})
	if err == nil {
		err = during(ctx, crowd.Tally)
	}
	if err != nil {
		leave()
	}
	close(enough)
	f.Provider.Hurry(true)
	<-gone
	return crowd.Tally, errors.Join(err, f.Site.Settled())
}
