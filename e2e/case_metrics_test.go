package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scrape is /metrics at one moment: the value of each series, by its text.
type scrape map[string]float64

// scraped asks the Edge's /metrics.
func (r *rig) scraped() scrape {
	r.t.Helper()
	a := r.fetch(r.t.Context(), http.MethodGet, "/metrics", nil, "Authorization", "Bearer "+readToken)
	require.NoError(r.t, a.err)
	require.Equal(r.t, http.StatusOK, a.status, a.body)
	return parseScrape(r.t, a.body)
}

func parseScrape(t *testing.T, text string) scrape {
	t.Helper()
	all := scrape{}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		require.NoError(t, err, line)
		all[line[:at]] = v
	}
	return all
}

// sum adds up all series of a name that have every one of the labels (`model="m"`).
func (s scrape) sum(name string, labels ...string) (sum float64) {
series:
	for series, v := range s {
		got, rest, _ := strings.Cut(series, "{")
		if got != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		sum += v
	}
	return sum
}

// series counts the iop series.
func (s scrape) series() (n int) {
	for name := range s {
		if strings.HasPrefix(name, "iop_") {
			n++
		}
	}
	return n
}

// balanced waits until every request that was received is in one outcome, and nothing runs or waits.
func (r *rig) balanced() scrape {
	r.t.Helper()
	var s scrape
	require.Eventually(r.t, func() bool {
		s = r.scraped()
		return s.sum("iop_requests_total") == s.sum("iop_requests_received_total") && s.sum("iop_in_flight")+s.sum("iop_queue_depth") == 0
	}, 20*time.Second, 20*time.Millisecond, "as many outcomes as requests")
	require.Zero(r.t, s.sum("iop_requests_total", `outcome="other"`))
	require.Zero(r.t, s.sum("iop_lease_double_releases_total"))
	require.Equal(r.t, s.sum("iop_leases_granted_total"), s.sum("iop_leases_released_total"))
	return s
}

// Only who may read the state may scrape.
func TestMetricsNeedAReadToken(t *testing.T) {
	r := single(t, newStub(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { complete(w, "served", "x") }))
	for _, secret := range []string{"", "Bearer " + apiKey, "Bearer wrong"} {
		a := r.fetch(t.Context(), http.MethodGet, "/metrics", nil, "Authorization", secret)
		require.Equal(t, http.StatusUnauthorized, a.status)
		require.NotContains(t, a.body, "iop_")
	}
	s := r.scraped()
	require.EqualValues(t, 1, s.sum("iop_build_info"))
	require.EqualValues(t, 1, s.sum("iop_nodes", `state="connected"`))
	require.EqualValues(t, 1, s.sum("iop_capacity", `node="n"`, `provider="p"`))
	require.NotZero(t, s.sum("go_goroutines"))
	require.NotZero(t, s.sum("process_start_time_seconds"))
}

// J01: running and waiting are 0 again after all were aborted.
func TestCase_J01_GaugesAreBackAtZero(t *testing.T) {
	const slots, asked = 20, 30
	hold := newGate(t)
	s := newStub(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) { hold.wait(r) })
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, slots))}, []object{model("m", "n/p=served")}), "n")
	ctx, abort := context.WithCancel(t.Context())
	var all []<-chan answer
	for range asked {
		all = append(all, r.background(ctx, chatBody("m", true, "")))
	}
	r.running(slots)
	r.waiting(asked - slots)
	up := r.scraped()
	require.EqualValues(t, slots, up.sum("iop_in_flight"))
	require.EqualValues(t, asked-slots, up.sum("iop_queue_depth", `scope="pool"`))
	require.EqualValues(t, asked-slots, up.sum("iop_waiting_requests"))
	require.EqualValues(t, 1, up.sum("iop_waiting_requests", `reason="full"`), "the first of the line waits for a slot, the rest for it")
	abort()
	for _, a := range all {
		<-a
	}
	down := r.balanced()
	require.Zero(t, down.sum("iop_in_flight"))
	require.Zero(t, down.sum("iop_waiting_requests"))
	require.Zero(t, down.sum("iop_oldest_wait_seconds"))
	require.EqualValues(t, asked, down.sum("iop_requests_total", `model="m"`, `outcome="cancelled"`))
}

