package session

import (
	"errors"
	"io"
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
	total    int   // how many there shall be
	draining bool  // the node stops: no new streams
	leaving  bool  // the Edge stops: no new streams
	closed   bool  // the session is over: no new streams
	failures int   // streams lost in a row
	holdOff  bool  // a lost stream has put off opening more
	lost     int   // streams lost since the last were opened again
	lastLoss error // of the last of them
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
	// unseenPatience is how long "not seen" is kept back, in case the request is
	// about to be read: when this process was stopped for a while, a Query and the
	// request it asks about lie in two sockets, and either may be read first. It
	// is shorter than the Edge's patience with a stream that has broken.
	unseenPatience = 500 * time.Millisecond
	// While the work connections bring at least underWay bytes in each
	// unseenPatience, the request may lie behind other bodies or on a slow path,
	// and "not seen" is kept back further, at most maxPatiences times in all. A
	// dead path brings nothing.
	underWay     = 4 << 10
	maxPatiences = 60
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
// have fewer; a lost stream is replaced after a while, if the session still stands
// then: when it does not, its own end says why, and in an orderly stop of the Edge
// nothing was lost.
func (p *pool) gone(w *work, err error) {
	clean := errors.Is(err, io.EOF)
	defer w.settle() // after p.mu
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, w.id)
	if len(p.ended) >= maxEnded {
		clear(p.ended)
	}
	p.ended[w.id] = w.highestSeen()
	if clean || p.closed {
		return
	}
	p.lost++
	p.lastLoss = err
	if p.holdOff {
		return
	}
	p.holdOff = true
	delay := min(firstHoldOff<<min(p.failures, 10), lastHoldOff)
	p.failures++
	p.session.cfg.Clock.AfterFunc(delay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.holdOff = false
		if !p.closed && !p.leaving && p.session.life.Err() == nil {
			p.session.cfg.Logger.Warn("work streams were lost and are opened again", "streams", p.lost, "after", delay, "error", p.lastLoss)
		}
		p.lost, p.lastLoss = 0, nil
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

// query answers whether a request has been seen: at once if it has or its stream
// is no more, otherwise when it comes, the stream ends or unseenPatience is over
// and no bytes are under way.
// A request that was not seen is refused from the answer on. Of a stream it knows
// nothing of it says "seen", which repeats nothing.
func (p *pool) query(id uint32, number uint64, answer func(seen bool)) {
	tell := func() {
		if p.session.life.Err() == nil {
			answer(p.seen(id, number))
		}
	}
	p.mu.Lock()
	w := p.streams[id]
	p.mu.Unlock()
	if w == nil {
		tell()
		return
	}
	q := &question{number: number, settle: sync.OnceFunc(tell)}
	if asked := w.ask(q); asked == q {
		p.keepBack(w, q, p.session.received.Load(), maxPatiences-1)
	} else if asked == nil {
		tell()
	}
}

// keepBack answers q when the work connections have fallen silent. received is what
// they had brought when the present patience began; more patiences may follow.
func (p *pool) keepBack(w *work, q *question, received uint64, more int) {
	p.session.cfg.Clock.AfterFunc(unseenPatience, func() {
		now := p.session.received.Load()
		if more > 0 && now-received >= underWay && w.isAsked(q) {
			p.keepBack(w, q, now, more-1)
			return
		}
		w.answered(q)
		q.settle()
	})
}

// seen reports whether a request has been seen, and refuses it from now on if not.
func (p *pool) seen(id uint32, number uint64) bool {
	p.mu.Lock()
	w := p.streams[id]
	highest, known := p.ended[id]
	p.mu.Unlock()
	if w != nil {
		return w.wasSeen(number)
	}
	return !known || highest >= number
}

// edgeLeaves is told of the Edge's notice that it stops: its streams end.
func (p *pool) edgeLeaves() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
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
