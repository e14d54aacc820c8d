//go:build !windows

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	"github.com/iop-dev/iop/services/control"
)

const wireAdminToken = "e2e-wire-admin-token"

// follower applies what a watch sends, and checks each state that comes of it.
type follower struct {
	mu       sync.Mutex
	state    *controlv1.EdgeNodeSnapshot
	sequence uint64
	fulls    int
	trouble  []string
}

func (f *follower) latest() *controlv1.EdgeNodeSnapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// has reports whether an update of that sequence, or a later one, was applied.
func (f *follower) has(sequence uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sequence >= sequence
}

// follow watches once, from what it has on; it ends with the stream.
func (f *follower) follow(ctx context.Context, api controlv1connect.ControlServiceClient) {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+readToken)
	stream, err := api.WatchEdgeNodeSnapshot(ctx, &controlv1.WatchEdgeNodeSnapshotRequest{
		InstanceId: f.latest().GetInstanceId(), Sequence: f.sequence,
	})
	if err != nil {
		return
	}
	defer stream.Close()
	for stream.Receive() {
		f.take(stream.Msg())
	}
}

func (f *follower) take(u *controlv1.WatchEdgeNodeSnapshotResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if full := u.GetFull(); full != nil {
		f.state = full
		f.fulls++
	} else {
		next, err := control.Apply(f.state, f.sequence, u.GetChanges())
		if err != nil {
			f.trouble = append(f.trouble, err.Error())
			return
		}
		f.state = next
	}
	f.sequence = u.GetSequence()
	f.trouble = append(f.trouble, inconsistent(f.state)...)
}

// inconsistent is what of a snapshot does not add up (U09, S07, S14).
func inconsistent(s *controlv1.EdgeNodeSnapshot) (wrong []string) {
	var running, waiting, held, pending uint32
	for _, r := range s.GetRequests() {
		if r.GetState() == "waiting" {
			waiting++
			if r.GetReason() == "" || r.GetSentence() == "" || r.GetUnblocker() == "" {
				wrong = append(wrong, "a request waits and nobody says why")
			}
			continue
		}
		running++
	}
	for _, n := range s.GetNodes() {
		for _, p := range n.GetProviders() {
			held += p.GetInFlight()
			if p.GetLongInFlight() > p.GetInFlight() || p.GetLongQueued() > p.GetQueued() || p.GetQueued() > s.GetQueueTotal() {
				wrong = append(wrong, "a part is more than its whole: "+p.String())
			}
			if !n.GetConnected() && (p.GetStatus() != "unavailable" || p.GetHealth() != "offline" ||
				p.GetEffectiveCapacity()+p.GetInFlight()+p.GetQueued()+p.GetLongContextCapacity()+p.GetLongInFlight()+p.GetLongQueued() != 0) {
				wrong = append(wrong, "an offline provider with numbers: "+p.String())
			}
		}
	}
	for _, sc := range s.GetScopes() {
		pending += sc.GetPending()
	}
	if waiting != s.GetQueueTotal() || pending != waiting {
		wrong = append(wrong, "the waiting are not those of the total: "+s.String())
	}
	if running != s.GetInFlightTotal() || s.GetInFlightTotal() < held {
		wrong = append(wrong, "the running are not those of the total: "+s.String())
	}
	return wrong
}

func request(s *controlv1.EdgeNodeSnapshot, id string) *controlv1.RequestSnapshot {
	for _, r := range s.GetRequests() {
		if r.GetRequestId() == id {
			return r
		}
	}
	return nil
}

// S07 and S14 as a reader sees them, by each protocol: run, wait with each reason, a
// silent node, a clean and a sudden loss, the return, a cut watch and an Edge's restart.
func TestS07_S14_U09_U10_AWatchAddsUpThroughItAll(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		t.Run(map[bool]string{false: "Connect", true: "gRPC"}[grpc], func(t *testing.T) { watchThroughItAll(t, grpc) })
	}
}

