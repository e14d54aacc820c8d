package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// stub is a provider under the test's control: it counts what runs, keeps what
// was asked, and answers as its handler says.
type stub struct {
	*httptest.Server

	mu       sync.Mutex
	current  int
	peak     int
	total    int
	bodies   [][]byte
	headers  []http.Header
	gone     int // requests whose client left before the answer's end
	goneNews chan struct{}
}

// newStub returns a stub whose handler gets the request's body.
func newStub(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body []byte)) *stub {
	s := &stub{goneNews: make(chan struct{}, 10000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		s.current++
		s.total++
		s.peak = max(s.peak, s.current)
		s.bodies = append(s.bodies, body)
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.current--
			if r.Context().Err() != nil {
				s.gone++
				s.goneNews <- struct{}{}
			}
			s.mu.Unlock()
		}()
		if err != nil {
			return
		}
		answer(w, r, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) counts() (current, peak, total, gone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.peak, s.total, s.gone
}

// asked is the served target that a request named.
func asked(t *testing.T, body []byte) string {
	var req struct{ Model string }
	if err := json.Unmarshal(body, &req); err != nil {
		t.Errorf("the provider got a body that is no JSON: %v", err)
	}
	return req.Model
}

// complete writes a whole chat completion that names the target.
func complete(w http.ResponseWriter, target, content string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"c1","object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, target, content)
}

// sse writes one event and flushes it.
func sse(w http.ResponseWriter, data string) error {
	w.Header().Set("Content-Type", "text/event-stream")
	if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func chunk(target, content string) string {
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion.chunk","model":%q,"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, target, content)
}

func lastChunk(target string) string {
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion.chunk","model":%q,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, target)
}

// gate lets a test hold a stub's answers back.
type gate struct {
	open chan struct{}
	once sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{open: make(chan struct{})}
	t.Cleanup(g.release)
	return g
}

// wait returns when the gate is opened, or false when the client is gone.
func (g *gate) wait(r *http.Request) bool {
	select {
	case <-g.open:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func requireSSE(t *testing.T, text string, events int) {
	t.Helper()
	require.Equal(t, events, bytes.Count([]byte(text), []byte("\n\n")))
}
