//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// What every run is made of.
const (
	heartbeatInterval = 500 * time.Millisecond
	heartbeatTimeout  = 1500 * time.Millisecond
	cancelGrace       = time.Second
	gateWait          = 700 * time.Millisecond
	queueTimeout      = 3 * time.Second
	idleTimeout       = 3 * time.Second
	requestTimeout    = 2500 * time.Millisecond
	poolQueue         = 16
	routeQueue        = 3
	longTokens        = 2000

	apiKey    = "chaos-api-key"
	readToken = "chaos-read-token"
	nodeToken = "chaos-node-token-of-"
)

// providerSpec is one provider as first configured.
type providerSpec struct {
	node, id, kind string
	capacity, long int
	cancel         string
}

func (p providerSpec) key() string    { return p.node + "/" + p.id }
func (p providerSpec) target() string { return "served-by-" + p.id }

func (p providerSpec) grace() time.Duration     { return cancelGrace }
func (p providerSpec) headDelay() time.Duration { return requestTimeout * 3 / 5 }

var nodeIDs = []string{"n1", "n2", "n3", "n4"}

// remoteNode lives in a network namespace of its own where the machine allows it.
const remoteNode = "n4"

var providers = []providerSpec{
	{node: "n1", id: "p1", kind: "openai", capacity: 3, long: 1},
	{node: "n2", id: "p2", kind: "vllm", capacity: 2, cancel: "drain"},
	{node: "n2", id: "p3", kind: "mlx", capacity: 2},
	{node: "n3", id: "p4", kind: "llamacpp", capacity: 3, long: 2},
	{node: "n4", id: "p5", kind: "openai", capacity: 4},
	{node: "n4", id: "p6", kind: "lmstudio", capacity: 1},
}

// groups share providers; "tiny" is a direct route to p6.
var groups = map[string][]string{
	"alpha": {"n1/p1", "n2/p2"},
	"beta":  {"n2/p2", "n2/p3", "n3/p4"},
	"gamma": {"n1/p1", "n3/p4", "n4/p5", "n4/p6"},
	"delta": {"n4/p5"},
}

var modelIDs = []string{"alpha", "beta", "gamma", "delta", "tiny"}

// live is what refreshes change of a provider.
type live struct {
	capacity       int
	disabled, gone bool
	timeout        time.Duration
}

func (l live) effective() int {
	if l.disabled || l.gone {
		return 0
	}
	return l.capacity
}

type object = map[string]any

// node is one Node: its process, if it runs, and what is around it.
type node struct {
	id    string
	link  *link
	space *netns // nil: this machine's own network
	yaml  string

	turn sync.Mutex // one fault of process or link at a time

	mu      sync.Mutex
	proc    *process
	bothers int       // faults under way that delay what the Edge tells it
	calm    time.Time // since when there are none
}

func (n *node) bother() func() {
	n.mu.Lock()
	n.bothers++
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.bothers--
		n.calm = time.Now()
		n.mu.Unlock()
	}
}

// calmFor is how long nothing has disturbed the Node; 0 while something does.
func (n *node) calmFor() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bothers > 0 {
		return 0
	}
	return time.Since(n.calm)
}

