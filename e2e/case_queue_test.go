//go:build !windows

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// wholeSeconds is a Retry-After that every client reads as it is meant.
const wholeSeconds = `^([1-9]|[1-5][0-9]|60)$`

// holding is a stub that answers each request once the gate is open.
func holding(t *testing.T, g *gate) *stub {
	return newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
}

// queueSite is one provider behind the model "m", with a queue policy.
func queueSite(t *testing.T, s *stub, capacity int, pool object) *rig {
	return start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, capacity))}, []object{model("m", "n/p=x")},
		object{"provider_pool": pool}, calm), "n")
}

// calm is a heartbeat that no busy machine misses: for what does not look at it.
var calm = object{"edge": object{"heartbeat": object{"interval_ms": 1000, "timeout_ms": 60000}}}

// userOf is the mark that a test has put into a request.
func userOf(t *testing.T, body []byte) string {
	var req struct{ User string }
	if err := json.Unmarshal(body, &req); err != nil {
		t.Errorf("the provider got a body that is no JSON: %v", err)
	}
	return req.User
}

// refresh puts another file into force.
func (r *rig) refresh(file object) {
	r.t.Helper()
	before := r.snapshot().GetConfigRevision()
	writeYAML(r.t, r.edgeYAML, file)
	require.NoError(r.t, r.edge.cmd.Process.Signal(syscall.SIGHUP))
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetConfigRevision() > before }, "the refresh is in force")
	require.Empty(r.t, r.snapshot().GetLastRefreshError())
}

// reached waits until a stub has got so many requests.
func (s *stub) reached(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { _, _, total, _ := s.counts(); return total == n }, 20*time.Second, time.Millisecond,
		"%d requests at the provider", n)
}

// C01 and C02: of six at once one runs, one waits, and four are refused at once,
// by 429 and the OpenAI envelope.
func TestCase_C01_C02_WhatOverflowsTheQueueIsRefusedAtOnce(t *testing.T) {
	g := newGate(t)
	s := holding(t, g)
	r := queueSite(t, s, 1, object{"max_queue": 1})
	begun := time.Now()
	answers := make(chan answer, 6)
	for i := range cap(answers) {
		go func() { answers <- r.ask(t.Context(), chatBody("m", i%2 == 0, "")) }()
	}
	for range 4 {
		a := <-answers
		require.Equal(t, http.StatusTooManyRequests, a.status, a.body)
		require.Equal(t, "queue_full", a.code(t))
		require.Contains(t, a.header.Get("Content-Type"), "application/json")
		require.Regexp(t, wholeSeconds, a.header.Get("Retry-After"))
	}
	t.Logf("four refused within %s", time.Since(begun).Round(time.Millisecond))
	require.Less(t, time.Since(begun), time.Second+slack)
	r.running(1)
	r.waiting(1)
	require.Empty(t, answers, "the other two are not answered yet")
	g.release()
	for range 2 {
		require.Equal(t, http.StatusOK, (<-answers).status)
	}
	_, peak, total, _ := s.counts()
	require.Equal(t, []int{1, 2}, []int{peak, total})
	r.quiet()
}

// C04: who waits in vain is told so when the time is over: never before, and not a
// second later. The best of a few tries counts, because a busy machine delays any.
func TestCase_C04_TheQueueTimeoutIsOnTime(t *testing.T) {
	const patience = time.Second
	g := newGate(t)
	r := queueSite(t, holding(t, g), 1, object{"queue_timeout_ms": patience.Milliseconds()})
	running := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	for try := 1; ; try++ {
		asked := time.Now()
		a := r.ask(t.Context(), chatBody("m", try%2 == 0, ""))
		took := time.Since(asked)
		require.Equal(t, "queue_timeout", a.code(t))
		require.GreaterOrEqual(t, took, patience)
		if took < patience+time.Second {
			t.Logf("told after %s", took.Round(time.Millisecond))
			break
		}
		require.Less(t, try, 5, "late in each of five tries")
	}
	g.release()
	require.Equal(t, http.StatusOK, (<-running).status)
	r.quiet()
}

