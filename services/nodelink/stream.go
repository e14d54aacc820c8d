package nodelink

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/dispatch"
	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/proto/framecodec"
)

// workStream is one Work RPC: parked in its session, or held by one hand-off.
type workStream struct {
	session   *session // immutable, as the next three
	id        uint32
	conn      connect.StreamingHandlerConn
	transport *transport
	// gone is closed when the handler may return: nobody holds the stream, and
	// nobody will.
	gone chan struct{}

	// Guarded by session.mu.
	number uint64        // of the last hand-off
	held   *handOff      // nil while parked
	told   chan struct{} // closed when the node answers a Query about held; nil = nobody waits
	broken bool          // the node's side has ended, or this one has ended it: never parked again
}

// handOff is a stream in the hands of one request. It implements
// dispatch.Stream.
type handOff struct {
	stream *workStream // immutable, as number
	number uint64

	// Of the holder's goroutine.
	out   *framecodec.Request
	in    *framecodec.Answer
	sent  bool // a frame went out: the node may know the request
	final bool // the final frame came in
	bad   bool // a Send or Receive failed
	done  bool // parked or discarded
	probe clockwork.Timer

	// Guarded by session.mu.
	letGo  time.Duration   // how long the node may take to confirm a cancel
	unsure clockwork.Timer // runs from the cancel; nil before it

	answered  atomic.Bool // a frame came in
	cancelled atomic.Bool
	neverSeen atomic.Bool // the node says so: reads and writes fail from now on
}

var (
	requests = sync.Pool{New: func() any { return new(framecodec.Request) }}
	answers  = sync.Pool{New: func() any { return new(framecodec.Answer) }}
)

// Send implements dispatch.Stream. An error that is also ErrNeverSeen says that
// the node has not seen the request.
func (h *handOff) Send(f *dispatch.RequestFrame) error {
	if h.done {
		return dispatch.ErrLinkLost
	}
	if f.Begin != nil {
		if h.stream.session.fenced.Load() { // generation is checked again at hand-off
			return fmt.Errorf("%w before the request was sent: %w", dispatch.ErrLinkLost, dispatch.ErrNeverSeen)
		}
		h.probe = h.stream.session.service.cfg.Clock.AfterFunc(silentHandOff, h.ask)
		h.bound(string(f.Begin.Provider))
	}
	h.sent = true
	*h.out = framecodec.Request{Number: h.number, Begin: wireBegin(f.Begin, h.stream.session.revision.Load()), Parts: f.Parts, End: f.End}
	if err := h.stream.conn.Send(h.out); err != nil {
		return h.lost("send", err)
	}
	return nil
}

// Receive implements dispatch.Stream.
func (h *handOff) Receive(f *dispatch.Frame) error {
	*f = dispatch.Frame{}
	if h.done || h.final {
		return dispatch.ErrLinkLost
	}
	h.in.Reset()
	if err := h.stream.conn.Receive(h.in); err != nil {
		return h.lost("receive", err)
	}
	if h.stream.session.isStale() {
		h.bad = true
		return fmt.Errorf("%w: a frame of a generation that is over", dispatch.ErrLinkLost)
	}
	if h.in.Number != h.number {
		h.bad = true
		return fmt.Errorf("%w: node %s answers request %d on stream %d while %d is under way",
			dispatch.ErrLinkLost, h.stream.session.node.id, h.in.Number, h.stream.id, h.number)
	}
	if first := !h.answered.Load(); first && h.in.Head == nil && h.in.Failure == nil || !first && h.in.Head != nil {
		h.bad = true
		return fmt.Errorf("%w: node %s sends an answer on stream %d whose head is not in its first frame",
			dispatch.ErrLinkLost, h.stream.session.node.id, h.stream.id)
	}
	h.answered.Store(true)
	h.stopProbe()
	h.final = h.in.End || h.in.Failure != nil
	f.Head, f.Body, f.End, f.Failure = domainHead(h.in.Head), h.in.Body, h.in.End, domainFailure(h.in.Failure)
	f.More = !h.final && h.stream.transport.body.frameBuffered()
	return nil
}

// Park implements dispatch.Stream. A stream on which a request was begun and not
// answered to its final frame is discarded instead.
func (h *handOff) Park() { h.giveBack(!h.bad && (h.final || !h.sent)) }

// Discard implements dispatch.Stream.
func (h *handOff) Discard() { h.giveBack(false) }

