package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/cmd/noded"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

const (
	// stormInterval is the reconnect interval of the storm's nodes.
	stormInterval = 2 * time.Second
	// stormWindow is what a peak is the peak of: all nodes in step would be
	// stormInterval / stormWindow = 5 times the mean.
	stormWindow = 400 * time.Millisecond
)

// G10: an Edge is killed and comes back while many nodes are connected. All come
// back, spread by their jitter. IOP_STORM_NODES is how many; `make storm`
// runs 500 of them without the race detector and tells what they cost the Edge.
func TestCase_G10_ManyNodesReconnectSpreadAfterAnEdgeRestart(t *testing.T) {
	count := 60
	if text := os.Getenv("IOP_STORM_NODES"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	st := newStorm(t, count)
	t.Logf("%d nodes connected to a fresh Edge: RSS %s", count, st.cost())
	// A machine that stands still for half a second makes a peak of its own: the
	// best of five restarts counts.
	for try := 1; ; try++ {
		peak := st.restart()
		t.Logf("restart %d: peak %.2f × the mean of %.0f/s; %s", try, peak, float64(count)/stormInterval.Seconds(), st.cost())
		if peak <= 3 {
			return
		}
		require.Less(t, try, 5, "peak rate in each of five restarts above 3 × mean")
	}
}

// storm is one Edge process and many nodes in this one.
type storm struct {
	*rig
	count int
	idle  int64 // the Edge's RSS without nodes

	mu    sync.Mutex
	ready []time.Time // registrations since the last restart
	ids   map[string]int
}

func newStorm(t *testing.T, count int) *storm {
	var nodes []object
	var candidates []string
	for i := range count {
		id := fmt.Sprintf("n%04d", i)
		nodes = append(nodes, nodeConfig(id, object{"id": "p", "type": "simulator", "capacity": 1}))
		candidates = append(candidates, id+"/p=x")
	}
	file := edgeFile(nodes, []object{model("m", candidates...)}, object{"edge": object{"heartbeat": object{"interval_ms": 5000, "timeout_ms": 15000}}})
	file["edge"].(object)["listen"] = freePort(t)
	st := &storm{rig: start(t, file), count: count, ids: map[string]int{}}
	st.idle = st.edge.rss(t)

	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		st.edge.kill() // No orderly leave: it would wait for nothing but its grace.
		stop()
		all.Wait()
	})
	for i := range count {
		id := fmt.Sprintf("n%04d", i)
		config, err := nodeconfig.Parse("node.yaml", fmt.Appendf(nil,
			"node: {id: %s, edge_url: %q, token_env: UNUSED}\nreconnect: {interval_sec: %v, max_attempts: 0}\n", id, st.url, stormInterval.Seconds()))
		require.NoError(t, err)
		n, err := noded.New(noded.Options{
			Config: config, Token: nodeToken + id, Logger: slog.New(slog.DiscardHandler), Version: "storm",
			Ready: func() { st.registered(id) },
		})
		require.NoError(t, err)
		all.Go(func() { _ = n.Run(ctx) })
	}
	st.allBack()
	return st
}

func (st *storm) registered(id string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ready = append(st.ready, time.Now())
	st.ids[id]++
}

// allBack waits until every node is connected.
func (st *storm) allBack() {
	st.t.Helper()
	require.Eventually(st.t, func() bool {
		connected := 0
		for _, n := range st.snapshot().GetNodes() {
			if n.GetConnected() {
				connected++
			}
		}
		return connected == st.count
	}, 120*time.Second, 100*time.Millisecond, "all %d nodes connected", st.count)
}

// restart kills the Edge, starts it again, and returns the peak rate of the
// registrations in units of the mean one that the cadence gives.
func (st *storm) restart() (peak float64) {
	st.edge.kill()
	st.mu.Lock()
	st.ready, st.ids = nil, map[string]int{}
	st.mu.Unlock()
	st.startEdge()
	up := time.Now()
	st.allBack()
	// The Edge knows a moment before the node does.
	require.Eventually(st.t, func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.ids) == st.count
	}, 60*time.Second, 10*time.Millisecond, "every node knows that it is back")

	st.mu.Lock()
	defer st.mu.Unlock()
	slices.SortFunc(st.ready, time.Time.Compare)
	most, first := 0, 0
	for i, at := range st.ready {
		for at.Sub(st.ready[first]) > stormWindow {
			first++
		}
		most = max(most, i-first+1)
	}
	st.t.Logf("all %d back %s after the Edge was up, over %s; %d had to register again; at most %d in %s", st.count,
		st.ready[len(st.ready)-1].Sub(up).Round(time.Millisecond),
		st.ready[len(st.ready)-1].Sub(st.ready[0]).Round(time.Millisecond), len(st.ready)-st.count, most, stormWindow)
	mean := float64(st.count) * float64(stormWindow) / float64(stormInterval)
	return float64(most) / mean
}

// cost is what the Edge process has used up to now.
func (st *storm) cost() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", st.edge.cmd.Process.Pid))
	if err != nil {
		return "unknown without /proc"
	}
	// After the name in parentheses: state is field 3; utime and stime are 14, 15, in ticks of 10 ms.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	rss := st.edge.rss(st.t)
	return fmt.Sprintf("Edge RSS %.0f MiB (%.0f KiB a node above the empty Edge), CPU %.2f s",
		float64(rss)/(1<<20), float64(rss-st.idle)/float64(st.count)/1024, float64(user+system)/100)
}