func watchThroughItAll(t *testing.T, grpc bool) {
	g := newGate(t)
	s := holding(t, g)
	m := model("m", "n/p=x", "away/p=x")
	m["context_window_tokens"] = 30000
	file := edgeFile([]object{
		nodeConfig("n", provider("p", s.URL, 3, object{"long_context_capacity": 1, "total_context_tokens": 100000})),
		nodeConfig("away", provider("p", s.URL, 2)),
	}, []object{m}, calm, object{"long_context_threshold_tokens": 500})
	file["edge"].(object)["listen"] = freePort(t)
	r := start(t, file, "n")

	protocols := new(http.Protocols)
	protocols.SetHTTP1(!grpc)
	protocols.SetUnencryptedHTTP2(grpc)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	var options []connect.ClientOption
	if grpc {
		options = append(options, connect.WithGRPC())
	}
	api := controlv1connect.NewControlServiceClient(&http.Client{Transport: transport}, r.url, options...)
	f := &follower{}
	watch := func() (cut func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			for ctx.Err() == nil {
				f.follow(ctx, api)
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
		return func() { cancel(); following.Wait() }
	}
	cut := watch()
	defer func() { cut() }()
	sees := func(what string, holds func(*controlv1.EdgeNodeSnapshot) bool) *controlv1.EdgeNodeSnapshot {
		t.Helper()
		var seen *controlv1.EdgeNodeSnapshot
		require.Eventually(t, func() bool { seen = f.latest(); return seen != nil && holds(seen) }, 40*time.Second, 5*time.Millisecond, what)
		return seen
	}
	var answers []<-chan answer
	ask := func(id string, long bool) {
		body := chatBody("m", false, "")
		if long {
			body = strings.Replace(body, "go 97", strings.Repeat("go 97 ", 1000), 1)
		}
		done := make(chan answer, 1)
		go func() { done <- r.chat(id, body) }()
		answers = append(answers, done)
	}
	is := func(id, state, reason string) {
		t.Helper()
		sees(id+" "+state+" "+reason, func(s *controlv1.EdgeNodeSnapshot) bool {
			q := request(s, id)
			return q.GetState() == state && q.GetReason() == reason
		})
	}

	ask("long-1", true)
	is("long-1", "prefill", "")
	ask("normal-1", false)
	is("normal-1", "prefill", "")
	ask("long-2", true)
	is("long-2", "waiting", "long_full")
	p := sees("pressure", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetNodes()[0].GetProviders()[0].GetLongQueued() == 1
	}).GetNodes()[0].GetProviders()[0]
	require.Equal(t, []uint32{2, 1, 1, 1}, []uint32{p.GetInFlight(), p.GetLongInFlight(), p.GetQueued(), p.GetLongQueued()})
	require.NotEmpty(t, p.GetIdleBecause())
	ask("normal-2", false)
	is("normal-2", "prefill", "")
	ask("normal-3", false)
	is("normal-3", "waiting", "full")
	ask("normal-4", false)
	is("normal-4", "waiting", "behind")
	seen := f.latest()
	require.Equal(t, request(seen, "normal-3").GetEnqueueSeq(), request(seen, "normal-4").GetBehindSeq())
	require.Equal(t, []uint32{3, 3}, []uint32{seen.GetInFlightTotal(), seen.GetQueueTotal()})
	require.Equal(t, "full", seen.GetNodes()[0].GetProviders()[0].GetStatus())
	require.Equal(t, "never", seen.GetNodes()[1].GetState())

	// The same by one call, and in plain JSON.
	require.Empty(t, inconsistent(r.snapshot()))
	plain := r.fetch(t.Context(), http.MethodPost, controlv1connect.ControlServiceGetEdgeNodeSnapshotProcedure, strings.NewReader("{}"),
		"Authorization", "Bearer "+readToken)
	require.NoError(t, plain.err)
	var told struct {
		Snapshot struct{ QueueTotal, InFlightTotal uint32 }
	}
	require.NoError(t, json.Unmarshal([]byte(plain.body), &told), plain.body)
	require.EqualValues(t, []uint32{3, 3}, []uint32{told.Snapshot.InFlightTotal, told.Snapshot.QueueTotal})

	// A watch that was cut goes on with changes.
	cut()
	fulls, before := f.fulls, f.sequence
	cut = watch()
	sees("an update after the cut", func(*controlv1.EdgeNodeSnapshot) bool { return f.has(before + 1) })

	state := func(want string) func(*controlv1.EdgeNodeSnapshot) bool {
		return func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetNodes()[0].GetState() == want }
	}
	require.NoError(t, r.nodes["n"].cmd.Process.Signal(syscall.SIGSTOP))
	sees("late", state("late"))
	require.NoError(t, r.nodes["n"].cmd.Process.Signal(syscall.SIGCONT))
	sees("heard of again", state("connected"))

	r.nodes["n"].kill()
	seen = sees("offline", state("offline"))
	require.NotNil(t, seen.GetNodes()[0].GetLastSeen())
	sees("what ran has ended", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 0 })
	g.release()
	r.startNode("n")
	p = sees("back", state("connected")).GetNodes()[0].GetProviders()[0]
	require.Equal(t, []uint32{3, 1}, []uint32{p.GetEffectiveCapacity(), p.GetLongContextCapacity()})
	for _, done := range answers {
		require.NoError(t, (<-done).err)
	}
	sees("all zero", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 0 && s.GetQueueTotal() == 0 })
	r.serves()
	require.Zero(t, r.nodes["n"].stop(t))
	sees("left in order", state("offline"))
	r.startNode("n")
	sees("back again", state("connected"))

	old := f.latest().GetInstanceId()
	r.edge.kill()
	r.startEdge()
	sees("the new Edge and its node", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInstanceId() != old && state("connected")(s) })
	cut()
	assert.Equal(t, fulls+1, f.fulls, "after the cut changes only, and of the new Edge everything, once")
	assert.Empty(t, f.trouble)
}