func (n *node) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// site is the whole installation.
type site struct {
	dir, binary string
	verdict     *verdict
	lag         *lag
	ledger      *ledger
	fakes       map[string]*fake
	nodes       map[string]*node
	space       *netns
	noSpace     string // why there is none
	edgeAddr    string
	edgeYAML    string
	clients     atomic.Pointer[http.Client]
	control     controlv1connect.ControlServiceClient

	edgeTurn sync.Mutex // one fault of the Edge or its file at a time
	edge     atomic.Pointer[process]
	outages  outages

	confMu   sync.Mutex
	conf     map[string]live
	missing  int       // refreshes by which the Edge may not know a model
	lastGone time.Time // when there was last one

	journalMu sync.Mutex
	journal   *os.File // what was done when
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// newSite makes everything but processes.
func newSite(dir, binary string, v *verdict, l *lag) (*site, error) {
	s := &site{
		dir: dir, binary: binary, verdict: v, lag: l, ledger: newLedger(v),
		fakes: map[string]*fake{}, nodes: map[string]*node{}, conf: map[string]live{},
		edgeYAML: filepath.Join(dir, "edge.yaml"),
	}
	s.renewClients()
	var err error
	if s.journal, err = os.Create(filepath.Join(dir, "faults.log")); err != nil {
		return nil, err
	}
	probe, err := listen("127.0.0.1")
	if err != nil {
		return nil, err
	}
	s.edgeAddr = probe.Addr().String()
	_ = probe.Close()
	s.control = controlv1connect.NewControlServiceClient(s, "http://"+s.edgeAddr)
	if s.space, err = newNetns(); err != nil {
		s.noSpace = err.Error()
	}
	for _, p := range providers {
		host := "127.0.0.1"
		if p.node == remoteNode && s.space != nil {
			host = s.space.providerHost
		}
		if s.fakes[p.key()], err = newFake(p, host, v, l, s.ledger); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.conf[p.key()] = live{capacity: p.capacity, timeout: requestTimeout}
	}
	for _, id := range nodeIDs {
		n := &node{id: id, yaml: filepath.Join(dir, id+".yaml"), calm: time.Now()}
		s.nodes[id] = n
		host := "127.0.0.1"
		if id == remoteNode && s.space != nil {
			host, n.space = s.space.edgeHost, s.space
		}
		if n.link, err = newLink(host, s.edgeAddr, n.space); err != nil {
			return nil, errors.Join(err, s.close())
		}
		token := filepath.Join(dir, id+".token")
		if err := os.WriteFile(token, []byte(nodeToken+id+"\n"), 0o600); err != nil {
			return nil, err
		}
		if err := writeYAML(n.yaml, object{
			"node":      object{"id": id, "edge_url": "http://" + n.link.address(), "token_file": token},
			"reconnect": object{"interval_sec": 0.3, "max_attempts": 0},
		}); err != nil {
			return nil, err
		}
	}
	return s, s.writeEdgeYAML()
}

func writeYAML(path string, content object) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// renewClients gives requests that begin from now on connections of their own. A
// connection to a former Edge, whose last answer somebody has yet to read, would
// look alive to the next request.
func (s *site) renewClients() {
	old := s.clients.Swap(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}})
	if old != nil {
		old.CloseIdleConnections()
	}
}

// Do implements connect.HTTPClient.
func (s *site) Do(r *http.Request) (*http.Response, error) { return s.clients.Load().Do(r) }

