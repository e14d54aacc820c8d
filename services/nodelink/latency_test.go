package nodelink

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// site is a Service over a real broker, with a node that goes and one that stays.
// Its sessions have no streams: only the Edge's own share is measured.
type site struct {
	svc    *Service
	broker *broker.Broker
}

const lostLeases = 16

func newSite(b *testing.B) *site {
	resource := func(node admission.NodeID) admission.Resource {
		return admission.Resource{Key: admission.ResourceKey{Node: node, Provider: "p"}, Capacity: lostLeases, Enabled: true, Surfaces: admission.SurfaceChat}
	}
	candidate := func(node admission.NodeID) admission.Candidate {
		return admission.Candidate{Resource: admission.ResourceKey{Node: node, Provider: "p"}}
	}
	clock := clockwork.NewRealClock()
	s := &site{broker: broker.New(clock, admission.Config{
		Scopes:    []admission.Scope{{Key: admission.PoolScope, MaxQueue: 1000, Timeout: time.Hour}},
		Resources: []admission.Resource{resource("goes"), resource("stays")},
		Groups: []admission.Group{
			{Key: "goes", Scope: admission.PoolScope, Candidates: []admission.Candidate{candidate("goes")}},
			{Key: "stays", Scope: admission.PoolScope, Candidates: []admission.Candidate{candidate("stays")}},
			{Key: "both", Scope: admission.PoolScope, Candidates: []admission.Candidate{candidate("goes"), candidate("stays")}},
		},
	})}
	b.Cleanup(s.broker.Stop)
	var err error
	s.svc, err = New(Config{
		Broker: s.broker, Authenticator: &testAuth{tokens: map[string]string{"goes": nodeToken, "stays": nodeToken}},
		Providers: func(admission.NodeID) *runtimev1.ProviderSet { return &runtimev1.ProviderSet{} },
		Clock:     clock, Logger: slog.New(slog.DiscardHandler), HeartbeatInterval: beat, HeartbeatTimeout: silence, BodyLimit: 1,
	})
	require.NoError(b, err)
	return s
}

func (s *site) connect(b *testing.B, node string) *session {
	idle := &transport{over: true, body: &bodyReader{}}
	owner, refusal := s.svc.admit(&runtimev1.Register{ProtocolVersion: 1, NodeId: node, InstanceId: "instance-1"}, nodeToken, idle, "here")
	require.Nil(b, refusal)
	return owner
}

// fill takes all slots of a group's one node.
func (s *site) fill(b *testing.B, group admission.GroupKey) (held []*broker.Lease) {
	for range lostLeases {
		l, err := s.broker.Acquire(b.Context(), admission.Request{Group: group, Surface: admission.SurfaceChat})
		require.NoError(b, err)
		require.NoError(b, l.Track())
		held = append(held, l)
	}
	return held
}

// queue lets n requests of a group wait; each sends the time of its decision.
func (s *site) queue(b *testing.B, group admission.GroupKey, n int, decided chan<- time.Time) *sync.WaitGroup {
	before := s.broker.Snapshot().QueueTotal
	waiters := &sync.WaitGroup{}
	for range n {
		waiters.Go(func() {
			l, err := s.broker.Acquire(context.Background(), admission.Request{Group: group, Surface: admission.SurfaceChat})
			decided <- time.Now()
			if err == nil {
				l.Close()
			}
		})
	}
	for s.broker.Snapshot().QueueTotal < before+n {
		runtime.Gosched()
	}
	return waiters
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkLossOfASession is from the notice that a node's session is lost until
// its leases are back and the last of its waiters, who have no other candidate,
// has been told (S13).
func BenchmarkLossOfASession(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			s := newSite(b)
			var took []time.Duration
			for b.Loop() {
				owner := s.connect(b, "goes")
				held := s.fill(b, "goes")
				decided := make(chan time.Time, n)
				waiters := s.queue(b, "goes", n, decided)
				lost := time.Now()
				s.svc.end(owner, "lost", abrupt)
				waiters.Wait()
				last := lost
				for range n {
					if at := <-decided; at.After(last) {
						last = at
					}
				}
				took = append(took, last.Sub(lost))
				for _, l := range held {
					l.Close()
				}
			}
			require.Zero(b, s.broker.Snapshot().InFlight)
			require.Zero(b, s.broker.Snapshot().Counters.DoubleReleases)
			report(b, took)
		})
	}
}

// BenchmarkConnectServesAWaiter is from a registration until the request that has
// waited for such a node has its lease (S15).
func BenchmarkConnectServesAWaiter(b *testing.B) {
	s := newSite(b)
	s.connect(b, "stays")
	held := s.fill(b, "stays")
	var took []time.Duration
	for b.Loop() {
		decided := make(chan time.Time, 1)
		waiters := s.queue(b, "both", 1, decided)
		began := time.Now()
		owner := s.connect(b, "goes")
		took = append(took, (<-decided).Sub(began))
		waiters.Wait()
		s.svc.end(owner, "lost", abrupt)
	}
	report(b, took)
	for _, l := range held {
		l.Close()
	}
}
