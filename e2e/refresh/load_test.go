package refresh

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/edge/auth"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	most    = 3 // capacity that any of the files below gives
	clients = 24
	pace    = 10 * time.Millisecond // 100 refreshes a second
	rounds  = 200
)

// round is the site after its nth change of everything that is live: capacity,
// priority, queue policy, thresholds, keys, models, and a node that comes and goes.
func round(n int) func(object) {
	return func(f object) {
		p := f["nodes"].([]object)[0]["providers"].([]object)[0]
		p["capacity"] = 1 + n%most
		p["priority"] = n % 5
		p["gate_wait_ms"] = 5000 + n%100
		f["provider_pool"] = object{"max_queue": 500 + n, "queue_timeout_ms": 60000 + n, "selection": []string{"balanced", "priority"}[n%2]}
		f["long_context_threshold_tokens"] = 100000 + n
		f["openai"] = object{"idle_timeout_ms": 600000 + n, "api_keys": []object{
			{"name": "client", "sha256": auth.HashToken(apiKey)},
			{"name": "rotating", "sha256": auth.HashToken(fmt.Sprint("key ", n))},
		}}
		if n%2 == 0 {
			f["nodes"] = append(f["nodes"].([]object), object{"id": "other", "token_sha256": auth.HashToken("other"),
				"providers": []object{{"id": "p", "type": "simulator", "capacity": n % 3}}})
			f["models"] = append([]object{{"id": "other", "providers": []object{{"node": "other", "provider": "p"}}}}, f["models"].([]object)...)
		}
	}
}

// load keeps all slots and the queue busy until stop; every request must be
// served.
func load(t *testing.T, s *site) (stop func() int64) {
	t.Helper()
	var served atomic.Int64
	var all sync.WaitGroup
	over := make(chan struct{})
	for range clients {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if a := s.ask(apiKey, "m"); a.err != nil || a.status != http.StatusOK {
					t.Errorf("a request was lost: %+v", a)
					return
				}
				served.Add(1)
			}
		})
	}
	s.eventually("a queue", func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() > 0 })
	return func() int64 {
		close(over)
		all.Wait()
		return served.Load()
	}
}

// paced runs do at 100 a second.
func paced(do func(n int)) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := range rounds {
		<-tick.C
		do(n)
	}
}

func TestS08_Case_H03_AHundredRefreshesASecondUnderLoadLoseNothing(t *testing.T) {
	b := newBackend(t, nil)
	dir := t.TempDir()
	s := start(t, false, config(anyPort, dir, b.URL, nil))
	stop := load(t, s)
	begun := time.Now()
	var last uint64
	paced(func(n int) {
		s.write(config(anyPort, dir, b.URL, round(n)))
		res, err := s.admin.ReloadConfig(s.with(adminToken), &adminv1.ReloadConfigRequest{})
		require.NoError(t, err)
		require.NotEmpty(t, res.GetChanges())
		require.Empty(t, res.GetNeedsRestart())
		last = res.GetConfigRevision()
	})
	took := time.Since(begun)
	served := stop()
	s.idle()
	require.EqualValues(t, rounds+1, last)
	require.LessOrEqual(t, b.peak.Load(), int64(most))
	require.Positive(t, b.peak.Load())
	snap := s.snapshot()
	require.Len(t, snap.GetRefreshes(), 16, "the history is bounded")
	require.Equal(t, "admin", snap.GetRefreshes()[0].GetSource())
	require.Equal(t, "me", snap.GetRefreshes()[0].GetBy())
	t.Logf("%d refreshes in %s, %d requests served, peak %d at the provider", rounds, took.Round(time.Millisecond), served, b.peak.Load())
}

func TestS08_AFileThatIsRewrittenAHundredTimesASecondLosesNothing(t *testing.T) {
	b := newBackend(t, nil)
	dir := t.TempDir()
	s := start(t, true, config(anyPort, dir, b.URL, nil))
	stop := load(t, s)
	paced(func(n int) { s.write(config(anyPort, dir, b.URL, round(n))) })
	while := s.snapshot().GetConfigRevision()
	s.eventually("the last file is in force", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetScopes()[0].GetMaxQueue() == 500+rounds-1
	})
	served := stop()
	s.idle()
	require.Empty(t, s.snapshot().GetLastRefreshError())
	require.Equal(t, "file", s.snapshot().GetRefreshes()[0].GetSource())
	require.LessOrEqual(t, b.peak.Load(), int64(most))
	t.Logf("%d rewrites, %d of them put into force meanwhile, %d requests served", rounds, while-1, served)
}
