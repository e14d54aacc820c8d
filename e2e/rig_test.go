package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	// What the binary is made of: without them the test cache would not notice
	// that it has changed.
	_ "github.com/iop-dev/iop/cmd/edged"
	_ "github.com/iop-dev/iop/cmd/noded"
	"github.com/iop-dev/iop/edge/events/eventstest"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// binary is the iop that all tests run.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(stuckEdge) != "" {
		os.Exit(runStuckEdge(os.Args[3])) // edge -c FILE
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "iop-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "iop")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/iop")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build iop: %w", err)
	}
	return m.Run(), nil
}

// The secrets that every site of the tests uses.
const (
	apiKey    = "e2e-api-key"
	readToken = "e2e-read-token"
	nodeToken = "e2e-node-token-of-"
)

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// object is a piece of a configuration file.
type object = map[string]any

// provider is one provider of a node: an OpenAI-compatible stub at url.
func provider(id, url string, capacity int, more ...object) object {
	p := object{"id": id, "type": "openai", "base_url": url, "capacity": capacity}
	for _, m := range more {
		for k, v := range m {
			p[k] = v
		}
	}
	return p
}

func nodeConfig(id string, providers ...object) object {
	return object{"id": id, "token_sha256": hash(nodeToken + id), "providers": providers}
}

// model is one model group; a candidate is "node/provider=target".
func model(id string, candidates ...string) object {
	var cs []object
	for _, c := range candidates {
		key, target, _ := strings.Cut(c, "=")
		node, prov, _ := strings.Cut(key, "/")
		cs = append(cs, object{"node": node, "provider": prov, "target": target})
	}
	return object{"id": id, "providers": cs}
}

// edgeFile is an Edge configuration with keys and tokens; more overrides or adds
// top-level keys.
func edgeFile(nodes, models []object, more ...object) object {
	f := object{
		"edge": object{
			"id": "e2e", "listen": "127.0.0.1:0", "heartbeat": object{"interval_ms": 500, "timeout_ms": 2000},
			"read_tokens": []object{{"name": "test", "sha256": hash(readToken)}},
		},
		"openai": object{"api_keys": []object{{"name": "test", "sha256": hash(apiKey)}}},
		"nodes":  nodes, "models": models,
	}
	for _, m := range more {
		for k, v := range m {
			if section, ok := f[k].(object); ok {
				for kk, vv := range v.(object) {
					section[kk] = vv
				}
				continue
			}
			f[k] = v
		}
	}
	return f
}

// listenLow opens a port below those that the kernel gives to outgoing connections:
// who closes it for a while, for a process that comes or comes back, finds it free.
func listenLow(t *testing.T) net.Listener {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 12000+rand.IntN(18000))); err == nil {
			return l
		}
	}
	require.FailNow(t, "no free port")
	return nil
}

// freePort is a loopback address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l := listenLow(t)
	defer l.Close()
	return l.Addr().String()
}

func writeYAML(t *testing.T, path string, content object) {
	t.Helper()
	text, err := yaml.Marshal(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// rig is one Edge process and its nodes.
type rig struct {
	t        *testing.T
	dir      string
	edgeYAML string
	edge     *process
	url      string // of the Edge
	nodes    map[string]*process
	client   *http.Client
	control  controlv1connect.ControlServiceClient
}

// start starts an Edge with the file, and every node named; it returns once they
// are connected.
func start(t *testing.T, file object, nodes ...string) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edge.yaml")
	writeYAML(t, path, file)
	r := startAt(t, path)
	for _, id := range nodes {
		r.startNode(id)
	}
	r.connected(nodes...)
	return r
}

// startAt starts an Edge with a file that is there already.
func startAt(t *testing.T, path string) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Dir(path), edgeYAML: path, nodes: map[string]*process{}}
	r.startEdge()
	transport := &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport}
	r.control = controlv1connect.NewControlServiceClient(r.client, r.url)
	return r
}

func (r *rig) startEdge() {
	r.t.Helper()
	r.edge = startProcess(r.t, "edge", "edge", "-c", r.edgeYAML)
	if eventstest.Blocked() {
		r.edge.await(r.t, "the event bus is saturated for good", "dropped")
	}
	r.url = "http://" + r.edge.await(r.t, "listening", "address")
}

func (r *rig) startNode(id string) *process {
	r.t.Helper()
	dir := r.t.TempDir()
	token := filepath.Join(dir, "token")
	require.NoError(r.t, os.WriteFile(token, []byte(nodeToken+id+"\n"), 0o600))
	file := filepath.Join(dir, "node.yaml")
	writeYAML(r.t, file, object{
		"node":      object{"id": id, "edge_url": r.url, "token_file": token},
		"reconnect": object{"interval_sec": 0.2, "max_attempts": 0},
	})
	p := startProcess(r.t, "node "+id, "node", "-c", file)
	r.nodes[id] = p
	return p
}

