package up

import (
	"fmt"

	"buf.build/go/protoyaml"
	"go.yaml.in/yaml/v3"

	"github.com/iop-dev/iop/edge/config"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

// The name that the generated configurations have in messages.
const generated = "iop-up.yaml"

// nodeReconnectSec paces the node in the same process, whose Edge is at most
// starting.
const nodeReconnectSec = 0.5

// EdgeSnapshot judges the plan's Edge configuration as if it came from a file.
func (p *Plan) EdgeSnapshot(listen, stateDir string, secrets Credentials) (*config.Snapshot, error) {
	text, err := protoyaml.MarshalOptions{UseProtoNames: true}.Marshal(p.EdgeConfig(listen, stateDir, secrets))
	if err != nil {
		return nil, fmt.Errorf("generate configuration: %w", err)
	}
	return config.Parse(generated, text)
}

// NodeConfig is the configuration of the node in the same process. It may reach
// the plan's servers and nothing else; its token is given to it by its starter.
func (p *Plan) NodeConfig(edgeAddress string) (*nodeconfig.Config, error) {
	// By hand: the JSON form of the message would write max_attempts as text.
	file := map[string]any{
		"node": map[string]any{
			"id":       NodeID,
			"edge_url": "http://" + edgeAddress,
			// Never read: the token exists in this process only. A file has to
			// name some source.
			"token_env": "IOP_UP_NODE_TOKEN",
		},
		"reconnect": map[string]any{"interval_sec": nodeReconnectSec, "max_attempts": 0},
	}
	// An empty list is refused; the simulator alone needs none.
	if urls := p.BaseURLs(); len(urls) > 0 {
		file["allow_endpoints"] = urls
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("generate configuration: %w", err)
	}
	return nodeconfig.Parse(generated, text)
}
