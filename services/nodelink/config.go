package nodelink

import (
	"errors"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// Broker is told who owns a node id. edge/broker implements it.
type Broker interface {
	// Connect makes a new connection the node's owner. The former one has been
	// disconnected before.
	Connect(admission.NodeID) admission.Generation
	// Disconnect fences the generation; false if it was not current.
	Disconnect(admission.NodeID, admission.Generation) bool
	// Drain keeps new work off the generation; false if it was not current.
	Drain(admission.NodeID, admission.Generation) bool
}

// Authenticator knows the nodes of the live configuration. It compares secrets
// in constant time. edge/auth implements it.
type Authenticator interface {
	// Node reports whether the configuration has the node, and whether secret
	// is its token.
	Node(id, secret string) (known, ok bool)
}

// Credentials replaces the credentials of nodes that keep their own. Its calls may
// wait for a disk. edge/credentials implements it.
type Credentials interface {
	// Used notes that a registration with the secret was accepted, or that the node
	// has proven that it keeps it.
	Used(node, secret string)
	// Next is a new credential for a node that has registered with secret, if it is
	// time for one; empty = it is not. Alive is asked in the step that makes it: a
	// session that is over must not take away what was offered to the next one.
	Next(node, secret string, alive func() bool) string
	// Replaced reports whether a secret that does not pass is one that was replaced.
	Replaced(node, secret string) bool
}

// Events hears of accepted connections and their ends, after the fact: nothing
// depends on it (S13). Calls come in order for one node and must not block.
type Events interface {
	NodeConnected(admission.NodeID)
	NodeDisconnected(node admission.NodeID, cause string)
}

// Config is what a Service works with. All fields but Events are required.
type Config struct {
	Broker        Broker
	Authenticator Authenticator
	// Providers returns the providers of a node as the live configuration has
	// them; never nil, empty for a node it does not know.
	Providers   func(admission.NodeID) *runtimev1.ProviderSet
	Credentials Credentials // nil = none is ever replaced
	Events      Events      // nil = nobody listens
	Clock       clockwork.Clock
	Logger      *slog.Logger
	// HeartbeatInterval is the time between two heartbeats of either side.
	HeartbeatInterval time.Duration
	// HeartbeatTimeout is the silence after which a node counts as lost,
	// measured from the last message received.
	HeartbeatTimeout time.Duration
	EdgeID           string
	SoftwareVersion  string
	// BodyLimit is the largest request body in bytes that will be handed over.
	BodyLimit int64
}

func (c *Config) validate() error {
	switch {
	case c.Broker == nil, c.Authenticator == nil, c.Providers == nil, c.Clock == nil, c.Logger == nil:
		return errors.New("nodelink: Broker, Authenticator, Providers, Clock and Logger are required")
	case c.HeartbeatInterval <= 0 || c.HeartbeatTimeout <= c.HeartbeatInterval:
		return errors.New("nodelink: the heartbeat interval must be positive and shorter than the heartbeat timeout")
	case c.BodyLimit <= 0:
		return errors.New("nodelink: the body limit must be positive")
	}
	return nil
}

// Times that are properties of the wire rather than of a deployment.
const (
	// registerTimeout bounds the wait for the first message of a session.
	registerTimeout = 10 * time.Second
	// silentHandOff is how long a hand-off may go without a first frame before
	// the node is asked over the session whether it has seen the request.
	silentHandOff = 3 * time.Second
	// lossPatience is how long a request whose stream has broken keeps its slot
	// while its node is asked whether it is still there.
	lossPatience = time.Second
	// takePatience is how long a granted request waits for a parked stream once the
	// node is heard of: time enough for it to dial another connection.
	takePatience = 5 * time.Second
	// drainPatience is how long a node reads on, at most, when a request to a
	// `cancel: drain` provider is cancelled.
	drainPatience = 10 * time.Minute
	// rotationCheck is how often a session asks whether its credential is to be
	// replaced.
	rotationCheck = time.Minute
	// stopped is how far behind its time a timer runs off only when the whole
	// process was stopped, or its machine asleep. wakePatience is what a silent
	// node is given then, for its messages to be read.
	stopped, wakePatience = time.Second, time.Second
)

const (
	// sessionQueue is the room for messages to one node. A node so far behind
	// counts as stuck, and its session ends.
	sessionQueue = 1024
	// spareStreams is how many parked streams a node's connection may keep
	// without having needed them for a heartbeat interval.
	spareStreams = 8
	// lowSpares is how many streams shall be open beyond those in demand before
	// the node is asked for more.
	lowSpares = 2
	// maxSessionMessage is the largest message, in bytes, a node may send on its
	// session stream.
	maxSessionMessage = 64 << 10
	// maxStreams bounds the work streams of one session.
	maxStreams = 4096
)