// U11: who is refused is told when to come back, and by what; whom an operator
// cancels is told so, and not to try again by itself.
func TestU11_RefusalsAndCancelsAreToldOverTheWire(t *testing.T) {
	g := newGate(t)
	file := edgeFile([]object{nodeConfig("n", provider("p", holding(t, g).URL, 1))}, []object{model("m", "n/p=x")}, calm,
		object{"provider_pool": object{"max_queue": 1}})
	file["edge"].(object)["admin_tokens"] = []object{{"name": "operator", "sha256": hash(wireAdminToken)}}
	r := start(t, file, "n")
	cancelled := func(id string) answer {
		done := make(chan answer, 1)
		go func() { done <- r.chat(id, chatBody("m", false, "")) }()
		r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return request(s, id) != nil }, id)
		if id == "waits" {
			full := r.chat("refused", chatBody("m", false, ""))
			require.Equal(t, http.StatusTooManyRequests, full.status)
			require.Regexp(t, wholeSeconds, full.header.Get("Retry-After"))
			require.Equal(t, "queue_full", full.code(t))
		}
		_, err := r.cancel(&adminv1.CancelRequestRequest{Request: &adminv1.CancelRequestRequest_RequestId{RequestId: id}})
		require.NoError(t, err)
		return <-done
	}
	running := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	a := cancelled("waits")
	g.release()
	require.Equal(t, http.StatusOK, (<-running).status)
	require.Equal(t, http.StatusBadGateway, a.status, a.body)
	require.Equal(t, "provider_disconnected", a.code(t))
	require.Contains(t, a.body, "cancelled")
	require.Equal(t, "false", a.header.Get("X-Should-Retry"))
	line := r.edge.await(t, "admin call", "")
	require.Contains(t, line, `"token":"operator"`)
	require.Contains(t, line, `"call":"cancel"`)
	r.quiet()
}
