package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/cmd/edged"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// What the provider of the telemetry tests does, by a word in the request, and what it counts.
const (
	countedInput, countedOutput = 300, 7
	sayFine                     = "do-fine"
	sayMute                     = "do-without-usage"
	sayEmpty                    = "do-empty"
	sayFail                     = "do-fail"
	sayBreak                    = "do-break"
	sayHang                     = "do-hang"
	sayStream                   = "do-stream"
)

func wordedProvider(t *testing.T) *stub {
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, countedInput, countedOutput, countedInput+countedOutput)
	whole := func(w http.ResponseWriter, finish, content string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c1","object":"chat.completion","model":"served","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":%q}],%s}`, content, finish, usage)
	}
	return newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch text := string(body); {
		case strings.Contains(text, sayMute):
			complete(w, "served", "x")
		case strings.Contains(text, sayEmpty):
			whole(w, "length", "")
		case strings.Contains(text, sayFail):
			http.Error(w, `{"error":{"message":"no"}}`, http.StatusInternalServerError)
		case strings.Contains(text, sayBreak):
			_ = sse(w, chunk("served", "x"))
			panic(http.ErrAbortHandler)
		case strings.Contains(text, sayHang):
			<-r.Context().Done()
		case strings.Contains(text, sayStream):
			_ = sse(w, chunk("served", "answer-text"))
			_ = sse(w, lastChunk("served"))
			_ = sse(w, `{"model":"served","choices":[],`+usage+`}`)
			_ = sse(w, "[DONE]")
		default:
			whole(w, "stop", "answer-text")
		}
	})
}

func saying(model, word string) string {
	return chatBody(model, word == sayStream, `,"user":"`+word+`"`)
}

// busySite is an Edge file with a node n of one slot, a node w of two and of a provider that nobody listens for, a node that never comes and one
// for a puppet. Waits are as long as patient says.
func busySite(provided string, patient time.Duration, more ...object) object {
	file := edgeFile(
		[]object{
			nodeConfig("n", provider("p", provided, 1)),
			nodeConfig("w", provider("q", provided, 2), provider("dead", "http://127.0.0.1:1", 1, object{"priority": 10})),
			nodeConfig("off", provider("p", provided, 3)),
			nodeConfig("ghost", provider("p", provided, 1, object{"priority": 10})),
		},
		[]object{
			model("m", "n/p=served"), model("again", "w/dead=x", "w/q=served"), model("gone", "off/p=x"), model("haunted", "ghost/p=x", "w/q=served"),
		},
		more...,
	)
	file["edge"].(object)["heartbeat"] = object{"interval_ms": 20_000, "timeout_ms": 60_000} // the puppet sends none
	file["provider_pool"] = object{"max_queue": 2, "queue_timeout_ms": patient.Milliseconds(), "selection": "priority"}
	return file
}

// documentedSeries are the series of docs/metrics.md and their labels.
func documentedSeries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	all := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(iop_[a-z_]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = regexp.MustCompile(`\w+`).FindAllString(m[2], -1)
	}
	require.Greater(t, len(all), 30)
	return all
}

