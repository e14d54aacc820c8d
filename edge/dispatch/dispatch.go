package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
	"github.com/iop-dev/iop/edge/estimate"
)

// ErrStopped is the cause with which a process ends the contexts of requests that
// it can no longer wait for, because it stops.
var ErrStopped = errors.New("dispatch: the Edge stops")

// errTotalTimeout is the cause of a context that Request.TotalTimeout ended.
var errTotalTimeout = errors.New("dispatch: total timeout")

// Request is one exchange as a surface received it.
type Request struct {
	ID      string // x-request-id
	Client  string // name of the API key; empty if none was needed
	Group   admission.GroupKey
	Input   estimate.Input // decides the context class
	Surface admission.Surface
	Path    string   // of the fixed list of endpoints
	Header  []Header // already on the allow-list
	Body    []byte   // complete; not changed while Do runs
	// ModelStart and ModelEnd bound the model's value in Body, quotes included;
	// the served target is put in its place. Both are 0 for a normalized run: its
	// target travels in Begin.
	ModelStart, ModelEnd int
	PlainModel           bool          // the value is text as it is, in a form, and not a JSON string
	ContextWindow        int           // tokens of one request to the group; 0 = not stated
	IdleTimeout          time.Duration // longest silence after the response head; 0 = none
	TotalTimeout         time.Duration // longest exchange, waiting included; 0 = none
	TraceParent          string        // of the client's trace, as it sent it; never sent on
}

// Grant says who answers.
type Grant struct {
	Node      admission.NodeID
	Provider  admission.ProviderID
	Target    string        // the provider's own name for the model
	QueueWait time.Duration // from the first admission attempt
}

// Sink takes an answer.
type Sink interface {
	// Frame takes the next frame. It is called from the goroutine that runs Do,
	// in order, and never with a Failure; f is valid during the call. An error
	// means that the client is gone: the request is cancelled.
	Frame(g *Grant, f *Frame) error
	// Complete reports whether the frames so far hold all that a client needs
	// (a stream's end marker): one that leaves then has been served.
	Complete() bool
}

// Watcher is what a Sink may be besides: it learns when a provider has the request.
// Its methods are called like Frame.
type Watcher interface {
	// HandedOff says that the whole request was sent to g's node.
	HandedOff(g *Grant)
	// Refused says that no upstream request was opened after all. The request may
	// be handed off again.
	Refused()
}

// FailedError is the end of a request that was admitted and got no whole answer.
type FailedError struct {
	Code      FailureCode
	Message   string // for logs
	Started   bool   // a frame has reached the sink
	HandedOff bool   // the request may have reached a provider
	Stopped   bool   // because the Edge stops
	Grant     Grant
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("dispatch: %s on %s/%s: %s", e.Code, e.Grant.Node, e.Grant.Provider, e.Message)
}

// Dispatcher carries requests. It is safe for concurrent use.
type Dispatcher struct {
	broker *broker.Broker
	link   Link
	clock  clockwork.Clock
	log    *slog.Logger

	traffic        traffic
	observers      []func(*Ending)
	grantObservers []func(time.Duration)
}

// New returns a dispatcher that admits through b and reaches nodes over link.
func New(b *broker.Broker, link Link, clock clockwork.Clock, log *slog.Logger) *Dispatcher {
	return &Dispatcher{broker: b, link: link, clock: clock, log: log}
}

