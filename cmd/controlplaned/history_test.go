package controlplaned

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/iop-dev/iop/fleet"
	fleetconfig "github.com/iop-dev/iop/fleet/config"
	"github.com/iop-dev/iop/fleet/history"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	fleetv1 "github.com/iop-dev/iop/gen/go/iop/fleet/v1"
	"github.com/iop-dev/iop/gen/go/iop/fleet/v1/fleetv1connect"
)

// What an earlier process has kept of each Edge is told over the wire: of one Edge and of all, of some minutes and of a day. The clock
// stands, so that no Edge is read.
func TestTheFleetsHistoryIsToldOverTheWire(t *testing.T) {
	now := time.Date(2030, time.May, 2, 12, 4, 30, 0, time.UTC)
	dir := t.TempDir()
	store, err := history.Open(dir, now.Add(-2*fleet.Kept))
	require.NoError(t, err)
	for i, id := range []string{"home", "work"} {
		n := uint32(i + 1)
		var minutes []fleet.Minute
		for _, back := range []time.Duration{fleet.Kept + time.Minute, 23 * time.Hour, 2 * time.Minute, time.Minute} {
			end := now.Truncate(time.Minute).Add(time.Minute - back)
			minutes = append(minutes, fleet.Minute{Through: end, Point: &controlv1.HistoryPoint{
				At: timestamppb.New(end), Slots: 4, InFlight: uint32(len(minutes)) * n, LongInFlight: n, Queued: 2 * n, OldestWaitMs: uint64(100 * n),
				Granted: n, WaitP50Ms: uint64(10 * n), WaitP95Ms: uint64(50 * n), Outcomes: map[string]uint32{"completed": n, id: 1}, OutputTokens: uint64(7 * n),
			}})
		}
		if id == "work" { // of its last minute nothing is known
			minutes = minutes[:3]
		}
		require.NoError(t, store.Put(t.Context(), id, minutes, now.Add(-2*fleet.Kept)))
	}
	require.NoError(t, store.Close())

	t.Setenv(envOfEdge, edgeToken)
	config, err := fleetconfig.Parse("controlplane.yaml", fmt.Appendf(nil,
		"controlplane: {listen: '127.0.0.1:0', state_dir: %q}\nedges: [{id: home, url: 'http://127.0.0.1:1', token_env: %s}, {id: work, url: 'http://127.0.0.1:2', token_env: %s}]",
		dir, envOfEdge, envOfEdge))
	require.NoError(t, err)
	c, err := New(Options{Config: config, Clock: clockwork.NewFakeClockAt(now), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})

	const (
		homeDay  = "01 13:05 slots 4 in flight 1 long 1 queued 2 oldest 100 granted 1 waits 10 50 tokens 7 map[completed:1 home:1]"
		homeTwo  = "02 12:03 slots 4 in flight 2 long 1 queued 2 oldest 100 granted 1 waits 10 50 tokens 7 map[completed:1 home:1]"
		homeLast = "02 12:04 slots 4 in flight 3 long 1 queued 2 oldest 100 granted 1 waits 10 50 tokens 7 map[completed:1 home:1]"
		workDay  = "01 13:05 slots 4 in flight 2 long 2 queued 4 oldest 200 granted 2 waits 20 100 tokens 14 map[completed:2 work:1]"
		workTwo  = "02 12:03 slots 4 in flight 4 long 2 queued 4 oldest 200 granted 2 waits 20 100 tokens 14 map[completed:2 work:1]"
		bothDay  = "01 13:05 slots 8 in flight 3 long 3 queued 6 oldest 200 granted 3 waits 20 100 tokens 21 map[completed:3 home:1 work:1]"
		bothTwo  = "02 12:03 slots 8 in flight 6 long 3 queued 6 oldest 200 granted 3 waits 20 100 tokens 21 map[completed:3 home:1 work:1]"
	)
	for name, o := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(o == nil)
			protocols.SetUnencryptedHTTP2(o != nil)
			client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
			defer client.CloseIdleConnections()
			api := fleetv1connect.NewFleetServiceClient(client, "http://"+c.Addr(), o...)
			for _, q := range []struct {
				edge    string
				minutes uint32
				want    []string
			}{
				{"home", 0, []string{homeDay, homeTwo, homeLast}},
				{"work", 0, []string{workDay, workTwo}},
				{"", 0, []string{bothDay, bothTwo, homeLast}}, // a minute has the Edges of which it is known
				{"home", 1440, []string{homeDay, homeTwo, homeLast}},
				{"home", 2, []string{homeTwo, homeLast}},
				{"home", 1, []string{homeLast}},
				{"work", 1, nil},
				{"", 2, []string{bothTwo, homeLast}},
			} {
				res, err := api.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{EdgeId: q.edge, Minutes: q.minutes})
				require.NoError(t, err)
				require.EqualValues(t, 60000, res.GetIntervalMs())
				var told []string
				for _, p := range res.GetPoints() {
					told = append(told, fmt.Sprintf("%s slots %d in flight %d long %d queued %d oldest %d granted %d waits %d %d tokens %d %v",
						p.GetAt().AsTime().Format("02 15:04"), p.GetSlots(), p.GetInFlight(), p.GetLongInFlight(), p.GetQueued(), p.GetOldestWaitMs(),
						p.GetGranted(), p.GetWaitP50Ms(), p.GetWaitP95Ms(), p.GetOutputTokens(), p.GetOutcomes()))
				}
				require.Equal(t, q.want, told, "%q, %d minutes", q.edge, q.minutes)
			}
			_, err := api.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{EdgeId: "hone"})
			require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
			require.ErrorContains(t, err, `no Edge "hone" is configured (did you mean "home"?)`)
			_, err = api.GetFleetHistory(t.Context(), &fleetv1.GetFleetHistoryRequest{Minutes: 1441})
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
		})
	}
}
