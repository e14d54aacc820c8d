//go:build !windows

package e2e

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C17: one long request runs, another waits for the only long slot, and normal
// slots are free: a short one runs while both are there.
func TestCase_C17_AShortRequestDoesNotWaitForLongOnes(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !strings.Contains(string(body), `"held"`) || g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	m := model("m", "n/p=x")
	m["context_window_tokens"] = 262144
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 3, object{"long_context_capacity": 1, "total_context_tokens": 262144}))},
		[]object{m}, calm), "n")
	first := r.background(t.Context(), longBody("m", "held"))
	r.running(1)
	second := r.background(t.Context(), longBody("m", "held"))
	r.waiting(1)
	for i := range 4 {
		a := r.ask(t.Context(), chatBody("m", i%2 == 0, ""))
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "0", a.header.Get("X-Iop-Queue-Ms"), "it has not waited")
	}
	r.running(1)
	r.waiting(1)
	g.release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, http.StatusOK, (<-second).status)
	r.quiet()
}

// C21: an answer that breaks off is an error of its own; another provider, which
// could have answered, is not asked. A provider that refuses the connection has
// opened nothing, so there the request moves on.
func TestCase_C21_OnlyWhatOpenedNothingMovesOn(t *testing.T) {
	breaks := newStub(t, func(w http.ResponseWriter, _ *http.Request, body []byte) {
		for range 3 {
			_ = sse(w, chunk(asked(t, body), "part "))
		}
		reset(w)
	})
	healthy := newStub(t, func(w http.ResponseWriter, _ *http.Request, body []byte) { complete(w, asked(t, body), "whole answer") })
	r := start(t, edgeFile(
		[]object{
			nodeConfig("breaks", provider("p", breaks.URL, 1, object{"priority": 9})),
			nodeConfig("healthy", provider("p", healthy.URL, 1)),
			nodeConfig("refuses", provider("p", "http://"+freePort(t), 1, object{"priority": 9})),
		},
		[]object{model("broken", "breaks/p=x", "healthy/p=x"), model("refused", "refuses/p=x", "healthy/p=x")},
		object{"provider_pool": object{"selection": "priority"}}, calm), "breaks", "healthy", "refuses")
	a := r.ask(t.Context(), chatBody("broken", true, ""))
	require.NoError(t, a.err)
	require.Equal(t, 3, strings.Count(a.body, "part "))
	require.Contains(t, a.body, `"provider_disconnected"`)
	require.NotContains(t, a.body, "[DONE]")
	require.NotContains(t, a.body, "whole answer")
	_, _, total, _ := healthy.counts()
	require.Zero(t, total)

	a = r.ask(t.Context(), chatBody("refused", false, ""))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "healthy", a.header.Get("X-Iop-Node"))
	_, _, total, _ = healthy.counts()
	require.Equal(t, 1, total)
	_, _, total, _ = breaks.counts()
	require.Equal(t, 1, total)
	r.quiet()
}

// C24: two models of one provider share its slot; a reply that is cut short is a
// failure of its own request, and not of the other one.
func TestCase_C24_TwoModelsOfOneProviderAndACutReply(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !g.wait(r) {
			return
		}
		if target := asked(t, body); target != "cut" {
			complete(w, target, "whole answer")
			return
		}
		w.Header().Set("Content-Length", "4000")
		_, _ = io.WriteString(w, `{"id":"c1","choices":[{"message":{"content":"the beg`)
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))},
		[]object{model("one", "n/p=cut"), model("two", "n/p=fine")}, calm), "n")
	cut := r.background(t.Context(), chatBody("one", false, ""))
	s.reached(t, 1)
	fine := r.background(t.Context(), chatBody("two", false, ""))
	r.waiting(1)
	r.running(1)
	g.release()
	if a := <-cut; a.err == nil {
		require.Equal(t, http.StatusBadGateway, a.status)
		require.Equal(t, "provider_disconnected", a.code(t))
	}
	a := <-fine
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "whole answer")
	require.Contains(t, a.body, `"model":"two"`)
	_, peak, total, _ := s.counts()
	require.Equal(t, []int{1, 2}, []int{peak, total})
	r.quiet()
	require.Eventually(t, func() bool {
		return r.edge.said(`"outcome":"provider_disconnected"`) == 1 && r.edge.said(`"outcome":"completed"`) == 1
	}, 20*time.Second, 5*time.Millisecond, "one failed, one completed")
}

// C25: an Edge that is told to stop lets two streams end by themselves, tells two
// that wait at once, refuses newcomers, and ends with exit code 0.
func TestCase_C25_AStopCutsNoStream(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		target := asked(t, body)
		_ = sse(w, chunk(target, "begun "))
		if g.wait(r) {
			_ = sse(w, chunk(target, "ended "))
			_ = sse(w, lastChunk(target))
			_ = sse(w, "[DONE]")
		}
	})
	r := queueSite(t, s, 2, object{"max_queue": 8})
	var streams []io.Reader
	for range 2 {
		rest, end := r.begin(chatBody("m", true, ""))
		defer end()
		streams = append(streams, rest)
	}
	queued := []<-chan answer{r.background(t.Context(), chatBody("m", true, "")), r.background(t.Context(), chatBody("m", false, ""))}
	r.waiting(2)
	told := time.Now()
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	for _, q := range queued {
		a := <-q
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Equal(t, "draining", a.code(t))
		require.Regexp(t, wholeSeconds, a.header.Get("Retry-After"))
	}
	require.Less(t, time.Since(told), slack, "at once: the grace is longer")
	late := r.ask(t.Context(), chatBody("m", true, ""))
	require.Equal(t, http.StatusServiceUnavailable, late.status)
	require.Equal(t, "draining", late.code(t))
	require.False(t, r.edge.ended(), "two streams go on")
	g.release()
	for _, stream := range streams {
		text, err := io.ReadAll(stream)
		require.NoError(t, err)
		require.Contains(t, string(text), "ended ")
		require.True(t, strings.HasSuffix(string(text), "data: [DONE]\n\n"), string(text))
		require.NotContains(t, string(text), `"error"`)
	}
	require.Zero(t, r.edge.exits(t, time.Now(), closeLimit), r.edge.log())
	_, _, total, _ := s.counts()
	require.Equal(t, 2, total)
}
