package tap

import (
	"slices"
	"sync"
	"time"
)

// connection is what one TCP connection carried.
type connection struct {
	sent, received recording // from the client; from the server
}

func (c *connection) ended() bool {
	_, sent := c.sent.endedAt()
	_, received := c.received.endedAt()
	return sent && received
}

// recording is one direction of a connection.
type recording struct {
	mu     sync.Mutex
	data   []byte
	reads  []mark
	closed time.Time // zero while the direction lives
}

// mark says that the bytes before offset had come by a certain time.
type mark struct {
	offset int
	at     time.Time
}

func (r *recording) add(b []byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = append(r.data, b...)
	r.reads = append(r.reads, mark{offset: len(r.data), at: now})
}

func (r *recording) end(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = now
}

func (r *recording) endedAt() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed, !r.closed.IsZero()
}

// copied is the direction as it is now, for parsing without the lock.
func (r *recording) copied() (data []byte, reads []mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.data), slices.Clone(r.reads)
}

// arrival is the time at which the byte at offset had come. There must be one.
func arrival(reads []mark, offset int) time.Time {
	i, _ := slices.BinarySearchFunc(reads, offset, func(m mark, o int) int { return m.offset - o - 1 })
	return reads[i].at
}
