package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	interval   = 2 * time.Second
	timeout    = 1500 * time.Millisecond
	staleAfter = 10 * time.Second
)

// site is a fake Edge. Tests run in a bubble: time is the bubble's.
type site struct {
	mu       sync.Mutex
	snapshot *controlv1.EdgeNodeSnapshot
	err      error
	hangs    bool
	after    time.Duration // how long an answer takes
	pulls    []time.Time
	points   []*controlv1.HistoryPoint
	pointErr error
}

func (s *site) set(change func(*site)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *site) Snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error) {
	s.mu.Lock()
	s.pulls = append(s.pulls, time.Now())
	hangs, after, err, snapshot := s.hangs, s.after, s.err, s.snapshot
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-time.After(after)
	return snapshot, err
}

func (s *site) History(ctx context.Context) ([]*controlv1.HistoryPoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points, s.pointErr
}

// edgeWith is a snapshot of an Edge with nodes of two slots each, of which the
// first ones are connected.
func edgeWith(id string, nodes, connected int) *controlv1.EdgeNodeSnapshot {
	s := &controlv1.EdgeNodeSnapshot{
		EdgeId: id, InstanceId: "instance-of-" + id, SoftwareVersion: "1.0", At: timestamppb.Now(), InFlightTotal: uint32(connected), QueueTotal: 3, OldestWaitMs: 41_000,
	}
	for i := range nodes {
		n := &controlv1.NodeSnapshot{Id: fmt.Sprintf("n%d", i), Connected: i < connected, Providers: []*controlv1.ProviderSnapshot{{Id: "p", Status: "unavailable"}}}
		if i < connected {
			n.Providers[0] = &controlv1.ProviderSnapshot{Id: "p", Status: "available", EffectiveCapacity: 2, InFlight: 1}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// memory is a store in memory.
type memory struct {
	mu      sync.Mutex
	minutes map[string]map[int64]fleet.Minute
	err     error // of Put
	lost    error // of Since
	asked   int   // how often Since was called
	slow    time.Duration
}

func (m *memory) Last(_ context.Context, edge string) (last fleet.Minute, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, minute := range m.minutes[edge] {
		if last.Point.GetAt().AsTime().Before(minute.Point.GetAt().AsTime()) {
			last = minute
		}
	}
	return last, nil
}

func (m *memory) Put(_ context.Context, edge string, minutes []fleet.Minute, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.minutes == nil {
		m.minutes = map[string]map[int64]fleet.Minute{}
	}
	if m.minutes[edge] == nil {
		m.minutes[edge] = map[int64]fleet.Minute{}
	}
	for _, minute := range minutes {
		m.minutes[edge][minute.Point.GetAt().GetSeconds()] = minute
	}
	return nil
}

func (m *memory) Since(ctx context.Context, edge string, after time.Time) (out []*controlv1.HistoryPoint, _ error) {
	select {
	case <-time.After(m.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	for at := after.Truncate(time.Minute); !at.After(after.Add(fleet.Kept + time.Hour)); at = at.Add(time.Minute) {
		if minute, ok := m.minutes[edge][at.Unix()]; ok && at.After(after) {
			out = append(out, minute.Point)
		}
	}
	return out, m.lost
}

func (m *memory) Notice() string { return "" }

// start runs a fleet of the sites until the test ends.
func start(t *testing.T, sites map[string]*site, more ...func(*fleet.Options)) *fleet.Fleet {
	t.Helper()
	o := fleet.Options{
		Interval: interval, Timeout: timeout, StaleAfter: staleAfter, Store: &memory{},
		Clock: clockwork.NewRealClock(), Log: slog.New(slog.DiscardHandler), Software: "1.0", Chance: func() float64 { return 0.5 },
	}
	for i := range len(sites) {
		id := fmt.Sprintf("e%d", i)
		o.Edges = append(o.Edges, fleet.Edge{ID: id, Reader: sites[id]})
	}
	for _, change := range more {
		change(&o)
	}
	f := fleet.New(o)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return f
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestStatesOfAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{err: errors.New("refused")}
		f := start(t, map[string]*site{"e0": s})
		one := func() fleet.View { return f.Now().Edges[0] }
		require.Equal(t, fleet.Never, one().State)
		pass(5 * time.Second)
		require.Equal(t, fleet.Never, one().State)
		require.Equal(t, "refused", one().LastError)
		require.Equal(t, 2, one().Failures)
		require.Zero(t, f.Now().Totals.EdgesLive)

		s.set(func(s *site) { s.err, s.snapshot = nil, edgeWith("e0", 3, 2) })
		pass(longest)
		require.Equal(t, fleet.Live, one().State)
		require.Empty(t, one().LastError)
		require.Equal(t, fleet.Totals{EdgesLive: 1, Edges: 1, NodesConnected: 2, Nodes: 3, Slots: 4, InFlight: 2, Queued: 3, OldestWait: 41 * time.Second}, f.Now().Totals)

		// The last good snapshot stays, with its age, and is in no sum.
		s.set(func(s *site) { s.hangs = true })
		pass(timeout + interval)
		require.Equal(t, fleet.Live, one().State, "one pull has failed, and what is known is fresh enough")
		require.Equal(t, "no answer within 1.5s", one().LastError)
		pass(staleAfter)
		require.Equal(t, fleet.Unreachable, one().State)
		require.Len(t, one().Snapshot.GetNodes(), 3)
		require.Greater(t, one().Age, staleAfter)
		require.Equal(t, fleet.Totals{Edges: 1}, f.Now().Totals)

		s.set(func(s *site) { s.hangs = false })
		pass(longest + timeout)
		require.Equal(t, fleet.Live, one().State)
	})
}

// longest is the longest pause between two pulls, jitter included.
const longest = 11 * time.Second

func TestPullsBackOffAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{err: errors.New("refused")}
		f := start(t, map[string]*site{"e0": s})
		pass(time.Minute)
		var pauses []time.Duration
		s.set(func(s *site) {
			for i := range len(s.pulls) - 1 {
				pauses = append(pauses, s.pulls[i+1].Sub(s.pulls[i]))
			}
		})
		second := time.Second
		require.Equal(t, []time.Duration{2 * second, 4 * second, 8 * second, 10 * second, 10 * second, 10 * second, 10 * second}, pauses)
		s.set(func(s *site) { s.err, s.snapshot, s.pulls = nil, edgeWith("e0", 1, 1), nil })
		pass(20 * time.Second)
		s.set(func(s *site) { require.Equal(t, 2*second, s.pulls[2].Sub(s.pulls[1])) })
		require.Equal(t, fleet.Live, f.Now().Edges[0].State)
	})
}

