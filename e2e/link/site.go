//go:build !windows

package link

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/gen/go/iop/control/v1/controlv1connect"
)

// Object is a piece of a configuration file.
type Object = map[string]any

// NodeToken is the token of a node of the rig.
func NodeToken(node string) string { return "link-node-token-of-" + node }

const readToken = "link-read-token"

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Node is the configuration of a node and its providers.
func Node(id string, providers ...Object) Object {
	return Object{"id": id, "token_sha256": hash(NodeToken(id)), "providers": providers}
}

// At is the configuration of a provider, at a Provider.
func At(p *Provider, id string, capacity, priority int) Object {
	return Object{"id": id, "type": "openai", "base_url": p.URL, "capacity": capacity, "priority": priority}
}

// Model is the configuration of a model group; a candidate is "node/provider=target".
func Model(id string, candidates ...string) Object {
	var list []Object
	for _, c := range candidates {
		resource, target, _ := strings.Cut(c, "=")
		node, provider, _ := strings.Cut(resource, "/")
		list = append(list, Object{"node": node, "provider": provider, "target": target})
	}
	return Object{"id": id, "providers": list}
}

// Heartbeat is how a site's Edge and Nodes tell each other that they live.
type Heartbeat struct{ Interval, Timeout time.Duration }

// Site is one Edge and the Nodes it was given: processes, or in this one.
type Site struct {
	Edge    *Process // nil = in this process
	Address string   // of the Edge, host:port
	Client  *http.Client

	binary, dir string
	env         []string
	control     controlv1connect.ControlServiceClient
	processes   []*Process
	closers     []func()
}

// Setup is what the configuration of an Edge says.
type Setup struct {
	Heartbeat
	Nodes, Models []Object
	// MaxQueue is how many may wait; 0 = the default.
	MaxQueue int
}

func (u Setup) file(dir string) Object {
	pool := Object{"selection": "priority"}
	if u.MaxQueue > 0 {
		pool["max_queue"] = u.MaxQueue
	}
	return Object{
		"edge": Object{
			"id": "link", "listen": "127.0.0.1:0", "state_dir": filepath.Join(dir, "state"),
			"heartbeat":   Object{"interval_ms": u.Interval.Milliseconds(), "timeout_ms": u.Timeout.Milliseconds()},
			"read_tokens": []Object{{"name": "rig", "sha256": hash(readToken)}},
		},
		"provider_pool": pool, "nodes": u.Nodes, "models": u.Models,
	}
}

// newSite makes a site's folder and configuration; its Edge is still to start.
func newSite(u Setup) (s *Site, file string, err error) {
	dir, err := os.MkdirTemp("", "iop-link-")
	if err != nil {
		return nil, "", err
	}
	s = &Site{dir: dir}
	s.closers = append(s.closers, func() { os.RemoveAll(dir) })
	file = filepath.Join(dir, "edge.yaml")
	if err := write(file, u.file(dir)); err != nil {
		s.Close()
		return nil, "", err
	}
	return s, file, nil
}

// serves tells where the site's Edge listens.
func (s *Site) serves(address string) {
	s.Address = address
	transport := &http.Transport{MaxIdleConnsPerHost: 500, DisableCompression: true}
	s.closers = append(s.closers, transport.CloseIdleConnections)
	s.Client = &http.Client{Transport: transport}
	s.control = controlv1connect.NewControlServiceClient(s.Client, s.URL())
}

// StartSite starts an Edge of a binary. More environment is the processes'.
func StartSite(binary string, u Setup, env ...string) (*Site, error) {
	s, file, err := newSite(u)
	if err != nil {
		return nil, err
	}
	s.binary, s.env = binary, env
	if s.Edge, err = s.launch("edge", "edge", "-c", file); err != nil {
		s.Close()
		return nil, err
	}
	listening, err := s.Edge.Await("listening", 1)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.serves(listening.Address)
	return s, nil
}

// URL is the Edge's.
func (s *Site) URL() string { return "http://" + s.Address }

