//go:build !windows

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// closeLimit is what an Edge takes at most after its grace (openai-api.md).
const closeLimit = 2 * time.Second

// slack is what a busy machine may add to a time before a test calls it wrong.
const slack = 8 * time.Second

// begin asks for a stream, reads its first line and returns what follows.
func (r *rig) begin(body string) (rest *bufio.Reader, end func()) {
	r.t.Helper()
	ctx, leave := context.WithTimeout(r.t.Context(), time.Minute)
	res, err := r.post(ctx, body)
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, res.StatusCode)
	rest = bufio.NewReader(res.Body)
	_, err = rest.ReadString('\n')
	require.NoError(r.t, err)
	return rest, func() {
		_ = res.Body.Close()
		leave()
	}
}

// exits waits for the process's end, which takes no longer than limit.
func (p *process) exits(t *testing.T, since time.Time, limit time.Duration) (code int) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Until(since.Add(limit + slack))):
		t.Fatalf("%s has not ended %s after it was told to", p.name, time.Since(since))
	}
	t.Logf("%s ended after %s", p.name, time.Since(since).Round(time.Millisecond))
	return p.cmd.ProcessState.ExitCode()
}

// An Edge that is told to stop lets running work finish and tells who waits that
// it drains, whatever it takes away from them; then it exits 0.
func TestAnEdgeThatStopsFinishesWhatRuns(t *testing.T) {
	g := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if g.wait(r) {
			complete(w, asked(t, body), "done")
		}
	})
	r := oneSlot(t, s)
	running := r.background(t.Context(), chatBody("m", false, ""))
	r.running(1)
	waits := r.background(t.Context(), chatBody("m", true, ""))
	r.waiting(1)

	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	told := <-waits
	require.Equal(t, http.StatusServiceUnavailable, told.status)
	require.Equal(t, "draining", told.code(t))
	require.NotEmpty(t, told.header.Get("Retry-After"))
	late := r.ask(t.Context(), chatBody("m", false, ""))
	require.Equal(t, "draining", late.code(t))
	require.NotEmpty(t, late.header.Get("Retry-After"))
	res, err := r.client.Get(r.url + "/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NoError(t, res.Body.Close())

	g.release()
	done := <-running
	require.NoError(t, done.err)
	require.Equal(t, http.StatusOK, done.status)
	<-r.edge.done
	require.Zero(t, r.edge.cmd.ProcessState.ExitCode(), r.edge.log())
	_, _, total, _ := s.counts()
	require.Equal(t, 1, total)
}

// What still runs at the end of an Edge's grace is told so: a request without an
// answer gets an error of the contract, a stream one in its band, and a request
// whose body is not there yet is refused.
func TestAnEdgesGraceEndsWithAnAnswerForEverybody(t *testing.T) {
	const grace = 500 * time.Millisecond
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if strings.Contains(string(body), `"stream":true`) {
			_ = sse(w, chunk(asked(t, body), "begun "))
		}
		hold.wait(r)
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 4))}, []object{model("m", "n/p=x")},
		object{"edge": object{"stop_grace_ms": grace.Milliseconds()}}), "n")
	ctx, leave := context.WithTimeout(t.Context(), time.Minute) // a fault shows as a failure, not as a hang
	defer leave()
	silent := r.background(ctx, chatBody("m", false, ""))
	stream, end := r.begin(chatBody("m", true, ""))
	defer end()
	r.running(2)
	body, sent := io.Pipe()
	defer sent.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", body)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	unsent := make(chan answer, 1)
	go func() {
		res, err := r.client.Do(req)
		if err != nil {
			unsent <- answer{err: err}
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		unsent <- answer{res.StatusCode, res.Header, string(text), err}
	}()
	for range 3 { // the Edge has read the first piece once the others are taken
		_, err = io.WriteString(sent, strings.Repeat(" ", 64<<10))
		require.NoError(t, err)
	}

	told := time.Now()
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	a := <-silent
	require.GreaterOrEqual(t, time.Since(told), grace)
	require.Equal(t, "provider_disconnected", a.code(t))
	require.Equal(t, http.StatusBadGateway, a.status)
	require.Equal(t, "false", a.header.Get("X-Should-Retry"))
	rest, err := io.ReadAll(stream)
	require.NoError(t, err, "the stream is closed in order after the error")
	require.Contains(t, string(rest), `data: {"error"`)
	require.Contains(t, string(rest), `"provider_disconnected"`)
	require.NotContains(t, string(rest), "[DONE]")
	late := <-unsent
	require.Equal(t, "draining", late.code(t))
	require.Equal(t, http.StatusServiceUnavailable, late.status)
	require.Zero(t, r.edge.exits(t, told, grace+closeLimit), r.edge.log())
	require.Eventually(t, func() bool { current, _, _, _ := s.counts(); return current == 0 }, 20*time.Second, 10*time.Millisecond,
		"the node has ended what the Edge no longer waits for")
}

