package config

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/configs"
	configv1 "github.com/iop-dev/iop/gen/go/iop/config/v1"
)

// The defaults of edge.yaml, and one limit; times are in milliseconds.
const (
	DefaultEdgeID               = "edge"
	DefaultListen               = "127.0.0.1:8484"
	DefaultBodyLimitBytes       = 32 << 20
	MaxBodyLimitBytes           = 1 << 30 // the most that the message's rule lets a file say
	DefaultHeartbeatIntervalMs  = 5_000
	DefaultHeartbeatTimeoutMs   = 15_000
	DefaultStopGraceMs          = 30_000
	DefaultLongContextThreshold = 100_000 // tokens
	DefaultMaxQueue             = 64
	DefaultQueueTimeoutMs       = 240_000
	DefaultIdleTimeoutMs        = 600_000
	DefaultCapacity             = 1
	DefaultCancelGraceMs        = 2_000
	DefaultGateWaitMs           = 2_000
)

// The words of closed sets that have a meaning in this package.
const (
	authKeys          = "keys"
	authNone          = "none"
	selectionBalanced = "balanced"
	selectionPriority = "priority"
	healthHealthy     = "healthy"
	healthDegraded    = "degraded"
	healthUnhealthy   = "unhealthy"
	cancelForward     = "forward"
	typeSimulator     = "simulator"
)

// fillDefaults makes every default explicit, once the rules have seen what the
// file says.
func (r *rules) fillDefaults() {
	cfg := r.cfg
	if cfg.Edge == nil {
		cfg.Edge = &configv1.Edge{}
	}
	for path, address := range map[string]string{"edge.node_listen": cfg.Edge.NodeListen, "edge.admin_listen": cfg.Edge.AdminListen} {
		if address == "" {
			r.origins.Note(path, configs.FromInherited, "from edge.listen", pathListen)
		}
	}
	fillEdge(cfg.Edge, len(cfg.GetOpenai().GetApiKeys()) > 0)
	set(&cfg.LongContextThresholdTokens, DefaultLongContextThreshold)
	set(&cfg.ProviderPool.MaxQueue, DefaultMaxQueue)
	set(&cfg.ProviderPool.QueueTimeoutMs, DefaultQueueTimeoutMs)
	text(&cfg.ProviderPool.Selection, selectionBalanced)
	if cfg.Openai == nil {
		cfg.Openai = &configv1.OpenAI{}
	}
	set(&cfg.Openai.IdleTimeoutMs, DefaultIdleTimeoutMs)
	for _, k := range cfg.Openai.GetApiKeys() {
		k.Sha256 = strings.ToLower(k.Sha256)
	}
	for i, route := range cfg.Openai.GetModelRoutes() {
		for key, own := range map[string]int32{"max_queue": route.MaxQueue, "queue_timeout_ms": route.QueueTimeoutMs} {
			if own == 0 {
				pool := "provider_pool." + key
				r.origins.Note(fmt.Sprintf("openai.model_routes[%d].%s", i, key), configs.FromInherited, "from "+pool, pool)
			}
		}
		text(&route.Target, route.GetModel())
		route.MaxQueue = routeLimit(route.GetMaxQueue(), cfg.GetProviderPool().GetMaxQueue())
		route.QueueTimeoutMs = routeLimit(route.GetQueueTimeoutMs(), cfg.GetProviderPool().GetQueueTimeoutMs())
	}
	for _, m := range cfg.GetModels() {
		for _, c := range m.GetProviders() {
			text(&c.Target, m.GetId())
		}
	}
	for _, n := range cfg.GetNodes() {
		n.TokenSha256 = strings.ToLower(n.TokenSha256)
		for _, p := range n.GetProviders() {
			fillProvider(p)
		}
	}
}

func fillEdge(e *configv1.Edge, hasKeys bool) {
	text(&e.Id, DefaultEdgeID)
	text(&e.Listen, DefaultListen)
	text(&e.NodeListen, e.Listen)
	text(&e.AdminListen, e.Listen)
	set(&e.BodyLimitBytes, DefaultBodyLimitBytes)
	if e.Auth == nil {
		e.Auth = &configv1.Auth{}
	}
	if loopback, _ := parseListen(e.Listen); hasKeys || !loopback {
		text(&e.Auth.Mode, authKeys)
	}
	text(&e.Auth.Mode, authNone)
	if e.Heartbeat == nil {
		e.Heartbeat = &configv1.Heartbeat{}
	}
	set(&e.Heartbeat.IntervalMs, DefaultHeartbeatIntervalMs)
	set(&e.Heartbeat.TimeoutMs, DefaultHeartbeatTimeoutMs)
	set(&e.StopGraceMs, DefaultStopGraceMs)
	for _, tokens := range [][]*configv1.Token{e.AdminTokens, e.ReadTokens} {
		for _, t := range tokens {
			t.Sha256 = strings.ToLower(t.Sha256)
		}
	}
}

func fillProvider(p *configv1.Provider) {
	set(&p.Capacity, DefaultCapacity)
	set(&p.Enabled, true)
	text(&p.Health, healthHealthy)
	text(&p.Cancel, cancelForward)
	set(&p.CancelGraceMs, DefaultCancelGraceMs)
	set(&p.GateWaitMs, DefaultGateWaitMs)
	if p.GetType() == typeSimulator {
		if p.Simulator == nil {
			p.Simulator = &configv1.Simulator{}
		}
		return
	}
	if server, err := parseBaseURL(p.GetBaseUrl()); err == nil {
		p.BaseUrl = server.root
	}
}

// capacityOf is the capacity of a provider before defaults are filled in.
func capacityOf(p *configv1.Provider) uint32 {
	if p.Capacity == nil {
		return DefaultCapacity
	}
	return p.GetCapacity()
}

func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func text(field *string, value string) {
	if *field == "" {
		*field = value
	}
}