// C03: with no free slot a request waits for one.
func TestCase_C03_TheSecondWaitsAndIsServed(t *testing.T) {
	g := newGate(t)
	s := holding(t, g)
	r := queueSite(t, s, 1, object{"max_queue": 4})
	first := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	second := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)
	g.release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, http.StatusOK, (<-second).status)
	_, peak, total, _ := s.counts()
	require.Equal(t, []int{1, 2}, []int{peak, total})
	r.quiet()
}

// C05: four slots are four requests at once: none of them is answered before the
// provider has all.
func TestCase_C05_AllSlotsAreUsedAtOnce(t *testing.T) {
	const slots = 4
	var all sync.WaitGroup
	all.Add(slots)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		all.Done()
		all.Wait()
		complete(w, asked(t, body), "done")
	})
	r := queueSite(t, s, slots, object{"max_queue": 0})
	var answers []<-chan answer
	for range slots {
		answers = append(answers, r.background(t.Context(), chatBody("m", false, "")))
	}
	for _, a := range answers {
		require.Equal(t, http.StatusOK, (<-a).status)
	}
	_, peak, _, _ := s.counts()
	require.Equal(t, slots, peak)
	r.quiet()
}

// C07: a provider takes connections and never answers, or stops in the middle of
// an answer. Everybody who runs or waits is told within the limits.
func TestCase_C07_AStuckProviderHoldsNobodyForEver(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody reads
	require.NoError(t, err)
	defer deaf.Close()
	hold := newGate(t)
	stops := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		_ = sse(w, chunk(asked(t, body), "begun "))
		hold.wait(r)
	})
	for _, c := range []struct {
		name, url string
		stream    bool
		running   func(t *testing.T, a answer)
	}{
		{"never answers", "http://" + deaf.Addr().String(), false, func(t *testing.T, a answer) {
			require.Equal(t, http.StatusGatewayTimeout, a.status)
			require.Equal(t, "provider_timeout", a.code(t))
			require.Equal(t, "false", a.header.Get("X-Should-Retry"))
		}},
		{"never answers a stream", "http://" + deaf.Addr().String(), true, func(t *testing.T, a answer) {
			require.Equal(t, http.StatusGatewayTimeout, a.status)
			require.Equal(t, "provider_timeout", a.code(t))
		}},
		{"stops in the middle", stops.URL, true, func(t *testing.T, a answer) {
			require.NoError(t, a.err)
			require.Contains(t, a.body, "begun")
			require.Contains(t, a.body, `"provider_timeout"`)
			require.NotContains(t, a.body, "[DONE]")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, edgeFile([]object{nodeConfig("n", provider("p", c.url, 1, object{"request_timeout_ms": 4000, "cancel_grace_ms": 100}))},
				[]object{model("m", "n/p=x")},
				object{"provider_pool": object{"queue_timeout_ms": 500}, "openai": object{"idle_timeout_ms": 4000}}, calm), "n")
			running := r.background(t.Context(), chatBody("m", c.stream, ""))
			r.running(1)
			var queued []<-chan answer
			for range 3 {
				queued = append(queued, r.background(t.Context(), chatBody("m", c.stream, "")))
			}
			for _, q := range queued {
				a := <-q
				if code := a.code(t); code != "provider_timeout" { // or it had its turn after all, on a busy machine
					require.Equal(t, "queue_timeout", code)
					require.Equal(t, http.StatusServiceUnavailable, a.status)
				}
			}
			c.running(t, <-running)
			r.quiet()
		})
	}
}

// C08: the patience of the queue ends with the wait. A request that has waited
// runs on when its queue timeout is over: one that came after it, with the same
// patience, is refused meanwhile.
func TestCase_C08_TheQueueTimeoutDoesNotKillWhatRuns(t *testing.T) {
	first, second := newGate(t), newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		g := first
		if strings.Contains(string(body), `"second"`) {
			g = second
		}
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := queueSite(t, s, 1, object{"queue_timeout_ms": 4000})
	one := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	two := r.background(t.Context(), chatBody("m", false, `,"user":"second"`))
	r.waiting(1)
	first.release()
	require.Equal(t, http.StatusOK, (<-one).status)
	s.reached(t, 2)
	require.Equal(t, "queue_timeout", r.ask(t.Context(), chatBody("m", false, "")).code(t))
	require.Empty(t, two, "it runs")
	second.release()
	require.Equal(t, http.StatusOK, (<-two).status)
	r.quiet()
}