// logf keeps what this program does, next to the logs of the processes.
func (s *site) logf(format string, args ...any) {
	s.journalMu.Lock()
	defer s.journalMu.Unlock()
	fmt.Fprintf(s.journal, "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), fmt.Sprintf(format, args...))
}

// writeEdgeYAML writes the file that describes the present configuration.
func (s *site) writeEdgeYAML() error {
	s.confMu.Lock()
	defer s.confMu.Unlock()
	var nodes, models []object
	for _, id := range nodeIDs {
		var list []object
		for _, p := range providers {
			c := s.conf[p.key()]
			if p.node != id || c.gone {
				continue
			}
			o := object{
				"id": p.id, "type": p.kind, "base_url": "http://" + s.fakes[p.key()].address, "capacity": c.capacity,
				"enabled": !c.disabled, "request_timeout_ms": c.timeout.Milliseconds(),
				"cancel_grace_ms": cancelGrace.Milliseconds(), "gate_wait_ms": gateWait.Milliseconds(),
			}
			if p.cancel != "" {
				o["cancel"] = p.cancel
			}
			if p.long > 0 {
				o["long_context_capacity"], o["total_context_tokens"] = p.long, 100000*p.long
			}
			list = append(list, o)
		}
		nodes = append(nodes, object{"id": id, "token_sha256": hash(nodeToken + id), "providers": list})
	}
	for _, m := range modelIDs {
		var candidates []object
		for _, key := range groups[m] {
			for _, p := range providers {
				if p.key() == key && !s.conf[key].gone {
					candidates = append(candidates, object{"node": p.node, "provider": p.id, "target": p.target()})
				}
			}
		}
		if len(candidates) > 0 {
			models = append(models, object{"id": m, "context_window_tokens": 100000, "providers": candidates})
		}
	}
	openai := object{
		"api_keys": []object{{"name": "chaos", "sha256": hash(apiKey)}}, "idle_timeout_ms": idleTimeout.Milliseconds(),
	}
	if !s.conf["n4/p6"].gone {
		openai["model_routes"] = []object{{"model": "tiny", "adapter": "n4/p6", "target": "served-by-p6", "max_queue": routeQueue}}
	}
	return writeYAML(s.edgeYAML, object{
		"edge": object{
			"id": "chaos", "listen": s.edgeAddr,
			"heartbeat":   object{"interval_ms": heartbeatInterval.Milliseconds(), "timeout_ms": heartbeatTimeout.Milliseconds()},
			"read_tokens": []object{{"name": "chaos", "sha256": hash(readToken)}},
		},
		"long_context_threshold_tokens": longTokens,
		"provider_pool":                 object{"max_queue": poolQueue, "queue_timeout_ms": queueTimeout.Milliseconds()},
		"openai":                        openai, "nodes": nodes, "models": models,
	})
}

// startEdge starts the Edge and returns when it is ready.
func (s *site) startEdge() error {
	p, err := startProcess("edge", filepath.Join(s.dir, "edge.log"), []string{s.binary, "edge", "-c", s.edgeYAML, "--log-format", "json"}, s.ended)
	if err != nil {
		return err
	}
	s.edge.Store(p)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		res, err := s.clients.Load().Get("http://" + s.edgeAddr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("the edge ended at once; see %s", p.log.Name())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("the edge was not ready within 30s")
}

// startNode starts a Node's process.
func (s *site) startNode(n *node) error {
	command := []string{s.binary, "node", "-c", n.yaml, "--log-format", "json"}
	if n.space != nil {
		command = append(n.space.command(), command...)
	}
	p, err := startProcess(n.id, filepath.Join(s.dir, n.id+".log"), command, func(p *process) {
		for _, spec := range providers {
			if spec.node == n.id {
				s.fakes[spec.key()].nodeDied()
			}
		}
		s.ended(p)
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.proc = p
	n.mu.Unlock()
	return nil
}

// ended judges the end of a process.
func (s *site) ended(p *process) {
	if !p.expected.Load() {
		s.verdict.breach("%s ended by itself: %s; see %s", p.name, p.cmd.ProcessState, p.log.Name())
	}
}

// start starts all processes and waits for the Nodes to be connected.
func (s *site) start() error {
	if err := s.startEdge(); err != nil {
		return err
	}
	for _, id := range nodeIDs {
		if err := s.startNode(s.nodes[id]); err != nil {
			return err
		}
	}
	return s.allConnected(30 * time.Second)
}

func (s *site) snapshot(ctx context.Context) (*controlv1.EdgeNodeSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+readToken)
	res, err := s.control.GetEdgeNodeSnapshot(ctx, &controlv1.GetEdgeNodeSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	return res.GetSnapshot(), nil
}

// until polls the snapshot for a condition, which names what is still missing.
func (s *site) until(limit time.Duration, missing func(*controlv1.EdgeNodeSnapshot) string) error {
	what := "a snapshot"
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		snap, err := s.snapshot(context.Background())
		if err != nil {
			what = err.Error()
			continue
		}
		if what = missing(snap); what == "" {
			return nil
		}
	}
	return fmt.Errorf("still missing after %s: %s", limit, what)
}

func (s *site) allConnected(limit time.Duration) error {
	return s.until(limit, func(snap *controlv1.EdgeNodeSnapshot) string {
		for _, n := range snap.GetNodes() {
			if !n.GetConnected() || n.GetDraining() {
				return "node " + n.GetId() + " connected"
			}
		}
		return ""
	})
}

// idle waits until nothing runs and nothing waits.
func (s *site) idle(limit time.Duration) error {
	return s.until(limit, func(snap *controlv1.EdgeNodeSnapshot) string {
		if snap.GetInFlightTotal() != 0 || snap.GetQueueTotal() != 0 {
			return fmt.Sprintf("counters at 0 (in_flight %d, queue %d)", snap.GetInFlightTotal(), snap.GetQueueTotal())
		}
		return ""
	})
}

// close ends every process and takes everything away but the folder.
func (s *site) close() error {
	for _, n := range s.nodes {
		if p := n.process(); p != nil {
			p.kill()
		}
	}
	if p := s.edge.Load(); p != nil {
		p.kill()
	}
	for _, n := range s.nodes {
		if n.link != nil {
			n.link.close()
		}
	}
	for _, f := range s.fakes {
		if f != nil {
			f.close()
		}
	}
	if s.space != nil {
		s.space.close()
	}
	s.clients.Load().CloseIdleConnections()
	return nil
}
