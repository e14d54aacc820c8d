package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// longBody is a chat request whose input is well over the threshold for long.
func longBody(model, mark string) string {
	return fmt.Sprintf(`{"model":%q,"user":%q,"messages":[{"role":"user","content":%q}]}`, model, mark, strings.Repeat("word ", 120000))
}

// longSite is one model on two providers of capacity 6 with one long slot each.
func longSite(one, two string) object {
	limits := object{"long_context_capacity": 1, "total_context_tokens": 262144}
	m := model("m", "a/p=x", "b/p=x")
	m["context_window_tokens"] = 262144
	return edgeFile([]object{nodeConfig("a", provider("p", one, 6, limits)), nodeConfig("b", provider("p", two, 6, limits))}, []object{m})
}

// L06: with every long slot of the group taken a long request waits, normal ones
// go on, and the long one goes when a slot returns. L05: the waiting long one
// holds up nobody.
func TestL06_LongFullGroupStillTakesNormalRequests(t *testing.T) {
	first, rest := newGate(t), newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		g := rest
		switch {
		case strings.Contains(string(body), `"first"`):
			g = first
		case strings.Contains(string(body), `"normal"`):
			complete(w, "x", "normal")
			return
		}
		if g.wait(r) {
			complete(w, "x", "long")
		}
	})
	r := start(t, longSite(s.URL, s.URL+"/v1"), "a", "b")
	done := []<-chan answer{r.background(t.Context(), longBody("m", "first"))}
	r.running(1)
	done = append(done, r.background(t.Context(), longBody("m", "second")))
	r.running(2)
	done = append(done, r.background(t.Context(), longBody("m", "third")))
	r.waiting(1)
	for _, n := range r.snapshot().GetNodes() {
		p := n.GetProviders()[0]
		require.EqualValues(t, 1, p.GetLongInFlight())
		require.EqualValues(t, 1, p.GetLongQueued())
		require.Equal(t, "available", p.GetStatus(), "still a normal candidate")
	}
	for range 5 {
		require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, `,"user":"normal"`)).status)
	}
	r.waiting(1)
	first.release() // its long slot goes to the one that waits
	r.waiting(0)
	r.running(2)
	rest.release()
	for _, d := range done {
		require.Equal(t, http.StatusOK, (<-d).status)
	}
	r.quiet()
}

