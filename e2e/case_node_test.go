//go:build !windows

package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// patient is a heartbeat that plays no part in a test: what must be noticed is
// noticed without it.
const patient = time.Minute

// network is what lies between nodes and their Edge. It can take without giving,
// as a dead one does, cut everything, or cut the nodes' side alone.
type network struct {
	net.Listener
	to  string
	all sync.WaitGroup

	mu     sync.Mutex
	dead   bool         // nothing passes, and nobody is told
	refuse bool         // nobody gets in
	from   *net.TCPAddr // the address that the Edge sees; nil = any
	links  []*networkLink
}

type networkLink struct {
	node, edge net.Conn
	unplugged  bool // guarded by network.mu: the node's side is gone, and the Edge is not told
}

func newNetwork(t *testing.T, to string) *network {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{Listener: l, to: strings.TrimPrefix(to, "http://")}
	n.all.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.cut()
		n.all.Wait()
	})
	return n
}

func (n *network) url() string { return "http://" + n.Addr().String() }

func (n *network) accept() {
	for {
		node, err := n.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		refuse, from := n.refuse, n.from
		n.mu.Unlock()
		if refuse {
			_ = node.Close()
			continue
		}
		var dialer net.Dialer
		if from != nil {
			dialer.LocalAddr = from
		}
		edge, err := dialer.Dial("tcp", n.to)
		if err != nil {
			_ = node.Close()
			continue
		}
		link := &networkLink{node: node, edge: edge}
		n.mu.Lock()
		n.links = append(n.links, link)
		n.mu.Unlock()
		n.all.Go(func() { n.carry(link, node, edge) })
		n.all.Go(func() { n.carry(link, edge, node) })
	}
}

// carry copies until one end is closed, which the other one is told unless the
// network is dead. What it takes while it is dead is lost.
func (n *network) carry(link *networkLink, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		if n.loses(link) {
			if err != nil {
				return
			}
			continue
		}
		if count > 0 {
			if _, werr := to.Write(buffer[:count]); werr != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

func (n *network) loses(link *networkLink) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead || link.unplugged
}

// block lets everything vanish, connections that are made meanwhile included.
func (n *network) block() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = true
}

// restore lets new connections through. Those that lost bytes stay dead: their ends
// are told as far as they still listen.
func (n *network) restore() {
	n.mu.Lock()
	n.dead = false
	n.mu.Unlock()
	n.cut()
}

// cut ends every connection at both sides.
func (n *network) cut() {
	for _, link := range n.taken() {
		_ = link.node.Close()
		_ = link.edge.Close()
	}
}

// unplug ends every connection at the node's side; the Edge hears nothing.
func (n *network) unplug(t *testing.T) {
	for _, link := range n.taken() {
		n.mu.Lock()
		link.unplugged = true
		n.mu.Unlock()
		_ = link.node.(*net.TCPConn).SetLinger(0)
		_ = link.node.Close()
		t.Cleanup(func() { _ = link.edge.Close() })
	}
}

func (n *network) taken() []*networkLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := n.links
	n.links = nil
	return links
}

// beyond is an Edge and one node with one provider, with a network between them
// that the test can spoil.
func beyond(t *testing.T, s *stub, capacity int, heartbeat time.Duration) (*rig, *network) {
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, capacity))}, []object{model("m", "n/p=x")},
		object{"edge": object{"heartbeat": object{"interval_ms": heartbeat.Milliseconds() / 4, "timeout_ms": heartbeat.Milliseconds()}}}))
	n := newNetwork(t, r.url)
	r.startNodeWith("n", object{"edge_url": n.url()})
	r.connected("n")
	return r, n
}

