package edged

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/credentials"
	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/estimate"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/intake"
	"github.com/iop-dev/iop/edge/metrics"
	"github.com/iop-dev/iop/edge/openai"
	"github.com/iop-dev/iop/edge/state"
	"github.com/iop-dev/iop/edge/traces"
	"github.com/iop-dev/iop/services/control"
	"github.com/iop-dev/iop/services/inference"
	"github.com/iop-dev/iop/services/nodelink"
)

// Options say what an Edge is made of.
type Options struct {
	// ConfigPath is the file that Reload reads; with no Snapshot, New reads it too.
	ConfigPath string
	// Snapshot is the first configuration, in place of the file.
	Snapshot *config.Snapshot
	// Watch has Run look at the file, and refresh when it has changed.
	Watch   bool
	Clock   clockwork.Clock // nil = the real one
	Logger  *slog.Logger
	Version string
}

// Edge is one Edge process.
type Edge struct {
	path    string
	clock   clockwork.Clock
	log     *slog.Logger
	version string

	broker     *broker.Broker
	keyring    *auth.Keyring
	secrets    *credentials.Registry
	estimates  *estimate.Calibration
	link       *nodelink.Service
	dispatcher *dispatch.Dispatcher
	past       control.History
	instance   string // random for each process
	startedAt  time.Time
	surface    *openai.Handler
	typed      *inference.Service
	intake     intake.Budget // bodies on their way to the two
	allowance  allowance
	requests   busy // inside the surface and the typed API
	bus        events.Bus
	tallies    tallies
	metrics    *metrics.Metrics
	traces     *traces.Exporter // nil = none are wanted
	servers    []*server

	// life is the parent of every request's context; cut ends it.
	life context.Context
	cut  context.CancelCauseFunc

	current atomic.Pointer[inForce]
	started *config.Snapshot // what needs a restart is in force as this has it
	watch   bool

	// applying is held over a whole refresh, override or stop: one at a time. What
	// follows it is guarded by it.
	applying sync.Mutex
	store    *state.Store
	lastLook string // what was last found in the file
	stopping bool

	// mu makes what the core is told and what is shown beside it change at once.
	mu        sync.Mutex
	overrides state.Overrides
	lost      error // why the overrides would not outlast a restart; nil if they would
	history   history
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
		path: o.ConfigPath, clock: o.Clock, log: o.Logger, version: o.Version, watch: o.Watch && o.ConfigPath != "",
		allowance: usual, keyring: auth.NewKeyring(snap.Credentials), estimates: estimate.NewCalibration(), started: snap, lastLook: snap.Text, instance: auth.NewToken(""), startedAt: o.Clock.Now(),
	}
	e.openState(snap)
	e.openCredentials(snap)
	e.broker = broker.New(o.Clock, e.overrides.Apply(snap.Admission))
	e.history.add(Refresh{At: o.Clock.Now(), Source: SourceStart})
	e.life, e.cut = context.WithCancelCause(context.Background())
	e.adopt(snap)
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
		Broker: e.broker, Authenticator: e.keyring, Credentials: e.secrets, Providers: e.providerSet, Events: linkEvents{e},
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
	e.dispatcher = dispatch.New(e.broker, e.link, e.clock, e.log)
	e.dispatcher.Observe(e.past.Ended)
	e.dispatcher.ObserveGrants(e.past.Granted)
	e.surface = openai.New(e.dispatcher, e.estimates, e.log, e.settings(snap))
	e.typed = &inference.Service{
		Models: e.models, Target: e.target, Settings: e.runSettings, Simulated: e.simulated,
		Keys: e.keyring, Intake: &e.intake, Dispatcher: e.dispatcher, Calibration: e.estimates, Log: e.log,
	}
	if err := e.watchTraffic(); err != nil {
		return err
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
	e.log.Info("dashboard", "url", e.Dashboard())
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	var watcher sync.WaitGroup
	watcher.Go(func() { e.keepHistory(watching) })
	if e.watch {
		watcher.Go(func() { newWatch(e.path, e.clock, e.log, e.reloadFile).run(watching) })
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		e.stop(ctx)
	}
	unwatch()
	watcher.Wait()
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
	e.secrets.Close()
	e.broker.Stop()
	e.traces.Close()
}

// keepHistory samples the state until ctx ends.
func (e *Edge) keepHistory(ctx context.Context) {
	ticker := e.clock.NewTicker(e.past.Interval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.Chan():
			st := control.State{At: e.clock.Now(), Admission: e.broker.Snapshot()}
			e.past.Sample(&st)
			e.secrets.Retry()
		}
	}
}

// linkEvents puts what the node link tells on the bus.
type linkEvents struct{ *Edge }

func (l linkEvents) NodeConnected(node admission.NodeID) {
	l.publish(events.Event{Kind: events.NodeConnected, At: l.clock.Now(), Subject: string(node)})
}

func (l linkEvents) NodeDisconnected(node admission.NodeID, cause string) {
	l.publish(events.Event{Kind: events.NodeDisconnected, At: l.clock.Now(), Subject: string(node), Detail: cause})
}
