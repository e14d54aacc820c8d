package events

import (
	"sync"
	"time"
)

// Kind names what has happened.
type Kind string

// The kinds. A node event follows the core's transition, and only a real
// owner's.
const (
	NodeConnected    Kind = "node.connected"
	NodeDisconnected Kind = "node.disconnected"
	ConfigApplied    Kind = "config.applied"
	ConfigRefused    Kind = "config.refused"
)

// Event is one thing that has happened.
type Event struct {
	Kind    Kind
	At      time.Time
	Subject string // node id, or configuration file
	Detail  string // one sentence, or empty
}

// Bus hands events to its subscribers. Its zero value is ready for use.
type Bus struct {
	mu          sync.Mutex
	subscribers map[*Subscription]struct{}
	dropped     uint64
}

// Subscription is one subscriber's queue. Read C; call Close in the end.
type Subscription struct {
	C   <-chan Event
	c   chan Event
	bus *Bus
}

// Subscribe returns a subscription that holds up to room events unread.
func (b *Bus) Subscribe(room int) *Subscription {
	c := make(chan Event, room)
	s := &Subscription{C: c, c: c, bus: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[*Subscription]struct{}{}
	}
	b.subscribers[s] = struct{}{}
	return s
}

// Close ends the subscription and closes C. It is idempotent.
func (s *Subscription) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if _, ok := s.bus.subscribers[s]; ok {
		delete(s.bus.subscribers, s)
		close(s.c)
	}
}

// Publish never waits: a subscriber without room loses the event.
func (b *Bus) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers {
		select {
		case s.c <- e:
		default:
			b.dropped++
		}
	}
}

// Dropped counts the events that a subscriber lost.
func (b *Bus) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
