package edged

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/openai"
	"github.com/iop-dev/iop/services/inference"
	"github.com/iop-dev/iop/services/nodelink"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Options say what an Edge is made of.
type Options struct {
	// ConfigPath is the file that Reload reads; with no Snapshot, New reads it too.
	ConfigPath string
	// Snapshot is the first configuration, in place of the file.
	Snapshot *config.Snapshot
	Clock    clockwork.Clock // nil = the real one
	Logger   *slog.Logger
	Version  string
}

// ReloadResult is what a refresh did.
type ReloadResult struct {
	Revision     uint64
	Changes      []string
	NeedsRestart []string
	Warnings     []string
}

// Edge is one Edge process.
type Edge struct {
	path    string
	clock   clockwork.Clock
	log     *slog.Logger
	version string

	broker   *broker.Broker
	keyring  *auth.Keyring
	link     *nodelink.Service
	surface  *openai.Handler
	typed    *inference.Service
	requests busy // inside the surface and the typed API
	bus      events.Bus
	servers  []*server

	// life is the parent of every request's context; cut ends it.
	life context.Context
	cut  context.CancelCauseFunc

	current atomic.Pointer[config.Snapshot]

	reloading sync.Mutex // held over a whole refresh
	mu        sync.Mutex // guards what is below
	revision  uint64
	refused   string // why the last refresh was refused; empty after a good one
}

// New reads the configuration and opens the listeners, so that the addresses are
// known; Run serves on them.
func New(o Options) (*Edge, error) {
	snap := o.Snapshot
	if snap == nil {
		var err error
		if snap, err = config.Load(o.ConfigPath); err != nil {
			return nil, err
		}
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	e := &Edge{
		path: o.ConfigPath, clock: o.Clock, log: o.Logger, version: o.Version,
		broker: broker.New(o.Clock, snap.Admission), keyring: auth.NewKeyring(snap.Credentials),
		revision: 1,
	}
	e.life, e.cut = context.WithCancelCause(context.Background())
	e.current.Store(snap)
	if err := e.build(snap); err != nil {
		e.close()
		return nil, err
	}
	for _, w := range snap.Warnings {
		e.log.Warn("configuration", "warning", w)
	}
	return e, nil
}

func (e *Edge) build(snap *config.Snapshot) (err error) {
	cfg := snap.Config
	e.link, err = nodelink.New(nodelink.Config{
		Broker: e.broker, Authenticator: e.keyring, Providers: e.providerSet, Events: linkEvents{e},
		Clock: e.clock, Logger: e.log,
		HeartbeatInterval: time.Duration(cfg.GetEdge().GetHeartbeat().GetIntervalMs()) * time.Millisecond,
		HeartbeatTimeout:  time.Duration(cfg.GetEdge().GetHeartbeat().GetTimeoutMs()) * time.Millisecond,
		EdgeID:            cfg.GetEdge().GetId(), SoftwareVersion: e.version,
		// Nodes are told once, and a refresh may raise the limit: the surface keeps it.
		BodyLimit: config.MaxBodyLimitBytes,
	})
	if err != nil {
		return err
	}
	dispatcher := dispatch.New(e.broker, e.link, e.clock, e.log)
	e.surface = openai.New(dispatcher, e.log, e.settings(snap))
	e.typed = &inference.Service{
		Models: e.models, Target: e.target, Settings: e.runSettings, Simulated: e.simulated,
		Keys: e.keyring, Dispatcher: dispatcher, Log: e.log,
	}
	e.servers, err = e.listen(cfg)
	return err
}

// Addr is the address of the API's listener.
func (e *Edge) Addr() string { return e.servers[0].listener.Addr().String() }

// Events is the bus of what has happened.
func (e *Edge) Events() *events.Bus { return &e.bus }

// Run serves until ctx ends, then stops in order, within the configured grace and
// closeLimit, or what [StopWithin] says.
func (e *Edge) Run(ctx context.Context) error {
	defer e.close()
	failed := make(chan error, len(e.servers))
	var serving sync.WaitGroup
	for _, s := range e.servers {
		serving.Go(func() { failed <- s.serve() })
		e.log.Info("listening", "address", s.listener.Addr().String(), "for", s.serves)
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		e.stop(ctx)
	}
	for _, s := range e.servers {
		s.close()
	}
	serving.Wait()
	return err
}

func (e *Edge) close() {
	e.cut(dispatch.ErrStopped)
	for _, s := range e.servers {
		s.close()
	}
	if e.link != nil {
		e.link.Close()
	}
	e.broker.Stop()
}

// Reload re-reads the configuration in two phases: read and judge, which can
// fail and changes nothing; then apply, which cannot.
func (e *Edge) Reload() (ReloadResult, error) {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	if e.path == "" {
		return ReloadResult{}, rpcerr.ErrNoConfigFile
	}
	next, err := config.Load(e.path)
	if err != nil {
		e.noteRefresh(err)
		return ReloadResult{}, fmt.Errorf("configuration refused, the former one stays in force:\n%w", err)
	}
	r := ReloadResult{Warnings: next.Warnings}
	r.Changes, r.NeedsRestart = config.Changes(e.snapshot(), next)

	e.current.Store(next)
	e.keyring.Apply(next.Credentials)
	// The nodes first, so that a gate has grown when the core sends it more; then
	// the core, then the surface: a new model is served as soon as it is known.
	e.link.PushProviders()
	e.broker.Reconfigure(next.Admission)
	e.surface.Apply(e.settings(next))
	r.Revision = e.noteRefresh(nil)
	return r, nil
}

// noteRefresh records how a refresh ended, and returns the revision in force.
func (e *Edge) noteRefresh(err error) uint64 {
	ev := events.Event{Kind: events.ConfigApplied, At: e.clock.Now(), Subject: e.path}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.revision++
		e.refused = ""
	} else {
		e.refused = err.Error()
		ev.Kind, ev.Detail = events.ConfigRefused, e.refused
	}
	e.bus.Publish(ev)
	return e.revision
}

// snapshot is the configuration in force.
func (e *Edge) snapshot() *config.Snapshot { return e.current.Load() }

// linkEvents puts what the node link tells on the bus.
type linkEvents struct{ *Edge }

func (l linkEvents) NodeConnected(node admission.NodeID) {
	l.bus.Publish(events.Event{Kind: events.NodeConnected, At: l.clock.Now(), Subject: string(node)})
}

func (l linkEvents) NodeDisconnected(node admission.NodeID, cause string) {
	l.bus.Publish(events.Event{Kind: events.NodeDisconnected, At: l.clock.Now(), Subject: string(node), Detail: cause})
}
