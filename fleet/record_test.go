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

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// busy keeps a site's points, one every ten seconds, until ctx ends: each has one
// request granted and completed.
func (s *site) busy(ctx context.Context, id string) {
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
		s.set(func(s *site) {
			s.points = append(s.points, &controlv1.HistoryPoint{
				At: timestamppb.Now(), Slots: 4, InFlight: 1, Queued: uint32(n % 6), Granted: 1, WaitP50Ms: 10 * (n % 6), WaitP95Ms: 100 * (n % 6),
				Outcomes: map[string]uint32{"completed": 1}, OutputTokens: 7,
			})
			s.snapshot = edgeWith(id, 2, 2)
			if len(s.points) > 360 {
				s.points = s.points[1:]
			}
		})
	}
}

func history(t *testing.T, f *fleet.Fleet, id string, minutes int) []*controlv1.HistoryPoint {
	t.Helper()
	points, err := f.History(t.Context(), id, minutes)
	require.NoError(t, err)
	return points
}

// requireWhole checks that every minute is there once, and counts six intervals.
func requireWhole(t *testing.T, points []*controlv1.HistoryPoint) {
	t.Helper()
	for i, p := range points {
		require.EqualValues(t, 6, p.GetGranted(), "minute %d", i)
		require.EqualValues(t, 6, p.GetOutcomes()["completed"])
		require.EqualValues(t, 42, p.GetOutputTokens())
		require.EqualValues(t, 20, p.GetWaitP50Ms())
		require.EqualValues(t, 500, p.GetWaitP95Ms())
		require.EqualValues(t, 4, p.GetSlots())
		require.Zero(t, p.GetAt().GetSeconds()%60)
		if i > 0 {
			require.EqualValues(t, 60, p.GetAt().GetSeconds()-points[i-1].GetAt().GetSeconds())
		}
	}
}

func TestMinutesAreKeptOnceWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, store := &site{snapshot: edgeWith("e0", 2, 2)}, &memory{}
		go s.busy(ctx, "e0")
		pass(30 * time.Minute) // before there is a Control Plane

		keep := func(o *fleet.Options) { o.Store = store }
		f := start(t, map[string]*site{"e0": s}, keep)
		pass(30 * time.Second)
		require.Len(t, history(t, f, "e0", 0), 30, "what happened in the last hour before is there")
		pass(10 * time.Minute)
		require.Len(t, history(t, f, "e0", 0), 40)
		require.Len(t, history(t, f, "e0", 5), 5)

		// Nothing is lost by an Edge that cannot be reached for a while, nor by a
		// disk that is full, nor by another Control Plane in the place of this one.
		s.set(func(s *site) { s.err, s.pointErr = errors.New("refused"), errors.New("refused") })
		pass(20 * time.Minute)
		require.Len(t, history(t, f, "e0", 0), 40, "a gap is a gap while it is one")
		s.set(func(s *site) { s.err, s.pointErr = nil, nil })
		store.mu.Lock()
		store.err = errors.New("disk full")
		store.mu.Unlock()
		pass(10 * time.Minute)
		now := f.Now()
		require.Equal(t, fleet.Live, now.Edges[0].State, "a full disk stops no pull")
		require.Equal(t, []string{"the history is not kept: disk full; what an Edge tells within the hour after is made good"}, now.Notices)
		store.mu.Lock()
		store.err = nil
		store.mu.Unlock()
		pass(2 * time.Minute)
		require.Empty(t, f.Now().Notices)
		again := start(t, map[string]*site{"e0": s}, keep)
		pass(3 * time.Minute)
		points := history(t, again, "e0", 0)
		require.Len(t, points, 75)
		requireWhole(t, points)
	})
}

// An Edge that begins anew within a minute adds to what is kept of it.
func TestARestartedEdgeDoublesAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		point := func(at time.Time) *controlv1.HistoryPoint {
			return &controlv1.HistoryPoint{At: timestamppb.New(at), Granted: 1, WaitP50Ms: 20, WaitP95Ms: 500, Slots: 4, Outcomes: map[string]uint32{"completed": 1}, OutputTokens: 7}
		}
		begun := time.Now()
		s := &site{snapshot: edgeWith("e0", 2, 2)}
		for i := 1; i <= 3; i++ {
			s.points = append(s.points, point(begun.Add(time.Duration(10*i)*time.Second)))
		}
		f := start(t, map[string]*site{"e0": s})
		pass(61 * time.Second)
		s.set(func(s *site) { s.snapshot = edgeWith("e0", 2, 2) })
		pass(10 * time.Second)
		require.EqualValues(t, 3, history(t, f, "e0", 0)[0].GetGranted())
		s.set(func(s *site) {
			s.points = nil
			for i := 4; i <= 6; i++ {
				s.points = append(s.points, point(begun.Add(time.Duration(10*i)*time.Second)))
			}
			s.snapshot = edgeWith("e0", 2, 2)
		})
		pass(2 * time.Minute)
		require.Len(t, history(t, f, "e0", 0), 1)
		requireWhole(t, history(t, f, "e0", 0))
	})
}

