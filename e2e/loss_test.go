//go:build !windows

package e2e

import (
	"bufio"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// S13: a node is killed while one request runs on it and three wait. The running
// one ends with an explicit error, the two without another candidate are told at
// once, and the one that has another keeps its place and moves there.
func TestS13_NodeKilledWhileOneRunsAndThreeWait(t *testing.T) {
	hold, free := newGate(t), newGate(t)
	dying := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		_ = sse(w, chunk(asked(t, body), "begun "))
		hold.wait(r)
	})
	other := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if free.wait(r) {
			complete(w, asked(t, body), "from the other")
		}
	})
	r := start(t, edgeFile(
		[]object{nodeConfig("dies", provider("p", dying.URL, 1)), nodeConfig("lives", provider("p", other.URL, 1))},
		[]object{model("only", "dies/p=x"), model("two", "lives/p=y"), model("both", "dies/p=x", "lives/p=y")},
		object{"provider_pool": object{"queue_timeout_ms": 600000}},
	), "dies", "lives")

	res, err := r.post(t.Context(), chatBody("only", true, ""))
	require.NoError(t, err)
	defer res.Body.Close()
	running := bufio.NewReader(res.Body)
	begun, err := running.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, begun, "begun")
	first := r.background(t.Context(), chatBody("two", false, ""))
	r.running(2)
	stranded := []<-chan answer{r.background(t.Context(), chatBody("only", false, "")), r.background(t.Context(), chatBody("only", true, ""))}
	r.waiting(2)
	moves := r.background(t.Context(), chatBody("both", false, ""))
	r.waiting(3)

	killed := time.Now()
	r.nodes["dies"].kill()
	for _, s := range stranded {
		a := <-s
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Equal(t, "provider_unavailable", a.code(t))
	}
	rest := new(strings.Builder)
	_, err = running.WriteTo(rest)
	require.NoError(t, err, "the stream is closed in order after the error")
	require.Contains(t, rest.String(), `"provider_disconnected"`)
	require.NotContains(t, rest.String(), "[DONE]")
	t.Logf("all told %s after the kill", time.Since(killed).Round(time.Millisecond))

	r.waiting(1) // its other candidate is live, and full
	free.release()
	require.Equal(t, http.StatusOK, (<-first).status)
	a := <-moves
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "lives", a.header.Get("X-Iop-Node"))
	r.quiet()
}

// A node that dies before the first byte: 502, and clients are told not to repeat.
func TestS13_NodeKilledBeforeTheFirstByte(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) { hold.wait(r) })
	for _, stream := range []bool{false, true} {
		r := oneSlot(t, s)
		lost := r.background(t.Context(), chatBody("m", stream, ""))
		r.running(1)
		require.Eventually(t, func() bool { current, _, _, _ := s.counts(); return current == 1 }, 10*time.Second, time.Millisecond)
		r.nodes["n"].kill()
		a := <-lost
		require.Equal(t, http.StatusBadGateway, a.status)
		require.Equal(t, "provider_disconnected", a.code(t))
		require.Equal(t, "false", a.header.Get("X-Should-Retry"))
		r.quiet()
	}
}

// S15: a node comes back, and the waiter for it is served with no other trigger.
func TestS15_ReconnectServesTheWaiter(t *testing.T) {
	hold := newGate(t)
	full := newStub(t, func(w http.ResponseWriter, r *http.Request, _ []byte) { hold.wait(r) })
	back := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "back") })
	r := start(t, edgeFile(
		[]object{nodeConfig("away", provider("p", back.URL, 1)), nodeConfig("full", provider("p", full.URL, 1))},
		[]object{model("busy", "full/p=x"), model("m", "away/p=x", "full/p=y")},
	), "full")
	r.background(t.Context(), chatBody("busy", false, ""))
	r.running(1)
	waits := r.background(t.Context(), chatBody("m", false, ""))
	r.waiting(1)
	r.startNode("away")
	a := <-waits
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "away", a.header.Get("X-Iop-Node"))
}

// G04 and S12: a node that freezes is offline at the heartbeat timeout, gets
// nothing meanwhile, and is back when it thaws.
func TestCase_G04_FrozenNodeIsFencedAndReturns(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	r := oneSlot(t, s)
	node := r.nodes["n"].cmd.Process
	require.NoError(t, node.Signal(syscall.SIGSTOP))
	r.connected()
	a := r.ask(t.Context(), chatBody("m", false, ""))
	require.Equal(t, "provider_unavailable", a.code(t))
	require.NoError(t, node.Signal(syscall.SIGCONT))
	r.connected("n")
	require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody("m", false, "")).status)
	r.quiet()
}

// G04: a node that freezes for less than the heartbeat timeout loses nothing:
// neither hand-offs that lie in its sockets, which the Edge asks about meanwhile,
// nor grants that find no work stream.
func TestCase_G04_AFreezeBelowTheTimeoutBurnsNothing(t *testing.T) {
	const most = 12 // more than the streams that a node parks
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	r := start(t, edgeFile(
		[]object{nodeConfig("n", provider("p", s.URL, most))}, []object{model("m", "n/p=x")},
		object{"edge": object{"heartbeat": object{"interval_ms": 1000, "timeout_ms": 20000}}},
	), "n")
	node := r.nodes["n"].cmd.Process
	require.NoError(t, node.Signal(syscall.SIGSTOP))
	answers := make(chan answer, most)
	for range most {
		go func() { answers <- r.ask(t.Context(), chatBody("m", false, "")) }()
	}
	r.running(most)
	require.Never(t, func() bool { return len(answers) > 0 }, 6*time.Second, 50*time.Millisecond, "answered while its node was frozen")
	require.NoError(t, node.Signal(syscall.SIGCONT))
	for range most {
		a := <-answers
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	_, _, total, _ := s.counts()
	require.Equal(t, most, total, "each once")
	r.connected("n")
	r.quiet()
}

// G01: the Edge restarts; its nodes come back by themselves. A node that was
// started before any Edge registers too (S16).
func TestCase_G01_S16_NodesOutliveTheEdge(t *testing.T) {
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) { complete(w, asked(t, body), "hi") })
	file := edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1)), nodeConfig("o", provider("p", s.URL+"/v1", 1))},
		[]object{model("m", "n/p=x"), model("other", "o/p=x")})
	file["edge"].(object)["listen"] = freePort(t)
	r := start(t, file, "n", "o")
	for range 5 {
		r.edge.kill()
		require.Never(t, func() bool { return r.nodes["n"].ended() || r.nodes["o"].ended() }, 500*time.Millisecond, 50*time.Millisecond, "a node gave up")
		r.startEdge()
		r.connected("n", "o")
		for _, m := range []string{"m", "other"} {
			require.Equal(t, http.StatusOK, r.ask(t.Context(), chatBody(m, false, "")).status)
		}
	}
	require.Equal(t, 0, r.nodes["n"].stop(t), "an orderly stop exits 0")
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return !s.GetNodes()[0].GetConnected() }, "a clean leave shows at once")
}
