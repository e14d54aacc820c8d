//go:build engines

package engines

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/iop-dev/iop/e2e/engines/llamacpp"
	"github.com/iop-dev/iop/e2e/engines/tap"
)

// The two model groups share the one slot of the one provider.
const (
	modelBig  = "ornith:35b"
	modelFast = "ornith-fast"
)

// Further ids: what the stand-in for llama.cpp and a faulty server serve, and
// direct routes to the slots of the first two, one each with room for one waiter and one
// that waits briefly.
const (
	modelLlama   = "llama"
	modelSilent  = "silent"
	modelDropped = "dropped"

	modelNarrow      = "narrow"
	modelBrief       = "brief"
	modelLlamaNarrow = "llama-narrow"
	modelLlamaBrief  = "llama-brief"
)

// modelGroups is the groups that share the slot, in the order of the configuration.
func modelGroups() []string { return []string{modelBig, modelFast} }

// catalogue is every external id, in the order of /v1/models.
func catalogue() []string {
	return append(modelGroups(), modelLlama, modelSilent, modelDropped, modelNarrow, modelBrief, modelLlamaNarrow, modelLlamaBrief)
}

// stack is everything that runs: client → Edge → Node → tap → Ollama.
type stack struct {
	dir        string
	engine     *ollama
	tap        *tap.Tap
	llama      *llamacpp.Server
	llamaTap   *tap.Tap
	faulty     *faulty
	edge, node *process
	edgeAddr   string
	key        string // the API key the Edge knows
	readToken  string // for its state
}

// viaIOP is where a client of IOP goes.
func (s *stack) viaIOP() endpoint {
	return endpoint{baseURL: "http://" + s.edgeAddr + "/v1", key: s.key}
}

// direct is the engine itself, seen by the tap all the same.
func (s *stack) direct() endpoint {
	return endpoint{baseURL: "http://" + s.tap.Address() + "/v1", key: "unused"}
}

// binaries is what the stack is made of.
type binaries struct{ iop, ollama string }

// startStack starts everything below dir and returns when IOP has answered a
// request for each model group. Whatever it returns has to be stopped, also with
// an error.
func startStack(ctx context.Context, dir string, bin binaries) (*stack, error) {
	s := &stack{dir: dir, key: secret(), readToken: secret()}
	addrs, err := freeAddresses(2)
	if err != nil {
		return s, err
	}
	s.edgeAddr = addrs[1]
	if s.engine, err = startOllama(ctx, dir, bin.ollama, addrs[0]); err != nil {
		return s, err
	}
	if s.tap, err = tap.Listen(s.engine.address); err != nil {
		return s, err
	}
	// A pace at which an answer can be broken off, and room for it.
	s.llama, err = llamacpp.Start(llamacpp.Options{Pace: 2 * time.Millisecond, Context: 1 << 20, Embeddings: true, Reranking: true})
	if err != nil {
		return s, err
	}
	if s.llamaTap, err = tap.Listen(s.llama.Address()); err != nil {
		return s, err
	}
	s.faulty = startFaulty()
	if err := s.writeConfig(); err != nil {
		return s, err
	}
	if s.edge, err = start(dir, "edge", nil, bin.iop, "edge", "-c", filepath.Join(dir, "edge.yaml")); err != nil {
		return s, err
	}
	if err := waitFor(ctx, "the Edge's /readyz", s.edge.gone, func() bool { return answers200(ctx, "http://"+s.edgeAddr+"/readyz") }); err != nil {
		return s, err
	}
	if s.node, err = start(dir, "node", nil, bin.iop, "node", "-c", filepath.Join(dir, "node.yaml")); err != nil {
		return s, err
	}
	for _, model := range modelGroups() {
		err := waitFor(ctx, "an answer of "+model, s.node.gone, func() bool {
			a, err := openaiGo{}.ask(ctx, s.viaIOP(), call{Model: model, Prompt: "go 99"})
			return err == nil && a.Text == " 100"
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// stop ends what was started, the last first. Nothing else is touched.
func (s *stack) stop() error {
	var errs []error
	for _, p := range []*process{s.node, s.edge} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	if s.tap != nil {
		errs = append(errs, s.tap.Close())
	}
	if s.llamaTap != nil {
		errs = append(errs, s.llamaTap.Close())
	}
	if s.llama != nil {
		errs = append(errs, s.llama.Close())
	}
	if s.faulty != nil {
		s.faulty.Close()
	}
	if s.engine != nil {
		errs = append(errs, s.engine.stop())
	}
	return errors.Join(errs...)
}

const edgeYAML = `edge:
  id: engines
  listen: %[1]s
  auth: {mode: keys}
  read_tokens: [{name: engines, sha256: "%[6]s"}]
provider_pool:
  max_queue: 256
  queue_timeout_ms: 120000
openai:
  api_keys:
    - {name: engines, sha256: "%[2]s"}
  model_routes:
    - {model: narrow, adapter: ollama, target: %[4]s, max_queue: 1}
    - {model: brief, adapter: ollama, target: %[4]s, queue_timeout_ms: 300}
    - {model: llama-narrow, adapter: llamacpp, target: count, max_queue: 1}
    - {model: llama-brief, adapter: llamacpp, target: count, queue_timeout_ms: 300}
models:
  - id: "ornith:35b"
    providers:
      - {node: workshop, provider: ollama, target: %[4]s}
  - id: ornith-fast
    providers:
      - {node: workshop, provider: ollama, target: %[4]s}
  - id: llama
    providers:
      - {node: workshop, provider: llamacpp, target: count}
  - id: silent
    providers:
      - {node: workshop, provider: faulty}
  - id: dropped
    providers:
      - {node: workshop, provider: faulty}
nodes:
  - id: workshop
    token_sha256: "%[3]s"
    providers:
      - id: ollama
        type: ollama
        base_url: http://%[5]s
        capacity: 1
      - id: llamacpp
        type: llamacpp
        base_url: http://%[8]s
        capacity: 1
      - id: faulty
        type: openai
        base_url: http://%[7]s
        capacity: 1
        request_timeout_ms: 300
`

const nodeYAML = `node:
  id: workshop
  edge_url: http://%s
  token_file: %s
reconnect:
  interval_sec: 1
  max_attempts: 30
allow_endpoints: ["http://127.0.0.1:*"]
`

func (s *stack) writeConfig() error {
	token := secret()
	tokenFile := filepath.Join(s.dir, "node.token")
	edge := fmt.Sprintf(edgeYAML, s.edgeAddr, hashed(s.key), hashed(token), engineModel, s.tap.Address(), hashed(s.readToken),
		s.faulty.address(), s.llamaTap.Address())
	node := fmt.Sprintf(nodeYAML, s.edgeAddr, tokenFile)
	return errors.Join(
		os.WriteFile(tokenFile, []byte(token+"\n"), 0o600),
		os.WriteFile(filepath.Join(s.dir, "edge.yaml"), []byte(edge), 0o600),
		os.WriteFile(filepath.Join(s.dir, "node.yaml"), []byte(node), 0o600),
	)
}

func secret() string { return "e2e-" + rand.Text() }

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// freeAddresses finds loopback ports that nobody has. All are held at once, so
// that they differ.
func freeAddresses(n int) ([]string, error) {
	var held []net.Listener
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	slices.Reverse(held)
	for _, l := range held {
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return addrs, nil
}

// waitFor polls until ok, and fails early when the process that should make it
// so is gone.
func waitFor(ctx context.Context, what string, gone func() error, ok func() bool) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if err := gone(); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
	return nil
}

func answers200(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
