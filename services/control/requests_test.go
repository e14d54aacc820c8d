package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy is a site with both slots of n taken, one of them long, and three who wait.
func busy(t *testing.T) State {
	st := present(t, func(c *admission.Core, now time.Time) {
		c.Connect(now, "n")
		for _, class := range []admission.Class{admission.Long, admission.Normal, admission.Long, admission.Normal, admission.Normal} {
			c.Enqueue(now, admission.Request{Group: "g", Class: class, Surface: admission.SurfaceChat, InputTokens: 9})
		}
		require.True(t, c.Track(1, 1))
	})
	st.Live = map[admission.Seq]dispatch.Live{
		1: {Seq: 1, ID: "r-one", Client: "batch", Path: "/v1/chat/completions", Phase: dispatch.Streaming, FirstByte: time.Unix(101, 0), AnswerParts: 4, AnswerBytes: 400, Attempts: 1, Target: "served"},
		3: {Seq: 3, ID: "r-three", Client: "laptop", Path: "/v1/messages"},
	}
	return st
}

// U6, U9: every number of the screen is of one cut, and each waiter has one reason code, a sentence and what lets it go.
func TestU06_U09_RequestsAreThoseOfTheCounters(t *testing.T) {
	st := busy(t)
	got := (&Service{}).snapshot(st)
	require.Len(t, got.GetRequests(), int(got.GetInFlightTotal()+got.GetQueueTotal()))
	at := func(s int64) *controlv1.RequestSnapshot {
		return &controlv1.RequestSnapshot{EnqueuedAt: timestamp(time.Unix(s, 0))}
	}
	first := at(100)
	proto.Merge(first, &controlv1.RequestSnapshot{
		EnqueueSeq: 1, RequestId: "r-one", Client: "batch", Model: "g", Endpoint: "/v1/chat/completions", ContextClass: "long", EstimatedInputTokens: 9,
		State: "streaming", GrantedAt: timestamp(time.Unix(100, 0)), FirstByteAt: timestamp(time.Unix(101, 0)), Node: "n", Provider: "p", Target: "served",
		AnswerParts: 4, AnswerBytes: 400, Attempts: 1,
	})
	require.True(t, proto.Equal(first, got.GetRequests()[0]), got.GetRequests()[0])
	require.Equal(t, "reserved", got.GetRequests()[1].GetState())
	for i, want := range []struct {
		code, sentence, unblocker string
		behind                    uint64
	}{
		{"long_full", "All long-context slots of n/p are taken.", "The first long-context slot to come back (held by batch #1).", 0},
		{"full", "All slots of n/p are taken.", "The first slot to come back (held by batch #1, #2).", 0},
		{"behind", "Request #4, which is older and wants the same, goes first.", "Request #4 gets a slot, or gives up.", 4},
	} {
		r := got.GetRequests()[2+i]
		require.Equal(t, "waiting", r.GetState())
		require.Equal(t, want.code, r.GetReason())
		require.Equal(t, want.sentence, r.GetSentence())
		require.Equal(t, want.unblocker, r.GetUnblocker())
		require.Equal(t, want.behind, r.GetBehindSeq())
		require.True(t, r.GetWaitEndsAt().AsTime().Equal(time.Unix(160, 0)))
	}
	require.Equal(t, "laptop", got.GetRequests()[2].GetClient())
}

// Every reason code has a sentence.
func TestU06_EveryReasonHasASentence(t *testing.T) {
	seen := map[string]bool{}
	for r := admission.ReasonNone + 1; r <= admission.ReasonBehind; r++ {
		text := verdictSentence(r)
		require.NotEmpty(t, text, r)
		require.False(t, seen[text], "%s: %q is another's", r, text)
		seen[text] = true
	}
}

// U8: a free slot beside a queue says why nobody takes it.
func TestU08_AFreeSlotBesideAQueueSaysWhy(t *testing.T) {
	st := present(t, func(c *admission.Core, now time.Time) {
		c.Connect(now, "n")
		for range 2 {
			c.Enqueue(now, admission.Request{Group: "g", Class: admission.Long, Surface: admission.SurfaceChat})
		}
	})
	st.Models = []Model{{ID: "g", Candidates: []admission.Candidate{{Resource: key("n")}}}}
	got := (&Service{}).snapshot(st)
	require.Equal(t, "No waiting request fits: 1 for a long-context slot.", got.GetNodes()[0].GetProviders()[0].GetIdleBecause())
	st.Models = nil
	require.Equal(t, "No waiting request fits: 1 for models it does not serve.", (&Service{}).snapshot(st).GetNodes()[0].GetProviders()[0].GetIdleBecause())
	st.Admission.QueueTotal = 45
	require.Equal(t, "No waiting request fits: 1 for models it does not serve, 44 further back.",
		(&Service{}).snapshot(st).GetNodes()[0].GetProviders()[0].GetIdleBecause(), "more wait than a snapshot lists")
	st = busy(t)
	require.Empty(t, (&Service{}).snapshot(st).GetNodes()[0].GetProviders()[0].GetIdleBecause(), "none is free")
}

