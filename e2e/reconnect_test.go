package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

// outage is an address at which there is no Edge yet: connections are reset, or
// held without a word, and counted.
type outage struct {
	net.Listener
	dials atomic.Int64
	held  chan struct{} // of the silent kind: one came
	all   sync.WaitGroup
}

func newOutage(t *testing.T, silent bool) *outage {
	l := listenLow(t)
	o := &outage{Listener: l, held: make(chan struct{}, 1000)}
	o.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.dials.Add(1)
			if silent {
				o.held <- struct{}{}
				t.Cleanup(func() { _ = c.Close() })
				continue
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	})
	t.Cleanup(o.end)
	return o
}

// end frees the address.
func (o *outage) end() {
	_ = o.Close()
	o.all.Wait()
}

func (o *outage) url() string { return "http://" + o.Addr().String() }

// launchNode starts a node of these settings and waits for nothing.
func launchNode(t *testing.T, url, token string, reconnect object) *process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	config := filepath.Join(dir, "node.yaml")
	writeYAML(t, config, object{"node": object{"id": "n", "edge_url": url, "token_file": file}, "reconnect": reconnect})
	return startProcess(t, "node n", "node", "-c", config)
}

// exit waits for the end of a process that ends by itself.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s does not end:\n%s", p.name, p.log())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) said(text string) int { return strings.Count(p.log(), text) }

const retrying = "cannot register with the edge, will retry"

// S16: a node that starts long before its Edge fails more often than the old bound
// allowed, in one process and one dial at a time, and then registers once and
// serves.
func TestS16_ANodeStartedBeforeItsEdgeOutlastsTheOldBoundAndRegistersOnce(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	away := newOutage(t, false)
	node := launchNode(t, away.url(), nodeToken+"n", object{"interval_sec": 0.02, "max_attempts": 0})
	const failures = 2*nodeconfig.DefaultMaxAttempts + 1
	require.Eventually(t, func() bool { return node.said(retrying) >= failures }, 60*time.Second, 5*time.Millisecond)

	file := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=x")})
	file["edge"].(object)["listen"] = away.Addr().String()
	r := &rig{t: t, dir: t.TempDir(), nodes: map[string]*process{"n": node}, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(r.client.CloseIdleConnections)
	r.edgeYAML = filepath.Join(r.dir, "edge.yaml")
	writeYAML(t, r.edgeYAML, file)
	away.end()
	r.startEdge()
	r.control = controlv1connect.NewControlServiceClient(r.client, r.url)
	r.connected("n")
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	r.quiet()

	require.Equal(t, 1, node.said(`"registered with the edge"`))
	require.Equal(t, 1, node.said(`"connected to the edge"`))
	require.Equal(t, 1, r.edge.said(`"node connected"`))
	_, peak, total, _ := s.counts()
	require.Equal(t, 1, peak)
	require.Equal(t, 1, total)
	require.Equal(t, 0, node.stop(t))
	t.Logf("%d failed attempts before the Edge was there", node.said(retrying))
}

// S17: exactly N consecutive attempts, the first dial included, then exit code 3.
func TestS17_AFiniteNodeEndsAfterExactlyItsAttemptsWithCode3(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			away := newOutage(t, false)
			node := launchNode(t, away.url(), nodeToken+"n", object{"interval_sec": 0.05, "max_attempts": attempts})
			require.Equal(t, 3, node.exit(t), node.log())
			away.end()
			require.EqualValues(t, attempts, away.dials.Load(), "dials")
			require.Contains(t, node.log(), fmt.Sprintf("gave up after %d failed attempts", attempts))
		})
	}
}

// S17: a refused credential ends the node at its first attempt, however many it
// may make.
func TestS17_ARefusedCredentialEndsTheNodeWithCode4(t *testing.T) {
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", "http://127.0.0.1:9", 1))}, []object{model("m", "n/p=x")}))
	node := launchNode(t, r.url, nodeToken+"another", object{"interval_sec": 0.05, "max_attempts": 0})
	require.Equal(t, 4, node.exit(t), node.log())
	require.Zero(t, node.said(retrying))
	require.Contains(t, node.log(), "bad credential")
	require.Zero(t, r.edge.said(`"node connected"`))
}

// S17: a stop ends the wait at once. That it takes less than 100 ms is shown by the
// best of a few tries, because a busy machine may delay any of them.
func TestS17_AStopDuringAWaitOrADialExits0AtOnce(t *testing.T) {
	for name, silent := range map[string]bool{"during a wait": false, "during a dial": true} {
		t.Run(name, func(t *testing.T) {
			away := newOutage(t, silent)
			var best time.Duration
			for try := range 10 {
				node := launchNode(t, away.url(), nodeToken+"n", object{"interval_sec": 3600, "max_attempts": 0})
				if silent {
					<-away.held
				} else {
					node.await(t, retrying, "")
				}
				asked := time.Now()
				require.NoError(t, node.cmd.Process.Signal(syscall.SIGTERM))
				require.Equal(t, 0, node.exit(t), node.log())
				if took := time.Since(asked); try == 0 || took < best {
					best = took
				}
				require.EqualValues(t, try+1, away.dials.Load(), "one dial each")
				if best < 100*time.Millisecond {
					break
				}
			}
			t.Logf("SIGTERM to exit: %v", best.Round(100*time.Microsecond))
			require.Less(t, best, 100*time.Millisecond)
		})
	}
}

// S17: a bad configuration is told with its place, and nothing is dialed.
func TestS17_ABadNodeConfigurationExits4AndSaysWhere(t *testing.T) {
	away := newOutage(t, false)
	const identity = "node: {id: n, edge_url: %q, token_env: IOP_E2E_TOKEN}\n"
	for text, want := range map[string]string{
		identity + "reconnect: {max_attempts: -1}":                 "node.yaml:2:27: reconnect.max_attempts: found -1",
		identity + "reconnect: {max_attempts: 0, interval_sec: 0}": "node.yaml:2:44: reconnect.interval_sec: found 0",
		identity + "reconnect: {max_attempts: many}":               `node.yaml:2:27: reconnect.max_attempts: found the text "many"`,
		identity + "reconect: {max_attempts: 0}":                   `node.yaml:2:1: unknown key "reconect"`,
		"node: {id: n, edge_url: %q}":                              "node.yaml:1:7: node: missing; give token_file or token_env",
		identity + "reconnect: {max_attempts: 0}":                  `node.yaml:1:62: node.token_env: found "IOP_E2E_TOKEN"; that environment variable is empty or not set`,
	} {
		file := filepath.Join(t.TempDir(), "node.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, text, away.url()), 0o600))
		node := startProcess(t, "node", "node", "-c", file)
		require.Equal(t, 4, node.exit(t), "%s\n%s", text, node.log())
		require.Contains(t, node.log(), want)
	}
	require.Zero(t, away.dials.Load())
}
