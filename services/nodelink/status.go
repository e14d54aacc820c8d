package nodelink

import (
	"maps"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// NodeStatus is what the link knows of one node.
type NodeStatus struct {
	Node           admission.NodeID
	Connected      bool
	Draining       bool      // its running work goes on, new work does not
	ConnectedSince time.Time // of the present or last connection
	LastSeen       time.Time // last message received
	// Said by the node about itself, at its last registration.
	SoftwareVersion string
	OS, Arch        string
	Remote          string // address it dialed from
	// Work streams of the present connection.
	ParkedStreams, HeldStreams int
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
		n.mu.Unlock()
		all = append(all, status)
	}
	return all
}

// Counters are totals since the start.
type Counters struct {
	// StaleTokens is the work streams refused for their generation token.
	StaleTokens uint64
	// Overflows is the sessions ended because the node did not read them.
	Overflows uint64
	// Rejections is the registrations refused, by reason ("duplicate_owner").
	Rejections map[string]uint64
}

// Counters reads the counters.
func (s *Service) Counters() Counters {
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	return Counters{
		StaleTokens: s.counters.staleTokens.Load(),
		Overflows:   s.counters.overflows.Load(),
		Rejections:  maps.Clone(s.counters.rejections),
	}
}