// Of an Edge without GetHistory the levels are kept, and nothing is made up.
func TestAnOlderEdgeHasLevelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{snapshot: edgeWith("e0", 2, 2), pointErr: fleet.ErrNotOffered}
		f := start(t, map[string]*site{"e0": s})
		for range 5 * 60 {
			s.set(func(s *site) { s.snapshot = edgeWith("e0", 2, 2) })
			pass(time.Second)
		}
		points := history(t, f, "e0", 0)
		require.GreaterOrEqual(t, len(points), 4)
		for _, p := range points {
			require.EqualValues(t, 4, p.GetSlots())
			require.EqualValues(t, 2, p.GetInFlight())
			require.EqualValues(t, 3, p.GetQueued())
			require.Empty(t, p.GetOutcomes())
			require.Zero(t, p.GetGranted())
		}
		require.Contains(t, f.Now().Edges[0].Notices, "the Edge is too old to tell its history: of each minute only its end is kept, without waits and outcomes")
	})
}

func TestCase_J10_AMinuteOfAllIsTheSumOfItsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		sites := map[string]*site{"e0": {snapshot: edgeWith("e0", 2, 2)}, "e1": {snapshot: edgeWith("e1", 2, 2)}}
		go sites["e0"].busy(ctx, "e0")
		go sites["e1"].busy(ctx, "e1")
		f := start(t, sites)
		pass(5 * time.Minute)
		sum := history(t, f, "", 0)
		require.NotEmpty(t, sum)
		require.EqualValues(t, 12, sum[0].GetGranted())
		require.EqualValues(t, 8, sum[0].GetSlots())
		require.EqualValues(t, 500, sum[0].GetWaitP95Ms())
		_, err := f.History(t.Context(), "e7", 0)
		require.EqualError(t, err, `no Edge "e7" is configured`)
		stop()
	})
}

// An Edge that makes up outcomes fills neither memory nor disk with them.
func TestMadeUpOutcomesAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{snapshot: edgeWith("e0", 2, 2)}
		for i := range 6 {
			outcomes := map[string]uint32{"completed": 1, strings.Repeat("x", 65): 1}
			for n := range 1000 {
				outcomes[fmt.Sprintf("outcome-%d-%d", i, n)] = 1
			}
			s.points = append(s.points, &controlv1.HistoryPoint{At: timestamppb.New(time.Now().Add(time.Duration(10*(i+1)) * time.Second)), Outcomes: outcomes})
		}
		f := start(t, map[string]*site{"e0": s})
		pass(61 * time.Second)
		s.set(func(s *site) { s.snapshot = edgeWith("e0", 2, 2) })
		pass(2 * time.Minute)
		for _, id := range []string{"e0", ""} {
			points := history(t, f, id, 0)
			require.Len(t, points, 1)
			outcomes, sum := points[0].GetOutcomes(), 0
			require.LessOrEqual(t, len(outcomes), 65)
			for name, n := range outcomes {
				require.LessOrEqual(t, len(name), 64)
				sum += int(n)
			}
			require.Equal(t, 6*1002, sum, "all are counted")
		}
	})
}

// Whoever asks is told of no file's place: the log is.
func TestAHistoryThatCannotBeReadIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := start(t, map[string]*site{"e0": {snapshot: edgeWith("e0", 1, 1)}}, func(o *fleet.Options) {
			o.Store, o.Log = &memory{lost: errors.New("disk image is malformed")}, slog.New(slog.NewTextHandler(&log, nil))
		})
		pass(3 * time.Second)
		for i, id := range []string{"e0", ""} {
			_, err := f.History(t.Context(), id, 0)
			require.EqualError(t, err, "disk image is malformed")
			require.Equal(t, i+1, strings.Count(log.String(), `level=ERROR msg="the history cannot be read" error="disk image is malformed"`))
		}
		before := log.String()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.History(gone, "e0", 0)
		require.Error(t, err)
		_, err = f.History(t.Context(), "e7", 0)
		require.Error(t, err)
		require.Equal(t, before, log.String(), "neither is the store's fault")
	})
}

// The sum of a day of many Edges takes a second and much memory: however many ask,
// it is worked out once, and again when there may be more.
func TestTheSumOfAllIsWorkedOutOnceForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		sites := map[string]*site{"e0": {snapshot: edgeWith("e0", 2, 2)}, "e1": {snapshot: edgeWith("e1", 2, 2)}}
		go sites["e0"].busy(ctx, "e0")
		go sites["e1"].busy(ctx, "e1")
		store := &memory{slow: time.Second}
		f := start(t, sites, func(o *fleet.Options) { o.Store = store })
		pass(5*time.Minute + 30*time.Second)

		hasty, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		_, err := f.History(hasty, "", 0)
		require.ErrorIs(t, err, context.DeadlineExceeded, "who leaves takes nobody along")
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() {
				points, err := f.History(t.Context(), "", i%3*2)
				if err != nil || len(points) != []int{5, 2, 4}[i%3] {
					t.Errorf("%d: %d points, %v", i, len(points), err)
				}
			})
		}
		asking.Wait()
		require.Equal(t, 2, store.asked, "each Edge once")
		pass(time.Minute)
		require.Len(t, history(t, f, "", 0), 6)
		require.Equal(t, 4, store.asked)
		stop()
	})
}
