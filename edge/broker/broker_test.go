package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/edge/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func site(capacity, maxQueue int) admission.Config {
	res := func(node admission.NodeID) admission.Resource {
		return admission.Resource{Key: admission.ResourceKey{Node: node, Provider: "p"}, Capacity: capacity, Enabled: true, Surfaces: admission.SurfaceChat}
	}
	cand := func(node admission.NodeID) admission.Candidate {
		return admission.Candidate{Resource: admission.ResourceKey{Node: node, Provider: "p"}, Target: "served"}
	}
	return admission.Config{
		Scopes:    []admission.Scope{{Key: admission.PoolScope, MaxQueue: maxQueue, Timeout: 10 * time.Second}},
		Resources: []admission.Resource{res("n"), res("m")},
		Groups: []admission.Group{
			{Key: "on-n", Scope: admission.PoolScope, Candidates: []admission.Candidate{cand("n")}},
			{Key: "on-m", Scope: admission.PoolScope, Candidates: []admission.Candidate{cand("m")}},
			{Key: "both", Scope: admission.PoolScope, Candidates: []admission.Candidate{cand("n"), cand("m")}},
		},
	}
}

func chat(group admission.GroupKey) admission.Request {
	return admission.Request{Group: group, Surface: admission.SurfaceChat}
}

func start(t *testing.T, cfg admission.Config) (*Broker, *clockwork.FakeClock) {
	clock := clockwork.NewFakeClock()
	b := New(clock, cfg)
	t.Cleanup(b.Stop)
	return b, clock
}

// acquire calls Acquire in a goroutine of its own and returns once the request
// waits.
func acquire(t *testing.T, ctx context.Context, b *Broker, group admission.GroupKey) <-chan result {
	t.Helper()
	before := b.Snapshot().QueueTotal
	done := make(chan result, 1)
	go func() {
		l, err := b.Acquire(ctx, chat(group))
		done <- result{l, err}
	}()
	require.Eventually(t, func() bool { return b.Snapshot().QueueTotal > before }, 10*time.Second, time.Millisecond)
	return done
}

type result struct {
	lease *Lease
	err   error
}

func TestAcquireWaitsForARelease(t *testing.T) {
	b, clock := start(t, site(1, 8))
	b.Connect("n")
	first, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	require.NoError(t, first.Track())

	second := acquire(t, t.Context(), b, "on-n")
	clock.Advance(3 * time.Second)
	first.Close()
	got := <-second
	require.NoError(t, got.err)
	require.Equal(t, "served", got.lease.Target)
	require.Equal(t, 3*time.Second, got.lease.Waited)
	require.Greater(t, got.lease.Seq(), first.Seq())

	got.lease.Close()
	got.lease.Close() // a second end is a counted no-op
	snap := b.Snapshot()
	require.Zero(t, snap.InFlight)
	require.EqualValues(t, 1, snap.Counters.DoubleReleases)
	require.Empty(t, b.leases)
}

func TestS06_FullAndTimeoutAreTold(t *testing.T) {
	b, clock := start(t, site(1, 1))
	b.Connect("n")
	served, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	clock.Advance(4 * time.Second)
	served.Close()
	first, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	defer first.Close()
	waits := acquire(t, t.Context(), b, "on-n")

	var full *QueueFullError
	_, err = b.Acquire(t.Context(), chat("on-n"))
	require.ErrorAs(t, err, &full)
	require.Equal(t, admission.ReasonFull, full.Reason)
	require.Equal(t, 8*time.Second, full.RetryAfter, "one ahead, one slot, 4 s each")

	clock.Advance(10*time.Second - 1)
	require.Equal(t, 1, b.Snapshot().QueueTotal, "timed out early")
	clock.Advance(1)
	var timeout *QueueTimeoutError
	require.ErrorAs(t, (<-waits).err, &timeout)
	require.Equal(t, 10*time.Second, timeout.Waited)

	_, err = b.Acquire(t.Context(), chat("nobody"))
	require.ErrorIs(t, err, ErrUnknownGroup)
}

