package dispatch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/estimate"
)

func TestL08_LogLineTellsTheDecision(t *testing.T) {
	r := newRig(t)
	req := request()
	req.Input = estimate.Input{Tokens: 120000, Threshold: 100000, Estimate: estimate.Estimate{Text: 130000, Fixed: 5}}
	var none *broker.UnavailableError
	require.ErrorAs(t, r.d.Do(t.Context(), req, &sink{}), &none)
	line := r.logs.String()
	for _, want := range []string{
		"request_id=r1", "model=both", "outcome=unavailable", "reason=offline", "context_class=long", "estimated_input_tokens=120000",
		"uncalibrated_input_tokens=130005", "long_context_threshold_tokens=100000", "enqueue_seq=1", `"n/p=offline(0/1,long:0/0) m/p=offline(0/1,long:0/0)"`,
	} {
		require.Contains(t, line, want)
	}
	require.NotContains(t, line, `"x":1`)

	r.logs.Reset()
	r.connect("n")
	req.Input.Tokens = 99999
	done := r.do(t.Context(), req, &sink{})
	(<-r.taken).answers <- whole
	require.NoError(t, <-done)
	require.Contains(t, r.logs.String(), "context_class=normal")
	require.NotContains(t, r.logs.String(), "candidates=", "there was nothing to weigh")
}

// logged is a log line about a request.
type logged struct {
	Outcome   string `json:"outcome"`
	Estimated int    `json:"estimated_input_tokens"`
	Threshold int    `json:"long_context_threshold_tokens"`
	Class     string `json:"context_class"`
	Node      string `json:"node"`
	Provider  string `json:"provider"`
	Waited    int    `json:"queue_ms"`
	Wait      string `json:"wait_reason"`
	Seq       uint64 `json:"enqueue_seq"`
	LongSlots int    `json:"long_context_capacity"`
	LongTaken int    `json:"long_in_flight"`
	Decided   string `json:"decided"`
	Seen      string `json:"candidates"`
}

// decide is admission for one request as an operator would do it by hand, from what the record says of each candidate.
func decide(long bool, verdicts []admission.Verdict) (free []admission.ResourceKey, reasons map[admission.ResourceKey]string) {
	reasons = map[admission.ResourceKey]string{}
	for _, v := range verdicts {
		switch s := v.Slots; {
		case long && s.LongCapacity > 0 && s.LongInFlight >= s.LongCapacity:
			reasons[v.Resource] = "long_full"
		case s.InFlight >= s.Capacity:
			reasons[v.Resource] = "full"
		default:
			reasons[v.Resource] = ""
			free = append(free, v.Resource)
		}
	}
	return free, reasons
}

// TestL08_ADecisionIsRebuiltFromLogAndRecord makes every decision about a long request again, from its log line and its record alone: why it was long, why
// it waited while a normal one passed, and where it went.
func TestL08_ADecisionIsRebuiltFromLogAndRecord(t *testing.T) {
	res := func(node admission.NodeID) admission.Resource {
		return admission.Resource{Key: admission.ResourceKey{Node: node, Provider: "p"}, Capacity: 3, LongCapacity: 1, Enabled: true, Surfaces: admission.SurfaceChat}
	}
	r := &rig{t: t, clock: clockwork.NewFakeClock(), gens: map[admission.NodeID]admission.Generation{}, logs: &bytes.Buffer{}, taken: make(chan *fakeStream, 8)}
	r.broker = broker.New(r.clock, admission.Config{
		Scopes:    []admission.Scope{{Key: admission.PoolScope, MaxQueue: 4, Timeout: time.Minute}},
		Resources: []admission.Resource{res("n"), res("m")},
		Groups: []admission.Group{{Key: "both", Scope: admission.PoolScope, Candidates: []admission.Candidate{
			{Resource: res("n").Key, Target: "t"}, {Resource: res("m").Key, Target: "t"},
		}}},
	})
	t.Cleanup(r.broker.Stop)
	r.d = New(r.broker, r, r.clock, slog.New(slog.NewJSONHandler(r.logs, nil)))
	r.connect("n")
	r.connect("m")
	ask := func(id string, tokens int) <-chan error {
		req := request()
		req.ID, req.Input = id, estimate.Input{Tokens: tokens, Threshold: 100000}
		return r.do(t.Context(), req, &sink{})
	}
	first := ask("first", 150000)
	one := <-r.taken
	second := ask("second", 200000)
	two := <-r.taken
	waiter := ask("waiter", 100000)
	require.Eventually(t, func() bool { return r.broker.Snapshot().QueueTotal == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []admission.Head{{Seq: 3, Group: "both", Class: admission.Long, InputTokens: 100000, Reason: admission.ReasonLongFull}}, r.broker.Snapshot().Heads)
	normal := ask("normal", 99999)
	three := <-r.taken // runs on the provider whose long slot comes back
	require.Equal(t, one.node, three.node)
	r.clock.Advance(2 * time.Second)
	one.answers <- whole
	require.NoError(t, <-first)
	(<-r.taken).answers <- whole
	require.NoError(t, <-waiter)
	three.answers <- whole
	require.NoError(t, <-normal)
	two.answers <- whole
	require.NoError(t, <-second)

	lines := map[string]logged{}
	for scan := bufio.NewScanner(r.logs); scan.Scan(); {
		var id struct {
			ID string `json:"request_id"`
		}
		var l logged
		require.NoError(t, json.Unmarshal(scan.Bytes(), &id))
		require.NoError(t, json.Unmarshal(scan.Bytes(), &l))
		lines[id.ID] = l
	}
	require.Len(t, lines, 4)
	for id, l := range lines {
		long := l.Estimated >= l.Threshold
		require.Equal(t, map[bool]string{true: "long", false: "normal"}[long], l.Class, id)
		record, ok := r.broker.Record(admission.Seq(l.Seq))
		require.True(t, ok, id)
		require.Equal(t, l.Estimated, record.InputTokens)
		for _, m := range record.Moments {
			if len(m.Verdicts) == 0 {
				continue
			}
			free, reasons := decide(long, m.Verdicts)
			for _, v := range m.Verdicts {
				require.Equal(t, reasons[v.Resource], v.Reason.String(), "%s at %s", id, m.Kind)
			}
			switch m.Kind {
			case admission.AtGrant:
				require.Contains(t, free, m.Resource, id)
				require.Equal(t, l.Node+"/"+l.Provider, m.Resource.String(), id)
				require.Equal(t, l.Waited, int(m.At.Sub(record.Enqueued).Milliseconds()), id)
			case admission.AtEnqueue:
				require.Empty(t, free, "%s waits for a reason", id)
				require.Equal(t, l.Wait, m.Reason.String(), id)
			}
		}
	}
	w := lines["waiter"]
	require.Equal(t, logged{
		Outcome: "completed", Estimated: 100000, Threshold: 100000, Class: "long", Node: w.Node, Provider: "p", Waited: 2000, Wait: "long_full", Seq: 3,
		LongSlots: 1, LongTaken: 0, Decided: "grant", Seen: w.Seen,
	}, w)
	require.Contains(t, w.Seen, fmt.Sprintf("%s/p=free(1/3,long:0/1)", one.node))
	require.NotEmpty(t, lines["first"].Seen, "a long request is weighed even if it need not wait")
	require.Equal(t, "grant", lines["first"].Decided)
	require.Contains(t, w.Seen, "=long_full(1/3,long:1/1)")
	require.Equal(t, 0, lines["normal"].Waited, "it passed the one that waited for a long slot")
	require.Empty(t, strings.TrimSpace(lines["normal"].Wait))
}
