//go:build !windows

package link

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// What a Provider does with a request, by its served target.
const (
	Once    = "once"    // a whole answer at once
	Hold    = "hold"    // one event, then nothing until the client leaves
	Silent  = "silent"  // nothing until the client leaves
	Endless = "endless" // events without end, as fast as they are taken
	Paced   = "paced"   // max_tokens (else Tokens) numbered events, one each Pace, begun somewhere within the first
)

// Provider is an OpenAI-compatible server under the rig's control.
type Provider struct {
	*httptest.Server
	// Arrivals is when requests came; ten thousand are kept.
	Arrivals chan time.Time
	Tokens   int // of a Paced answer whose request has no max_tokens
	Pace     time.Duration

	running atomic.Int64
	hurried atomic.Bool
	sent    atomic.Int64 // bytes of Endless
}

// NewProvider starts a provider.
func NewProvider() *Provider {
	p := &Provider{Arrivals: make(chan time.Time, 10_000)}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	return p
}

// Running is how many requests are under way.
func (p *Provider) Running() int64 { return p.running.Load() }

// Hurry makes Paced answers go as fast as they are taken, or no more.
func (p *Provider) Hurry(on bool) { p.hurried.Store(on) }

// Sent is how many bytes Endless answers have taken.
func (p *Provider) Sent() int64 { return p.sent.Load() }

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case p.Arrivals <- time.Now():
	default:
	}
	p.running.Add(1)
	defer p.running.Add(-1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if request.Model == Once {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"here"},"finish_reason":"stop"}]}`, Once)
		return
	}
	if request.Model == Silent {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	p.stream(w, r, request.Model, cmp.Or(request.MaxTokens, p.Tokens))
}

func (p *Provider) stream(w http.ResponseWriter, r *http.Request, target string, tokens int) {
	flush := http.NewResponseController(w).Flush
	const form = `data: {"id":"c","object":"chat.completion.chunk","model":%q,"choices":[{"index":0,"delta":{"content":"token %d"}}]}` + "\n\n"
	event := fmt.Appendf(nil, form, target, 0)
	if target == Endless {
		event = bytes.Repeat(event, 100) // fills the buffers on its way the sooner
	}
	write := func() bool {
		n, err := w.Write(event)
		p.sent.Add(int64(n))
		return err == nil && flush() == nil
	}
	switch target {
	case Endless:
		for write() {
		}
		return
	case Paced:
		tick := time.NewTimer(rand.N(p.Pace)) // streams do not send in step
		defer tick.Stop()
		for n := range tokens {
			if !p.hurried.Load() {
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
			tick.Reset(p.Pace)
			event = fmt.Appendf(event[:0], form, target, n)
			if !write() {
				return
			}
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
		return
	default:
		if write() {
			<-r.Context().Done()
		}
	}
}
