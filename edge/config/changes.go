package config

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/configs"
)

// Class is what a refresh does with a changed field.
type Class uint8

// The classes.
const (
	Live    Class = iota + 1 // in force at once
	Restart                  // read when the process starts, and only then; the answer names it
	Refused                  // no refresh may change it: the whole file is refused
)

// classes holds each field of edge.yaml that can differ: values, and lists, of
// which entries come and go. A field without a class fails a test.
var classes = map[string]Class{
	// Whoever gives an Edge another name has handed it another Edge's file.
	"edge.id": Refused,

	"edge.listen":                  Restart,
	"edge.node_listen":             Restart,
	"edge.admin_listen":            Restart,
	"edge.tls.cert_file":           Restart,
	"edge.tls.key_file":            Restart,
	"edge.insecure_h2c":            Restart,
	"edge.state_dir":               Restart,
	"edge.heartbeat.interval_ms":   Restart, // nodes are told when they register
	"edge.heartbeat.timeout_ms":    Restart,
	"edge.telemetry.otlp_endpoint": Restart,

	"edge.admin_tokens":            Live,
	"edge.admin_tokens.name":       Live,
	"edge.admin_tokens.sha256":     Live,
	"edge.admin_tokens.token_file": Live,
	"edge.admin_tokens.token_env":  Live,
	"edge.read_tokens":             Live,
	"edge.read_tokens.name":        Live,
	"edge.read_tokens.sha256":      Live,
	"edge.read_tokens.token_file":  Live,
	"edge.read_tokens.token_env":   Live,
	"edge.body_limit_bytes":        Live,
	"edge.auth.mode":               Live,
	"edge.stop_grace_ms":           Live,

	"long_context_threshold_tokens":  Live,
	"provider_pool.max_queue":        Live,
	"provider_pool.queue_timeout_ms": Live,
	"provider_pool.selection":        Live,

	"openai.timeout_sec":                   Live,
	"openai.idle_timeout_ms":               Live,
	"openai.keepalive_ms":                  Live,
	"openai.cors.allowed_origins":          Live,
	"openai.api_keys":                      Live,
	"openai.api_keys.name":                 Live,
	"openai.api_keys.sha256":               Live,
	"openai.api_keys.key_file":             Live,
	"openai.api_keys.key_env":              Live,
	"openai.api_keys.models":               Live,
	"openai.api_keys.max_concurrent":       Live,
	"openai.model_routes":                  Live,
	"openai.model_routes.model":            Live,
	"openai.model_routes.adapter":          Live,
	"openai.model_routes.target":           Live,
	"openai.model_routes.max_queue":        Live,
	"openai.model_routes.queue_timeout_ms": Live,

	"models":                       Live,
	"models.id":                    Live,
	"models.context_window_tokens": Live,
	"models.providers":             Live,
	"models.providers.node":        Live,
	"models.providers.provider":    Live,
	"models.providers.target":      Live,

	"nodes":                                 Live,
	"nodes.id":                              Live,
	"nodes.token_sha256":                    Live,
	"nodes.token_file":                      Live,
	"nodes.token_env":                       Live,
	"nodes.providers":                       Live,
	"nodes.providers.id":                    Live,
	"nodes.providers.type":                  Live,
	"nodes.providers.base_url":              Live,
	"nodes.providers.capacity":              Live,
	"nodes.providers.long_context_capacity": Live,
	"nodes.providers.total_context_tokens":  Live,
	"nodes.providers.priority":              Live,
	"nodes.providers.enabled":               Live,
	"nodes.providers.health":                Live,
	"nodes.providers.request_timeout_ms":    Live,
	"nodes.providers.cancel":                Live,
	"nodes.providers.cancel_grace_ms":       Live,
	"nodes.providers.gate_wait_ms":          Live,
	"nodes.providers.max_queue":             Live,
	"nodes.providers.queue_timeout_ms":      Live,

	"nodes.providers.simulator.tokens_per_second": Live,
	"nodes.providers.simulator.first_token_ms":    Live,
	"nodes.providers.simulator.context_tokens":    Live,
	"nodes.providers.simulator.answer_tokens":     Live,
	"nodes.providers.simulator.fail_every":        Live,
	"nodes.providers.simulator.fail_mode":         Live,
	"nodes.providers.simulator.models":            Live,
}

// Changes lists how two snapshots differ, for people: one line each, such as
// "nodes[gx10].providers[vllm].capacity: 4 -> 2", secrets as "changed". What
// needs a restart to take effect is in both lists. Effective values are
// compared, so a change of the pool's limit shows at the routes that inherit it.
func Changes(before, after *Snapshot) (changes, needsRestart []string) {
	for _, c := range configs.Diff(before.Config, after.Config) {
		changes = append(changes, c.Text)
		if classes[c.Field] == Restart {
			needsRestart = append(needsRestart, c.Text)
		}
	}
	return changes, needsRestart
}

// RefusedChangeError is a valid file which changes what no refresh may change.
type RefusedChangeError struct {
	File    string
	Changes []string
}

func (e *RefusedChangeError) Error() string {
	return fmt.Sprintf("%s: %s: a refresh cannot change this, so nothing of the file is in force; is it another Edge's file? If it is meant, restart the Edge", e.File, strings.Join(e.Changes, "; "))
}

// Refuse says whether a refresh may lead from one snapshot to the other in a
// process that was started with a third: a *RefusedChangeError for what no refresh
// may change, [configs.Problems] for what would let everyone in.
func Refuse(file string, started, before, after *Snapshot) error {
	if p := after.opens(started); p != nil {
		return configs.Problems{*p}
	}
	e := &RefusedChangeError{File: file}
	for _, c := range configs.Diff(before.Config, after.Config) {
		if classes[c.Field] == Refused {
			e.Changes = append(e.Changes, c.Text)
		}
	}
	if len(e.Changes) == 0 {
		return nil
	}
	return e
}

// opens finds that keys are not asked for any more because the listener is no
// longer one that other machines reach, while the process listens where it did
// until its next start.
func (s *Snapshot) opens(started *Snapshot) *configs.Problem {
	served := started.Config.GetEdge().GetListen()
	loopback, _ := parseListen(served)
	if loopback || !s.Credentials.Open || s.doc.Has("edge.auth.mode") {
		return nil
	}
	p := s.doc.Problemf(pathListen, "%q is served at the next start only; until then %q is, which other machines reach, and there are no openai.api_keys: keep a key until then, or write auth: {mode: none} to let everyone in",
		s.Config.GetEdge().GetListen(), served)
	return &p
}
