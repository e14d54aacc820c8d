//go:build !windows

package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S09: two model ids on one shared provider, under everything at once: clients
// that stream, leave early, leave late; a provider that fails in its own ways;
// refreshes that lower and raise capacity; a node that stops in order, is killed,
// freezes and comes back. At the end the provider never ran more than it may, each
// request had an outcome of the contract, and every counter is 0.
func TestS09_SharedProviderUnderEverything(t *testing.T) {
	const most = 2 // capacity, at its highest
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		switch {
		case strings.Contains(string(body), `"refuse"`):
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
		case strings.Contains(string(body), `"break"`):
			_ = sse(w, chunk(target, "half "))
			panic(http.ErrAbortHandler)
		case strings.Contains(string(body), `"stream":true`):
			for range 5 {
				if sse(w, chunk(target, "word ")) != nil || r.Context().Err() != nil {
					return
				}
			}
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
		default:
			complete(w, target, "whole")
		}
	})
	site := func(capacity int) object {
		return edgeFile([]object{nodeConfig("gx10", provider("vllm", s.URL, capacity))},
			[]object{model("ornith:35b", "gx10/vllm=big"), model("ornith-fast", "gx10/vllm=fast")})
	}
	r := start(t, site(1), "gx10")

	over := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(9, uint64(c)))
			for {
				select {
				case <-over:
					return
				default:
					r.churn(rng)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 100))
	for range 12 {
		switch node := r.nodes["gx10"]; rng.IntN(5) {
		case 0, 1:
			writeYAML(t, r.edgeYAML, site(1+rng.IntN(most)))
			require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
		case 2:
			node.kill()
			r.startNode("gx10")
		case 3:
			require.Equal(t, 0, node.stop(t), "an orderly stop")
			r.startNode("gx10")
		case 4:
			require.NoError(t, node.cmd.Process.Signal(syscall.SIGSTOP))
			r.connected() // fenced at the heartbeat timeout
			require.NoError(t, node.cmd.Process.Signal(syscall.SIGCONT))
		}
		r.connected("gx10")
		done := r.snapshot().GetCounters().GetReleased()
		require.Eventually(t, func() bool { return r.snapshot().GetCounters().GetReleased() > done+20 }, 20*time.Second, 10*time.Millisecond, "work goes on")
	}
	close(over)
	clients.Wait()
	r.quiet()
	_, peak, total, _ := s.counts()
	require.LessOrEqual(t, peak, most)
	t.Logf("%d requests reached the provider, peak %d", total, peak)
	for _, id := range []string{"ornith:35b", "ornith-fast"} {
		require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody(id, false, "")).status)
	}
}

// churn makes one call of a random kind and judges how it ends.
func (r *rig) churn(rng *rand.Rand) {
	stream := rng.IntN(2) == 0
	mark := []string{"", "", "", `,"user":"refuse"`, `,"user":"break"`}[rng.IntN(5)]
	ctx, leave := context.WithTimeout(context.Background(), 30*time.Second)
	defer leave()
	early := rng.IntN(4) == 0
	if early {
		time.AfterFunc(time.Duration(rng.IntN(20))*time.Millisecond, leave)
	}
	res, err := r.post(ctx, chatBody([]string{"ornith:35b", "ornith-fast"}[rng.IntN(2)], stream, mark))
	if err != nil {
		if !early {
			r.t.Errorf("a call ended without an answer: %v", err)
		}
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if early {
		return
	}
	body := string(text)
	switch {
	case res.StatusCode != http.StatusOK:
		if known := map[int]bool{429: true, 502: true, 503: true}; !known[res.StatusCode] || !strings.Contains(body, `"error"`) {
			r.t.Errorf("status %d: %s", res.StatusCode, body)
		}
	case err != nil:
		if stream {
			r.t.Errorf("a stream was cut off without an error event: %v\n%s", err, body)
		}
	case !strings.Contains(body, "whole") && !strings.HasSuffix(body, "data: [DONE]\n\n") && !strings.Contains(body, `data: {"error"`):
		r.t.Errorf("%s looks complete and is not: %s", fmt.Sprintf("stream %t %s", stream, mark), body)
	}
}