// U10: silence is late before it is offline.
func TestU10_ASilentNodeIsLateBeforeItIsOffline(t *testing.T) {
	st := busy(t)
	st.HeartbeatInterval = 5 * time.Second
	for _, c := range []struct {
		silent time.Duration
		want   string
	}{{7 * time.Second, "connected"}, {8 * time.Second, "late"}} {
		st.Nodes[0].LastSeen = st.At.Add(-c.silent)
		require.Equal(t, c.want, (&Service{}).snapshot(st).GetNodes()[0].GetState())
	}
	require.Equal(t, "never", (&Service{}).snapshot(st).GetNodes()[1].GetState())
	st.Nodes[1].LastSeen, st.Nodes[1].OfflineSince = time.Unix(50, 0), time.Unix(60, 0)
	n := (&Service{}).snapshot(st).GetNodes()[1]
	require.Equal(t, "offline", n.GetState())
	require.True(t, n.GetOfflineSince().AsTime().Equal(time.Unix(60, 0)))
}

// U7: the candidates, and why each was passed over, at each evaluation.
func TestU07_ARequestIsExplained(t *testing.T) {
	now := time.Unix(100, 0)
	core := admission.New(admission.Config{
		Scopes:    []admission.Scope{{Key: admission.PoolScope, MaxQueue: 8, Timeout: time.Minute}},
		Resources: []admission.Resource{{Key: key("n"), Capacity: 1, Enabled: true, Surfaces: admission.SurfaceChat}},
		Groups:    []admission.Group{{Key: "g", Scope: admission.PoolScope, Candidates: []admission.Candidate{{Resource: key("n")}}}},
	})
	core.Connect(now, "n")
	core.Enqueue(now, admission.Request{Group: "g", Surface: admission.SurfaceChat})
	core.Enqueue(now, admission.Request{Group: "g", Surface: admission.SurfaceChat, InputTokens: 12})
	var ended *dispatch.Ending
	s := &Service{
		State: func() State {
			return State{At: now, Admission: core.Snapshot(now), LongThreshold: 100, Live: map[admission.Seq]dispatch.Live{2: {Seq: 2, ID: "two"}}}
		},
		Record: core.Record,
		Find:   func(id string) admission.Seq { return map[string]admission.Seq{"two": 2}[id] },
		Explain: func(seq admission.Seq) (*dispatch.Live, *dispatch.Ending) {
			if ended == nil {
				return &dispatch.Live{Seq: seq, ID: "two"}, nil
			}
			return nil, ended
		},
	}
	ask := func() *controlv1.ExplainRequestResponse {
		r, err := s.ExplainRequest(t.Context(), &controlv1.ExplainRequestRequest{Request: &controlv1.ExplainRequestRequest_RequestId{RequestId: "two"}})
		require.NoError(t, err)
		return r
	}
	r := ask()
	require.Equal(t, "waiting", r.GetRequest().GetState())
	require.Equal(t, "full", r.GetRequest().GetReason())
	require.Equal(t, "pool", r.GetScope())
	require.Len(t, r.GetMoments(), 1)
	require.Equal(t, "enqueue", r.GetMoments()[0].GetKind())
	require.Equal(t, "full", r.GetMoments()[0].GetCandidates()[0].GetReason())
	require.Equal(t, uint32(1), r.GetMoments()[0].GetCandidates()[0].GetInFlight())
	require.Equal(t, "All of its slots are taken.", r.GetCandidates()[0].GetSentence())

	core.Release(now.Add(time.Second), 1, 1)
	core.Release(now.Add(2*time.Second), 2, 2)
	ended = &dispatch.Ending{
		Seq: 2, ID: "two", Client: "laptop", Group: "g", Outcome: "completed", At: now.Add(2 * time.Second), Attempts: 1, Status: 200,
		Grant: dispatch.Grant{Node: "n", Provider: "p", Target: "t", QueueWait: time.Second}, Run: time.Second, InputTokens: 11, OutputTokens: -1, Estimated: 12, Threshold: 50,
	}
	r = ask()
	require.Equal(t, "completed", r.GetEnding().GetOutcome())
	require.EqualValues(t, 1000, r.GetEnding().GetQueueMs())
	require.EqualValues(t, 11, r.GetEnding().GetInputTokens())
	require.Nil(t, r.GetEnding().OutputTokens, "not told is not 0")
	require.Equal(t, "laptop", r.GetRequest().GetClient())
	require.EqualValues(t, 50, r.GetLongContextThresholdTokens(), "as it was then")
	kinds := []string{}
	for _, m := range r.GetMoments() {
		kinds = append(kinds, m.GetKind())
	}
	require.Equal(t, []string{"enqueue", "grant", "end"}, kinds)
	require.Equal(t, "n", r.GetMoments()[1].GetNode())

	_, err := s.ExplainRequest(t.Context(), &controlv1.ExplainRequestRequest{Request: &controlv1.ExplainRequestRequest_RequestId{RequestId: "nobody"}})
	require.ErrorContains(t, err, "not_found")
}