// Neither a client that does not read nor a node that hangs keeps an Edge from
// stopping, and the one stuck does not keep the other's client from its error.
func TestAnEdgeStopsWhateverIsStuck(t *testing.T) {
	const grace = 200 * time.Millisecond
	flood := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		piece := chunk("x", strings.Repeat("word ", 10<<10))
		for sse(w, piece) == nil && r.Context().Err() == nil {
			continue
		}
	})
	hold := newGate(t)
	held := newStub(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) { hold.wait(r) })
	r := start(t, edgeFile(
		[]object{nodeConfig("hangs", provider("p", held.URL, 1)), nodeConfig("sends", provider("p", flood.URL, 1))},
		[]object{model("held", "hangs/p=x"), model("flood", "sends/p=x")},
		object{"edge": object{"stop_grace_ms": grace.Milliseconds(), "heartbeat": object{"interval_ms": 20000, "timeout_ms": 60000}}},
	), "hangs", "sends")
	stuck, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(t, err)
	defer stuck.Close()
	text := chatBody("flood", true, "")
	_, err = fmt.Fprintf(stuck, "POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		apiKey, len(text), text)
	require.NoError(t, err)
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	told := r.background(ctx, chatBody("held", false, ""))
	r.running(2)
	require.Eventually(t, func() bool { _, _, total, _ := held.counts(); return total == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, r.nodes["hangs"].cmd.Process.Signal(syscall.SIGSTOP))

	since := time.Now()
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "provider_disconnected", (<-told).code(t))
	require.Zero(t, r.edge.exits(t, since, grace+closeLimit), r.edge.log())
}

// A second signal ends an Edge at once, with the code a shell gives for it.
func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	hold := newGate(t)
	s := newStub(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) { hold.wait(r) })
	r := oneSlot(t, s)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r.background(ctx, chatBody("m", false, ""))
	r.running(1)
	require.NoError(t, r.edge.cmd.Process.Signal(syscall.SIGTERM))
	// One that comes within half a second counts as an echo of the first.
	require.Eventually(t, func() bool {
		_ = r.edge.cmd.Process.Signal(syscall.SIGTERM)
		return r.edge.ended()
	}, 20*time.Second, 50*time.Millisecond)
	require.Equal(t, 128+int(syscall.SIGTERM), r.edge.cmd.ProcessState.ExitCode())
}

// What still runs at the end of a node's grace is ended, and its client told; who
// waits for another node is not concerned. Nobody waits for a heartbeat (S12).
func TestS12_ANodesGraceEndsWithAnError(t *testing.T) {
	const grace = 300 * time.Millisecond
	hold := newGate(t)
	s := newStub(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		_ = sse(w, chunk(asked(t, body), "begun "))
		hold.wait(r)
	})
	r := start(t, edgeFile([]object{nodeConfig("n", provider("p", s.URL, 1))}, []object{model("m", "n/p=x")},
		object{"edge": object{"heartbeat": object{"interval_ms": 20000, "timeout_ms": 60000}}}))
	r.startNodeWith("n", object{"stop_grace_ms": grace.Milliseconds()})
	r.connected("n")
	stream, end := r.begin(chatBody("m", true, ""))
	defer end()

	since := time.Now()
	require.NoError(t, r.nodes["n"].cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return r.ask(t.Context(), chatBody("m", false, "")).status == http.StatusServiceUnavailable
	}, slack, time.Millisecond, "fenced while the work goes on")
	rest, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(since), grace)
	require.Contains(t, string(rest), `"provider_disconnected"`)
	require.NotContains(t, string(rest), "[DONE]")
	require.Zero(t, r.nodes["n"].exits(t, since, grace+closeLimit))
	r.connected()
	require.Less(t, time.Since(since), 20*time.Second, "no heartbeat was waited for")
	r.quiet()
}

// startNodeWith is startNode, with more keys of the node's own section.
func (r *rig) startNodeWith(id string, more object) {
	r.t.Helper()
	dir := r.t.TempDir()
	token := filepath.Join(dir, "token")
	require.NoError(r.t, os.WriteFile(token, []byte(nodeToken+id+"\n"), 0o600))
	node := object{"id": id, "edge_url": r.url, "token_file": token}
	for k, v := range more {
		node[k] = v
	}
	file := filepath.Join(dir, "node.yaml")
	writeYAML(r.t, file, object{"node": node, "reconnect": object{"interval_sec": 0.2, "max_attempts": 0}})
	r.nodes[id] = startProcess(r.t, "node "+id, "node", "-c", file)
}
