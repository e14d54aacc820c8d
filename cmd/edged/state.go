package edged

import (
	"fmt"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/openai"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/services/control"
	"github.com/iop-dev/iop/services/inference"
	"github.com/iop-dev/iop/services/nodelink"
)

// providerSet is what a node is told of its providers. It is empty for a node
// that is not configured.
func (e *Edge) providerSet(id admission.NodeID) *runtimev1.ProviderSet {
	set := &runtimev1.ProviderSet{}
	for _, n := range e.snapshot().Config.GetNodes() {
		if n.GetId() == string(id) {
			for _, p := range n.GetProviders() {
				set.Providers = append(set.Providers, wireProvider(p))
			}
		}
	}
	return set
}

func wireProvider(p *configv1.Provider) *runtimev1.Provider {
	out := &runtimev1.Provider{
		Id: p.GetId(), Type: p.GetType(), BaseUrl: p.GetBaseUrl(), Capacity: p.GetCapacity(),
		Cancel: p.GetCancel(), CancelGraceMs: p.GetCancelGraceMs(), GateWaitMs: p.GetGateWaitMs(), RequestTimeoutMs: p.GetRequestTimeoutMs(),
	}
	if p.GetType() == "simulator" {
		s := p.GetSimulator()
		out.Simulator = &runtimev1.Simulator{
			TokensPerSecond: s.GetTokensPerSecond(), FirstTokenMs: s.GetFirstTokenMs(), ContextTokens: s.GetContextTokens(),
			AnswerTokens: s.GetAnswerTokens(), FailEvery: s.GetFailEvery(), FailMode: s.GetFailMode(), Models: s.GetModels(),
		}
	}
	return out
}

// shownScales is how many kinds of text a snapshot has.
const shownScales = 256

// state is what the control service shows.
func (e *Edge) state() control.State {
	e.mu.Lock()
	snap := e.current.Load()
	st := control.State{
		At: e.clock.Now(), Live: e.dispatcher.Live(), Admission: e.broker.Snapshot(),
		Models: snap.catalogue, ProviderTypes: snap.types, NeedsRestart: snap.needsRestart,
		ConfigRevision: e.history.revision, LastRefreshError: e.history.refused(), Refreshes: e.history.shown(),
		Overrides: e.overrides,
	}
	if e.lost != nil {
		st.OverridesLost = e.lost.Error()
	}
	e.mu.Unlock()
	st.CredentialsProblem = e.secrets.Problem()
	st.Endings, _ = e.dispatcher.Endings(control.ShownEndings)
	st.Waits = e.past.Waits()
	beats := e.started.Config.GetEdge().GetHeartbeat()
	st.HeartbeatInterval = time.Duration(beats.GetIntervalMs()) * time.Millisecond
	st.HeartbeatTimeout = time.Duration(beats.GetTimeoutMs()) * time.Millisecond
	st.StaleRefused = e.link.Counters().TokensRefused()
	st.LongThreshold, st.Scales = int(snap.Config.GetLongContextThresholdTokens()), e.estimates.Scales(shownScales)
	linked := map[admission.NodeID]nodelink.NodeStatus{}
	for _, n := range e.link.Nodes() {
		linked[n.Node] = n
	}
	for _, n := range snap.Config.GetNodes() {
		id := admission.NodeID(n.GetId())
		node := control.Node{ID: id}
		if l, ok := linked[id]; ok {
			node.Connected, node.Draining, node.LastSeen = l.Connected, l.Draining, l.LastSeen
			node.Software, node.Platform, node.OfflineSince, node.Notice = l.SoftwareVersion, l.OS+"/"+l.Arch, l.OfflineSince, notice(&l)
			if l.Connected {
				node.ConnectedSince = l.ConnectedSince
			}
		}
		st.Nodes = append(st.Nodes, node)
	}
	return st
}

// notice is what the operator should know of a node.
func notice(n *nodelink.NodeStatus) string {
	if n.Duplicates == 0 {
		return ""
	}
	r := &n.Rival
	return fmt.Sprintf("another process (%s/%s, version %s, from %s) claims this node's id and was refused %d times, last at %s: give each machine an id of its own",
		r.OS, r.Arch, r.SoftwareVersion, r.Remote, n.Duplicates, r.At.UTC().Format(time.RFC3339))
}

// models is the catalogue of the typed API.
func (e *Edge) models() []inference.Model {
	snap := e.snapshot()
	live := map[admission.ResourceKey]bool{}
	for _, r := range e.broker.Snapshot().Resources {
		live[r.Key] = r.Excluded == admission.ReasonNone
	}
	available := map[admission.GroupKey]bool{}
	for _, g := range snap.Admission.Groups {
		for _, c := range g.Candidates {
			available[g.Key] = available[g.Key] || live[c.Resource]
		}
	}
	models := make([]inference.Model, 0, len(snap.Models))
	for _, m := range snap.Models {
		models = append(models, inference.Model{ID: m.ID, ContextWindow: m.ContextWindow, Available: available[m.Group]})
	}
	return models
}

// settings is what the HTTP surface is told of a configuration.
func (e *Edge) settings(snap *config.Snapshot) openai.Settings {
	cfg := snap.Config
	e.intake.Limit(intakeOf(int64(cfg.GetEdge().GetBodyLimitBytes())))
	s := openai.Settings{
		Intake:  &e.intake,
		Created: e.clock.Now(), Keys: e.keyring, Core: e.broker, AllowedOrigins: cfg.GetOpenai().GetCors().GetAllowedOrigins(),
		LongThreshold: int(cfg.GetLongContextThresholdTokens()), BodyLimit: int64(cfg.GetEdge().GetBodyLimitBytes()),
		IdleTimeout:  time.Duration(cfg.GetOpenai().GetIdleTimeoutMs()) * time.Millisecond,
		TotalTimeout: time.Duration(cfg.GetOpenai().GetTimeoutSec()) * time.Second,
		Keepalive:    time.Duration(cfg.GetOpenai().GetKeepaliveMs()) * time.Millisecond,
	}
	for _, m := range snap.Models {
		s.Models = append(s.Models, openai.Model{ID: m.ID, Group: m.Group, Targets: targets(snap, m.Group), ContextWindow: m.ContextWindow})
	}
	return s
}

// intakeOf is how many bytes of bodies on their way an Edge holds, by the largest
// that it takes: enough of those, or half a GiB for many smaller ones.
func intakeOf(bodyLimit int64) int64 {
	const bodies, least = 16, 512 << 20
	return max(bodies*bodyLimit, least)
}
