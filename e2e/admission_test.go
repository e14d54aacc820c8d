package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S11: two model ids on one provider of capacity 1, called together 50 times by
// real clients against real processes. The provider never sees two at once, each
// caller gets the answer to its own question, and everything is back at 0.
func TestS11_Case_C24_TwoModelsShareOneSlot(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		complete(w, asked(t, body), string(body))
	})
	r := start(t, edgeFile(
		[]object{nodeConfig("gx10", provider("vllm", s.URL, 1))},
		[]object{model("ornith:35b", "gx10/vllm=big"), model("ornith-fast", "gx10/vllm=fast")},
		object{"provider_pool": object{"max_queue": 200}},
	), "gx10")

	targets := map[string]string{"ornith:35b": "big", "ornith-fast": "fast"}
	var calls sync.WaitGroup
	for i := range 50 {
		for id, target := range targets {
			calls.Go(func() {
				mark := fmt.Sprintf("call-%d-%s", i, target)
				a := r.ask(t.Context(), chatBody(id, false, fmt.Sprintf(`,"user":%q`, mark)))
				if a.err != nil || a.status != http.StatusOK || !strings.Contains(a.body, mark) ||
					!strings.Contains(a.body, fmt.Sprintf(`"model":%q`, id)) || strings.Contains(a.body, `"model":"`+target+`"`) {
					t.Errorf("%s: %+v", mark, a)
				}
			})
		}
	}
	calls.Wait()
	_, peak, total, _ := s.counts()
	require.Equal(t, 1, peak)
	require.Equal(t, 100, total)
	r.quiet()
}

// S01 and S07 over the wire: the second of two groups takes the other candidate,
// the third waits, and the snapshot tells in_flight, pressure and queue apart.
func TestS01_S07_SharedCapacityOverTheWire(t *testing.T) {
	g := newGate(t)
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	}
	one, two := newStub(t, hold), newStub(t, hold)
	r := start(t, edgeFile(
		[]object{nodeConfig("a", provider("p", one.URL, 1)), nodeConfig("b", provider("p", two.URL, 1))},
		[]object{model("first", "a/p=x"), model("second", "a/p=x", "b/p=x")},
	), "a", "b")

	first := r.background(t.Context(), chatBody("first", false, ""))
	r.running(1)
	second := r.background(t.Context(), chatBody("second", false, ""))
	r.running(2)
	third := r.background(t.Context(), chatBody("second", false, ""))
	r.waiting(1)
	snap := r.snapshot()
	for _, n := range snap.GetNodes() {
		p := n.GetProviders()[0]
		require.EqualValues(t, 1, p.GetInFlight(), n.GetId())
		require.EqualValues(t, 1, p.GetQueued(), "one waiter shows under both candidates")
		require.Equal(t, "full", p.GetStatus())
	}
	require.EqualValues(t, 1, snap.GetQueueTotal(), "and counts once")
	g.release()
	for _, done := range []<-chan answer{first, second, third} {
		a := <-done
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status)
		require.NotEmpty(t, a.header.Get("X-Iop-Node"))
	}
	for _, s := range []*stub{one, two} {
		_, peak, _, _ := s.counts()
		require.Equal(t, 1, peak)
	}
	r.quiet()
}