// J02, A09: streams are counted with usage and without, and the first byte's time is sane where a chunk has no choices.
func TestCase_J02_A09_StreamsAreCounted(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, body []byte) {
		_ = sse(w, `{"model":"served","choices":[],"prompt_filter_results":[]}`)
		_ = sse(w, chunk("served", "hi"))
		_ = sse(w, lastChunk("served"))
		_ = sse(w, `{"model":"served","id":"no choices at all"}`)
		if strings.Contains(string(body), "include_usage") {
			_ = sse(w, `{"model":"served","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`)
		}
		_ = sse(w, "[DONE]")
	})
	r := single(t, s)
	for i := range 10 {
		more := ""
		if i%2 == 0 {
			more = `,"stream_options":{"include_usage":true}`
		}
		a := r.ask(t.Context(), chatBody("m", true, more))
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status)
	}
	got := r.balanced()
	require.EqualValues(t, 10, got.sum("iop_requests_total", `outcome="completed"`))
	where := []string{`model="m"`, `node="n"`, `provider="p"`}
	require.EqualValues(t, 25, got.sum("iop_input_tokens_total", where...))
	require.EqualValues(t, 10, got.sum("iop_output_tokens_total", where...))
	require.EqualValues(t, 5, got.sum("iop_answers_without_usage_total", where...))
	require.EqualValues(t, 10, got.sum("iop_first_byte_seconds_count"))
	require.EqualValues(t, 10, got.sum("iop_queue_wait_seconds_count"))
	first, whole := got.sum("iop_first_byte_seconds_sum"), got.sum("iop_request_duration_seconds_sum")
	require.Positive(t, first)
	require.Less(t, first, whole)
}

// J04, J05: every request is in one outcome, and all of them together are what was received.
func TestCase_J04_J05_EveryOutcomeIsCounted(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch text := string(body); {
		case strings.Contains(text, "please-fail"):
			http.Error(w, `{"error":{"message":"no"}}`, http.StatusInternalServerError)
		case strings.Contains(text, "please-hang"):
			<-r.Context().Done()
		case strings.Contains(text, "please-break"):
			_ = sse(w, chunk("served", "x"))
			panic(http.ErrAbortHandler)
		default:
			complete(w, "served", "x")
		}
	})
	r := site(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=served")},
		object{"provider_pool": object{"max_queue": 1, "queue_timeout_ms": 1500}}), "n")
	ask := func(body string) answer { return r.ask(t.Context(), body) }
	said := func(word string) string { return chatBody("m", false, `,"user":"`+word+`"`) }
	for range 3 {
		require.Equal(t, http.StatusOK, ask(said("fine")).status)
	}
	for range 10 {
		require.Equal(t, http.StatusInternalServerError, ask(said("please-fail")).status)
	}
	_ = ask(said("please-break")) // cut off
	ctx, abort := context.WithCancel(t.Context())
	held := r.background(ctx, said("please-hang"))
	r.running(1)
	waits := r.background(t.Context(), said("fine"))
	r.waiting(1)
	require.Equal(t, "queue_full", ask(said("fine")).code(t))
	require.Equal(t, "queue_timeout", (<-waits).code(t))
	abort()
	<-held
	require.Equal(t, "model_not_found", ask(chatBody("nobody", false, "")).code(t))
	require.Equal(t, http.StatusBadRequest, ask(`{"model":`).status)
	require.Equal(t, http.StatusUnauthorized, r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader("{}"), "Authorization", "Bearer no").status)
	require.Equal(t, http.StatusNotFound, r.fetch(t.Context(), http.MethodGet, "/v1/nothing", nil).status)
	require.Equal(t, http.StatusOK, r.fetch(t.Context(), http.MethodGet, "/v1/models", nil).status)
	a := r.fetch(t.Context(), http.MethodPost, "/iop.inference.v1.InferenceService/ListModels", strings.NewReader("{}"))
	require.Equal(t, http.StatusOK, a.status, a.body)
	a = r.fetch(t.Context(), http.MethodPost, "/iop.inference.v1.InferenceService/ListModels", strings.NewReader("{}"), "Authorization", "Bearer no")
	require.Equal(t, http.StatusUnauthorized, a.status)

	got := r.balanced()
	outcomes := map[string]float64{}
	for _, o := range []string{
		"completed", "provider_error", "provider_disconnected", "cancelled", "queue_full", "queue_timeout", "refused", "local",
	} {
		outcomes[o] = got.sum("iop_requests_total", fmt.Sprintf("outcome=%q", o))
	}
	require.Equal(t, map[string]float64{
		"completed": 3, "provider_error": 10, "provider_disconnected": 1, "cancelled": 1, "queue_full": 1, "queue_timeout": 1, "refused": 5, "local": 2,
	}, outcomes)
	require.EqualValues(t, 24, got.sum("iop_requests_received_total"))
	require.EqualValues(t, 5, got.sum("iop_requests_refused_total"))
	for _, code := range []string{"model_not_found", "not_found"} {
		require.EqualValues(t, 1, got.sum("iop_requests_refused_total", fmt.Sprintf("code=%q", code)), code)
	}
	require.EqualValues(t, 2, got.sum("iop_requests_refused_total", `code="invalid_api_key"`))
}

