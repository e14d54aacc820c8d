package up

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/iop-dev/iop/cmd/iop/discover"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// NodeID is the id of the node in the same process.
const NodeID = "local"

// DefaultListen is where the Edge listens unless told otherwise.
const DefaultListen = "127.0.0.1:8484"

// SimulatorModel is the model that the built-in simulator lists.
const SimulatorModel = "simulator"

// The built-in simulator talks at a pace that shows the stream.
const (
	simulatorCapacity        = 4
	simulatorTokensPerSecond = 20
	simulatorFirstTokenMs    = 200
	simulatorAnswerTokens    = 24
)

// Provider is one provider of the node.
type Provider struct {
	// ID is its id in the configuration.
	ID string
	// Server is what serves; without a BaseURL it is the built-in simulator.
	Server discover.Server
	// Capacity is what the Edge will send it at once.
	Capacity int
}

// IsSimulator reports whether the provider is the built-in simulator.
func (p Provider) IsSimulator() bool { return p.Server.BaseURL == "" }

// CapacityKnown reports whether the capacity is what the server itself says.
func (p Provider) CapacityKnown() bool {
	return p.IsSimulator() || p.Server.Capacity == p.Capacity
}

// Plan is all that is to be served.
type Plan struct {
	Providers []Provider
}

// NewPlan gives the servers their ids and capacities; with no servers, or when
// asked for, the simulator is added. capacities overrides by id; an id that is
// not there, or a capacity below 1, is an error.
func NewPlan(servers []discover.Server, simulator bool, capacities map[string]int) (*Plan, error) {
	plan := &Plan{}
	used := map[string]int{}
	for _, s := range servers {
		id := string(s.Kind)
		if used[id]++; used[id] > 1 {
			id = fmt.Sprintf("%s-%d", id, used[string(s.Kind)])
		}
		plan.Providers = append(plan.Providers, Provider{ID: id, Server: s, Capacity: max(s.Capacity, 1)})
	}
	if simulator || len(servers) == 0 {
		plan.Providers = append(plan.Providers, Provider{
			ID:       "simulator",
			Capacity: simulatorCapacity,
			Server:   discover.Server{Kind: "simulator", Models: []discover.Model{{ID: SimulatorModel, Chat: true}}},
		})
	}
	known := make([]string, len(plan.Providers))
	for i := range plan.Providers {
		p := &plan.Providers[i]
		known[i] = p.ID
		if n, ok := capacities[p.ID]; ok {
			p.Capacity = n
		}
	}
	for _, id := range slices.Sorted(maps.Keys(capacities)) {
		switch n := capacities[id]; {
		case !slices.Contains(known, id):
			return nil, fmt.Errorf("--capacity %s: no such provider; there is %s", id, strings.Join(known, ", "))
		case n < 1:
			return nil, fmt.Errorf("--capacity %s=%d: expected 1 or more", id, n)
		}
	}
	return plan, nil
}

// ChatModel is a model to try: the first that answers chat, else the first.
// There is always one.
func (p *Plan) ChatModel() string {
	first := ""
	for _, provider := range p.Providers {
		for _, m := range provider.Server.Models {
			if m.Chat {
				return m.ID
			}
			if first == "" {
				first = m.ID
			}
		}
	}
	return first
}

// Credentials are the hashes that the Edge is to know.
type Credentials struct {
	// NodeTokenSHA256 and AdminTokenSHA256 are hexadecimal; no admin token = the
	// admin API is closed.
	NodeTokenSHA256  string
	AdminTokenSHA256 string
}

// EdgeConfig is the configuration of an Edge on this machine only, without API
// keys, for the plan's providers. A model that several providers list has them
// all as candidates.
func (p *Plan) EdgeConfig(listen, stateDir string, secrets Credentials) *configv1.EdgeConfig {
	edge := &configv1.Edge{
		Id:       "up",
		Listen:   listen,
		StateDir: stateDir,
		Auth:     &configv1.Auth{Mode: "none"},
	}
	if secrets.AdminTokenSHA256 != "" {
		edge.AdminTokens = []*configv1.Token{{Name: "local", Sha256: secrets.AdminTokenSHA256}}
	}
	node := &configv1.Node{Id: NodeID, TokenSha256: secrets.NodeTokenSHA256}
	config := &configv1.EdgeConfig{Edge: edge, Nodes: []*configv1.Node{node}}
	models := map[string]*configv1.Model{}
	for _, provider := range p.Providers {
		node.Providers = append(node.Providers, provider.config())
		for _, m := range provider.Server.Models {
			model := models[m.ID]
			if model == nil {
				model = &configv1.Model{Id: m.ID}
				models[m.ID] = model
				config.Models = append(config.Models, model)
			}
			model.Providers = append(model.Providers, &configv1.Candidate{Node: NodeID, Provider: provider.ID})
		}
	}
	return config
}

func (p Provider) config() *configv1.Provider {
	capacity := uint32(p.Capacity)
	c := &configv1.Provider{Id: p.ID, Type: string(p.Server.Kind), BaseUrl: p.Server.BaseURL, Capacity: &capacity}
	if p.IsSimulator() {
		c.Simulator = &configv1.Simulator{
			TokensPerSecond: simulatorTokensPerSecond,
			FirstTokenMs:    simulatorFirstTokenMs,
			AnswerTokens:    simulatorAnswerTokens,
			Models:          []string{SimulatorModel},
		}
	}
	return c
}

// BaseURLs are the servers that the node has to reach.
func (p *Plan) BaseURLs() []string {
	var urls []string
	for _, provider := range p.Providers {
		if !provider.IsSimulator() {
			urls = append(urls, provider.Server.BaseURL)
		}
	}
	return urls
}

// CheckListen refuses an address that other machines reach: `iop up` asks for
// no key and has no certificate.
func CheckListen(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: expected host:port, as in %s", listen, DefaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--listen %q: expected a port from 0 to 65535", listen)
	}
	if strings.EqualFold(host, "localhost") {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("--listen %q: other machines would reach this, and iop up has neither keys nor TLS; "+
		"use a loopback address, or write an edge.yaml with openai.api_keys and edge.tls and run \"iop edge -c edge.yaml\"", listen)
}
