package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"connectrpc.com/connect"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/provider"
	"github.com/iop-dev/iop/proto/framecodec"
)

// work is one work stream. Its loop is one goroutine, which receives a request
// whole, runs it, and parks again.
type work struct {
	session *session // immutable, as id
	id      uint32

	conn connect.StreamingClientConn // of the loop's goroutine
	in   framecodec.Request

	mu        sync.Mutex
	seen      uint64 // highest number whose first frame has arrived
	cancelled uint64 // highest number cancelled, be it seen or not
	running   uint64 // number under way in the providers; 0 = none
	stop      context.CancelFunc
	question  *question // kept back; nil = none
	over      bool      // no request will be seen any more
}

// question is a Query about a request that is not seen yet. settle answers it, once.
type question struct {
	number uint64
	settle func()
}

// loop opens the stream and serves requests on it to its end.
func (w *work) loop() { w.session.pool.gone(w, w.serve()) }

func (w *work) serve() error {
	s := w.session
	stream := s.works.CallBidiStream(context.WithValue(s.life, workKey{}, w))
	stream.RequestHeader().Set(framecodec.HeaderGenerationToken, s.accepted.GetGenerationToken())
	stream.RequestHeader().Set(framecodec.HeaderStreamID, strconv.FormatUint(uint64(w.id), 10))
	defer s.closeWithLife(stream)()
	var err error
	if w.conn, err = stream.Conn(); err != nil {
		return err
	}
	// Sends the request header. Whatever is wrong, Receive tells.
	_ = w.conn.Send(nil)

	w.in.MaxReserve = int(min(s.accepted.GetBodyLimitBytes(), maxReserve))
	for {
		w.in.Reset()
		if err := w.conn.Receive(&w.in); err != nil {
			return err
		}
		if err := w.serveRequest(); err != nil {
			return err
		}
		s.pool.works()
	}
}

// maxReserve bounds the room made for a body before its bytes have come.
const maxReserve = 64 << 20

// serveRequest takes the rest of the request whose first frame is in w.in, runs
// it and sends its answer. An error is the end of the stream. Only a request that
// has arrived whole is run or refused: an early answer could block both ends.
func (w *work) serveRequest() error {
	begin, number := w.in.Begin, w.in.Number
	if begin == nil {
		return fmt.Errorf("protocol error: request %d begins without begin", number)
	}
	if !w.see(number) {
		return fmt.Errorf("protocol error: request number %d comes again", number)
	}
	limit := w.session.accepted.GetBodyLimitBytes()
	tooLarge := limit > 0 && begin.ContentLength > limit
	for {
		if uint64(len(w.in.Body)) > begin.ContentLength {
			tooLarge = true
		}
		if tooLarge {
			w.in.Body = w.in.Body[:0]
		}
		if w.in.End {
			break
		}
		w.in.Next()
		if err := w.conn.Receive(&w.in); err != nil {
			return err
		}
		if w.in.Number != number || w.in.Begin != nil {
			return fmt.Errorf("protocol error: a frame of request %d within request %d", w.in.Number, number)
		}
	}
	body := w.in.Body
	w.in.Reset()

	out := &answer{work: w, frame: framecodec.Answer{Number: number}}
	switch {
	case tooLarge:
		return out.refuse("the body is larger than announced, or than the edge's body limit")
	case uint64(len(body)) != begin.ContentLength:
		return out.refuse("the body ended before its announced length")
	}
	ctx, ok := w.start(number)
	if !ok {
		return out.refuse("cancelled before it was started")
	}
	err := w.session.cfg.Providers.Run(ctx, begin, body, out)
	w.finish()
	if !out.final {
		if err == nil {
			err = errors.New("no reason given")
		}
		_ = out.Frame(&provider.Frame{Failure: &runtimev1.Failure{
			Code:    runtimev1.FailureCode_FAILURE_CODE_PROVIDER_DISCONNECTED,
			Message: "the node broke the request off: " + err.Error(),
		}})
	}
	return out.err
}

// see notes that a request's first frame has arrived; false if its number is not
// above all before.
func (w *work) see(number uint64) bool {
	w.mu.Lock()
	if number <= w.seen {
		w.mu.Unlock()
		return false
	}
	w.seen = number
	q := w.question
	w.question = nil
	w.mu.Unlock()
	if q != nil {
		q.settle()
	}
	return true
}

// ask keeps q back and returns it. Asked once more, it returns the former question,
// whose answer serves both; nil if q is to be answered now.
func (w *work) ask(q *question) *question {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.seen >= q.number || w.over, w.question != nil && w.question.number != q.number:
		return nil
	case w.question == nil:
		w.question = q
	}
	return w.question
}

// isAsked reports whether q still waits for its answer.
func (w *work) isAsked(q *question) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.question == q
}

// answered forgets q, which is being answered.
func (w *work) answered(q *question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.question == q {
		w.question = nil
	}
}

// settle answers what is asked of a stream that has ended.
func (w *work) settle() {
	w.mu.Lock()
	q := w.question
	w.question, w.over = nil, true
	w.mu.Unlock()
	if q != nil {
		q.settle()
	}
}

// start begins the run of a request, unless its cancel came first.
func (w *work) start(number uint64) (context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancelled >= number {
		return nil, false
	}
	ctx, stop := context.WithCancel(w.session.life)
	w.running, w.stop = number, stop
	return ctx, true
}

func (w *work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	w.running, w.stop = 0, nil
}

// cancelRequest ends a request that runs, or is still to come.
func (w *work) cancelRequest(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelled = max(w.cancelled, number)
	if w.running != 0 && w.running <= number {
		w.stop()
	}
}

// breakOff ends the request that runs: its answer cannot be delivered any more.
func (w *work) breakOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
}

// wasSeen answers a Query, and refuses from now on what it says was not seen.
func (w *work) wasSeen(number uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen >= number {
		return true
	}
	w.cancelled = max(w.cancelled, number)
	return false
}

func (w *work) highestSeen() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// answer sends the frames of one answer. It implements provider.Writer.
type answer struct {
	work  *work
	frame framecodec.Answer
	final bool
	err   error // of the stream; nothing is sent after it
}

// Frame implements provider.Writer. A body above the wire's limit goes as
// several frames.
func (a *answer) Frame(f *provider.Frame) error {
	if a.err != nil {
		return a.err
	}
	if a.final {
		return errors.New("a frame after the final frame")
	}
	a.frame.Head = f.Head
	body := f.Body
	for len(body) > framecodec.MaxAnswerBody {
		a.frame.Body, body = body[:framecodec.MaxAnswerBody], body[framecodec.MaxAnswerBody:]
		if err := a.send(); err != nil {
			return err
		}
		a.frame.Head = nil
	}
	a.frame.Body, a.frame.End, a.frame.Failure = body, f.End, f.Failure
	a.final = f.End || f.Failure != nil
	return a.send()
}

func (a *answer) send() error {
	a.err = a.work.conn.Send(&a.frame)
	a.frame.Body = nil
	return a.err
}

// refuse answers that no upstream request was opened.
func (a *answer) refuse(why string) error {
	return a.Frame(&provider.Frame{Failure: &runtimev1.Failure{
		Code: runtimev1.FailureCode_FAILURE_CODE_NEVER_OPENED, Message: why,
	}})
}
