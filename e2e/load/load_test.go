//go:build !windows

package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/iop-dev/iop/e2e/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logs is what Edge and Node of a test log.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startHere(t *testing.T, u link.Setup) *link.Site {
	t.Helper()
	log := new(logs)
	site, err := link.StartHere(u, log)
	require.NoError(t, err)
	t.Cleanup(func() {
		site.Close()
		for _, trouble := range []string{"panicked", "unforeseen", "double"} {
			require.NotContains(t, log.String(), trouble)
		}
	})
	return site
}

// Whoever waits is served in the order of arrival, behind as many streams as there
// are slots, and every answer is whole.
func TestS01_ManyStreamsManyWaitingAreServedInOrder(t *testing.T) {
	const running, waiting, together = 100, 500, 25
	arrived, next := make(chan int, running+waiting), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ N int }
		if json.NewDecoder(r.Body).Decode(&request) != nil {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"begin %d\"}}]}\n\n", request.N)
		_ = http.NewResponseController(w).Flush()
		arrived <- request.N
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"end %d\"}}]}\n\ndata: [DONE]\n\n", request.N)
	}))
	t.Cleanup(server.Close) // after the site, whatever happens
	site := startHere(t, FullSetup(&link.Provider{Server: server}, running, waiting))
	client := NewClient(false)
	defer client.CloseIdleConnections()

	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan error, running+waiting)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	send := func(n int) {
		clients.Go(func() { answers <- wholeOf(ctx, client, site.URL(), n) })
	}
	for n := range running {
		send(n)
	}
	for range running {
		_, err := link.Wait(arrived, "a stream at the provider")
		require.NoError(t, err)
	}
	for n := range waiting {
		send(running + n)
		if (n+1)%together == 0 {
			require.NoError(t, site.Until("as many more wait", link.Waiting(uint32(n+1))))
		}
	}
	for n := range waiting {
		next <- struct{}{} // one of the streams ends
		got, err := link.Wait(arrived, "who is next")
		require.NoError(t, err)
		require.Equal(t, n/together, (got-running)/together, "in the order of arrival, but for those who came at once: %d", got)
	}
	close(next)
	clients.Wait()
	close(answers)
	for err := range answers {
		require.NoError(t, err)
	}
	require.NoError(t, site.Settled())
}

// wholeOf asks for a numbered answer and checks all of it.
func wholeOf(ctx context.Context, client *http.Client, url string, n int) error {
	body := fmt.Sprintf(`{"model":"m","stream":true,"n":%d,"messages":[]}`, n)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return fmt.Errorf("answer %d: %w", n, err)
	}
	want := fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"begin %d\"}}]}\n\n"+
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"end %d\"}}]}\n\ndata: [DONE]\n\n", n, n)
	if response.StatusCode != http.StatusOK || text.String() != want {
		return fmt.Errorf("answer %d: status %d, %q", n, response.StatusCode, text.String())
	}
	return nil
}

// A crowd that asks again and again, more of it waiting than running, gets whole
// answers only.
func TestACrowdGetsWholeAnswers(t *testing.T) {
	const running, waiting = 50, 250
	provider := link.NewProvider()
	defer provider.Close()
	provider.Tokens, provider.Pace = 20, 20*time.Millisecond
	full := NewFull(startHere(t, FullSetup(provider, running, waiting)), provider, running, waiting)
	tally, err := full.Hold(t.Context(), func(context.Context, *Tally) error {
		return full.Site.Until("a second generation runs", func(s *link.Snapshot) bool {
			return s.GetCounters().GetReleased() >= running
		})
	})
	require.NoError(t, err)
	failed, truncated, examples := tally.Bad()
	require.NoError(t, examples)
	require.Zero(t, failed+truncated)
	require.GreaterOrEqual(t, tally.Answers(), running+waiting)
}

// Whoever watches and does not read holds up nobody: requests are served, those who
// read see what happens, and the stuck ones get the newest state when they read on.
func TestS07_StuckWatchersHoldUpNobody(t *testing.T) {
	const watching, stuck, together, rounds = 90, 10, 20, 15
	provider := link.NewProvider()
	t.Cleanup(provider.Close)
	site := startHere(t, WatchedSetup(provider, together))
	watchers, err := Watch(t.Context(), site, watching, stuck)
	require.NoError(t, err)
	defer watchers.Close()
	seen := func(granted int) link.Condition {
		return func(s *link.Snapshot) bool {
			return s.GetCounters().GetReleased() == uint64(granted) && s.GetInFlightTotal() == 0
		}
	}
	for round := range rounds {
		var clients sync.WaitGroup
		for range together {
			clients.Go(func() {
				_, err := Once(t.Context(), site)
				assert.NoError(t, err)
			})
		}
		clients.Wait()
		require.Eventually(t, func() bool { return watchers.All(seen((round + 1) * together)) },
			time.Minute, time.Millisecond, "whoever reads sees round %d", round)
	}
	watchers.Resume(t.Context())
	require.Eventually(t, func() bool { return watchers.All(seen(rounds * together)) }, time.Minute, time.Millisecond, "the stuck ones, too")
	for _, n := range watchers.Missed()[watching:] {
		require.NotZero(t, n, "what a stuck one has missed is not kept for it")
	}
	require.NoError(t, watchers.Err())
}

// Clients that leave at every moment of a request, over HTTP/1 and HTTP/2, leave
// nothing behind: neither lease nor goroutine nor file.
func TestCase_B01_B02_B03_B04_CancelsLeaveNothingBehind(t *testing.T) {
	const (
		cancels, batch = 720, 60
		// What a node may have more once it was busy: a few parked streams and idle
		// connections to its providers. One of the ways to leave, over one version of
		// HTTP, is at least 60 cancels.
		slack = 40
	)
	servers := NewServers()
	defer servers.Close()
	site := startHere(t, servers.Setup(batch))
	site.Client.CloseIdleConnections()
	goroutines, files := runtime.NumGoroutine(), openFiles()
	clients := NewCancels(site, servers)
	defer clients.Close()
	require.NoError(t, clients.Leave(t.Context(), cancels, batch))
	clients.Close()
	site.Client.CloseIdleConnections()
	// Spare streams of a node end by halves at each heartbeat.
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+slack && openFiles() <= files+slack
	}, time.Minute, 20*time.Millisecond, "%d goroutines and %d files before, %d and %d after %d clients have left",
		goroutines, files, lazily(runtime.NumGoroutine), lazily(openFiles), cancels)
}

// lazily is a number that is asked for when it is printed.
type lazily func() int

func (l lazily) Format(f fmt.State, _ rune) { fmt.Fprint(f, l()) }

// openFiles of this process; 0 where the system does not tell.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}
