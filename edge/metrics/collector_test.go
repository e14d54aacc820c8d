package metrics

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
)

// lines are the iop series of a scrape, in order.
func (m *Metrics) lines(t *testing.T) (all []string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body.String())
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "iop_") && !strings.HasPrefix(line, "iop_build_info") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func of(state State) *Metrics {
	return New("v", func() State { return state }, slog.New(slog.DiscardHandler))
}

// Each number of a State is in its own series: no two here are the same.
func TestAStateIsShownWhole(t *testing.T) {
	now := time.Unix(1000, 0)
	key := func(node admission.NodeID, provider admission.ProviderID) admission.ResourceKey {
		return admission.ResourceKey{Node: node, Provider: provider}
	}
	var by [admission.ReasonBehind + 1]int
	by[admission.ReasonFull], by[admission.ReasonLongFull], by[admission.ReasonBehind] = 31, 32, 33
	by[admission.ReasonOffline] = 34 // of no line that there should be; still not hidden
	m := of(State{
		At: now,
		Admission: admission.Snapshot{
			Counters: admission.Counters{Granted: 11, Released: 12, Fenced: 13, DoubleReleases: 14, Stale: 15, Commands: 16},
			Resources: []admission.ResourceState{
				{Resource: admission.Resource{Key: key("a", "p"), Capacity: 21, LongCapacity: 22}, InFlight: 23, LongInFlight: 24},
				{Resource: admission.Resource{Key: key("b", "p")}, Excluded: admission.ReasonDraining},
				{Resource: admission.Resource{Key: key("b", "q\xff")}, Removed: true, Excluded: admission.ReasonOffline},
			},
			Scopes: []admission.ScopeState{
				{Scope: admission.Scope{Key: admission.PoolScope, MaxQueue: 35}, Pending: 36},
				{Scope: admission.Scope{Key: "route:r", MaxQueue: 37}, Pending: 38},
			},
			WaitingBy: by, OldestWait: 39500 * time.Millisecond,
			Leases: []admission.LeaseState{
				{Resource: key("a", "p"), Granted: now.Add(-5 * time.Second)},
				{Resource: key("a", "p"), Granted: now.Add(-45 * time.Second)},
				{Resource: key("b", "p"), Granted: now.Add(time.Second)}, // a clock was set back
			},
		},
		Nodes: []Node{{ID: "a", Connected: true}, {ID: "b", Connected: true, Draining: true}, {ID: "c"}, {ID: "d"}, {ID: "e"}},
		Link: Link{
			Connections: 51, Disconnections: 52, StaleTokens: 53, UnknownTokens: 54, MissingTokens: 55, ReplayedTokens: 56, StaleFrames: 57, Overflows: 58,
			Rejections: map[string]uint64{"duplicate_owner": 59, "bad_credential": 60},
		},
		EventsDropped: 61, ConfigRevision: 62, Refreshes: Refreshes{Applied: 63, Refused: 64},
		Scales: []estimate.Scale{{Target: "served", Kind: "latin", Answers: 99, Factor: 0.65}, {Target: "few", Kind: "latin", Answers: 1}},
	})
	want := []string{
		`iop_leases_granted_total 11`, `iop_leases_released_total 12`, `iop_leases_fenced_total 13`, `iop_lease_double_releases_total 14`,
		`iop_stale_closes_total 15`,
		`iop_capacity{node="a",provider="p"} 21`, `iop_long_capacity{node="a",provider="p"} 22`,
		`iop_in_flight{node="a",provider="p"} 23`, `iop_long_in_flight{node="a",provider="p"} 24`,
		`iop_provider_available{node="a",provider="p"} 1`, `iop_oldest_lease_seconds{node="a",provider="p"} 45`,
		`iop_capacity{node="b",provider="p"} 0`, `iop_long_capacity{node="b",provider="p"} 0`, `iop_in_flight{node="b",provider="p"} 0`,
		`iop_long_in_flight{node="b",provider="p"} 0`, `iop_provider_available{node="b",provider="p"} 0`,
		`iop_oldest_lease_seconds{node="b",provider="p"} 0`, `iop_provider_excluded{node="b",provider="p",reason="draining"} 1`,
		`iop_capacity{node="b",provider="q?"} 0`, `iop_long_capacity{node="b",provider="q?"} 0`, `iop_in_flight{node="b",provider="q?"} 0`,
		`iop_long_in_flight{node="b",provider="q?"} 0`, `iop_provider_available{node="b",provider="q?"} 0`,
		`iop_oldest_lease_seconds{node="b",provider="q?"} 0`, `iop_provider_excluded{node="b",provider="q?",reason="removed"} 1`,
		`iop_queue_depth{scope="pool"} 36`, `iop_queue_limit{scope="pool"} 35`, `iop_queue_depth{scope="route:r"} 38`, `iop_queue_limit{scope="route:r"} 37`,
		`iop_waiting_requests{reason="full"} 31`, `iop_waiting_requests{reason="long_full"} 32`, `iop_waiting_requests{reason="behind"} 33`,
		`iop_waiting_requests{reason="offline"} 34`, `iop_waiting_requests{reason="over_capacity"} 0`, `iop_oldest_wait_seconds 39.5`,
		`iop_nodes{state="connected"} 1`, `iop_nodes{state="draining"} 1`, `iop_nodes{state="offline"} 3`,
		`iop_node_connected{node="a"} 1`, `iop_node_connected{node="b"} 1`, `iop_node_connected{node="c"} 0`, `iop_node_connected{node="d"} 0`,
		`iop_node_connected{node="e"} 0`,
		`iop_node_connections_total 51`, `iop_node_disconnections_total 52`,
		`iop_link_tokens_refused_total{reason="stale"} 53`, `iop_link_tokens_refused_total{reason="unknown"} 54`,
		`iop_link_tokens_refused_total{reason="missing"} 55`, `iop_link_tokens_refused_total{reason="replayed"} 56`,
		`iop_link_stale_frames_total 57`, `iop_link_overflows_total 58`,
		`iop_node_registrations_refused_total{reason="duplicate_owner"} 59`, `iop_node_registrations_refused_total{reason="bad_credential"} 60`,
		`iop_events_dropped_total 61`, `iop_config_revision 62`,
		`iop_config_refreshes_total{result="applied"} 63`, `iop_config_refreshes_total{result="refused"} 64`,
		`iop_estimate_scale{kind="latin",target="served"} 0.65`,
		`iop_requests_received_total 0`,
	}
	require.ElementsMatch(t, want, m.lines(t))
}

