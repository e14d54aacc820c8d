package session

import (
	"sync"
	"time"
)

// pool is the work streams of a session: how many there are, and which request
// each carries.
type pool struct {
	session *session       // immutable
	loops   sync.WaitGroup // one for each stream; Add under mu

	mu       sync.Mutex
	streams  map[uint32]*work
	lastID   uint32
	total    int  // how many there shall be
	draining bool // the node stops: no new streams
	closed   bool // the session is over: no new streams
	failures int  // streams lost in a row
	holdOff  bool // a lost stream has put off opening more
	// ended keeps, for streams that are no more, the highest request number
	// seen: a Query about them must not say "never seen" of a request that was.
	ended map[uint32]uint64
}

const (
	// maxEnded bounds pool.ended.
	maxEnded = 4096
	// Streams that keep failing are opened again after a growing delay.
	firstHoldOff = 100 * time.Millisecond
	lastHoldOff  = 5 * time.Second
)

// want sets how many streams there shall be, in use and parked together.
func (p *pool) want(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = min(total, maxStreams)
	p.fillLocked()
}

func (p *pool) fillLocked() {
	if p.draining || p.closed || p.holdOff {
		return
	}
	for len(p.streams) < p.total {
		p.lastID++
		w := &work{session: p.session, id: p.lastID}
		p.streams[w.id] = w
		p.loops.Go(w.loop)
	}
}

// works is told by a stream that has carried a request: opening them is no
// trouble any more.
func (p *pool) works() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = 0
}

// gone is told by a stream's loop at its end. A clean end is the Edge's wish to
// have fewer; a lost stream is replaced after a while.
func (p *pool) gone(w *work, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, w.id)
	if len(p.ended) >= maxEnded {
		clear(p.ended)
	}
	p.ended[w.id] = w.highestSeen()
	if clean || p.holdOff || p.closed {
		return
	}
	p.holdOff = true
	delay := min(firstHoldOff<<min(p.failures, 10), lastHoldOff)
	p.failures++
	p.session.cfg.Clock.AfterFunc(delay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.holdOff = false
		p.fillLocked()
	})
}

// cancel ends a request, now or when it arrives.
func (p *pool) cancel(id uint32, number uint64) {
	p.mu.Lock()
	w := p.streams[id]
	p.mu.Unlock()
	if w != nil {
		w.cancelRequest(number)
	}
}

// query reports whether a request has been seen. One that has not is refused
// from now on. Of a stream it knows nothing of it says "seen", which repeats
// nothing.
func (p *pool) query(id uint32, number uint64) (seen bool) {
	p.mu.Lock()
	w := p.streams[id]
	highest, known := p.ended[id]
	p.mu.Unlock()
	if w != nil {
		return w.wasSeen(number)
	}
	return !known || highest >= number
}

func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
}

// close comes before loops.Wait.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

func (p *pool) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}