// Do carries one request to its end and returns when its slot has been given
// back. A nil error means that the whole answer has reached the sink. Otherwise
// the error is one of broker.Acquire's, a *FailedError, or the cause of ctx's
// end. ErrStopped is returned only for a request that has reached no provider.
func (d *Dispatcher) Do(ctx context.Context, r *Request, s Sink) error {
	began := d.clock.Now()
	var deadline time.Time
	if r.TotalTimeout > 0 {
		deadline = began.Add(r.TotalTimeout)
		var cancel context.CancelFunc
		ctx, cancel = withTimeout(ctx, d.clock, r.TotalTimeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var x *exchange
	lease, err := d.broker.Enter(admission.Request{Group: r.Group, Class: r.Input.Class(), Surface: r.Surface, InputTokens: r.Input.Tokens})
	if err == nil {
		x = &exchange{
			Dispatcher: d, deadline: deadline, sink: s, lease: lease,
			live: live{seq: lease.Seq(), request: r, cancel: cancel, context: ctx},
		}
		x.watcher, _ = s.(Watcher)
		d.traffic.begin(&x.live)
		err = x.run(ctx)
	}
	var message string
	switch {
	case errors.Is(err, errTotalTimeout):
		message = "openai.timeout_sec is over"
	case errors.Is(err, errAdmin):
		message = "cancelled by an administrator"
	case errors.Is(err, ErrStopped) && x != nil && x.handedOff:
		failed := x.failed(ProviderDisconnected, "the Edge stopped before the answer's end")
		failed.Stopped = true
		err = failed
	}
	if message != "" {
		code := ProviderTimeout
		if errors.Is(err, errAdmin) {
			code = Cancelled
		}
		err = &FailedError{Code: code, Message: message, Started: x.started, HandedOff: x.handedOff, Grant: x.grant}
	}
	d.ended(ctx, r, x, began, err)
	return err
}

// exchange is one request that admission has taken.
type exchange struct {
	*Dispatcher
	live
	deadline time.Time // of the whole exchange; zero = none
	sink     Sink
	watcher  Watcher // the sink, if it is one; else nil
	lease    *broker.Lease

	grant     Grant
	granted   time.Time
	started   bool // a frame has reached the sink
	handedOff bool // the request may have reached a provider
}

// run tries one grant after another. Only what says for certain that no upstream
// request was opened leads to the next.
func (x *exchange) run(ctx context.Context) error {
	l := x.lease
	if err := l.Await(ctx); err != nil {
		return err
	}
	for _, f := range x.grantObservers {
		f(l.Waited)
	}
	var refusal *FailedError
	for {
		x.attempts.Add(1)
		x.grant = Grant{Node: l.Resource.Node, Provider: l.Resource.Provider, Target: l.Target, QueueWait: l.Waited}
		x.granted = x.clock.Now()
		target := l.Target
		x.target.Store(&target)
		x.enter(Reserved)
		err := x.attempt(ctx)
		x.enter(Waiting)
		if err == nil {
			l.Close()
			return nil
		}
		var failed *FailedError
		switch {
		case errors.Is(err, broker.ErrFenced):
			// Already waiting again.
		case errors.As(err, &failed) && failed.Code.neverOpened() && !x.started:
			refusal, x.handedOff = failed, false
			l.Refuse()
		default:
			l.Close()
			return err
		}
		if x.watcher != nil {
			x.watcher.Refused()
		}
		err = l.Await(ctx)
		var none *broker.UnavailableError
		switch {
		case err == nil:
		case errors.Is(err, broker.ErrRevoked):
			return x.failed(ProviderDisconnected, "the node disconnected")
		case errors.As(err, &none) && refusal != nil:
			return refusal // says more than that nobody is left
		default:
			return err
		}
	}
}

// attempt hands the request to the granted node and relays the answer. On return
// the work stream is parked or gone.
func (x *exchange) attempt(ctx context.Context) error {
	stream, err := x.take(ctx)
	if err != nil {
		return err
	}
	if err := x.lease.Track(); err != nil {
		stream.Discard() // of a generation that is over
		return err
	}

	var cancelling sync.WaitGroup
	cancelling.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer cancelling.Done()
		stream.Cancel()
	})
	final, err := x.converse(ctx, stream)
	if !stop() {
		cancelling.Wait() // or the cancel could hit the stream's next request
	}
	if final {
		stream.Park()
	} else {
		stream.Discard()
	}
	return err
}

func (x *exchange) take(ctx context.Context) (Stream, error) {
	stream, err := x.link.Take(ctx, x.lease.Resource.Node, x.lease.Generation)
	switch {
	case err == nil:
		return stream, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, ErrLinkLost) && x.lease.Track() != nil:
		return nil, broker.ErrFenced
	default:
		return nil, x.failed(NeverOpened, err.Error())
	}
}