func TestUnavailableIsToldAtOnce(t *testing.T) {
	b, _ := start(t, site(1, 8))
	var none *UnavailableError
	_, err := b.Acquire(t.Context(), chat("on-n"))
	require.ErrorAs(t, err, &none)
	require.Equal(t, admission.ReasonOffline, none.Reason)
	require.False(t, none.NotServed())

	_, err = b.Acquire(t.Context(), admission.Request{Group: "on-n", Surface: admission.SurfaceImages})
	require.ErrorAs(t, err, &none)
	require.True(t, none.NotServed())
}

// A waiter whose context ends gives its place up at once; one that had been
// granted in the same moment gives the slot back.
func TestCancelWhileWaiting(t *testing.T) {
	b, _ := start(t, site(1, 8))
	b.Connect("n")
	first, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	cause := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := acquire(t, ctx, b, "on-n")
	cancel(cause)
	require.ErrorIs(t, (<-waits).err, cause)
	require.Zero(t, b.Snapshot().QueueTotal)

	lost := &Lease{broker: b, decided: make(chan struct{})}
	b.mu.Lock()
	seq, effects := b.core.Enqueue(b.clock.Now(), chat("on-n"))
	lost.seq = seq
	b.leases[seq] = lost
	b.deliverLocked(effects)
	b.mu.Unlock()
	first.Close() // grants it
	require.ErrorIs(t, lost.Await(ctx), cause)
	require.Zero(t, b.Snapshot().InFlight)
	require.Empty(t, b.leases)
}

func TestS12_FencedBeforeHandOff(t *testing.T) {
	b, _ := start(t, site(1, 8))
	gen := b.Connect("n")
	l, err := b.Acquire(t.Context(), chat("both"))
	require.NoError(t, err)
	require.False(t, b.Disconnect("n", gen+1), "a generation that never was")
	b.Connect("m")
	require.True(t, b.Disconnect("n", gen))
	require.False(t, b.Disconnect("n", gen), "twice")
	require.ErrorIs(t, l.Track(), ErrFenced)
	require.NoError(t, l.Await(t.Context()))
	require.EqualValues(t, "m", l.Resource.Node)
	require.NoError(t, l.Track())
	l.Close()
}

// A holder that gives up without asking whether its lease still stands leaves
// nothing behind: neither the place in the queue that a fence gave it, nor the
// lease that has come in its place.
func TestS02_CloseAfterAFence(t *testing.T) {
	for name, other := range map[string]func(*Broker) func(){
		"waiting again": func(b *Broker) func() {
			b.Connect("m")
			busy, err := b.Acquire(t.Context(), chat("on-m"))
			require.NoError(t, err)
			return busy.Close
		},
		"granted elsewhere": func(b *Broker) func() { b.Connect("m"); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := start(t, site(1, 8))
			gen := b.Connect("n")
			l, err := b.Acquire(t.Context(), chat("both"))
			require.NoError(t, err)
			free := other(b)
			b.Disconnect("n", gen)
			l.Close()
			free()
			snap := b.Snapshot()
			require.Zero(t, snap.InFlight)
			require.Zero(t, snap.QueueTotal)
			require.Zero(t, snap.Counters.DoubleReleases)
			require.Empty(t, b.leases)
		})
	}
}

func TestS13_TrackedIsRevokedAndWaitersMove(t *testing.T) {
	b, _ := start(t, site(1, 8))
	gen := b.Connect("n")
	running, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	require.NoError(t, running.Track())
	stranded := acquire(t, t.Context(), b, "on-n")
	b.Connect("m")
	busy, err := b.Acquire(t.Context(), chat("both"))
	require.NoError(t, err)
	moves := acquire(t, t.Context(), b, "both")

	b.Disconnect("n", gen)
	var none *UnavailableError
	require.ErrorAs(t, (<-stranded).err, &none)
	// The node's refusal was on its way when the fence came: neither it nor the
	// close returns the lease once more.
	running.Refuse()
	require.ErrorIs(t, running.Await(t.Context()), ErrRevoked)
	running.Refuse()
	running.Close()
	busy.Close()
	got := <-moves
	require.NoError(t, got.err)
	require.EqualValues(t, "m", got.lease.Resource.Node)
	got.lease.Close()
	require.Zero(t, b.Snapshot().InFlight)
	require.Zero(t, b.Snapshot().Counters.DoubleReleases)
}