func greets(t *testing.T) *stub {
	return newStub(t, func(w http.ResponseWriter, _ *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
}

// serves checks that the model answers.
func (r *rig) serves() {
	r.t.Helper()
	a := r.ask(r.t.Context(), chatBody("m", false, ""))
	require.NoError(r.t, a.err)
	require.Equal(r.t, http.StatusOK, a.status, a.body)
}

// refuses checks that nobody is there for the model: a known one, which stays in
// the list.
func (r *rig) refuses() {
	r.t.Helper()
	a := r.ask(r.t.Context(), chatBody("m", false, ""))
	require.Equal(r.t, http.StatusServiceUnavailable, a.status, a.body)
	require.Equal(r.t, "provider_unavailable", a.code(r.t))
	require.Contains(r.t, r.fetch(r.t.Context(), http.MethodGet, "/v1/models", nil).body, `"m"`)
}

// shownOffline checks what status tells of a node that is away, and the reason.
func (r *rig) shownOffline() {
	r.t.Helper()
	n := r.snapshot().GetNodes()[0]
	require.False(r.t, n.GetConnected())
	for _, p := range n.GetProviders() {
		require.Equal(r.t, []string{"unavailable", "offline", "offline"}, []string{p.GetStatus(), p.GetHealth(), p.GetExcludedReason()})
		require.Zero(r.t, p.GetEffectiveCapacity()+p.GetInFlight()+p.GetQueued()+p.GetLongContextCapacity()+p.GetLongInFlight()+p.GetLongQueued())
	}
}

// G02 and G19: a network that loses everything for a while. The node is shown
// offline within the heartbeat's window, gets nothing, finds that it is away itself,
// and is ready and takes work soon after the network is back, in the same process.
func TestCase_G02_G19_ABlockedNetworkIsOutlived(t *testing.T) {
	s := greets(t)
	r, n := beyond(t, s, 2, 4*time.Second)
	r.serves()
	blocked := time.Now()
	n.block()
	r.connected()
	t.Logf("offline after %s", time.Since(blocked).Round(time.Millisecond))
	require.Less(t, time.Since(blocked), 5*time.Second+slack)
	r.shownOffline()
	r.refuses()
	r.nodes["n"].await(t, retrying, "")
	n.restore()
	back := time.Now()
	r.connected("n")
	for range 4 {
		r.serves()
	}
	t.Logf("serves %s after the network is back", time.Since(back).Round(time.Millisecond))
	require.Less(t, time.Since(back), 5*time.Second+slack)
	require.False(t, r.nodes["n"].ended(), "no restart")
	_, _, total, _ := s.counts()
	require.Equal(t, 5, total)
	r.quiet()
}

// G03: a node's address changes under it. While it cannot be reached status says so,
// with the reason; once it dials from another address it is shown as what it is.
func TestCase_G03_ANodeWhoseAddressChangesIsShownAsItIs(t *testing.T) {
	r, n := beyond(t, greets(t), 1, patient)
	r.serves()
	n.mu.Lock()
	n.refuse = true
	n.mu.Unlock()
	n.cut()
	r.connected()
	r.shownOffline()
	r.refuses()
	n.mu.Lock()
	n.refuse, n.from = false, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	n.mu.Unlock()
	r.connected("n")
	r.serves()
	require.Equal(t, 2, r.edge.said(`"node connected"`))
	require.Contains(t, r.edge.log(), "127.0.0.2:")
	require.Empty(t, r.snapshot().GetNodes()[0].GetProviders()[0].GetExcludedReason())
}

// G07: the cable is cut at the node's side alone, so that the Edge goes on believing
// in the old link. The same process replaces it at once; another one that has the
// same credential is a duplicate before, meanwhile and after.
func TestCase_G07_TheSameProcessReplacesItsOldLinkAtOnce(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if !strings.Contains(string(body), `"held"`) || hold.wait(r) {
			complete(w, asked(t, body), "hi")
		}
	})
	r, n := beyond(t, s, 1, patient)
	owner := r.nodes["n"]
	twin := r.startNode("n")
	twin.await(t, retrying, "")
	lost := r.background(t.Context(), chatBody("m", false, `,"user":"held"`))
	s.reached(t, 1)
	cut := time.Now()
	n.unplug(t)
	require.Eventually(t, func() bool { return owner.said(`"registered with the edge"`) == 2 }, 20*time.Second, 5*time.Millisecond)
	t.Logf("replaced %s after the cut", time.Since(cut).Round(time.Millisecond))
	require.Less(t, time.Since(cut), 2*time.Second+slack)
	require.Equal(t, "provider_disconnected", (<-lost).code(t))
	r.serves()
	require.Zero(t, twin.said(`"registered with the edge"`))
	require.Equal(t, 2, r.edge.said(`"node connected"`))
	r.quiet()
}