// L05: normal requests pass a queue head that waits for a long slot, and L08: meanwhile status says why it waits, and afterwards the log.
func TestL05_L08_NormalRequestsPassAHeadThatWaitsForALongSlot(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !strings.Contains(string(body), `"held"`) || g.wait(r) {
			complete(w, "x", "done")
		}
	})
	r := start(t, longSite(s.URL, s.URL+"/v1"), "a", "b")
	var held []<-chan answer
	for range 2 {
		held = append(held, r.background(t.Context(), longBody("m", "held")))
	}
	r.running(2)
	head := r.background(t.Context(), longBody("m", "head"))
	r.waiting(1)
	second := r.background(t.Context(), longBody("m", "behind"))
	r.waiting(2)

	heads := r.snapshot().GetQueueHeads()
	require.Len(t, heads, 1)
	require.Equal(t, "long_full", heads[0].GetReason())
	require.Equal(t, "long", heads[0].GetContextClass())
	require.EqualValues(t, 1, heads[0].GetBehind())
	require.GreaterOrEqual(t, heads[0].GetEstimatedInputTokens(), uint64(r.snapshot().GetLongContextThresholdTokens()))
	for range 8 {
		require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	}
	r.waiting(2)
	g.release()
	for _, d := range append(held, head, second) {
		require.Equal(t, http.StatusOK, (<-d).status)
	}
	r.quiet()

	var decided map[string]any
	require.Eventually(t, func() bool {
		for line := range strings.SplitSeq(r.edge.log(), "\n") {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["enqueue_seq"] == float64(heads[0].GetEnqueueSeq()) {
				decided = entry
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "long", decided["context_class"])
	require.Equal(t, "long_full", decided["wait_reason"])
	require.EqualValues(t, heads[0].GetEstimatedInputTokens(), decided["estimated_input_tokens"])
	require.EqualValues(t, 1, decided["long_context_capacity"])
	require.EqualValues(t, 0, decided["long_in_flight"], "a long slot was free when it went")
	require.Contains(t, decided["candidates"], "/p=free(")
}

// L04: what providers count for prompts tightens the estimate of the next ones of that kind, and status shows it.
func TestL04_ProvidersCountsTightenTheEstimate(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d}}`, len(body)/5)
	})
	r := start(t, longSite(s.URL, s.URL+"/v1"), "a", "b")
	for range 20 {
		require.Equal(t, http.StatusOK, r.ask(t.Context(), fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("Explain how the gate keeps two long prompts apart. ", 50))).status)
	}
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
		return len(s.GetEstimateScales()) > 0 && s.GetEstimateScales()[0].GetAnswers() == 20
	}, "the last answer counts, too") // after its client has it
	scales := r.snapshot().GetEstimateScales()
	require.Equal(t, "x", scales[0].GetTarget())
	require.Greater(t, scales[0].GetFactor(), 0.3)
	require.Less(t, scales[0].GetFactor(), 1.0)
}

// L09: the smoke of the long-context milestone. Ten normal requests at once, then
// long and normal ones mixed, then more long ones than there are slots; afterwards
// every counter is 0.
func TestL09_Smoke(t *testing.T) {
	var held atomic.Pointer[gate] // keeps what says "held"
	hold := func() (release func()) {
		g := newGate(t)
		held.Store(g)
		return g.release
	}
	release := hold()
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !strings.Contains(string(body), `"held"`) || held.Load().wait(r) {
			complete(w, "x", "done")
		}
	})
	r := start(t, longSite(s.URL, s.URL), "a", "b")
	finish := func(done []<-chan answer) {
		t.Helper()
		for _, d := range done {
			a := <-d
			require.NoError(t, a.err)
			require.Equal(t, http.StatusOK, a.status, a.body)
		}
	}
	var done []<-chan answer
	for range 10 {
		done = append(done, r.background(t.Context(), chatBody("m", false, `,"user":"held"`)))
	}
	r.running(10)
	release()
	finish(done)
	r.quiet()

	done = nil
	for i := range 6 {
		done = append(done, r.background(t.Context(), longBody("m", "")))
		for range 2 {
			done = append(done, r.background(t.Context(), chatBody("m", i%2 == 0, "")))
		}
	}
	finish(done)
	r.quiet()

	release = hold() // every long slot is taken, and more want one
	done = nil
	for range 5 {
		done = append(done, r.background(t.Context(), longBody("m", "held")))
	}
	r.running(2)
	r.waiting(3)
	for range 4 {
		require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	}
	release()
	finish(done)
	r.quiet()
	for _, n := range r.snapshot().GetNodes() {
		p := n.GetProviders()[0]
		require.Zero(t, p.GetInFlight()+p.GetQueued()+p.GetLongInFlight())
	}
}

// R02: requests for a direct route carry the route's own queue policy into
// admission, and share the provider with everybody else.
func TestR02_RouteCarriesItsOwnPolicy(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), asked(t, body))
		}
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("big", "n/p=big-target")},
		object{"openai": object{"model_routes": []object{
			{"model": "tiny", "adapter": "p", "target": "tiny-target", "max_queue": 1, "queue_timeout_ms": 120000},
			{"model": "hasty", "adapter": "p", "max_queue": 1, "queue_timeout_ms": 1},
		}}}), "n")
	running := r.background(t.Context(), chatBody("big", false, ""))
	r.running(1)
	pool := r.background(t.Context(), chatBody("big", false, ""))
	r.waiting(1)
	route := r.background(t.Context(), chatBody("tiny", false, ""))
	r.waiting(2)
	full := r.ask(t.Context(), chatBody("tiny", false, ""))
	require.Equal(t, "queue_full", full.code(t))
	scopes := r.snapshot().GetScopes()
	require.Equal(t, []string{"pool", "route:tiny", "route:hasty"}, []string{scopes[0].GetKey(), scopes[1].GetKey(), scopes[2].GetKey()})
	require.EqualValues(t, 1, scopes[0].GetPending(), "the route's waiter is not the pool's")
	require.EqualValues(t, 1, scopes[1].GetPending())

	late := r.ask(t.Context(), chatBody("hasty", false, ""))
	require.Equal(t, "queue_timeout", late.code(t))
	r.waiting(2) // by their own, longer patience
	g.release()
	require.Equal(t, http.StatusOK, (<-route).status)
	require.Equal(t, http.StatusOK, (<-running).status)
	require.Equal(t, http.StatusOK, (<-pool).status)
	a := r.ask(t.Context(), chatBody("tiny", false, ""))
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, `"content":"tiny-target"`)
	require.Contains(t, a.body, `"model":"tiny"`)
	r.quiet()
}