// converse sends the request and relays the answer to its final frame. Not final
// means that the stream is lost.
func (x *exchange) converse(ctx context.Context, stream Stream) (final bool, err error) {
	if err := x.send(stream); errors.Is(err, ErrNeverSeen) {
		return false, x.failed(NeverOpened, "the node disconnected before the request was sent")
	} else if err != nil {
		if ctx.Err() != nil {
			return false, x.left(ctx)
		}
		return false, x.failed(ProviderDisconnected, "the link was lost while the request was sent")
	}
	x.handedOff = true
	x.enter(Prefill)
	if x.watcher != nil {
		x.watcher.HandedOff(&x.grant)
	}
	var f Frame
	for {
		if err := stream.Receive(&f); errors.Is(err, ErrNeverSeen) {
			return false, x.failed(NeverOpened, "the node has not seen the request")
		} else if err != nil {
			if ctx.Err() != nil {
				return false, x.left(ctx)
			}
			return false, x.failed(ProviderDisconnected, "the link was lost before the answer's end")
		}
		switch gone := ctx.Err() != nil; {
		case f.Failure != nil && gone:
			return true, x.left(ctx)
		case f.Failure != nil:
			return true, x.failed(f.Failure.Code, f.Failure.Message)
		case gone:
			// Nobody reads it; wait for the final frame.
			if f.End {
				return true, x.left(ctx)
			}
		default:
			x.started = true
			x.took(x.clock, &f)
			if err := x.sink.Frame(&x.grant, &f); err != nil {
				return x.abandon(stream, &f), err
			}
			if f.End {
				return true, nil
			}
		}
	}
}

// left is how a request ended whose context has: an official client hangs up as
// soon as it has read a stream's end marker.
func (x *exchange) left(ctx context.Context) error {
	if x.started && x.sink.Complete() {
		return nil
	}
	return context.Cause(ctx)
}

// abandon cancels a request whose client cannot be written to, and reads on to
// the final frame.
func (x *exchange) abandon(stream Stream, f *Frame) (final bool) {
	if f.End {
		return true
	}
	stream.Cancel()
	for {
		if stream.Receive(f) != nil {
			return false
		}
		if f.End || f.Failure != nil {
			return true
		}
	}
}

// send writes the request with the served target as its model.
func (x *exchange) send(stream Stream) error {
	r := x.request
	target, err := json.Marshal(x.grant.Target)
	if err != nil {
		return err
	}
	normalized := r.ModelEnd == 0
	switch {
	case normalized:
		target = nil
	case r.PlainModel:
		target = []byte(x.grant.Target)
	}
	parts := [][]byte{r.Body[:r.ModelStart], target, r.Body[r.ModelEnd:]}
	left := r.ModelStart + len(target) + len(r.Body) - r.ModelEnd
	frame := RequestFrame{Begin: &Begin{
		Provider: x.grant.Provider, Path: r.Path, ContentLength: left, Header: r.Header,
		IdleTimeout: r.IdleTimeout, RequestID: r.ID,
	}}
	if normalized {
		frame.Begin.Target, frame.Begin.ContextWindow = x.grant.Target, r.ContextWindow
	}
	if !x.deadline.IsZero() {
		frame.Begin.TotalTimeout = max(x.deadline.Sub(x.clock.Now()), time.Millisecond)
	}
	if left <= MaxFrameBody {
		frame.Parts, frame.End = parts, true
		return stream.Send(&frame)
	}
	var one [1][]byte
	for _, part := range parts {
		for len(part) > 0 {
			n := min(len(part), MaxFrameBody)
			one[0], part = part[:n], part[n:]
			left -= n
			frame.Parts, frame.End = one[:], left == 0
			if err := stream.Send(&frame); err != nil {
				return err
			}
			frame.Begin = nil
		}
	}
	return nil
}

func (x *exchange) failed(code FailureCode, message string) *FailedError {
	handedOff := x.started || x.handedOff && !code.neverOpened()
	return &FailedError{Code: code, Message: message, Started: x.started, HandedOff: handedOff, Grant: x.grant}
}

// withTimeout bounds ctx by the injected clock. The context's cause is
// errTotalTimeout when the bound ended it.
func withTimeout(ctx context.Context, clock clockwork.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := clock.AfterFunc(d, func() { cancel(errTotalTimeout) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