// Every series of docs/metrics.md is in a scrape, with its labels and what the traffic before comes to. The traffic ends in every way that there is
// without a fault in IOP itself; what only such a fault can raise is there at 0.
func TestMetrics_EverySeriesHasWhatTheTrafficImplies(t *testing.T) {
	s := wordedProvider(t)
	nobodyReads := func(e *edged.Edge) { e.Events().Subscribe(0) }
	r := startInside(t, busySite(s.URL, time.Hour), io.Discard, nobodyReads, "n", "w")
	for _, secret := range []string{"", "Bearer " + apiKey, "Bearer wrong"} {
		a := r.fetch(t.Context(), http.MethodGet, "/metrics", nil, "Authorization", secret)
		require.Equal(t, http.StatusUnauthorized, a.status)
		require.NotContains(t, a.body, "iop_")
	}
	status := func(want int, model, word string) {
		t.Helper()
		a := r.ask(t.Context(), saying(model, word))
		require.Equal(t, want, a.status, a.body)
	}

	// Whole answers, errors and a broken answer.
	long := strings.Replace(saying("m", sayFine), "go 97", strings.Repeat("some words of a prompt that is not short. ", 60), 1)
	for range 12 { // so many that the estimate learns
		require.Equal(t, http.StatusOK, r.ask(t.Context(), long).status)
	}
	status(http.StatusOK, "m", sayStream)
	status(http.StatusOK, "m", sayMute)
	status(http.StatusOK, "m", sayEmpty)
	status(http.StatusInternalServerError, "m", sayFail)
	status(http.StatusInternalServerError, "m", sayFail)
	_ = r.ask(t.Context(), saying("m", sayBreak))
	status(http.StatusOK, "again", sayFine)
	status(http.StatusServiceUnavailable, "gone", sayFine)

	// One runs, two wait, one is refused; a waiter leaves, another's time is up by a refresh, and the running one leaves.
	ctx, leave := context.WithCancel(t.Context())
	held := r.background(ctx, saying("m", sayHang))
	r.running(1)
	waits := r.background(t.Context(), saying("m", sayFine))
	r.waiting(1)
	ctx2, leave2 := context.WithCancel(t.Context())
	behind := r.background(ctx2, saying("m", sayFine))
	r.waiting(2)
	require.Equal(t, "queue_full", r.ask(t.Context(), saying("m", sayFine)).code(t))
	up := r.scraped()
	for series, want := range map[string]float64{
		`iop_in_flight{node="n",provider="p"}`:               1,
		`iop_in_flight{node="w",provider="q"}`:               0,
		`iop_queue_depth{scope="pool"}`:                      2,
		`iop_queue_limit{scope="pool"}`:                      2,
		`iop_waiting_requests{reason="full"}`:                1,
		`iop_waiting_requests{reason="behind"}`:              1,
		`iop_waiting_requests{reason="long_full"}`:           0,
		`iop_provider_available{node="n",provider="p"}`:      1,
		`iop_requests_total{model="m",outcome="queue_full"}`: 1,
	} {
		require.Contains(t, up, series)
		require.Equal(t, want, up[series], series)
	}
	require.Positive(t, up.sum("iop_oldest_wait_seconds"))
	require.GreaterOrEqual(t, up.sum("iop_oldest_lease_seconds", `node="n"`), up.sum("iop_oldest_wait_seconds"), "it was there first")
	require.EqualValues(t, 1, up.sum("iop_leases_granted_total")-up.sum("iop_leases_released_total"))
	leave2()
	<-behind
	r.waiting(1)
	reload := func(url string, patience time.Duration) error {
		writeYAML(t, r.edgeYAML, busySite(url, patience))
		_, err := r.inner.Reload()
		return err
	}
	require.Error(t, reload("no url", time.Hour))
	require.NoError(t, reload(s.URL, time.Millisecond))
	require.Equal(t, "queue_timeout", (<-waits).code(t))
	require.NoError(t, reload(s.URL, time.Hour))
	leave()
	<-held

	// A node that is refused, plays old tokens, and goes with a request.
	p := r.puppet()
	reason := func(id, token, instance string) runtimev1.RejectReason {
		answer, leave := p.register(id, token, instance)
		defer leave()
		require.NotNil(t, answer.GetRejected())
		return answer.GetRejected().GetReason()
	}
	ghost := nodeToken + "ghost"
	answer, leaveGhost := p.register("ghost", ghost, "instance-of-ghost-1")
	old := answer.GetAccepted().GetGenerationToken()
	require.NotEmpty(t, old)
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_DUPLICATE_OWNER, reason("ghost", ghost, "instance-of-another"))
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_BAD_CREDENTIAL, reason("ghost", "guessed", "instance-of-another"))
	require.Equal(t, runtimev1.RejectReason_REJECT_REASON_UNKNOWN_NODE, reason("made-up-node", "guessed", "instance-of-another"))
	first, second := p.park(old, 1), p.park(old, 1) // one is the other's replay
	var err error
	select {
	case err = <-first:
	case err = <-second:
	}
	require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(err), err)
	for _, token := range []string{"", "guessed"} {
		err := <-p.park(token, 2)
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), err)
	}
	leaveGhost()
	r.connected("n", "w")
	_, leaveGhost = p.register("ghost", ghost, "instance-of-ghost-2")
	err = <-p.park(old, 3)
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), err)
	haunted := r.background(t.Context(), saying("haunted", sayFine))
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetNodes()[3].GetProviders()[0].GetInFlight() == 1 }, "the puppet holds the request")
	leaveGhost()
	require.Equal(t, http.StatusOK, (<-haunted).status, "it went on to the other provider")

	// What never reaches admission.
	require.Equal(t, "model_not_found", r.ask(t.Context(), saying("made-up-model", sayFine)).code(t))
	require.Equal(t, "invalid_request", r.ask(t.Context(), `{"model":`).code(t))
	require.Equal(t, http.StatusUnauthorized, r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader("{}"), "Authorization", "Bearer made-up-key").status)
	require.Equal(t, http.StatusOK, r.fetch(t.Context(), http.MethodGet, "/v1/models", nil).status)

	require.Eventually(t, func() bool { return r.scraped().sum("iop_node_disconnections_total") == 2 }, 20*time.Second, 10*time.Millisecond, "it is told after the fact")
	got := r.balanced()
	requireDocumented(t, got, documentedSeries(t))
	const m, again, haunts = 19, 1, 1 // requests that had a grant
	for series, want := range map[string]float64{
		"iop_requests_received_total":                                      29,
		`iop_requests_total{model="m",outcome="completed"}`:                15,
		`iop_requests_total{model="m",outcome="provider_error"}`:           2,
		`iop_requests_total{model="m",outcome="provider_disconnected"}`:    1,
		`iop_requests_total{model="m",outcome="cancelled"}`:                2,
		`iop_requests_total{model="m",outcome="queue_full"}`:               1,
		`iop_requests_total{model="m",outcome="queue_timeout"}`:            1,
		`iop_requests_total{model="again",outcome="completed"}`:            1,
		`iop_requests_total{model="haunted",outcome="completed"}`:          1,
		`iop_requests_total{model="gone",outcome="unavailable"}`:           1,
		`iop_requests_total{model="unknown",outcome="refused"}`:            3, // a scrape is no request
		`iop_requests_total{model="unknown",outcome="local"}`:              1,
		`iop_requests_refused_total{code="model_not_found"}`:               1,
		`iop_requests_refused_total{code="invalid_request"}`:               1,
		`iop_requests_refused_total{code="invalid_api_key"}`:               1,
		`iop_leases_granted_total`:                                         m + 2*again + 2*haunts,
		`iop_leases_released_total`:                                        m + 2*again + 2*haunts,
		`iop_leases_fenced_total`:                                          1,
		`iop_lease_double_releases_total`:                                  0,
		`iop_stale_closes_total`:                                           0,
		`iop_link_stale_frames_total`:                                      0,
		`iop_link_overflows_total`:                                         0,
		`iop_readmissions_total{model="again"}`:                            1,
		`iop_readmissions_total{model="haunted"}`:                          1,
		`iop_queue_wait_seconds_count{model="m"}`:                          m,
		`iop_queue_wait_seconds_count{model="again"}`:                      again,
		`iop_queue_wait_seconds_count{model="haunted"}`:                    haunts,
		`iop_request_duration_seconds_count{model="m"}`:                    m,
		`iop_request_duration_seconds_bucket{model="m",le="+Inf"}`:         m,
		`iop_first_byte_seconds_count{model="m"}`:                          m - 1, // the one that hung got none
		`iop_first_byte_seconds_count{model="again"}`:                      again,
		`iop_input_tokens_total{model="m",node="n",provider="p"}`:          14 * countedInput,
		`iop_output_tokens_total{model="m",node="n",provider="p"}`:         14 * countedOutput,
		`iop_input_tokens_total{model="again",node="w",provider="q"}`:      countedInput,
		`iop_output_tokens_total{model="haunted",node="w",provider="q"}`:   countedOutput,
		`iop_answers_without_usage_total{model="m",node="n",provider="p"}`: 1,
		`iop_empty_answers_total{model="m",node="n",provider="p"}`:         1,
		`iop_config_refreshes_total{result="applied"}`:                     2,
		`iop_config_refreshes_total{result="refused"}`:                     1,
		`iop_config_revision`:                                              3,
		`iop_node_connections_total`:                                       4,
		`iop_node_disconnections_total`:                                    2,
		`iop_events_dropped_total`:                                         9, // those, and the three refreshes: nobody read
		`iop_node_registrations_refused_total{reason="duplicate_owner"}`:   1,
		`iop_node_registrations_refused_total{reason="bad_credential"}`:    1,
		`iop_node_registrations_refused_total{reason="unknown_node"}`:      1,
		`iop_link_tokens_refused_total{reason="missing"}`:                  1,
		`iop_link_tokens_refused_total{reason="unknown"}`:                  1,
		`iop_link_tokens_refused_total{reason="stale"}`:                    1,
		`iop_link_tokens_refused_total{reason="replayed"}`:                 1,
		`iop_nodes{state="connected"}`:                                     2,
		`iop_nodes{state="offline"}`:                                       2,
		`iop_nodes{state="draining"}`:                                      0,
		`iop_node_connected{node="n"}`:                                     1,
		`iop_node_connected{node="ghost"}`:                                 0,
		`iop_capacity{node="off",provider="p"}`:                            3,
		`iop_provider_available{node="off",provider="p"}`:                  0,
		`iop_provider_excluded{node="off",provider="p",reason="offline"}`:  1,
		`iop_provider_available{node="w",provider="dead"}`:                 1, // nothing is known of health but what is configured
		`iop_long_capacity{node="n",provider="p"}`:                         0,
		`iop_waiting_requests{reason="full"}`:                              0,
		`iop_oldest_wait_seconds`:                                          0,
		`iop_oldest_lease_seconds{node="n",provider="p"}`:                  0,
		`iop_build_info{goversion="` + goVersion(got) + `",version="v9"}`:  1,
	} {
		require.Contains(t, got, series)
		require.Equal(t, want, got[series], series)
	}
	require.Positive(t, got.sum("iop_estimate_scale", `target="served"`))
	wait, first1, whole := got.sum("iop_queue_wait_seconds_sum"), got.sum("iop_first_byte_seconds_sum"), got.sum("iop_request_duration_seconds_sum")
	require.Positive(t, wait)
	require.Positive(t, first1)
	require.Greater(t, whole, wait+first1)

	// A scrape twice is the same, but for time.
	require.Equal(t, got.series(), r.scraped().series())
}

