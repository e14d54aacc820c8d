//go:build !windows

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rolling is one model on three nodes with a provider each, which takes its time
// over an answer.
func rolling(t *testing.T, capacity int, more ...object) (r *rig, stubs []*stub, ids []string) {
	takeTime := func(r *http.Request) bool {
		select {
		case <-time.After(15 * time.Millisecond):
			return true
		case <-r.Context().Done():
			return false
		}
	}
	var nodes []object
	var candidates []string
	for i := range 3 {
		s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
			target := asked(t, body)
			if !strings.Contains(string(body), `"stream":true`) {
				if takeTime(r) {
					complete(w, target, "whole")
				}
				return
			}
			for range 6 {
				if sse(w, chunk(target, "word ")) != nil || !takeTime(r) {
					return
				}
			}
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
		})
		id := fmt.Sprintf("n%d", i)
		stubs, ids = append(stubs, s), append(ids, id)
		nodes = append(nodes, nodeConfig(id, provider("p", s.URL, capacity)))
		candidates = append(candidates, id+"/p=x")
	}
	// No heartbeat is late within the test: nothing that works may rely on it.
	more = append(more, object{
		"edge":          object{"heartbeat": object{"interval_ms": 1000, "timeout_ms": 60000}},
		"provider_pool": object{"max_queue": 200},
	})
	return start(t, edgeFile(nodes, []object{model("m", candidates...)}, more...), ids...), stubs, ids
}

// wholeAnswer reports what is wrong with the reply to a request that has to
// succeed; "" = nothing.
func wholeAnswer(a answer, stream bool) string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.status != http.StatusOK:
		return fmt.Sprintf("status %d: %s", a.status, a.body)
	case stream && (!strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Count(a.body, "word ") != 6 || strings.Contains(a.body, `"error"`)):
		return "the stream is not whole: " + a.body
	case !stream && !strings.Contains(a.body, "whole"):
		return "the answer is not whole: " + a.body
	}
	return ""
}

// Each node in turn is told to stop and started again while clients stream and do
// not stream without a pause: no request fails, no answer is cut short, and no
// provider ever runs more than it may.
func TestRollingTheNodesDropsNothing(t *testing.T) {
	const capacity, clients, rounds = 2, 8, 2
	r, stubs, ids := rolling(t, capacity)
	over := make(chan struct{})
	var load sync.WaitGroup
	var served atomic.Int64
	for c := range clients {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				stream := (i+c)%2 == 0
				if wrong := wholeAnswer(r.ask(t.Context(), chatBody("m", stream, "")), stream); wrong != "" {
					t.Errorf("a request was dropped: %s", wrong)
					return
				}
				served.Add(1)
			}
		})
	}
	// more waits until some requests have been served from now on, or a client has
	// given up.
	more := func(n int64) {
		t.Helper()
		goal := served.Load() + n
		require.Eventually(t, func() bool { return served.Load() >= goal || t.Failed() }, 30*time.Second, 5*time.Millisecond)
	}
	for range rounds {
		for _, id := range ids {
			more(10)
			require.Zero(t, r.nodes[id].stop(t), "%s stops in order", id)
			more(10)
			r.startNode(id)
			r.connected(ids...)
		}
	}
	more(10)
	close(over)
	load.Wait()
	r.quiet()
	for i, s := range stubs {
		_, peak, total, gone := s.counts()
		require.LessOrEqual(t, peak, capacity, ids[i])
		require.NotZero(t, total, ids[i])
		require.Zero(t, gone, "%s: a provider's connection was ended before its answer was", ids[i])
	}
	t.Logf("%d requests served over %d stops", served.Load(), rounds*len(ids))
}

// An Edge is restarted: what it had begun is finished, streams included, what
// comes meanwhile is refused with the contract's error, and the nodes come back
// by themselves.
func TestAnEdgesRestartFinishesWhatItHadBegun(t *testing.T) {
	r, stubs, ids := rolling(t, 2, object{"edge": object{"listen": freePort(t)}})
	const streams, others = 3, 3
	type begun struct {
		rest *bufio.Reader
		end  func()
	}
	var open []begun
	for range streams {
		rest, end := r.begin(chatBody("m", true, ""))
		open = append(open, begun{rest, end})
	}
	var answers []<-chan answer
	for range others {
		answers = append(answers, r.background(t.Context(), chatBody("m", false, "")))
	}
	require.Eventually(t, func() bool {
		sum := 0
		for _, s := range stubs {
			_, _, total, _ := s.counts()
			sum += total
		}
		return sum == streams+others
	}, 20*time.Second, time.Millisecond, "all have reached a provider")
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	for _, b := range open {
		text, err := io.ReadAll(b.rest)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(text), "data: [DONE]\n\n"), string(text))
		require.NotContains(t, string(text), `"error"`)
		b.end()
	}
	for _, a := range answers {
		require.Empty(t, wholeAnswer(<-a, false))
	}
	<-r.edge.done
	require.Zero(t, r.edge.cmd.ProcessState.ExitCode(), r.edge.log())

	r.client.CloseIdleConnections()
	r.startEdge()
	r.connected(ids...)
	for _, stream := range []bool{true, false} {
		require.Empty(t, wholeAnswer(r.ask(t.Context(), chatBody("m", stream, "")), stream))
	}
	for _, id := range ids {
		require.False(t, r.nodes[id].ended(), "the same process")
	}
	r.quiet()
}