// C12: a capacity that is lowered while four run lets them finish, each of them
// without putting the old one back, and from then on one runs at a time.
func TestCase_C12_ALoweredCapacityStays(t *testing.T) {
	var mu sync.Mutex
	gates := map[string]*gate{}
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		mu.Lock()
		g := gates[userOf(t, body)]
		mu.Unlock()
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := queueSite(t, s, 4, object{"max_queue": 8})
	ask := func(mark string) <-chan answer {
		mu.Lock()
		gates[mark] = newGate(t)
		mu.Unlock()
		return r.background(t.Context(), chatBody("m", false, fmt.Sprintf(`,"user":%q`, mark)))
	}
	var old, young []<-chan answer
	for i := range 4 {
		old = append(old, ask(fmt.Sprint("old ", i)))
	}
	s.reached(t, 4)
	r.refresh(edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=x")},
		object{"provider_pool": object{"max_queue": 8}}, calm))
	for i := range 4 {
		young = append(young, ask(fmt.Sprint("young ", i)))
	}
	r.waiting(4)
	for i, done := range old {
		current, _, total, _ := s.counts()
		require.Equal(t, []int{4 - i, 4}, []int{current, total}, "no new one beside those that finish")
		gates[fmt.Sprint("old ", i)].release()
		require.Equal(t, http.StatusOK, (<-done).status)
	}
	s.mu.Lock()
	s.peak = s.current
	s.mu.Unlock()
	s.reached(t, 5)
	r.running(1)
	r.waiting(3)
	for i := range young { // the rest is served as its turn comes
		gates[fmt.Sprint("young ", i)].release()
	}
	for _, done := range young {
		require.Equal(t, http.StatusOK, (<-done).status)
	}
	_, peak, total, _ := s.counts()
	require.Equal(t, []int{1, 8}, []int{peak, total})
	r.quiet()
}

// C13: fifty at once never make a provider run more than it may, and every slot of
// both providers is used.
func TestCase_C13_FiftyAtOnceNeverExceedTheCapacity(t *testing.T) {
	const capacity, requests = 2, 50
	full := newGate(t)
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !full.wait(r) {
			return
		}
		select { // long enough for a slot that is given twice to be seen
		case <-time.After(5 * time.Millisecond):
			complete(w, asked(t, body), "done")
		case <-r.Context().Done():
		}
	}
	stubs := []*stub{newStub(t, hold), newStub(t, hold)}
	r := start(t, edgeFile(
		[]object{nodeConfig("a", provider("p", stubs[0].URL, capacity)), nodeConfig("b", provider("p", stubs[1].URL, capacity))},
		[]object{model("m", "a/p=x", "b/p=y")}, object{"provider_pool": object{"max_queue": requests}}, calm), "a", "b")
	var answers []<-chan answer
	for i := range requests {
		answers = append(answers, r.background(t.Context(), chatBody("m", i%2 == 0, "")))
	}
	r.running(2 * capacity)
	r.waiting(requests - 2*capacity)
	for _, s := range stubs {
		s.reached(t, capacity)
	}
	full.release()
	for _, a := range answers {
		require.Equal(t, http.StatusOK, (<-a).status)
	}
	sum := 0
	for _, s := range stubs {
		_, peak, total, _ := s.counts()
		require.Equal(t, capacity, peak)
		sum += total
	}
	require.Equal(t, requests, sum)
	r.quiet()
}