// G08: a node's configuration is copied to a second machine. One stays, the other
// is told what is wrong whenever it tries, the Edge's log names both, and nothing
// flaps: the owner's link is the same one all the time.
func TestCase_G08_TwoMachinesWithOneIdDoNotFlap(t *testing.T) {
	r, _ := beyond(t, greets(t), 1, patient)
	owner := r.nodes["n"]
	alone := r.snapshot().GetNodes()[0]
	require.Empty(t, alone.GetNotice())
	since := alone.GetConnectedSince().AsTime()
	second := r.startNode("n")
	require.Eventually(t, func() bool { return second.said(retrying) >= 8 }, 60*time.Second, 5*time.Millisecond)
	require.Contains(t, second.log(), "stop one of the two")
	require.Equal(t, 1, r.edge.said("two processes use one node id"), "told, and not again at each try")
	require.Contains(t, r.edge.log(), "refused")
	require.Zero(t, second.said(`"registered with the edge"`))
	require.Equal(t, 1, owner.said(`"registered with the edge"`))
	require.Equal(t, 1, r.edge.said(`"node connected"`))
	shown := r.snapshot().GetNodes()[0]
	require.Equal(t, since, shown.GetConnectedSince().AsTime())
	said := regexp.MustCompile(`^another process \((\w+/\w+), version (.+), from (127\.0\.0\.1:\d+)\) claims this node's id and was refused (\d+) times, ` +
		`last at (\S+): give each machine an id of its own$`).FindStringSubmatch(shown.GetNotice())
	require.NotEmpty(t, said, "status names the second machine: %q", shown.GetNotice())
	require.Equal(t, []string{runtime.GOOS + "/" + runtime.GOARCH, shown.GetSoftwareVersion()}, said[1:3])
	refused, err := strconv.Atoi(said[4])
	require.NoError(t, err)
	require.GreaterOrEqual(t, refused, 8, "every try is counted")
	last, err := time.Parse(time.RFC3339, said[5])
	require.NoError(t, err)
	require.False(t, last.Before(since.Truncate(time.Second)), "%s is before the owner came at %s", last, since)
	r.serves()
}

// G11 and G14: a node ends in every way a process can. Asked to, it leaves in order
// with exit code 0; killed, its link ends with it. Either way status shows it
// offline at once, with no heartbeat waited for, its model stays in the list and is
// refused as unavailable, and the next start is as clean as the first.
func TestCase_G11_G14_ANodeThatEndsIsOfflineAtOnceAndStartsCleanAgain(t *testing.T) {
	// A process that ignores SIGHUP (nohup) has children that do, unless it listens for it.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", greets(t).URL, 1))}, []object{model("m", "n/p=x")}, calm), "n")
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{
		{syscall.SIGINT, 0},  // Ctrl-C
		{syscall.SIGTERM, 0}, // a service manager, a shutdown
		{syscall.SIGHUP, 0},  // the terminal's window is closed
		{syscall.SIGKILL, -1},
	} {
		r.serves()
		since := time.Now()
		require.NoError(t, r.nodes["n"].cmd.Process.Signal(c.signal))
		r.connected()
		t.Logf("%v: offline after %s", c.signal, time.Since(since).Round(time.Millisecond))
		require.Less(t, time.Since(since), 2*time.Second+slack)
		r.shownOffline()
		r.refuses()
		require.Equal(t, c.code, r.nodes["n"].exits(t, since, time.Second), "%v\n%s", c.signal, r.nodes["n"].log())
		r.startNode("n")
		r.connected("n")
	}
	r.serves()
	r.quiet()
}

// G18: the link is lost in the middle of a stream, with a sign or without. The
// client gets what had come, an error event and the end; slot and provider are free
// within seconds.
func TestCase_G18_ALostLinkEndsItsStreams(t *testing.T) {
	for _, c := range []struct {
		name      string
		heartbeat time.Duration
		lose      func(n *network)
	}{
		{"cut", patient, (*network).cut},
		{"silent", 4 * time.Second, (*network).block},
	} {
		t.Run(c.name, func(t *testing.T) {
			hold := newGate(t)
			s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
				if strings.Contains(string(body), `"stream":false`) {
					complete(w, asked(t, body), "hi")
					return
				}
				for range 5 {
					_ = sse(w, chunk(asked(t, body), "part "))
				}
				hold.wait(r)
			})
			r, n := beyond(t, s, 1, c.heartbeat)
			stream, end := r.begin(chatBody("m", true, ""))
			defer end()
			for range 9 { // the rest of five events
				_, err := stream.ReadString('\n')
				require.NoError(t, err)
			}
			lost := time.Now()
			c.lose(n)
			rest, err := io.ReadAll(stream)
			require.NoError(t, err, "closed in order after the error")
			require.Contains(t, string(rest), `data: {"error"`)
			require.Contains(t, string(rest), `"provider_disconnected"`)
			require.NotContains(t, string(rest), "[DONE]")
			require.Less(t, time.Since(lost), c.heartbeat%patient+2*time.Second+slack)
			r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == 0 }, "the slot is free")
			<-s.goneNews // the node has let the provider go
			n.restore()
			r.connected("n")
			r.serves()
			r.quiet()
		})
	}
}