// A refusal that comes after the fence of its lease touches neither the place in
// the queue that the fence gave the request nor the lease that has come since.
func TestS02_RefuseAfterAFence(t *testing.T) {
	b, _ := start(t, site(1, 8))
	gen := b.Connect("n")
	l, err := b.Acquire(t.Context(), chat("both"))
	require.NoError(t, err)
	b.Connect("m")
	busy, err := b.Acquire(t.Context(), chat("on-m"))
	require.NoError(t, err)
	b.Disconnect("n", gen)
	l.Refuse()
	require.Equal(t, 1, b.Snapshot().QueueTotal)
	busy.Close() // grants it
	l.Refuse()
	require.NoError(t, l.Await(t.Context()))
	require.EqualValues(t, "m", l.Resource.Node)
	l.Close()
	require.Zero(t, b.Snapshot().Counters.DoubleReleases)
	require.Empty(t, b.leases)
}

func TestRefusedTriesEachCandidateOnce(t *testing.T) {
	b, _ := start(t, site(1, 8))
	b.Connect("n")
	b.Connect("m")
	l, err := b.Acquire(t.Context(), chat("both"))
	require.NoError(t, err)
	first := l.Resource
	require.NoError(t, l.Track())
	l.Refuse()
	require.NoError(t, l.Await(t.Context()))
	require.NotEqual(t, first, l.Resource)
	l.Refuse()
	var none *UnavailableError
	require.ErrorAs(t, l.Await(t.Context()), &none)
	require.Equal(t, admission.ReasonRefused, none.Reason)
	require.Empty(t, b.leases)
}

func TestS15_ReconnectWakesWaiters(t *testing.T) {
	b, _ := start(t, site(1, 8))
	b.Connect("m")
	busy, err := b.Acquire(t.Context(), chat("both"))
	require.NoError(t, err)
	waits := acquire(t, t.Context(), b, "both")
	b.Connect("n")
	got := <-waits
	require.NoError(t, got.err)
	require.EqualValues(t, "n", got.lease.Resource.Node)
	got.lease.Close()
	busy.Close()
}

// A refresh that takes a model away ends its waiters as unavailable: the endpoint
// was served while there was a model.
func TestCase_H04_WaiterOfARemovedModel(t *testing.T) {
	b, _ := start(t, site(1, 8))
	b.Connect("n")
	busy, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	waits := acquire(t, t.Context(), b, "on-n")
	cfg := site(1, 8)
	cfg.Groups = cfg.Groups[1:]
	b.Reconfigure(cfg)
	var none *UnavailableError
	require.ErrorAs(t, (<-waits).err, &none)
	require.False(t, none.NotServed())
	busy.Close()
}

// C19: a model that has no candidate, from the start or by a refresh, is one that
// nobody is there for just now, not one that does not serve the endpoint.
func TestCase_C19_AModelWithoutCandidatesIsUnavailable(t *testing.T) {
	cfg := site(1, 8)
	cfg.Groups[0].Candidates = nil
	b, _ := start(t, cfg)
	b.Connect("m")
	refused := func(group admission.GroupKey, surface admission.Surface) *UnavailableError {
		t.Helper()
		var none *UnavailableError
		_, err := b.Acquire(t.Context(), admission.Request{Group: group, Surface: surface})
		require.ErrorAs(t, err, &none)
		return none
	}
	require.False(t, refused("on-n", admission.SurfaceChat).NotServed())
	require.True(t, refused("on-m", admission.SurfaceEmbeddings).NotServed())
	cfg = site(1, 8)
	cfg.Groups[1].Candidates = nil
	b.Reconfigure(cfg)
	require.False(t, refused("on-m", admission.SurfaceChat).NotServed())
	require.False(t, refused("on-n", admission.SurfaceChat).NotServed(), "offline")
}

func TestReconfigureReachesWaiters(t *testing.T) {
	b, clock := start(t, site(1, 8))
	b.Connect("n")
	busy, err := b.Acquire(t.Context(), chat("on-n"))
	require.NoError(t, err)
	waits := acquire(t, t.Context(), b, "on-n")
	clock.Advance(2 * time.Second)
	cfg := site(1, 8)
	cfg.Scopes[0].Timeout = 3 * time.Second
	b.Reconfigure(cfg) // re-bases the deadline
	clock.Advance(time.Second)
	var timeout *QueueTimeoutError
	require.ErrorAs(t, (<-waits).err, &timeout)
	require.Equal(t, 3*time.Second, timeout.Waited)
	busy.Close()
}

