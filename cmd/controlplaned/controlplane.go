package controlplaned

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/auth"
	"github.com/iop-dev/iop/fleet"
	fleetconfig "github.com/iop-dev/iop/fleet/config"
	"github.com/iop-dev/iop/fleet/edgewire"
	"github.com/iop-dev/iop/fleet/history"
	"github.com/iop-dev/iop/services/webui"
)

const (
	headLimit = 10 * time.Second // for a request's head, and for a TLS handshake
	idleLimit = 2 * time.Minute  // between requests
	maxHeader = 64 << 10         // bytes
	// bodyLimit is what the body of a call may take to come, and stuckAfter how long
	// whoever is answered may take nothing of it.
	bodyLimit  = 10 * time.Second
	stuckAfter = 60 * time.Second
	// closeLimit is what a stop takes at most for answers on their way. There is
	// nothing else to wait for: whoever watches is sent away at once.
	closeLimit = time.Second
)

// Options say what a Control Plane is made of.
type Options struct {
	Config  *fleetconfig.Config
	Clock   clockwork.Clock // nil = the real one
	Logger  *slog.Logger
	Version string

	bodyLimit, stuckAfter time.Duration // 0 = the constants of these names
}

// ControlPlane is one Control Plane process.
type ControlPlane struct {
	config  *fleetconfig.Config
	log     *slog.Logger
	version string

	keyring  *auth.Keyring
	store    *history.Store
	readers  []*edgewire.Edge
	fleet    *fleet.Fleet
	listener net.Listener
	server   *http.Server

	// life is the parent of every call's context; cut ends it.
	life context.Context
	cut  context.CancelFunc
}

// New reads the secrets, opens the history and the listener, so that the address
// is known; Run reads Edges and serves.
func New(o Options) (*ControlPlane, error) {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	c := &ControlPlane{config: o.Config, log: o.Logger, version: o.Version}
	c.life, c.cut = context.WithCancel(context.Background())
	if err := c.build(o); err != nil {
		return nil, errors.Join(err, c.close())
	}
	for _, w := range o.Config.Warnings {
		c.log.Warn("configuration", "warning", w)
	}
	return c, nil
}

func (c *ControlPlane) build(o Options) (err error) {
	if c.keyring, err = keyringOf(o.Config); err != nil {
		return err
	}
	var edges []fleet.Edge
	for _, e := range o.Config.Edges {
		token, err := e.Token()
		if err != nil {
			return err
		}
		trust, err := edgewire.Trust(e.CAFile, e.CAPin)
		if err != nil {
			return fmt.Errorf("edges: %q: %w", e.ID, err)
		}
		reader := edgewire.New(e.URL, token, trust)
		c.readers = append(c.readers, reader)
		edges = append(edges, fleet.Edge{ID: e.ID, Reader: reader})
	}
	if c.store, err = openHistory(o.Config.StateDir, o.Clock.Now()); err != nil {
		return err
	}
	if notice := c.store.Notice(); notice != "" {
		c.log.Error("history", "notice", notice)
	}
	c.fleet = fleet.New(fleet.Options{
		Edges: edges, Interval: o.Config.PullInterval, Timeout: o.Config.PullTimeout, StaleAfter: o.Config.StaleAfter,
		Store: c.store, Clock: o.Clock, Log: o.Logger, Software: o.Version,
	})
	return c.listen(o)
}

func keyringOf(config *fleetconfig.Config) (*auth.Keyring, error) {
	known := auth.Credentials{Open: config.Open}
	for _, t := range config.ReadTokens {
		hash, err := auth.ParseHash(t.Hash)
		if err != nil {
			return nil, fmt.Errorf("controlplane.read_tokens %q: %w", t.Name, err)
		}
		known.Read = append(known.Read, auth.Token{Name: t.Name, Hash: hash})
	}
	return auth.NewKeyring(known), nil
}

func openHistory(dir string, now time.Time) (*history.Store, error) {
	if dir == "" {
		return history.InMemory()
	}
	return history.Open(dir, now.Add(-fleet.Kept))
}

func (c *ControlPlane) listen(o Options) error {
	h := webui.EndStuck(c.routes(), cmp.Or(o.stuckAfter, stuckAfter))
	s := &http.Server{
		Handler:           webui.Hurried(h, cmp.Or(o.bodyLimit, bodyLimit)),
		ReadHeaderTimeout: headLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHeader,
		Protocols: new(http.Protocols), ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return c.life },
	}
	s.Protocols.SetHTTP1(true)
	if c.config.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.config.CertFile, c.config.KeyFile)
		if err != nil {
			return fmt.Errorf("controlplane.tls: %w", err)
		}
		s.Protocols.SetHTTP2(true)
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	} else {
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	listener, err := net.Listen("tcp", c.config.Listen)
	if err != nil {
		return fmt.Errorf("listener of the Control Plane: %w", err)
	}
	c.listener, c.server = listener, s
	return nil
}

// Addr is the listener's address.
func (c *ControlPlane) Addr() string { return c.listener.Addr().String() }

// Run reads the Edges and serves until ctx ends, which is no error.
func (c *ControlPlane) Run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { c.fleet.Run(reading) })
	failed := make(chan error, 1)
	parts.Go(func() { failed <- c.serve() })
	c.log.Info("listening", "address", c.Addr(), "for", "fleet", "edges", len(c.config.Edges))

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		c.log.Info("stopping")
		c.cut()
		closing, cancel := context.WithTimeout(context.Background(), closeLimit)
		_ = c.server.Shutdown(closing) // what is left is cut off by close
		cancel()
	}
	stop()
	c.hangUp()
	parts.Wait() // they use the store
	return errors.Join(err, c.close())
}

func (c *ControlPlane) serve() error {
	var err error
	if c.server.TLSConfig != nil {
		err = c.server.ServeTLS(c.listener, "", "")
	} else {
		err = c.server.Serve(c.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// hangUp ends every call, and takes no more.
func (c *ControlPlane) hangUp() {
	c.cut()
	if c.server != nil {
		_ = c.server.Close()   // its listener's error is of no use to anybody
		_ = c.listener.Close() // where serve was never called
	}
}

func (c *ControlPlane) close() error {
	c.hangUp()
	for _, r := range c.readers {
		r.Close()
	}
	if c.store == nil {
		return nil
	}
	return c.store.Close()
}