// A pull that takes its time does not make the next one later.
func TestIntervalsCountFromTheBeginOfAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{snapshot: edgeWith("e0", 1, 1), after: time.Second}
		f := start(t, map[string]*site{"e0": s})
		pass(9900 * time.Millisecond)
		s.set(func(s *site) { require.Len(t, s.pulls, 5) })
		v := f.Now().Edges[0]
		require.Equal(t, time.Second, v.Took)
		require.Equal(t, 1400*time.Millisecond, v.Age%interval, "an age counts from the begin of the pull: it never flatters")
	})
}

// Of 50 Edges five hang and five come and go; the others are never older than two
// intervals, whenever somebody looks.
func TestAHungEdgeNeverDelaysAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := map[string]*site{}
		for i := range 50 {
			id := fmt.Sprintf("e%d", i)
			sites[id] = &site{snapshot: edgeWith(id, 20, 20), hangs: i < 5, after: 20 * time.Millisecond}
		}
		f := start(t, sites, func(o *fleet.Options) { o.Chance = nil })
		pass(2 * time.Second) // each has been read once
		oldest := time.Duration(0)
		for tick := range 600 { // two minutes
			if tick%17 == 0 {
				for i := 5; i < 10; i++ {
					sites[fmt.Sprintf("e%d", i)].set(func(s *site) { s.hangs = !s.hangs })
				}
			}
			now := f.Now()
			for i, v := range now.Edges {
				if i >= 10 {
					require.Equal(t, fleet.Live, v.State)
					oldest = max(oldest, v.Age)
				} else if i < 5 {
					require.Equal(t, fleet.Never, v.State)
				}
			}
			require.GreaterOrEqual(t, now.Totals.EdgesLive, 40)
			require.EqualValues(t, 40*now.Totals.EdgesLive, now.Totals.Slots)
			pass(200 * time.Millisecond)
		}
		require.LessOrEqual(t, oldest, 2*interval)
	})
}

func TestCase_J10_SumsAreThoseOfTheParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := map[string]*site{"e0": {snapshot: edgeWith("e0", 3, 3)}, "e1": {snapshot: edgeWith("e1", 2, 1)}, "e2": {}}
		sites["e2"].snapshot = sites["e0"].snapshot // the same Edge under another name
		f := start(t, sites)
		pass(3 * time.Second)
		want := fleet.Totals{EdgesLive: 3, Edges: 3, NodesConnected: 4, Nodes: 5, Slots: 8, InFlight: 4, Queued: 6, OldestWait: 41 * time.Second}
		require.Equal(t, want, f.Now().Totals)
		require.Contains(t, f.Now().Edges[2].Notices, `this is the same Edge as "e0": the sums count it once`)

		// One of three nodes leaves, and returns.
		sites["e0"].set(func(s *site) { s.snapshot = edgeWith("e0", 3, 2) })
		sites["e2"].set(func(s *site) { s.snapshot = sites["e0"].snapshot })
		pass(3 * time.Second)
		left := want
		left.NodesConnected, left.Slots, left.InFlight = 3, 6, 3
		require.Equal(t, left, f.Now().Totals)
		sites["e0"].set(func(s *site) { s.snapshot = edgeWith("e0", 3, 3) })
		sites["e2"].set(func(s *site) { s.snapshot = sites["e0"].snapshot })
		pass(3 * time.Second)
		require.Equal(t, want, f.Now().Totals)
	})
}

func TestNoticesOfWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newer := edgeWith("other", 1, 1)
		newer.SoftwareVersion = "2.0"
		newer.At = timestamppb.New(time.Now().Add(-time.Minute))
		newer.Nodes[0].Providers[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1}) // field 2047, a number
		older := &controlv1.EdgeNodeSnapshot{EdgeId: "e1"}                           // says nothing of what came later
		f := start(t, map[string]*site{"e0": {snapshot: newer}, "e1": {snapshot: older, pointErr: fleet.ErrNotOffered}})
		pass(30 * time.Second)
		now := f.Now()
		require.Equal(t, []string{
			`the Edge calls itself "other": give it that id in controlplane.yaml, or look whether the url is right`,
			"the Edge runs version 2.0, this Control Plane 1.0",
			"the Edge tells more than this Control Plane understands: it is newer",
			"the Edge's clock is 1m29s behind the Control Plane's",
		}, now.Edges[0].Notices)
		require.Equal(t, fleet.Live, now.Edges[0].State)
		require.Equal(t, fleet.Live, now.Edges[1].State)
	})
}

// What an Edge calls itself is cut where it is told and logged.
func TestANameWithoutEndIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endless := edgeWith(strings.Repeat("é", 1<<20), 1, 1)
		endless.SoftwareVersion = strings.Repeat("é", 1<<20)
		var log bytes.Buffer
		f := start(t, map[string]*site{"e0": {snapshot: endless}}, func(o *fleet.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		pass(3 * time.Second)
		cut := strings.Repeat("é", 32) + "…"
		require.Equal(t, []string{
			`the Edge calls itself "` + cut + `": give it that id in controlplane.yaml, or look whether the url is right`,
			"the Edge runs version " + cut + ", this Control Plane 1.0",
		}, f.Now().Edges[0].Notices)
		require.Contains(t, log.String(), cut)
		require.Less(t, log.Len(), 1000)
	})
}

// What a watcher gets, whole.
func TestWatchSendsAllThenWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites := map[string]*site{"e0": {snapshot: edgeWith("e0", 1, 1)}, "e1": {snapshot: edgeWith("e1", 1, 1)}}
		f := start(t, sites)
		pass(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var got []fleet.Update
		ended := make(chan error, 1)
		go func() {
			ended <- f.Watch(ctx, func(u fleet.Update) error { got = append(got, u); return nil })
		}()
		synctest.Wait()
		sites["e1"].set(func(s *site) { s.hangs = true })
		pass(30 * time.Second)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.True(t, got[0].Full)
		require.Len(t, got[0].Edges, 2)
		states := map[string][]fleet.State{}
		for i, u := range got[1:] {
			require.False(t, u.Full)
			require.LessOrEqual(t, u.At.Sub(got[i].At), time.Second, "silence means that the connection is lost")
			require.Equal(t, 2, u.Totals.Edges)
			for _, v := range u.Edges {
				states[v.ID] = append(states[v.ID], v.State)
			}
		}
		require.InDelta(t, 15, len(states["e0"]), 1, "once a pull")
		require.Contains(t, states["e1"], fleet.Unreachable)
		require.Less(t, len(states["e1"]), 8)
	})
}

func TestAWatcherOfNoEdgesIsToldAllOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		var got []fleet.Update
		ended := make(chan error, 1)
		go func() {
			ended <- f.Watch(ctx, func(u fleet.Update) error { got = append(got, u); return nil })
		}()
		pass(10 * time.Second)
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.InDelta(t, 13, len(got), 1, "no more often than silence allows")
		for i, u := range got {
			require.Equal(t, i == 0, u.Full)
		}
	})
}

// A watcher that is stuck holds nobody up, and is told the newest state at last.
func TestASlowWatcherGetsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{snapshot: edgeWith("e0", 1, 1)}
		f := start(t, map[string]*site{"e0": s})
		pass(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		updates, ended := make(chan fleet.Update), make(chan error, 1)
		go func() { ended <- f.Watch(ctx, func(u fleet.Update) error { updates <- u; return nil }) }()
		pass(time.Minute)
		<-updates
		s.set(func(s *site) { s.snapshot = edgeWith("e0", 7, 7) })
		pass(time.Minute)
		s.set(func(s *site) { require.Greater(t, len(s.pulls), 55) })
		stale := <-updates // was on its way
		require.False(t, stale.Full)
		newest := <-updates
		require.Len(t, newest.Edges[0].Snapshot.GetNodes(), 7)
		require.Less(t, newest.Edges[0].Age, interval+interval/5)
		stop()
		select {
		case <-updates:
		case <-ended:
		}
	})
}