// Many goroutines acquire, hold, refuse and cancel while nodes come and go and
// the configuration changes. Nobody may exceed a capacity, and nothing is left.
func TestS02_ConcurrentUse(t *testing.T) {
	const capacity, workers, rounds = 3, 24, 120
	b := New(clockwork.NewRealClock(), site(capacity, 1000))
	defer b.Stop()
	stop := make(chan struct{})
	var churn, work sync.WaitGroup
	churn.Go(func() {
		gens := map[admission.NodeID]admission.Generation{"n": b.Connect("n"), "m": b.Connect("m")}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch node := []admission.NodeID{"n", "m"}[i%2]; i % 5 {
			case 0:
				b.Disconnect(node, gens[node])
				b.Disconnect(node, gens[node]) // stale
				gens[node] = b.Connect(node)
			case 1:
				b.Reconfigure(site(capacity, 1000))
			default:
				b.Snapshot()
			}
		}
	})
	for w := range workers {
		work.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				if (w+i)%7 == 0 {
					go cancel()
				}
				l, err := b.Acquire(ctx, chat([]admission.GroupKey{"on-n", "both"}[i%2]))
				if err == nil {
					hold(ctx, t, b, l, i)
				}
				cancel()
			}
		})
	}
	work.Wait()
	close(stop)
	churn.Wait()
	snap := b.Snapshot()
	require.Zero(t, snap.InFlight)
	require.Zero(t, snap.QueueTotal)
	require.Equal(t, snap.Counters.Granted, snap.Counters.Released)
	require.Zero(t, snap.Counters.DoubleReleases, "losing a node is no double release")
	require.Empty(t, b.leases)
}

// hold uses a lease as dispatch does, and looks at every count meanwhile.
func hold(ctx context.Context, t *testing.T, b *Broker, l *Lease, i int) {
	if l.Track() != nil {
		if l.Await(ctx) == nil {
			l.Close()
		}
		return
	}
	if i%11 == 0 {
		l.Refuse()
		if l.Await(ctx) == nil {
			l.Close()
		}
		return
	}
	for _, r := range b.Snapshot().Resources {
		if r.InFlight > r.Capacity {
			t.Errorf("%s holds %d leases of %d", r.Key, r.InFlight, r.Capacity)
		}
	}
	l.Close()
}

func BenchmarkAcquireClose(b *testing.B) {
	br := New(clockwork.NewRealClock(), site(4, 8))
	defer br.Stop()
	br.Connect("n")
	b.ReportAllocs()
	for b.Loop() {
		l, err := br.Acquire(b.Context(), chat("on-n"))
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}

// BenchmarkBlockedWaiter is a lease handed from one goroutine to another that
// waits for it.
func BenchmarkBlockedWaiter(b *testing.B) {
	br := New(clockwork.NewRealClock(), site(1, 1<<20))
	defer br.Stop()
	br.Connect("n")
	for _, waiters := range []int{2, 100} {
		b.Run(fmt.Sprint("waiters=", waiters), func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						l, err := br.Acquire(context.Background(), chat("on-n"))
						if err != nil {
							b.Error(err)
							return
						}
						l.Close()
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkAdmissionBesideWaiters is an admission on one provider while n
// requests wait for another: what they cost those who do not wait. The p99 is of
// single admissions.
func BenchmarkAdmissionBesideWaiters(b *testing.B) {
	for _, n := range []int{0, 5000} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			br := New(clockwork.NewRealClock(), site(1, 1<<20))
			br.Connect("n")
			br.Connect("m")
			busy, err := br.Acquire(context.Background(), chat("on-n"))
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var waiters sync.WaitGroup
			for range n {
				waiters.Go(func() { _, _ = br.Acquire(ctx, chat("on-n")) })
			}
			for br.Snapshot().QueueTotal < n {
				runtime.Gosched()
			}
			took := make([]time.Duration, 0, 1<<20)
			for b.Loop() {
				begin := time.Now()
				l, err := br.Acquire(ctx, chat("on-m"))
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
				l.Close()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
			cancel()
			waiters.Wait()
			busy.Close()
			br.Stop()
		})
	}
}