// What an Edge shows of waiting, at zero too: an alert needs the series before the trouble.
func TestAnIdleEdgeShowsZeros(t *testing.T) {
	lines := of(State{}).lines(t)
	for _, want := range []string{
		`iop_waiting_requests{reason="full"} 0`, `iop_waiting_requests{reason="long_full"} 0`, `iop_waiting_requests{reason="over_capacity"} 0`,
		`iop_waiting_requests{reason="behind"} 0`, `iop_lease_double_releases_total 0`, `iop_oldest_wait_seconds 0`,
		`iop_config_refreshes_total{result="refused"} 0`, `iop_nodes{state="offline"} 0`,
	} {
		require.Contains(t, lines, want)
	}
}

// ended has metrics told of endings and returns the series that say anything, buckets apart.
func ended(t *testing.T, all ...dispatch.Ending) (lines []string) {
	m := of(State{})
	for i := range all {
		m.Ended(&all[i])
	}
	return slices.DeleteFunc(m.lines(t), func(line string) bool {
		return strings.HasSuffix(line, " 0") || strings.Contains(line, "_bucket{")
	})
}

func TestWhatAnEndingCounts(t *testing.T) {
	grant := dispatch.Grant{Node: "n", Provider: "p", QueueWait: 2 * time.Second}
	for name, tt := range map[string]struct {
		ending dispatch.Ending
		want   []string
	}{
		"completed, with tokens, at the second attempt": {
			dispatch.Ending{Group: "m", Outcome: "completed", Grant: grant, Run: 3 * time.Second, FirstByte: time.Second, Attempts: 2, InputTokens: 12, OutputTokens: 7},
			[]string{
				`iop_requests_total{model="m",outcome="completed"} 1`, `iop_readmissions_total{model="m"} 1`,
				`iop_queue_wait_seconds_sum{model="m"} 2`, `iop_queue_wait_seconds_count{model="m"} 1`,
				`iop_request_duration_seconds_sum{model="m"} 5`, `iop_request_duration_seconds_count{model="m"} 1`,
				`iop_first_byte_seconds_sum{model="m"} 1`, `iop_first_byte_seconds_count{model="m"} 1`,
				`iop_input_tokens_total{model="m",node="n",provider="p"} 12`, `iop_output_tokens_total{model="m",node="n",provider="p"} 7`,
			},
		},
		"completed, without tokens and text": {
			dispatch.Ending{Group: "m", Outcome: "completed", Grant: grant, Attempts: 1, InputTokens: -1, OutputTokens: -1, Empty: true},
			[]string{
				`iop_requests_total{model="m",outcome="completed"} 1`,
				`iop_queue_wait_seconds_sum{model="m"} 2`, `iop_queue_wait_seconds_count{model="m"} 1`,
				`iop_request_duration_seconds_sum{model="m"} 2`, `iop_request_duration_seconds_count{model="m"} 1`,
				`iop_answers_without_usage_total{model="m",node="n",provider="p"} 1`, `iop_empty_answers_total{model="m",node="n",provider="p"} 1`,
			},
		},
		"an error of the provider is no answer without usage": {
			dispatch.Ending{Group: "m", Outcome: "provider_error", Grant: grant, Run: time.Second, Attempts: 1, InputTokens: -1, OutputTokens: -1},
			[]string{
				`iop_requests_total{model="m",outcome="provider_error"} 1`,
				`iop_queue_wait_seconds_sum{model="m"} 2`, `iop_queue_wait_seconds_count{model="m"} 1`,
				`iop_request_duration_seconds_sum{model="m"} 3`, `iop_request_duration_seconds_count{model="m"} 1`,
			},
		},
		"no grant, no wait": {
			dispatch.Ending{Group: "m", Outcome: "queue_full", InputTokens: -1, OutputTokens: -1},
			[]string{`iop_requests_total{model="m",outcome="queue_full"} 1`},
		},
		"a model that is configured no more": {
			dispatch.Ending{Group: "gone", Outcome: "unknown_model", InputTokens: -1, OutputTokens: -1},
			[]string{`iop_requests_total{model="unknown",outcome="unknown_model"} 1`},
		},
		"a word that is no outcome": {
			dispatch.Ending{Group: "m\xff", Outcome: "of a newer kind", InputTokens: -1, OutputTokens: -1},
			[]string{`iop_requests_total{model="m?",outcome="other"} 1`},
		},
	} {
		t.Run(name, func(t *testing.T) { require.ElementsMatch(t, tt.want, ended(t, tt.ending)) })
	}
}