func write(file string, content Object) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func (s *Site) launch(name string, args ...string) (*Process, error) {
	p, err := startProcess(s.binary, name, s.env, args...)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

// StartNode starts a Node that dials an URL, the Edge's or a proxy's, and waits
// until it has registered.
func (s *Site) StartNode(id, url string) (*Process, error) {
	p, err := StartNode(s.binary, s.dir, id, url, s.env...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	if _, err := p.Await("registered with the edge", 1); err != nil {
		return nil, err
	}
	return p, s.Until("node "+id+" connected", Connected(id, true))
}

// nodeFile writes the files of a Node into a folder.
func nodeFile(dir, id, url string) (file string, err error) {
	token := filepath.Join(dir, id+".token")
	if err := os.WriteFile(token, []byte(NodeToken(id)+"\n"), 0o600); err != nil {
		return "", err
	}
	file = filepath.Join(dir, id+".yaml")
	return file, write(file, Object{
		"node":      Object{"id": id, "edge_url": url, "token_file": token},
		"reconnect": Object{"interval_sec": 0.1, "max_attempts": 0},
	})
}

// StartNode starts a Node process with its files in a folder.
func StartNode(binary, dir, id, url string, env ...string) (*Process, error) {
	file, err := nodeFile(dir, id, url)
	if err != nil {
		return nil, err
	}
	return startProcess(binary, "node "+id, env, "node", "-c", file)
}

// Close kills the processes and removes their files.
func (s *Site) Close() {
	for _, p := range s.processes {
		p.Kill()
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// Watch follows the Edge's state, uncompressed, with a client of the caller's.
func (s *Site) Watch(ctx context.Context, client *http.Client) (*connect.ServerStreamForClient[controlv1.WatchEdgeNodeSnapshotResponse], error) {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Authorization", "Bearer "+readToken)
	return controlv1connect.NewControlServiceClient(client, s.URL(), connect.WithAcceptCompression("gzip", nil, nil)).WatchEdgeNodeSnapshot(ctx, &controlv1.WatchEdgeNodeSnapshotRequest{})
}

// Snapshot is the Edge's present one.
func (s *Site) Snapshot() (*controlv1.EdgeNodeSnapshot, error) {
	ctx, call := connect.NewClientContext(context.Background())
	call.RequestHeader().Set("Authorization", "Bearer "+readToken)
	response, err := s.control.GetEdgeNodeSnapshot(ctx, &controlv1.GetEdgeNodeSnapshotRequest{})
	return response.GetSnapshot(), err
}

// Snapshot is what an Edge tells of itself.
type Snapshot = controlv1.EdgeNodeSnapshot

// Condition is something to wait for in the Edge's snapshot.
type Condition func(*controlv1.EdgeNodeSnapshot) bool

// Until waits for a condition.
func (s *Site) Until(what string, holds Condition) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		snapshot, err := s.Snapshot()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if holds(snapshot) {
			return nil
		}
		select {
		case <-poll.C:
		case <-limit.C:
			return fmt.Errorf("%s: not within %v; the snapshot: %v", what, patience, snapshot)
		}
	}
}

// Connected holds when a node is, or is not, connected.
func Connected(node string, want bool) Condition {
	return func(s *controlv1.EdgeNodeSnapshot) bool {
		for _, n := range s.GetNodes() {
			if n.GetId() == node {
				return n.GetConnected() == want
			}
		}
		return false
	}
}

// Waiting holds when so many requests wait.
func Waiting(n uint32) Condition {
	return func(s *controlv1.EdgeNodeSnapshot) bool { return s.GetQueueTotal() == n }
}

// InFlight holds when a node's providers run so many requests together.
func InFlight(node string, want uint32) Condition {
	return func(s *controlv1.EdgeNodeSnapshot) bool {
		var have uint32
		for _, n := range s.GetNodes() {
			if n.GetId() == node {
				for _, p := range n.GetProviders() {
					have += p.GetInFlight()
				}
			}
		}
		return have == want
	}
}

// Settled waits until nothing runs or waits, and checks that every lease came
// back exactly once (S02).
func (s *Site) Settled() error {
	if err := s.Until("nothing runs and nothing waits", func(s *controlv1.EdgeNodeSnapshot) bool {
		return s.GetQueueTotal() == 0 && s.GetInFlightTotal() == 0
	}); err != nil {
		return err
	}
	snapshot, err := s.Snapshot()
	if err != nil {
		return err
	}
	if c := snapshot.GetCounters(); c.GetGranted() != c.GetReleased() || c.GetDoubleReleases() != 0 {
		return fmt.Errorf("the books do not balance: %v", c)
	}
	return nil
}

// Post sends a chat request for a model; a stream, if its model streams. The
// caller closes the body.
func (s *Site) Post(ctx context.Context, model string) (*http.Response, error) {
	return post(ctx, s.Client, s.URL(), model)
}

func post(ctx context.Context, client *http.Client, url, model string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"go"}]}`, model, model != "once")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return client.Do(request)
}

// Answer is the end of a request.
type Answer struct {
	Status int
	Body   string
	At     time.Time // of the end
	Err    error     // of the connection: the answer has no proper end
}

// Ask sends a chat request; its answer, whole, comes on the channel.
func (s *Site) Ask(ctx context.Context, model string) <-chan Answer {
	answers := make(chan Answer, 1)
	go func() {
		response, err := s.Post(ctx, model)
		answers <- read(response, err)
	}()
	return answers
}

func read(response *http.Response, err error) Answer {
	if err != nil {
		return Answer{At: time.Now(), Err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Answer{Status: response.StatusCode, Body: string(text), At: time.Now(), Err: err}
}

// Running is a stream that has begun: its first event is here.
type Running struct{ End <-chan Answer }

// Run begins a stream and returns when its first event has come.
func (s *Site) Run(ctx context.Context, model string) (*Running, error) {
	response, err := s.Post(ctx, model)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("a stream of %s: %v", model, read(response, nil))
	}
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		response.Body.Close()
		return nil, fmt.Errorf("the first event of %s: %w", model, err)
	}
	end := make(chan Answer, 1)
	go func() { end <- read(response, nil) }()
	return &Running{End: end}, nil
}

// errLate is a wait that took too long.
var errLate = errors.New("not in time")

// Wait takes from a channel, for a bounded time.
func Wait[T any](ch <-chan T, what string) (T, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case v := <-ch:
		return v, nil
	case <-limit.C:
		var none T
		return none, fmt.Errorf("%s: %w", what, errLate)
	}
}
