package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// edge is a state that a test changes.
type edge struct {
	mu    sync.Mutex
	state *controlv1.EdgeNodeSnapshot
	made  int
}

func (e *edge) change(f func(*controlv1.EdgeNodeSnapshot)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := proto.Clone(e.state).(*controlv1.EdgeNodeSnapshot)
	f(next)
	e.state = next
}

func (e *edge) snapshot() *controlv1.EdgeNodeSnapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made++
	return proto.Clone(e.state).(*controlv1.EdgeNodeSnapshot)
}

// watcher applies what it is sent.
type watcher struct {
	t        *testing.T
	state    *controlv1.EdgeNodeSnapshot
	sequence uint64
	got      chan *controlv1.WatchEdgeNodeSnapshotResponse
	ended    chan error
}

func watchFrom(ctx context.Context, t *testing.T, u *updates, from uint64) *watcher {
	w := &watcher{t: t, got: make(chan *controlv1.WatchEdgeNodeSnapshotResponse), ended: make(chan error, 1)}
	go func() {
		w.ended <- u.watch(ctx, from, func(r *controlv1.WatchEdgeNodeSnapshotResponse) error {
			select {
			case w.got <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return w
}

// take waits for the next update.
func (w *watcher) take() *controlv1.WatchEdgeNodeSnapshotResponse {
	w.t.Helper()
	r := <-w.got
	if full := r.GetFull(); full != nil {
		w.state = full
	} else {
		next, err := Apply(w.state, w.sequence, r.GetChanges())
		require.NoError(w.t, err)
		w.state = next
	}
	w.sequence = r.GetSequence()
	return r
}

func newEdge() (*edge, *clockwork.FakeClock, *updates) {
	e := &edge{state: &controlv1.EdgeNodeSnapshot{
		Revision: 1, Models: []*controlv1.ModelSnapshot{{Id: "m"}},
		Nodes: []*controlv1.NodeSnapshot{{Id: "a", Connected: true}, {Id: "b"}},
	}}
	clock := clockwork.NewFakeClock()
	return e, clock, &updates{clock: clock, make: e.snapshot}
}

func (w *watcher) is(e *edge) {
	w.t.Helper()
	require.True(w.t, proto.Equal(e.state, w.state), "edge: %v\nwatcher: %v", e.state, w.state)
}

func TestU12_AWatcherGetsEverythingThenWhatChanges(t *testing.T) {
	e, clock, u := newEdge()
	w := watchFrom(t.Context(), t, u, 0)
	require.NotNil(t, w.take().GetFull())
	w.is(e)

	e.change(func(s *controlv1.EdgeNodeSnapshot) {
		s.Revision, s.Nodes[1].Connected = 2, true
		s.Requests = append(s.Requests, &controlv1.RequestSnapshot{EnqueueSeq: 7, State: "prefill"})
	})
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(updatePace)
	c := w.take().GetChanges()
	require.Len(t, c.GetNodes(), 1)
	require.Len(t, c.GetRequests(), 1)
	require.Empty(t, c.GetRest().GetModels(), "what stays is not sent again")
	w.is(e)

	e.change(func(s *controlv1.EdgeNodeSnapshot) {
		s.Revision, s.Requests, s.Nodes = 3, nil, s.Nodes[1:]
		s.Endings = []*controlv1.Ending{{EnqueueSeq: 7, Outcome: "completed"}}
		s.Models = append(s.Models, &controlv1.ModelSnapshot{Id: "n"})
	})
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(updatePace)
	c = w.take().GetChanges()
	require.Equal(t, []uint64{7}, c.GetGone())
	require.Equal(t, []string{"b"}, c.GetNodeOrder())
	require.True(t, c.GetCatalogueChanged())
	w.is(e)
}

// K16: an update comes every second, whatever happens, so that silence means a lost connection.
func TestCase_K16_AQuietEdgeIsHeardOfEverySecond(t *testing.T) {
	_, clock, u := newEdge()
	w := watchFrom(t.Context(), t, u, 0)
	w.take()
	for range 3 {
		for range updateLimit / updatePace {
			select {
			case r := <-w.got:
				t.Fatalf("nothing has changed, and there came %v", r)
			default:
			}
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(updatePace)
		}
		c := w.take().GetChanges()
		require.Empty(t, c.GetNodes())
		require.False(t, c.GetCatalogueChanged())
	}
}

func TestAWatchIsResumedWhereItWasLost(t *testing.T) {
	e, clock, u := newEdge()
	ctx, lose := context.WithCancel(t.Context())
	w := watchFrom(ctx, t, u, 0)
	w.take()
	lose()
	require.ErrorIs(t, <-w.ended, context.Canceled)

	e.change(func(s *controlv1.EdgeNodeSnapshot) { s.Revision, s.Nodes[0].Connected = 2, false })
	clock.Advance(time.Minute)
	again := watchFrom(t.Context(), t, u, w.sequence)
	again.state, again.sequence = w.state, w.sequence
	require.NotNil(t, again.take().GetChanges(), "the state before is still known")
	again.is(e)

	stranger := watchFrom(t.Context(), t, u, 4711)
	require.NotNil(t, stranger.take().GetFull())
	stranger.is(e)
}

func TestASlowWatcherGetsTheNewestState(t *testing.T) {
	e, clock, u := newEdge()
	slow := watchFrom(t.Context(), t, u, 0)
	slow.take()
	quick := watchFrom(t.Context(), t, u, 0)
	quick.take()
	for i := range keptVersions * 2 {
		e.change(func(s *controlv1.EdgeNodeSnapshot) {
			s.Revision, s.Nodes[0].SoftwareVersion = uint64(i+2), fmt.Sprint(i)
		})
		// The slow one holds an update out to nobody, and waits for no clock.
		waiters := 2
		if i > 0 {
			waiters = 1
		}
		require.NoError(t, clock.BlockUntilContext(t.Context(), waiters))
		clock.Advance(updatePace)
		quick.take()
		quick.is(e)
	}
	require.Len(t, u.versions, keptVersions)
	slow.take() // the one that it was offered long ago
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(updatePace)
	slow.take()
	slow.is(e)
}

func TestAStateServesAllWatchers(t *testing.T) {
	e, clock, u := newEdge()
	var all []*watcher
	for range 100 {
		w := watchFrom(t.Context(), t, u, 0)
		w.take()
		all = append(all, w)
	}
	require.Equal(t, 1, e.made)
	e.change(func(s *controlv1.EdgeNodeSnapshot) { s.Revision = 2 })
	require.NoError(t, clock.BlockUntilContext(t.Context(), len(all)))
	clock.Advance(updatePace)
	var first *controlv1.SnapshotChanges
	for _, w := range all {
		c := w.take().GetChanges()
		if first == nil {
			first = c
		}
		require.Same(t, first, c)
	}
	require.Equal(t, 2, e.made)
}

func TestProgressIsToldOnceASecond(t *testing.T) {
	e, clock, u := newEdge()
	e.change(func(s *controlv1.EdgeNodeSnapshot) {
		s.Requests = []*controlv1.RequestSnapshot{{EnqueueSeq: 1, State: "streaming", AnswerParts: 1}}
	})
	w := watchFrom(t.Context(), t, u, 0)
	w.take()
	updates := 0
	for i := range 10 {
		e.change(func(s *controlv1.EdgeNodeSnapshot) { s.Requests[0].AnswerParts = uint64(i + 2) })
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(updatePace)
		if i%5 == 4 {
			w.take()
			updates++
			require.Equal(t, uint64(i+2), w.state.GetRequests()[0].GetAnswerParts())
		}
	}
	require.Equal(t, 2, updates)
}

func TestAFailedSendEndsTheWatch(t *testing.T) {
	_, _, u := newEdge()
	broken := errors.New("broken pipe")
	require.ErrorIs(t, u.watch(t.Context(), 0, func(*controlv1.WatchEdgeNodeSnapshotResponse) error { return broken }), broken)
}

func TestApplyRefusesAGap(t *testing.T) {
	_, err := Apply(&controlv1.EdgeNodeSnapshot{}, 3, &controlv1.SnapshotChanges{FromSequence: 2})
	require.ErrorIs(t, err, ErrGap)
}

// Whatever two states there are, the changes between them lead from one to the other.
func TestChangesLeadFromAnyStateToAnyOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *controlv1.EdgeNodeSnapshot {
			s := &controlv1.EdgeNodeSnapshot{Revision: rapid.Uint64Range(0, 3).Draw(t, name), EdgeId: "e"}
			for _, id := range rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(t, name)[:rapid.IntRange(0, 4).Draw(t, name)] {
				s.Nodes = append(s.Nodes, &controlv1.NodeSnapshot{Id: id, Connected: rapid.Bool().Draw(t, name)})
			}
			for seq := range uint64(5) {
				if rapid.Bool().Draw(t, name) {
					s.Requests = append(s.Requests, &controlv1.RequestSnapshot{EnqueueSeq: seq + 1, State: rapid.SampledFrom([]string{"waiting", "prefill"}).Draw(t, name)})
				}
			}
			for i := range rapid.IntRange(0, 2).Draw(t, name) {
				s.Models = append(s.Models, &controlv1.ModelSnapshot{Id: fmt.Sprint(i)})
			}
			return s
		}
		from, to := draw("from"), draw("to")
		c := between(from, to)
		c.FromSequence = 9
		got, err := Apply(from, 9, c)
		if err != nil || !proto.Equal(to, got) {
			t.Fatalf("from %v\nto   %v\ngot  %v (%v)", from, to, got, err)
		}
	})
}

// Endings only ever grow at the front.
func TestEndingsFollowEachOther(t *testing.T) {
	var all []*controlv1.Ending
	state := &controlv1.EdgeNodeSnapshot{}
	for i := range uint64(100) {
		for range rand.IntN(3) {
			all = append([]*controlv1.Ending{{EnqueueSeq: i, RequestId: fmt.Sprint(len(all))}}, all...)
		}
		next := &controlv1.EdgeNodeSnapshot{Endings: all[:min(len(all), ShownEndings)]}
		c := between(state, next)
		c.FromSequence = i
		got, err := Apply(state, i, c)
		require.NoError(t, err)
		require.True(t, proto.Equal(next, got))
		state = next
	}
}
