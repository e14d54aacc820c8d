package noded

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	nodeconfig "github.com/iop-dev/iop/node/config"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/node/session"
	"github.com/iop-dev/iop/node/supervisor"
	"github.com/iop-dev/iop/node/wake"
)

const (
	// closeLimit bounds the wait for providers to let go after the last session;
	// what is left is cut.
	closeLimit = 5 * time.Second
	// hastyMargin is what ending the requests takes of a hasty stop.
	hastyMargin = 2 * time.Second
)

// Options say what a Node is made of. Config and Logger are required.
type Options struct {
	Config *nodeconfig.Config
	// Token is the node token where the configuration's own source is not to be
	// asked; "" = it is.
	Token   string
	Clock   clockwork.Clock // nil = the real one
	Logger  *slog.Logger
	Version string
	// Watch tells of events of the machine until ctx ends; nil = wake.Watch.
	Watch func(ctx context.Context, clock clockwork.Clock, notify func(wake.Event))
	// Ready is called at each accepted registration, when the session is served.
	// It must not block. Nil = nobody asks.
	Ready func()
}

// Node is one Node process.
type Node struct {
	Options
	instanceID string
	tls        *tls.Config
	credential ownCredential
	providers  *provider.Set
	supervisor *supervisor.Supervisor
	probe      chan struct{} // of capacity 1: the session shall ask for a sign of life
}

// New checks what can be known before the first dial. Its errors are final:
// they are of the local configuration.
func New(o Options) (*Node, error) {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Watch == nil {
		o.Watch = wake.Watch
	}
	n := &Node{Options: o, instanceID: newInstanceID(), probe: make(chan struct{}, 1)}
	n.credential.read, n.credential.file = n.readToken, o.Config.CredentialFile
	var err error
	if n.tls, err = trust(o.Config.CAFile, o.Config.CAPin); err != nil {
		return nil, supervisor.MarkFinal(err)
	}
	if _, err := n.credential.token(); err != nil {
		return nil, supervisor.MarkFinal(err)
	}
	for _, id := range o.Config.Providers() {
		if _, err := o.Config.Credential(id); err != nil {
			return nil, supervisor.MarkFinal(err)
		}
	}
	n.providers = provider.NewSet(provider.Config{
		Clock: o.Clock, Log: o.Logger, Allow: o.Config.Endpoints.Allows, Credential: n.providerKey,
	})
	n.supervisor, err = supervisor.New(supervisor.Config{
		Attempt: n.attempt,
		Policy: supervisor.Policy{
			Interval:    o.Config.Reconnect.Interval,
			MaxAttempts: o.Config.Reconnect.MaxAttempts,
		},
		Clock:  o.Clock,
		Logger: o.Logger,
	})
	if err != nil {
		return nil, supervisor.MarkFinal(err)
	}
	return n, nil
}

// Run is New and the Node's Run.
func Run(ctx context.Context, o Options) error {
	n, err := New(o)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// Run keeps the node connected until ctx ends (nil, after running work had its
// grace), an error is final, or the attempts are exhausted.
func (n *Node) Run(ctx context.Context) error {
	for _, w := range n.Config.Warnings {
		n.Logger.Warn("configuration", "warning", w)
	}
	n.Logger.Info("node starts", "node", n.Config.NodeID, "edge_url", n.Config.EdgeURL, "version", n.Version)
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { n.Watch(watching, n.Clock, n.happened) })
	err := n.supervisor.Run(ctx)
	unwatch()
	watch.Wait()
	limit, cancel := clockwork.WithTimeout(context.WithoutCancel(ctx), n.Clock, closeLimit)
	defer cancel()
	n.providers.Close(limit)
	return err
}

// Status may be called from any goroutine.
func (n *Node) Status() supervisor.Status { return n.supervisor.Status() }

// happened is told what the machine went through. Connections made before lead
// nowhere, perhaps: idle ones to providers are dropped (G21), a session has to
// show that it lives, and a wait for the next attempt is pointless.
func (n *Node) happened(e wake.Event) {
	n.Logger.Info("the machine woke or its network changed", "slept", e.Slept.Round(time.Second).String(), "network_changed", e.NetworkChanged)
	n.providers.CloseIdle()
	select {
	case n.probe <- struct{}{}:
	default: // One is still to be made, perhaps by the next session, which it does not harm.
	}
	n.supervisor.Hurry()
}

// attempt is one registration. The token is read anew, so that a replaced file
// counts at once; one that cannot be read ends the node.
func (n *Node) attempt(ctx context.Context, ready func()) error {
	token, err := n.credential.token()
	if err != nil {
		return supervisor.MarkFinal(err)
	}
	var keep func(string) error
	if n.Config.CredentialFile != "" && n.Token == "" {
		keep = n.credential.keep
	}
	return session.Run(ctx, session.Config{
		EdgeURL:         n.Config.EdgeURL,
		NodeID:          n.Config.NodeID,
		InstanceID:      n.instanceID,
		Token:           token,
		KeepCredential:  keep,
		TLS:             n.tls,
		SoftwareVersion: n.Version,
		ProviderTypes:   provider.Types(),
		Providers:       n.providers,
		Clock:           n.Clock,
		Logger:          n.Logger,
		Grace:           func() time.Duration { return graceOf(ctx, n.Config.StopGrace) },
		Probe:           n.probe,
		OnReady: func() {
			ready()
			if n.Ready != nil {
				n.Ready()
			}
		},
	})
}

// hasty is implemented by the cause of a stop after which the process will soon be
// gone, as with a Windows that shuts down.
type hasty interface{ StopLimit() time.Duration }

// graceOf is how long running requests may go on once ctx has ended: as
// configured, or what a hasty stop leaves of it. Requests that the node ends
// itself are told of; those of a process that is killed are lost.
func graceOf(ctx context.Context, configured time.Duration) time.Duration {
	var h hasty
	if errors.As(context.Cause(ctx), &h) {
		return max(0, min(configured, h.StopLimit()-hastyMargin))
	}
	return configured
}

func (n *Node) readToken() (string, error) {
	if n.Token != "" {
		return n.Token, nil
	}
	return n.Config.Token()
}

// providerKey is the key for one request to a provider. A key that has become
// unreadable since the start is told of, and the provider will refuse without it.
func (n *Node) providerKey(providerID string) string {
	key, err := n.Config.Credential(providerID)
	if err != nil {
		n.Logger.Error("provider credential unreadable, asking without it", "provider_id", providerID, "error", err)
	}
	return key
}

// newInstanceID tells this process from every other one of the same node.
func newInstanceID() string {
	var b [16]byte
	rand.Read(b[:]) // Never fails: it ends the process instead.
	return fmt.Sprintf("i-%s", hex.EncodeToString(b[:]))
}