// J06: ten thousand made-up models make no series.
func TestCase_J06_MadeUpModelsAreOneSeries(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { complete(w, "served", "x") })
	r := single(t, s)
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			a := r.ask(t.Context(), chatBody(fmt.Sprint("made-up-", i), false, ""))
			require.NoError(t, a.err)
			require.Equal(t, http.StatusNotFound, a.status)
		}
	}
	requests := 10_000
	if testing.Short() || raceEnabled {
		requests = 2_000
	}
	flood(0, requests/10)
	before := r.scraped()
	flood(requests/10, requests)
	after := r.scraped()
	require.Equal(t, before.series(), after.series())
	require.EqualValues(t, requests, after.sum("iop_requests_total", `model="unknown"`, `outcome="refused"`))
	require.Less(t, after.sum("go_memstats_heap_objects"), 2*before.sum("go_memstats_heap_objects")+200_000)
	for series := range after {
		require.NotContains(t, series, "made-up")
	}
}

// J10: what several nodes do adds up, while one of them leaves and returns.
func TestCase_J10_SumsOfNodes(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		if hold.wait(r) {
			complete(w, "served", "x")
		}
	})
	ids := []string{"a", "b", "c"}
	var nodes []object
	var candidates []string
	for _, id := range ids {
		nodes = append(nodes, nodeConfig(id, provider("p", s.URL, 2)))
		candidates = append(candidates, id+"/p=served")
	}
	r := site(t, edgeFile(nodes, []object{model("m", candidates...)}), ids...)
	var all []<-chan answer
	for range 8 {
		all = append(all, r.background(t.Context(), chatBody("m", false, "")))
	}
	r.running(6)
	r.waiting(2)
	got := r.scraped()
	for _, id := range ids {
		require.EqualValues(t, 2, got.sum("iop_in_flight", fmt.Sprintf("node=%q", id)), id)
	}
	require.EqualValues(t, 6, got.sum("iop_in_flight"))
	require.EqualValues(t, 6, got.sum("iop_leases_granted_total"))

	r.nodes["b"].kill() // two end with it; those who wait go on waiting: the others are full
	r.connected("a", "c")
	got = r.scraped()
	require.EqualValues(t, 4, got.sum("iop_in_flight"))
	require.Zero(t, got.sum("iop_in_flight", `node="b"`))
	require.EqualValues(t, 2, got.sum("iop_leases_fenced_total"))
	require.EqualValues(t, 1, got.sum("iop_provider_excluded", `node="b"`, `reason="offline"`))
	r.startNode("b")
	r.connected(ids...)
	r.running(6)
	hold.release()
	codes := map[int]int{}
	for _, a := range all {
		codes[(<-a).status]++
	}
	require.Equal(t, map[int]int{http.StatusOK: 6, http.StatusBadGateway: 2}, codes)
	got = r.balanced()
	require.EqualValues(t, 8, got.sum("iop_requests_total", `model="m"`))
	require.EqualValues(t, 6, got.sum("iop_requests_total", `outcome="completed"`))
	require.EqualValues(t, 2, got.sum("iop_requests_total", `outcome="provider_disconnected"`))
	require.EqualValues(t, 8, got.sum("iop_leases_granted_total"))
	require.EqualValues(t, 4, got.sum("iop_node_connections_total"))
	require.EqualValues(t, 1, got.sum("iop_node_disconnections_total"))
}

// J14: a request that never ends shows by its age, whatever else looks well.
func TestCase_J14_AHeldRequestShows(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		if hold.wait(r) {
			complete(w, "served", "x")
		}
	})
	r := single(t, s)
	held, waits := r.background(t.Context(), chatBody("m", false, "")), r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	r.waiting(1)
	require.Eventually(t, func() bool {
		got := r.scraped()
		return got.sum("iop_oldest_lease_seconds", `node="n"`, `provider="p"`) > 0.2 && got.sum("iop_oldest_wait_seconds") > 0.2 &&
			got.sum("iop_queue_depth", `scope="pool"`) == 1
	}, 20*time.Second, 20*time.Millisecond)
	hold.release()
	<-held
	<-waits
	got := r.balanced()
	require.Zero(t, got.sum("iop_oldest_lease_seconds"))
	require.Positive(t, got.sum("iop_queue_wait_seconds_sum"))
}

// I12: no secret and nothing that a client has said is in a scrape.
func TestCase_I12_NoSecretIsInAScrape(t *testing.T) {
	const planted = "planted-secret-7"
	s := newStub(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		http.Error(w, `{"error":{"message":"`+planted+`"}}`, http.StatusUnauthorized)
	})
	r := single(t, s)
	_ = r.ask(t.Context(), chatBody("m", false, `,"user":"`+planted+`"`))
	_ = r.ask(t.Context(), chatBody(planted, false, ""))
	_ = r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader("{}"), "Authorization", "Bearer "+planted)
	_ = r.fetch(t.Context(), http.MethodPost, "/v1/"+planted, io.NopCloser(strings.NewReader("{}")), "X-Request-Id", planted)
	r.balanced()
	a := r.fetch(t.Context(), http.MethodGet, "/metrics", nil, "Authorization", "Bearer "+readToken)
	for _, secret := range []string{planted, apiKey, readToken, nodeToken, hash(apiKey), s.URL, "go 97"} {
		require.NotContains(t, a.body, secret)
	}
}