func goVersion(s scrape) string {
	for series := range s {
		if rest, ok := strings.CutPrefix(series, `iop_build_info{goversion="`); ok {
			v, _, _ := strings.Cut(rest, `"`)
			return v
		}
	}
	return ""
}

// requireDocumented checks that a scrape has every documented series, no other, and each with its labels.
func requireDocumented(t *testing.T, got scrape, documented map[string][]string) {
	t.Helper()
	seen := map[string]bool{}
	label := regexp.MustCompile(`(\w+)="`)
	for text := range got {
		if !strings.HasPrefix(text, "iop_") {
			continue
		}
		name, rest, _ := strings.Cut(text, "{")
		var labels []string
		for _, l := range label.FindAllStringSubmatch(rest, -1) {
			labels = append(labels, l[1])
		}
		if _, ok := documented[name]; !ok {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
			labels = slices.DeleteFunc(labels, func(l string) bool { return l == "le" })
		}
		require.Contains(t, documented, name, text)
		require.ElementsMatch(t, documented[name], labels, text)
		seen[name] = true
	}
	for name := range documented {
		require.True(t, seen[name], "%s is in no scrape", name)
	}
}

// Ten thousand requests that name made-up models, show made-up keys and ask for made-up paths make no series.
func TestMetrics_WhatClientsMakeUpMakesNoSeries(t *testing.T) {
	s := wordedProvider(t)
	r := startInside(t, busySite(s.URL, time.Hour), io.Discard, func(*edged.Edge) {}, "n", "w")
	ask := func(i int) {
		made := fmt.Sprint("made-up-", i)
		var want, status int
		switch i % 4 {
		case 0:
			want, status = http.StatusNotFound, r.ask(t.Context(), saying(made, made)).status
		case 1:
			want = http.StatusUnauthorized
			status = r.fetch(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(saying("m", made)), "Authorization", "Bearer "+made).status
		case 2:
			want, status = http.StatusNotFound, r.fetch(t.Context(), http.MethodPost, "/v1/"+made, strings.NewReader("{}"), "X-Request-Id", made).status
		case 3:
			want = http.StatusNotFound
			status = r.fetch(t.Context(), http.MethodPost, "/v1/embeddings", strings.NewReader(`{"model":"`+made+`","input":"x","user":"`+made+`"}`)).status
		}
		if status != want {
			t.Errorf("request %d was answered %d", i, status)
		}
	}
	for i := range 4 {
		ask(i)
	}
	require.Equal(t, http.StatusOK, r.ask(t.Context(), saying("m", sayFine)).status)
	before := r.balanced()
	const more, hands = 10_000, 8
	var workers sync.WaitGroup
	for hand := range hands {
		workers.Go(func() {
			for i := hand; i < more; i += hands {
				ask(i)
			}
		})
	}
	workers.Wait()
	after := r.balanced()
	require.Equal(t, before.series(), after.series())
	require.EqualValues(t, more+4, after.sum("iop_requests_total", `model="unknown"`, `outcome="refused"`))
	for series := range after {
		require.NotContains(t, series, "made-up")
	}
	require.Less(t, after.sum("go_memstats_heap_objects"), 2*before.sum("go_memstats_heap_objects")+200_000)
}
