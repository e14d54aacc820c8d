package config

import (
	"strings"

	"github.com/iop-dev/iop/configs"
)

// restartFields are read once, when the process starts. All others are live.
var restartFields = []string{
	"edge.id",
	"edge.listen",
	"edge.node_listen",
	"edge.admin_listen",
	"edge.tls",
	"edge.insecure_h2c",
	"edge.state_dir",
	"edge.heartbeat",
}

// Changes lists how two snapshots differ, for people: one line each, such as
// "nodes[gx10].providers[vllm].capacity: 4 -> 2", secrets as "changed". What
// needs a restart to take effect is in both lists. Effective values are
// compared, so a change of the pool's limit shows at the routes that inherit it.
func Changes(before, after *Snapshot) (changes, needsRestart []string) {
	for _, c := range configs.Diff(before.Config, after.Config) {
		changes = append(changes, c.Text)
		for _, field := range restartFields {
			if c.Field == field || strings.HasPrefix(c.Field, field+".") {
				needsRestart = append(needsRestart, c.Text)
				break
			}
		}
	}
	return changes, needsRestart
}