// S03 over the wire: the oldest waiter is long and has no long slot; a normal one
// behind it goes first, and the long one as soon as its slot returns.
func TestS03_L05_LongHeadDoesNotBlock(t *testing.T) {
	var mu sync.Mutex
	gates := map[string]*gate{}
	for _, name := range []string{"long-1", "normal-1", "long-2", "normal-2"} {
		gates[name] = newGate(t)
	}
	var order []string
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		for name, g := range gates {
			if strings.Contains(string(body), `"`+name+`"`) {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				if g.wait(r) {
					complete(w, "x", name)
				}
			}
		}
	})
	r := start(t, edgeFile(
		[]object{nodeConfig("n", provider("p", s.URL, 2, object{"long_context_capacity": 1, "total_context_tokens": 300000}))},
		[]object{func() object {
			m := model("m", "n/p=x")
			m["context_window_tokens"] = 262144
			return m
		}()},
	), "n")

	var done []<-chan answer
	ask := func(name string, words int) {
		body := fmt.Sprintf(`{"model":"m","user":%q,"messages":[{"role":"user","content":%q}]}`, name, strings.Repeat("word ", words))
		done = append(done, r.background(t.Context(), body))
	}
	started := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == n }, 10*time.Second, time.Millisecond, "%d started", n)
	}
	ask("long-1", 120000)
	started(1)
	ask("normal-1", 3)
	started(2)
	ask("long-2", 120000)
	r.waiting(1)
	ask("normal-2", 3)
	r.waiting(2)
	p := r.snapshot().GetNodes()[0].GetProviders()[0]
	require.EqualValues(t, 1, p.GetLongInFlight())
	require.EqualValues(t, 2, p.GetQueued())
	require.EqualValues(t, 1, p.GetLongQueued())

	gates["normal-1"].release() // a normal slot: long-2 is older but long_full
	started(3)
	require.Equal(t, []string{"long-1", "normal-1", "normal-2"}, order)
	gates["long-1"].release()
	started(4)
	require.Equal(t, "long-2", order[3])
	gates["long-2"].release()
	gates["normal-2"].release()
	for _, d := range done {
		require.Equal(t, http.StatusOK, (<-d).status)
	}
	r.quiet()
}

// S06 and C02, C04: one limit over all model groups; full and timed out are told
// apart, with their statuses and Retry-After.
func TestS06_Case_C02_C04_QueuePolicyOverTheWire(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := start(t, edgeFile(
		[]object{nodeConfig("n", provider("p", s.URL, 1))},
		[]object{model("a", "n/p=x"), model("b", "n/p=y")},
		object{"provider_pool": object{"max_queue": 1, "queue_timeout_ms": 1500}},
	), "n")
	running := r.background(t.Context(), chatBody("a", false, ""))
	r.running(1)
	waits := r.background(t.Context(), chatBody("b", true, ""))
	r.waiting(1)
	full := r.ask(t.Context(), chatBody("a", true, ""))
	require.Equal(t, http.StatusTooManyRequests, full.status)
	require.Equal(t, "queue_full", full.code(t))
	require.Regexp(t, `^([1-9]|[1-5][0-9]|60)$`, full.header.Get("Retry-After"))

	late := <-waits
	require.Equal(t, http.StatusServiceUnavailable, late.status)
	require.Equal(t, "queue_timeout", late.code(t))
	require.Regexp(t, `^([1-9]|[1-5][0-9]|60)$`, late.header.Get("Retry-After"))
	g.release()
	require.Equal(t, http.StatusOK, (<-running).status)
	_, peak, total, _ := s.counts()
	require.Equal(t, 1, peak)
	require.Equal(t, 1, total, "what was refused or timed out never reached the provider")
	r.quiet()
}

// C19: a known model whose machines are all off is 503, never 404; the catalogue
// keeps it (S14).
func TestCase_C19_S14_KnownButOffline(t *testing.T) {
	r := start(t, edgeFile(
		[]object{nodeConfig("n", provider("p", "http://127.0.0.1:9", 1))},
		[]object{model("known", "n/p=x")},
	))
	a := r.ask(t.Context(), chatBody("known", false, ""))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "provider_unavailable", a.code(t))
	require.NotEmpty(t, a.header.Get("Retry-After"))

	a = r.ask(t.Context(), chatBody("unknown", false, ""))
	require.Equal(t, http.StatusNotFound, a.status)
	require.Equal(t, "model_not_found", a.code(t))

	p := r.snapshot().GetNodes()[0].GetProviders()[0]
	require.Equal(t, "unavailable", p.GetStatus())
	require.Equal(t, "offline", p.GetHealth())
	require.Zero(t, p.GetEffectiveCapacity())

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/models", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	res, err := r.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Contains(t, readAll(t, res), `"known"`)
}