// C15: whatever the overload is, its answer says in whole seconds from 1 to 60 when
// to come back.
func TestCase_C15_EveryOverloadSaysWhenToComeBack(t *testing.T) {
	const smallKey = "e2e-small-key"
	g, freed := newGate(t), newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if strings.Contains(string(body), `"stream":true`) {
			_ = sse(w, chunk(asked(t, body), "begun "))
			if freed.wait(r) {
				_ = sse(w, lastChunk("x"))
				_ = sse(w, "[DONE]")
			}
			return
		}
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	// The provider changes its id while a request runs under the old one: the node's
	// gate is full, and the Edge does not know it.
	site := func(id string) object {
		return edgeFile(
			[]object{nodeConfig("n", provider(id, s.URL, 1, object{"request_timeout_ms": 2000})), nodeConfig("off", provider("p", s.URL, 1))},
			[]object{model("m", "n/"+id+"=x"), model("dark", "off/p=x")},
			object{
				"provider_pool": object{"max_queue": 1, "queue_timeout_ms": 4000},
				"openai": object{"api_keys": []object{
					{"name": "test", "sha256": hash(apiKey)}, {"name": "small", "sha256": hash(smallKey), "max_concurrent": 1},
				}},
			}, calm)
	}
	r := start(t, site("p"), "n")
	overloads := map[string]int{}
	told := func(a answer, status int, code string) {
		t.Helper()
		require.NoError(t, a.err)
		require.Equal(t, status, a.status, a.body)
		require.Equal(t, code, a.code(t))
		require.Regexp(t, wholeSeconds, a.header.Get("Retry-After"), code)
		overloads[code]++
	}
	stream, end := r.begin(chatBody("m", true, ""))
	defer end()
	told(r.ask(t.Context(), chatBody("dark", false, "")), http.StatusServiceUnavailable, "provider_unavailable")
	small := func() answer {
		return r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("m", false, "")), "Authorization", "Bearer "+smallKey)
	}
	waits := make(chan answer, 1)
	go func() { waits <- small() }()
	r.waiting(1)
	told(small(), http.StatusTooManyRequests, "key_limit")
	told(r.ask(t.Context(), chatBody("m", false, "")), http.StatusTooManyRequests, "queue_full")
	told(<-waits, http.StatusServiceUnavailable, "queue_timeout")

	r.refresh(site("q"))
	told(r.ask(t.Context(), chatBody("m", false, "")), http.StatusServiceUnavailable, "provider_busy")
	freed.release()
	_, err := io.ReadAll(stream)
	require.NoError(t, err)
	r.quiet()

	running := r.background(t.Context(), chatBody("m", false, ""))
	s.reached(t, 2)
	queued := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	told(<-queued, http.StatusServiceUnavailable, "draining")
	told(r.ask(t.Context(), chatBody("m", false, "")), http.StatusServiceUnavailable, "draining")
	g.release()
	require.NoError(t, (<-running).err)
	require.Len(t, overloads, 6)
}

// attempts counts what a client sends, and how long it waits for the answers.
type attempts struct {
	http.RoundTripper

	mu      sync.Mutex
	n       int
	slowest time.Duration
}

func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	res, err := a.RoundTripper.RoundTrip(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	a.slowest = max(a.slowest, time.Since(sent))
	return res, err
}

// C16: the official client tries again by itself. However many of them stand
// before a full queue, each attempt is refused at once and counted once, reaches no
// provider, and the Edge serves as before when it is over.
func TestCase_C16_RetriesOfManyClientsDoNotAmplifyAnOverload(t *testing.T) {
	const clients, tries = 20, 3 // the client's default: 2 retries
	g := newGate(t)
	s := holding(t, g)
	r := queueSite(t, s, 1, object{"max_queue": 1})
	running := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	waits := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)
	sent := &attempts{RoundTripper: r.client.Transport}
	client := openai.NewClient(option.WithBaseURL(r.url+"/v1"), option.WithAPIKey(apiKey), option.WithHTTPClient(&http.Client{Transport: sent}))
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
				Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("go")},
			})
			var refused *openai.Error
			if !errors.As(err, &refused) || refused.StatusCode != http.StatusTooManyRequests || refused.Code != "queue_full" {
				t.Errorf("not refused by queue_full: %v", err)
			}
		})
	}
	all.Wait()
	t.Logf("%d attempts, the slowest refused after %s", sent.n, sent.slowest.Round(time.Millisecond))
	require.Equal(t, clients*tries, sent.n)
	require.Less(t, sent.slowest, time.Second+slack)
	refusals := func() int { return r.edge.said(`"outcome":"queue_full"`) }
	require.Eventually(t, func() bool { return refusals() >= sent.n }, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, sent.n, refusals(), "each attempt once")
	_, _, total, _ := s.counts()
	require.Equal(t, 1, total, "none of them reached the provider")
	r.waiting(1)
	g.release()
	require.Equal(t, http.StatusOK, (<-running).status)
	require.Equal(t, http.StatusOK, (<-waits).status)
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status, "it has recovered")
	r.quiet()
}