func (h *handOff) giveBack(reuse bool) {
	if h.done {
		return
	}
	h.done = true
	h.stopProbe()
	*h.out = framecodec.Request{}
	requests.Put(h.out)
	h.in.Reset()
	answers.Put(h.in)
	h.out, h.in = nil, nil
	h.stream.session.giveBack(h.stream, reuse)
}

func (h *handOff) stopProbe() {
	if h.probe != nil {
		h.probe.Stop()
		h.probe = nil
	}
}

// ask sends the node a Query: the hand-off has been silent for silentHandOff.
func (h *handOff) ask() {
	if h.answered.Load() {
		return
	}
	h.stream.session.enqueue(h.query())
}

// fenceNeverSeenLocked condemns the stream of a request that the node has not seen,
// so that no other request is given it; the caller severs it then. The node will
// refuse the request should it still arrive.
func (h *handOff) fenceNeverSeenLocked() (condemned bool) {
	if h.answered.Load() {
		return false
	}
	h.neverSeen.Store(true)
	h.stream.broken = true
	return true
}

// lost is the error of a stream that has broken. When a node dies, its work
// streams may break a moment before its session: were the slot given back then,
// the next waiter would be sent to the dead node. So it is not, until the node
// has answered a Query, its session has ended, or lossPatience is over. The answer
// may be that the request was never seen.
func (h *handOff) lost(doing string, err error) error {
	h.bad = true
	if h.sent && !h.neverSeen.Load() {
		h.confirm()
	}
	if h.neverSeen.Load() && !h.answered.Load() {
		return dispatch.ErrNeverSeen
	}
	return fmt.Errorf("%w: %s on stream %d of node %s: %w", dispatch.ErrLinkLost, doing, h.stream.id, h.stream.session.node.id, err)
}

// confirm waits until it is known whether the node is still there.
func (h *handOff) confirm() {
	s, told := h.stream.session, make(chan struct{})
	s.mu.Lock()
	h.stream.told = told
	s.mu.Unlock()
	s.enqueue(h.query())
	patience := s.service.cfg.Clock.NewTimer(lossPatience)
	defer patience.Stop()
	select {
	case <-told:
	case <-s.done:
	case <-patience.Chan():
	}
}

// query asks whether the node has seen the request.
func (h *handOff) query() *runtimev1.SessionResponse {
	return &runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_Query{
		Query: &runtimev1.Query{StreamId: h.stream.id, RequestNumber: h.number},
	}}
}

// waiter is a Take that found no parked stream.
type waiter struct {
	ready chan *handOff // one value, or closed when the session ends
	// heard is when the node was first heard of since the wait began, by
	// session.now; 0 = not yet. Guarded by session.mu.
	heard time.Duration
}

// take returns a parked stream, last in first out, or waits for one. A node that
// lives and opens none loses the request after takePatience, counted anew with
// each stream that another waiter gets; one that is silent
// may be frozen, and is given until its heartbeat timeout ends the session: its
// silence alone burns no candidate.
func (s *session) take(ctx context.Context) (*handOff, error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil, dispatch.ErrLinkLost
	}
	if last := len(s.idle) - 1; last >= 0 {
		ws := s.idle[last]
		s.idle[last] = nil
		s.idle = s.idle[:last]
		s.leastIdle = min(s.leastIdle, last)
		h := s.holdLocked(ws)
		more := s.growLocked()
		s.mu.Unlock()
		s.enqueueWish(more)
		return h, nil
	}
	s.leastIdle = 0
	w := &waiter{ready: make(chan *handOff, 1)}
	s.waiters = append(s.waiters, w)
	more := s.growLocked()
	s.mu.Unlock()
	s.enqueueWish(more)

	patience := s.service.cfg.Clock.NewTimer(takePatience)
	defer patience.Stop()
	var err error
	for err == nil {
		select {
		case h, ok := <-w.ready:
			if !ok {
				return nil, dispatch.ErrLinkLost
			}
			return h, nil
		case <-patience.Chan():
			if left := s.patienceWith(w); left > 0 {
				patience.Reset(left)
				continue
			}
			err = dispatch.ErrNoStream
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
	s.mu.Unlock()
	// Off the list, so nothing is sent any more: what was sent before goes back.
	select {
	case h, ok := <-w.ready:
		if ok {
			h.Park()
		}
	default:
		s.finishIfDrained()
	}
	return nil, err
}

// patienceWith is how much longer w waits: takePatience from when the node was
// first heard of, or last gave a stream to another that waits. A crowd of grants
// has its streams opened one after the other.
func (s *session) patienceWith(w *waiter) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.heard == 0 {
		return takePatience
	}
	return max(w.heard, s.served) + takePatience - s.now()
}

