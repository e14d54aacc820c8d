package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
)

// Providers are the node's providers, kept over sessions. *provider.Set
// implements it.
type Providers interface {
	// ApplyAnew makes the list of a new registration the node's providers. The
	// requests of the session before have ended, or their contexts have.
	ApplyAnew(*runtimev1.ProviderSet)
	// Apply makes a later list of the same session the node's providers.
	Apply(*runtimev1.ProviderSet)
	// Run executes one request and returns when its provider has let go of it.
	// It writes frames up to a final one. The end of ctx cancels the request.
	Run(ctx context.Context, begin *runtimev1.RequestBegin, body []byte, out provider.Writer) error
}

// Config is one registration. All fields but those marked are required.
type Config struct {
	// EdgeURL is http://host:port (HTTP/2 without TLS) or https://host:port.
	EdgeURL string
	NodeID  string
	// InstanceID is random per process, at least 8 characters.
	InstanceID string
	// Token is the node token. Never logged.
	Token string
	// TLS is for https URLs; nil = the system's roots.
	TLS             *tls.Config
	SoftwareVersion string
	// ProviderTypes is what the node can run; may be empty.
	ProviderTypes []string
	Providers     Providers
	Clock         clockwork.Clock
	Logger        *slog.Logger
	// OnReady is called once, when the registration is accepted and the session
	// is served; nil = nobody asks.
	OnReady func()
	// Grace is asked, when ctx has ended, how long running work may go on. Nil =
	// not at all.
	Grace func() time.Duration
	// KeepCredential puts the node's next credential in the place of Token, on disk: from
	// its return on a restart comes with it. An error says why it could not, and Token
	// has to do. It may wait for a disk. Nil = Token is never replaced.
	KeepCredential func(credential string) error
	// Probe asks, at each receive, whether the Edge is still there: a session that
	// hears nothing from it soon ends with ErrNoSign. Nil = the heartbeat timeout
	// has to do.
	Probe <-chan struct{}
}

// Times that are properties of the wire rather than of a deployment.
const (
	// connectTimeout bounds dial and registration.
	connectTimeout = 10 * time.Second
	// lingerLimit bounds how long Run waits at its end for requests to let go of
	// their providers. The gates go on counting those that have not.
	lingerLimit = 10 * time.Second
	// probeSlack is how much later than the Edge's next heartbeat is due a Probe
	// gives the session up, besides half an interval.
	probeSlack = time.Second
	// stopped is how far behind its time a timer runs off only when the whole
	// process was stopped, or its machine asleep.
	stopped = time.Second
)

const (
	// maxStreams bounds the work streams, whatever the Edge wishes.
	maxStreams = 4096
	// sessionQueue is the room for messages to the Edge.
	sessionQueue = 1024
	// maxSessionMessage is the largest message, in bytes, an Edge may send on the
	// session stream: 1024 providers with simulators fit.
	maxSessionMessage = 8 << 20
)

func (c *Config) validate() error {
	u, err := url.Parse(c.EdgeURL)
	switch {
	case err != nil:
		return &ConfigError{fmt.Errorf("edge_url %q cannot be read: %w", c.EdgeURL, err)}
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return &ConfigError{fmt.Errorf("edge_url %q must be http://host:port or https://host:port", c.EdgeURL)}
	case c.NodeID == "", len(c.InstanceID) < 8:
		return &ConfigError{errors.New("a node needs an id, and an instance id of at least 8 characters")}
	case c.Providers == nil, c.Clock == nil, c.Logger == nil:
		return &ConfigError{errors.New("Providers, Clock and Logger are required")}
	}
	return nil
}
