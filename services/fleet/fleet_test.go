package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
)

const (
	interval   = 2 * time.Second
	timeout    = 1500 * time.Millisecond
	staleAfter = 10 * time.Second
)

// edge is a fake Edge: what its next pulls bring, after which time.
type edge struct {
	mu       sync.Mutex
	snapshot *controlv1.EdgeNodeSnapshot
	err      error
	takes    time.Duration
}

func (e *edge) set(s *controlv1.EdgeNodeSnapshot, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot, e.err = s, err
}

func (e *edge) Snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error) {
	e.mu.Lock()
	s, err, takes := e.snapshot, e.err, e.takes
	e.mu.Unlock()
	select {
	case <-time.After(takes):
		return s, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *edge) History(context.Context) ([]*controlv1.HistoryPoint, error) { return nil, nil }

// kept is a store of points that are there from the start.
type kept struct {
	points map[string][]*controlv1.HistoryPoint
	err    error
	notice string
}

func (k *kept) Last(context.Context, string) (fleet.Minute, error) { return fleet.Minute{}, nil }

func (k *kept) Put(context.Context, string, []fleet.Minute, time.Time) error { return nil }

func (k *kept) Since(_ context.Context, id string, after time.Time) (out []*controlv1.HistoryPoint, _ error) {
	for _, p := range k.points[id] {
		if p.GetAt().AsTime().After(after) {
			out = append(out, p)
		}
	}
	return out, k.err
}

func (k *kept) Notice() string { return k.notice }

// bubble runs a test where time is the bubble's. The fleet reads the Edges, each under its place's name, and the handler is served in memory.
func bubble(t *testing.T, store *kept, edges []*edge, test func(*testing.T, fleetv1connect.FleetServiceClient), more ...func(*fleet.Options)) {
	synctest.Test(t, func(t *testing.T) {
		o := fleet.Options{
			Interval: interval, Timeout: timeout, StaleAfter: staleAfter, Store: store, Clock: clockwork.NewRealClock(),
			Log: slog.New(slog.DiscardHandler), Software: "1.0", Chance: func() float64 { return 0.5 },
		}
		var ids []string
		for i, e := range edges {
			id := fmt.Sprintf("edge-%d", i)
			ids = append(ids, id)
			o.Edges = append(o.Edges, fleet.Edge{ID: id, Reader: e})
		}
		for _, change := range more {
			change(&o)
		}
		f := fleet.New(o)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		defer func() { stop(); running.Wait() }()
		_, h := fleetv1connect.NewFleetServiceHandler(&Service{
			Fleet: f, Software: "1.0", Nearest: func(id string) string {
				for _, known := range ids {
					if len(known) == len(id) { // near enough here
						return known
					}
				}
				return ""
			},
		})
		server := httptest.NewTestServer(t, h)
		test(t, fleetv1connect.NewFleetServiceClient(server.Client(), server.URL))
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// busy is an Edge with a provider that runs two of two and is pressed by three waiters, and one whose node is away.
func busy(id string) *controlv1.EdgeNodeSnapshot {
	return &controlv1.EdgeNodeSnapshot{
		EdgeId: id, InstanceId: "instance-of-" + id, SoftwareVersion: "1.0", At: timestamppb.Now(), InFlightTotal: 2, QueueTotal: 3, OldestWaitMs: 41_000,
		Nodes: []*controlv1.NodeSnapshot{
			{Id: "on", Connected: true, Providers: []*controlv1.ProviderSnapshot{{
				Id: "p", Status: "full", Health: "healthy", ConfiguredCapacity: 2, EffectiveCapacity: 2, InFlight: 2, LongInFlight: 1, LongContextCapacity: 1, Queued: 3, LongQueued: 2,
			}, {
				Id: "q", Status: "full", Health: "healthy", Queued: 3, LongQueued: 2, // the same three, who would take it, too
			}}},
			{Id: "off", Providers: []*controlv1.ProviderSnapshot{{
				Id: "p", Status: "unavailable", Health: "offline", ConfiguredCapacity: 4, ExcludedReason: "offline", ExcludedSentence: "Its node is not connected.",
			}}},
		},
	}
}

func theFleet(t *testing.T, c fleetv1connect.FleetServiceClient) *fleetv1.Fleet {
	t.Helper()
	r, err := c.GetFleet(t.Context(), &fleetv1.GetFleetRequest{})
	require.NoError(t, err)
	return r.GetFleet()
}

// equal compares messages.
func equal(t *testing.T, want, got proto.Message) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "want %v\ngot  %v", want, got)
}

// S07, S14: what an Edge says of leases, pressure and its true queue, and of a node that is away, is passed on as it is. The sums take the
// queue from the Edge's total, never from the pressure, and have no slot of a node that is away.
func TestS07_S14_GetFleetPassesSnapshotsOnAndSumsThem(t *testing.T) {
	first, second := &edge{takes: 300 * time.Millisecond}, &edge{}
	bubble(t, &kept{}, []*edge{first, second}, func(t *testing.T, c fleetv1connect.FleetServiceClient) {
		started := time.Now()
		one, two := busy("edge-0"), busy("edge-1")
		two.OldestWaitMs = 59_000
		first.set(one, nil)
		second.set(two, nil)
		pass(time.Second) // each is pulled at 0.5 s
		got := theFleet(t, c)
		require.Equal(t, started.Add(time.Second), got.GetAt().AsTime().Local())
		require.Equal(t, "1.0", got.GetSoftwareVersion())
		require.Empty(t, got.GetNotices())
		pulled := timestamppb.New(started.Add(500 * time.Millisecond))
		require.Len(t, got.GetEdges(), 2)
		equal(t, &fleetv1.EdgeView{Id: "edge-0", State: "live", Snapshot: one, PulledAt: pulled, AgeMs: 500, PullMs: 300}, got.GetEdges()[0])
		equal(t, &fleetv1.EdgeView{Id: "edge-1", State: "live", Snapshot: two, PulledAt: pulled, AgeMs: 500}, got.GetEdges()[1])
		equal(t, &fleetv1.FleetTotals{
			EdgesLive: 2, Edges: 2, NodesConnected: 2, Nodes: 4, Slots: 4, InFlight: 4, Queued: 6, OldestWaitMs: 59_000,
		}, got.GetTotals())

		// The node is back: its slots are in force again.
		back := proto.CloneOf(two)
		back.Nodes[1] = &controlv1.NodeSnapshot{Id: "off", Connected: true, Providers: []*controlv1.ProviderSnapshot{{
			Id: "p", Status: "available", Health: "healthy", ConfiguredCapacity: 4, EffectiveCapacity: 4,
		}}}
		second.set(back, nil)
		pass(interval)
		got = theFleet(t, c)
		equal(t, back, got.GetEdges()[1].GetSnapshot())
		require.EqualValues(t, 3, got.GetTotals().GetNodesConnected())
		require.EqualValues(t, 8, got.GetTotals().GetSlots())
	})
}

// What is told of an Edge that has never answered, one that answers no more, and one of another id and version.
func TestGetFleetTellsStatesAgesErrorsAndNotices(t *testing.T) {
	never, lost, other := &edge{err: errors.New("refused")}, &edge{}, &edge{}
	bubble(t, &kept{notice: "the history is in memory alone"}, []*edge{never, lost, other}, func(t *testing.T, c fleetv1connect.FleetServiceClient) {
		got := theFleet(t, c)
		for i, v := range got.GetEdges() {
			equal(t, &fleetv1.EdgeView{Id: fmt.Sprintf("edge-%d", i), State: "never"}, v)
		}
		equal(t, &fleetv1.FleetTotals{Edges: 3}, got.GetTotals())

		said := busy("edge-1")
		lost.set(said, nil)
		strange := busy("office")
		strange.SoftwareVersion = "2.0"
		other.set(strange, nil)
		pass(time.Second)
		pulled := time.Now().Add(-500 * time.Millisecond)
		lost.set(nil, errors.New("connection refused"))
		pass(interval)
		got = theFleet(t, c)
		require.Equal(t, []string{"the history is in memory alone"}, got.GetNotices())
		v := got.GetEdges()[0]
		equal(t, &fleetv1.EdgeView{Id: "edge-0", State: "never", LastError: "refused", Failures: 2}, v)
		equal(t, &fleetv1.EdgeView{
			Id: "edge-1", State: "live", Snapshot: said, PulledAt: timestamppb.New(pulled), AgeMs: 2500, LastError: "connection refused", Failures: 1,
		}, got.GetEdges()[1])
		require.Equal(t, []string{
			`the Edge calls itself "office": give it that id in controlplane.yaml, or look whether the url is right`,
			"the Edge runs version 2.0, this Control Plane 1.0",
		}, got.GetEdges()[2].GetNotices())
		require.EqualValues(t, 2, got.GetTotals().GetEdgesLive())

		// Its snapshot stays, with its age, and is in no sum.
		pass(staleAfter)
		got = theFleet(t, c)
		v = got.GetEdges()[1]
		require.Equal(t, "unreachable", v.GetState())
		require.EqualValues(t, 12_500, v.GetAgeMs())
		equal(t, said, v.GetSnapshot())
		require.EqualValues(t, 1, got.GetTotals().GetEdgesLive())
		require.EqualValues(t, 3, got.GetTotals().GetQueued())
	})
}

// What nothing is wrong with, but has grown old, is stale; an answer without a snapshot is an error.
func TestGetFleetTellsStale(t *testing.T) {
	e := &edge{}
	seldom := func(o *fleet.Options) { o.Interval = 2 * staleAfter }
	bubble(t, &kept{}, []*edge{e}, func(t *testing.T, c fleetv1connect.FleetServiceClient) {
		said := busy("edge-0")
		e.set(said, nil)
		pass(staleAfter + time.Second)
		got := theFleet(t, c)
		equal(t, &fleetv1.EdgeView{
			Id: "edge-0", State: "stale", Snapshot: said, PulledAt: timestamppb.New(time.Now().Add(-10_500 * time.Millisecond)), AgeMs: 10_500,
		}, got.GetEdges()[0])
		equal(t, &fleetv1.FleetTotals{Edges: 1}, got.GetTotals())
		e.set(nil, nil)
		pass(staleAfter)
		v := theFleet(t, c).GetEdges()[0]
		require.Equal(t, "unreachable", v.GetState())
		require.Equal(t, "the Edge answered without a snapshot", v.GetLastError())
		require.EqualValues(t, 1, v.GetFailures())
	}, seldom)
}

// S14: all Edges come first, then the one that changed and no other; between changes, silence has an end.
func TestS14_WatchFleetSendsAllThenWhatChanges(t *testing.T) {
	still, moves := &edge{err: errors.New("refused")}, &edge{}
	bubble(t, &kept{notice: "kept nowhere"}, []*edge{still, moves}, func(t *testing.T, c fleetv1connect.FleetServiceClient) {
		moves.set(busy("edge-1"), nil)
		pass(1100 * time.Millisecond) // no update is at the moment of a pull
		ctx, leave := context.WithCancel(t.Context())
		stream, err := c.WatchFleet(ctx, &fleetv1.WatchFleetRequest{})
		require.NoError(t, err)
		next := func() *fleetv1.WatchFleetResponse {
			require.True(t, stream.Receive(), stream.Err())
			require.Equal(t, []string{"kept nowhere"}, stream.Msg().GetNotices())
			require.WithinDuration(t, time.Now(), stream.Msg().GetAt().AsTime(), 0)
			return stream.Msg()
		}
		u := next()
		require.True(t, u.GetFull())
		require.Len(t, u.GetEdges(), 2)
		require.Equal(t, "never", u.GetEdges()[0].GetState())
		require.Equal(t, "live", u.GetEdges()[1].GetState())
		require.EqualValues(t, 3, u.GetTotals().GetQueued())

		// Its node leaves.
		gone := busy("edge-1")
		gone.Nodes[0].Connected, gone.InFlightTotal, gone.QueueTotal = false, 0, 0
		gone.Nodes[0].Providers = []*controlv1.ProviderSnapshot{{Id: "p", Status: "unavailable", Health: "offline", ConfiguredCapacity: 2}}
		moves.set(gone, nil)
		last, begun := time.Now(), time.Now()
		var changes []string
		for time.Since(begun) < 2*interval {
			u = next()
			require.False(t, u.GetFull())
			require.LessOrEqual(t, time.Since(last), time.Second, "silence means that the connection is lost")
			require.EqualValues(t, 2, u.GetTotals().GetEdges())
			last = time.Now()
			for _, v := range u.GetEdges() {
				changes = append(changes, fmt.Sprintf("%s %s in_flight %d", v.GetId(), v.GetState(), u.GetTotals().GetInFlight()))
				if v.GetId() == "edge-1" {
					equal(t, gone, v.GetSnapshot())
				}
			}
		}
		require.Contains(t, changes, "edge-1 live in_flight 0")
		require.Contains(t, changes, "edge-0 never in_flight 0", "each pull that failed is a change")

		leave()
		for stream.Receive() {
			continue
		}
		require.Equal(t, connect.CodeCanceled, connect.CodeOf(stream.Err()))
		require.NoError(t, stream.Close())
	})
}

// point is one minute, some minutes ago.
func point(back time.Duration, granted uint32) *controlv1.HistoryPoint {
	return &controlv1.HistoryPoint{At: timestamppb.New(time.Now().Add(-back).Truncate(time.Minute)), Granted: granted, Queued: granted, Outcomes: map[string]uint32{"completed": granted}}
}

func TestGetFleetHistory(t *testing.T) {
	store := &kept{}
	bubble(t, store, []*edge{{}, {}}, func(t *testing.T, c fleetv1connect.FleetServiceClient) {
		store.points = map[string][]*controlv1.HistoryPoint{
			"edge-0": {point(25*time.Hour, 9), point(3*time.Hour, 1), point(5*time.Minute, 2)},
			"edge-1": {point(5*time.Minute, 40)},
		}
		for _, q := range []struct {
			name    string
			edge    string
			minutes uint32
			want    []uint32
		}{
			{"all that is kept of one", "edge-0", 0, []uint32{1, 2}},
			{"no more than a day", "edge-0", 1440, []uint32{1, 2}},
			{"the last minutes", "edge-0", 10, []uint32{2}},
			{"the sum of all", "", 0, []uint32{1, 42}},
			{"nothing", "edge-1", 1, nil},
		} {
			r, err := c.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{EdgeId: q.edge, Minutes: q.minutes})
			require.NoError(t, err, q.name)
			require.EqualValues(t, 60_000, r.GetIntervalMs())
			var granted []uint32
			for _, p := range r.GetPoints() {
				granted = append(granted, p.GetGranted())
				require.Equal(t, map[string]uint32{"completed": p.GetGranted()}, p.GetOutcomes())
				require.Equal(t, p.GetGranted(), p.GetQueued())
			}
			require.Equal(t, q.want, granted, q.name)
		}
		for id, want := range map[string]string{
			"edge-7":    `not_found: no Edge "edge-7" is configured (did you mean "edge-0"?)`,
			"elsewhere": `not_found: no Edge "elsewhere" is configured`,
		} {
			_, err := c.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{EdgeId: id})
			require.EqualError(t, err, want)
			require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
		}
		// Why a disk cannot be read is for the log.
		store.err = errors.New("disk of /secret/place is damaged")
		_, err := c.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{EdgeId: "edge-0"})
		require.EqualError(t, err, "internal: internal error; the server's log has the details")
	})
}