// connected waits until these nodes, and no others, are connected.
func (r *rig) connected(ids ...string) {
	r.t.Helper()
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
		var have []string
		for _, n := range s.GetNodes() {
			if n.GetConnected() {
				have = append(have, n.GetId())
			}
		}
		return len(have) == len(ids) && strings.Join(have, ",") == strings.Join(ids, ",")
	}, "nodes connected: %v", ids)
}

func (r *rig) snapshot() *controlv1.EdgeNodeSnapshot {
	r.t.Helper()
	ctx, call := connect.NewClientContext(r.t.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+readToken)
	res, err := r.control.GetEdgeNodeSnapshot(ctx, &controlv1.GetEdgeNodeSnapshotRequest{})
	require.NoError(r.t, err)
	return res.GetSnapshot()
}

func (r *rig) eventually(cond func(*controlv1.EdgeNodeSnapshot) bool, what string, args ...any) {
	r.t.Helper()
	require.Eventuallyf(r.t, func() bool { return cond(r.snapshot()) }, 20*time.Second, 10*time.Millisecond, what, args...)
}

// quiet waits until nothing runs and nothing waits, and checks that the books
// balance.
func (r *rig) quiet() {
	r.t.Helper()
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetInFlightTotal() == 0 && s.GetQueueTotal() == 0
	}, "all counters back at 0")
	s := r.snapshot()
	require.Equal(r.t, s.GetCounters().GetGranted(), s.GetCounters().GetReleased())
	require.Zero(r.t, s.GetCounters().GetDoubleReleases())
	for _, n := range s.GetNodes() {
		for _, p := range n.GetProviders() {
			require.Zero(r.t, p.GetInFlight()+p.GetQueued()+p.GetLongInFlight()+p.GetLongQueued(), p.GetId())
		}
	}
}

// running and waiting wait for a number of requests in that state.
func (r *rig) running(n uint32) {
	r.t.Helper()
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetInFlightTotal() == n }, "%d running", n)
}

func (r *rig) waiting(n uint32) {
	r.t.Helper()
	r.eventually(func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() == n }, "%d waiting", n)
}

// chatBody is a chat request; more is put behind the first fields.
func chatBody(model string, stream bool, more string) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t%s,"messages":[{"role":"user","content":"go 97"}]}`, model, stream, more)
}

// post sends a chat request. The caller closes the body.
func (r *rig) post(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	return r.client.Do(req)
}

// answer is a whole reply.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// ask sends a chat request and reads the reply to its end.
func (r *rig) ask(ctx context.Context, body string) answer {
	res, err := r.post(ctx, body)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text), err}
}

// background asks without waiting for the reply.
func (r *rig) background(ctx context.Context, body string) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- r.ask(ctx, body) }()
	return done
}

// code is the error code of a reply in the OpenAI envelope.
func (a answer) code(t *testing.T) string {
	t.Helper()
	require.NoError(t, a.err)
	var envelope struct {
		Error struct{ Message, Type, Code string }
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &envelope), a.body)
	require.NotEmpty(t, envelope.Error.Message)
	require.NotEmpty(t, envelope.Error.Type)
	require.NotEmpty(t, a.header.Get("X-Request-Id"))
	return envelope.Error.Code
}

// process is one iop process. It is killed when its test ends.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced at each line
}

func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, done: make(chan struct{}), more: make(chan struct{})}
	p.cmd = exec.Command(binary, append(args, "--log-format", "json")...)
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	if args[0] == "edge" && eventstest.Blocked() {
		p.cmd.Path, p.cmd.Env = os.Args[0], append(p.cmd.Env, stuckEdge+"=1")
	}
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		scan := bufio.NewScanner(stderr)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, scan.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		log := p.log()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, log)
		}
		for _, trouble := range []string{"DATA RACE", "panic:", "goroutine 1 ["} {
			if strings.Contains(log, trouble) {
				t.Errorf("%s: %q in its log:\n%s", name, trouble, log)
			}
		}
		for _, secret := range []string{apiKey, readToken, nodeToken} {
			if strings.Contains(log, secret) {
				t.Errorf("%s: a secret is in its log", name)
			}
		}
	})
	return p
}

// kill ends the process as a power cut would, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end and returns its exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		t.Fatalf("%s does not stop", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// await waits for a log line with this message and returns one of its fields.
func (p *process) await(t *testing.T, msg, field string) string {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		lines, more := p.lines, p.more
		p.mu.Unlock()
		for _, line := range lines {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == msg {
				if field == "" {
					return line
				}
				return fmt.Sprint(entry[field])
			}
		}
		select {
		case <-more:
		case <-p.done:
			t.Fatalf("%s ended before it said %q:\n%s", p.name, msg, p.log())
		case <-timeout:
			t.Fatalf("%s never said %q:\n%s", p.name, msg, p.log())
		}
	}
}

// rss is the process's resident memory in bytes.
func (p *process) rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("resident memory is read from /proc")
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			var kib int64
			_, err := fmt.Sscan(string(rest), &kib)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