// Every way in which a node or provider can fail a request is an outcome of its own.
func TestEveryFailureIsAnOutcome(t *testing.T) {
	for code := dispatch.NeverOpened; code <= dispatch.Cancelled; code++ {
		require.True(t, outcomes[code.String()], code)
	}
}

// What clients can make up is in no label.
func TestMadeUpNamesMakeNoSeries(t *testing.T) {
	m := of(State{})
	m.Ended(&dispatch.Ending{Group: "m", Outcome: "unknown_model"})
	m.Ended(&dispatch.Ending{Group: "m", Outcome: "made up"})
	m.Refused("model_not_found")
	m.Local()
	before := m.lines(t)
	for i := range 10_000 {
		m.Ended(&dispatch.Ending{Group: admission.GroupKey(fmt.Sprint("made-up-", i)), Outcome: "unknown_model", Client: fmt.Sprint("made-up-", i)})
		m.Ended(&dispatch.Ending{Group: "m", Outcome: fmt.Sprint("made-up-", i)})
		m.Refused("model_not_found")
	}
	after := m.lines(t)
	require.Len(t, after, len(before))
	require.Contains(t, after, `iop_requests_total{model="unknown",outcome="refused"} 10001`)
	require.NotContains(t, strings.Join(after, "\n"), "made-up")
}

// limited notes under which limits it is written to.
type limited struct {
	*httptest.ResponseRecorder
	read, write, wrote, flushed time.Time
}

func (l *limited) SetReadDeadline(at time.Time) error {
	l.read = at
	return nil
}

func (l *limited) SetWriteDeadline(at time.Time) error {
	l.write = at
	return nil
}

func (l *limited) Write(p []byte) (int, error) {
	l.wrote = l.write
	return l.ResponseRecorder.Write(p)
}

func (l *limited) Flush() {
	l.flushed = l.write
	l.ResponseRecorder.Flush()
}

// Four scrapes run at once at most: one that nobody reads keeps the next one out for a while only.
func TestAScrapeThatIsForgottenEnds(t *testing.T) {
	w := &limited{ResponseRecorder: httptest.NewRecorder()}
	of(State{}).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for what, at := range map[string]time.Time{"read": w.read, "written": w.wrote, "flushed": w.flushed} {
		require.WithinDuration(t, time.Now().Add(patience), at, patience/2, what)
	}
	require.True(t, w.write.IsZero(), "the connection serves others afterwards")
}
