package nodelink

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
)

// NodeStatus is what the link knows of one node.
type NodeStatus struct {
	Node           admission.NodeID
	Connected      bool
	Draining       bool      // its running work goes on, new work does not
	ConnectedSince time.Time // of the present or last connection
	OfflineSince   time.Time // zero while connected
	LastSeen       time.Time // last message received
	// Said by the node about itself, at its last registration.
	SoftwareVersion string
	OS, Arch        string
	Remote          string // address it dialed from
	InstanceID      string
	// Work streams of the present connection.
	ParkedStreams, HeldStreams int
	// Duplicates is how often another process was refused because this node's
	// owner lives; Rival is the last of them.
	Duplicates uint64
	Rival      Rival
}

// Rival is a process that claimed a node id whose owner was another.
type Rival struct {
	InstanceID      string
	SoftwareVersion string
	OS, Arch        string
	Remote          string    // address it dialed from
	At              time.Time // of its last claim
}

func (s *session) status() NodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return NodeStatus{
		Node: s.node.id, Connected: true, Draining: s.draining,
		ConnectedSince:  s.since,
		LastSeen:        s.since.Add(time.Duration(s.lastSeen.Load())),
		SoftwareVersion: s.register.SoftwareVersion, OS: s.register.Os, Arch: s.register.Arch,
		Remote:        s.remote,
		InstanceID:    s.register.InstanceId,
		ParkedStreams: len(s.idle), HeldStreams: s.heldCount,
	}
}

// Nodes reports every node that has registered since the start, by id. A
// configured node that never did is not among them.
func (s *Service) Nodes() []NodeStatus {
	known := s.known()
	all := make([]NodeStatus, 0, len(known))
	for _, n := range known {
		n.mu.Lock()
		status := n.last
		if n.session != nil {
			status = n.session.status()
		}
		status.Duplicates, status.Rival = n.rival.count, n.rival.Rival
		n.mu.Unlock()
		all = append(all, status)
	}
	return all
}

// Counters are totals since the start.
type Counters struct {
	// Work streams refused for what they showed: a token of a generation that is
	// over, one that never was (or is long forgotten), none at all, and an opening
	// that was used before.
	StaleTokens, UnknownTokens, MissingTokens, ReplayedTokens uint64
	// StaleFrames is what came on streams of a generation that was over, and was
	// dropped.
	StaleFrames uint64
	// Overflows is the sessions ended because the node did not read them.
	Overflows uint64
	// Rejections is the registrations refused, by reason ("duplicate_owner").
	Rejections map[string]uint64
}

// TokensRefused is all work streams refused for their token.
func (c Counters) TokensRefused() uint64 {
	return c.StaleTokens + c.UnknownTokens + c.MissingTokens + c.ReplayedTokens
}

// Counters reads the counters.
func (s *Service) Counters() Counters {
	c := &s.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counters{
		StaleTokens: c.staleTokens.Load(), UnknownTokens: c.unknownTokens.Load(),
		MissingTokens: c.missingTokens.Load(), ReplayedTokens: c.replayedTokens.Load(),
		StaleFrames: c.staleFrames.Load(),
		Overflows:   c.overflows.Load(),
		Rejections:  maps.Clone(c.rejections),
	}
}

type counters struct {
	staleTokens, unknownTokens, missingTokens, replayedTokens atomic.Uint64
	staleFrames                                               atomic.Uint64
	overflows                                                 atomic.Uint64

	mu         sync.Mutex
	rejections map[string]uint64
}

func (c *counters) rejected(reason runtimev1.RejectReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejections == nil {
		c.rejections = map[string]uint64{}
	}
	c.rejections[reasonName(reason)]++
}