// hear notes a message of the node.
func (s *session) hear() {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiters {
		if w.heard == 0 {
			w.heard = max(now, 1)
		}
	}
	s.lastSeen.Store(int64(now))
}

// growLocked decides whether the node shall open more streams: when those in
// demand come close to what it keeps open, half as many again are wished for. It
// returns the new total, or 0 for no change.
func (s *session) growLocked() (total int) {
	demand := s.heldCount + len(s.waiters)
	if demand+lowSpares <= s.wished || s.wished >= maxStreams {
		return 0
	}
	s.wished = min(demand+max(framecodec.InitialStreams, demand/2), maxStreams)
	return s.wished
}

// enqueueWish tells the node how many streams to keep open; 0 = no change.
func (s *session) enqueueWish(total int) {
	if total > 0 {
		s.enqueue(&runtimev1.SessionResponse{Message: &runtimev1.SessionResponse_WorkStreams{
			WorkStreams: &runtimev1.WorkStreams{Total: uint32(total)},
		}})
	}
}

func (s *session) holdLocked(ws *workStream) *handOff {
	ws.number++
	ws.held = &handOff{
		stream: ws, number: ws.number,
		out: requests.Get().(*framecodec.Request), in: answers.Get().(*framecodec.Answer),
	}
	s.heldCount++
	return ws.held
}

// offerLocked parks ws, or gives it to the longest waiting Take.
func (s *session) offerLocked(ws *workStream) {
	if len(s.waiters) > 0 {
		w := s.waiters[0]
		s.waiters = slices.Delete(s.waiters, 0, 1)
		s.served = s.now()
		w.ready <- s.holdLocked(ws)
		return
	}
	s.idle = append(s.idle, ws)
}

// releaseLocked lets the handler of ws return.
func (s *session) releaseLocked(ws *workStream) {
	delete(s.streams, ws.id)
	close(ws.gone)
}

// add parks a new stream.
func (s *session) add(ws *workStream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errStaleToken
	case !s.used.take(ws.id):
		return errReplayed
	case len(s.streams) >= maxStreams:
		return errTooManyStreams
	}
	s.streams[ws.id] = ws
	s.offerLocked(ws)
	return nil
}

// giveBack ends a hand-off.
func (s *session) giveBack(ws *workStream, reuse bool) {
	s.mu.Lock()
	ws.held.rest()
	ws.held, ws.told = nil, nil
	s.heldCount--
	if reuse && !ws.broken && !s.ended {
		s.offerLocked(ws)
		s.mu.Unlock()
		s.finishIfDrained()
		return
	}
	s.mu.Unlock()
	if !reuse {
		ws.transport.sever() // tells the node at once, before the handler can
	}
	s.mu.Lock()
	s.releaseLocked(ws)
	s.mu.Unlock()
	s.finishIfDrained()
}

// drop is the end of the node's side of ws: it leaves the parked ones, or is
// left to its holder, whose reads and writes fail.
func (s *session) drop(ws *workStream) {
	s.mu.Lock()
	ws.broken = true
	if i := slices.Index(s.idle, ws); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
		s.leastIdle = min(s.leastIdle, len(s.idle))
		s.releaseLocked(ws)
	}
	s.mu.Unlock()
	ws.transport.sever()
}

// trim ends half of the streams that stayed parked for a whole heartbeat
// interval without need, longest parked first. The Edge does it, not the node:
// only here is it certain that no request is on its way to the stream.
func (s *session) trim() {
	s.mu.Lock()
	surplus := s.leastIdle - max(spareStreams, s.heldCount/2)
	n := min((surplus+1)/2, len(s.idle))
	wish := 0
	if surplus > 0 {
		for _, ws := range s.idle[:n] {
			s.releaseLocked(ws)
		}
		s.idle = slices.Delete(s.idle, 0, n)
		s.wished = max(len(s.streams), framecodec.InitialStreams)
		wish = s.wished
	}
	s.leastIdle = len(s.idle)
	s.mu.Unlock()
	s.enqueueWish(wish)
}

// queryResult takes the node's answer to a Query.
func (s *session) queryResult(r *runtimev1.QueryResult) {
	s.mu.Lock()
	ws := s.streams[r.GetStreamId()]
	if ws == nil || ws.held == nil || ws.held.number != r.GetRequestNumber() {
		s.mu.Unlock()
		return
	}
	told := ws.told
	ws.told = nil
	condemned := !r.GetSeen() && ws.held.fenceNeverSeenLocked()
	s.mu.Unlock()
	if condemned {
		ws.transport.sever()
	}
	if told != nil {
		close(told)
	}
}