// One that a snapshot has no room for is explained as it is.
func TestU07_ARunningRequestBeyondTheSnapshotIsNotSaidToWait(t *testing.T) {
	granted := time.Unix(100, 0)
	s := &Service{
		State: func() State { return State{} },
		Record: func(seq admission.Seq) (admission.Record, bool) {
			return admission.Record{Seq: seq, Granted: granted, Moments: []admission.Moment{{Kind: admission.AtGrant, Resource: key("n")}}}, true
		},
		Explain: func(seq admission.Seq) (*dispatch.Live, *dispatch.Ending) {
			return &dispatch.Live{Seq: seq, ID: "r", Phase: dispatch.Streaming, FirstByte: time.Unix(101, 0), Target: "t"}, nil
		},
	}
	x, ok := s.explain(7)
	require.True(t, ok)
	require.Equal(t, "streaming", x.GetRequest().GetState())
	require.Equal(t, "n", x.GetRequest().GetNode())
	require.Equal(t, "t", x.GetRequest().GetTarget())
	require.True(t, x.GetRequest().GetFirstByteAt().AsTime().Equal(time.Unix(101, 0)))
	require.Empty(t, x.GetRequest().GetReason())
}

// U11: what is told of waits is measured, else absent.
func TestU11_HistoryKeepsAnHour(t *testing.T) {
	var h History
	require.Nil(t, h.Waits().message())
	st := busy(t)
	for i := range historyPoints + 5 {
		for w := range 20 {
			h.Granted(time.Duration(w) * time.Second)
		}
		h.Ended(&dispatch.Ending{Outcome: "completed", OutputTokens: 5})
		h.Ended(&dispatch.Ending{Outcome: "queue_full", OutputTokens: -1})
		st.At = time.Unix(int64(1000+10*i), 0)
		h.Sample(&st)
	}
	points := h.points()
	require.Len(t, points, historyPoints)
	require.True(t, points[0].GetAt().AsTime().Equal(time.Unix(1050, 0)))
	last := points[len(points)-1]
	require.True(t, last.GetAt().AsTime().Equal(st.At))
	require.Equal(t, map[string]uint32{"completed": 1, "queue_full": 1}, last.GetOutcomes())
	require.EqualValues(t, 5, last.GetOutputTokens())
	require.EqualValues(t, 20, last.GetGranted())
	require.EqualValues(t, 9000, last.GetWaitP50Ms())
	require.EqualValues(t, 18000, last.GetWaitP95Ms())
	require.EqualValues(t, 2, last.GetInFlight())
	require.EqualValues(t, 1, last.GetLongInFlight())
	require.EqualValues(t, 3, last.GetQueued())
	require.EqualValues(t, 2, last.GetSlots(), "those of what is connected")
	h.Granted(time.Hour)
	waits := h.Waits()
	require.Equal(t, 20*waitPoints+1, waits.Granted)
	require.Equal(t, 10*time.Second, waits.P50)
	require.Equal(t, 19*time.Second, waits.P95)

	for range 3 * keptWaits {
		h.Granted(time.Minute)
	}
	require.Len(t, h.now.waits, keptWaits)
	require.Equal(t, 3*keptWaits+1, h.now.granted)
}

// What runs on a provider that drains still runs.
func TestU11_HistoryCountsTheLongRequestsOfADrainingProvider(t *testing.T) {
	st := present(t, func(c *admission.Core, now time.Time) {
		generation, _ := c.Connect(now, "n")
		c.Enqueue(now, admission.Request{Group: "g", Class: admission.Long, Surface: admission.SurfaceChat})
		c.Drain(now, "n", generation)
	})
	var h History
	h.Sample(&st)
	p := h.points()[0]
	require.EqualValues(t, 1, p.GetInFlight())
	require.EqualValues(t, 1, p.GetLongInFlight())
	require.Zero(t, p.GetSlots())
}
