package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/broker"
)

// errAdmin is the cause of a context that Dispatcher.Cancel ended.
var errAdmin = errors.New("dispatch: cancelled by an administrator")

// Errors of Dispatcher.Cancel.
var (
	ErrNotLive   = errors.New("no request of that name waits or runs")
	ErrAmbiguous = errors.New("several live requests have this request id; name one by its enqueue_seq")
)

// Phase is how far a request has come.
type Phase uint8

// The phases, in their order. All but the first hold a slot.
const (
	Waiting   Phase = iota
	Reserved        // nothing was sent yet
	Prefill         // handed off; nothing has come back
	Streaming       // bytes of the answer come back
	Leaving         // its client has gone or it was cancelled; the slot is held until the provider has ended
)

// String is the phase's name in the APIs.
func (p Phase) String() string {
	return [...]string{"waiting", "reserved", "prefill", "streaming", "ending"}[p]
}

// Live is a request that waits or runs, at one moment. What admission knows of it (its slot, why it waits) is in the core's snapshot under
// the same Seq.
type Live struct {
	Seq         admission.Seq
	ID          string // x-request-id; need not be unique
	Client      string // name of the API key
	Path        string
	Phase       Phase
	FirstByte   time.Time // zero before it
	AnswerParts uint64
	AnswerBytes uint64
	Attempts    int
	Target      string // of the last grant; empty before it
}

// live is one request under way. What is atomic is written by the goroutine that carries it and read by whoever looks.
type live struct {
	seq     admission.Seq
	request *Request
	cancel  context.CancelCauseFunc
	context context.Context //nolint:containedctx // whether it has ended is a part of what is shown

	phase     atomic.Uint32 // Waiting, Reserved or Prefill; show knows the others
	firstByte atomic.Int64  // Unix nanoseconds; 0 before it
	parts     atomic.Uint64
	bytes     atomic.Uint64
	attempts  atomic.Int32
	target    atomic.Pointer[string]

	status int // of the answer; only for the goroutine that carries it
}

func (l *live) enter(p Phase) { l.phase.Store(uint32(p)) }

func (l *live) show() Live {
	out := Live{
		Seq: l.seq, ID: l.request.ID, Client: l.request.Client, Path: l.request.Path,
		Phase: Phase(l.phase.Load()), AnswerParts: l.parts.Load(), AnswerBytes: l.bytes.Load(), Attempts: int(l.attempts.Load()),
	}
	if t := l.target.Load(); t != nil {
		out.Target = *t
	}
	first := l.firstByte.Load()
	if first != 0 {
		out.FirstByte = time.Unix(0, first)
	}
	switch {
	case out.Phase == Prefill && l.context.Err() != nil:
		out.Phase = Leaving
	case first != 0:
		out.Phase = Streaming
	}
	return out
}

// took notes a frame of the answer.
func (l *live) took(clock clockwork.Clock, f *Frame) {
	if l.firstByte.Load() == 0 {
		l.firstByte.Store(clock.Now().UnixNano())
	}
	if f.Head != nil {
		l.status = f.Head.Status
	}
	if len(f.Body) > 0 {
		l.parts.Add(1)
		l.bytes.Add(uint64(len(f.Body)))
	}
}

const (
	// keptEndings is how many requests that have ended are remembered.
	keptEndings = 1024
	// keptDetail is what of a node's words about a failure is, in bytes.
	keptDetail = 1000
)

// Ending is how a request ended.
type Ending struct {
	Seq    admission.Seq // 0: its model was not known to admission
	ID     string
	Client string
	Group  admission.GroupKey
	Class  admission.Class
	Path   string
	// Outcome is "completed"; "provider_error": whole, and an error by its status; "cancelled", "client_gone", "draining"; a queue result; or
	// a FailureCode.
	Outcome string
	Reason  admission.Reason // where admission ended it
	Detail  string           // for the operator
	Began   time.Time
	At      time.Time

	Grant     Grant         // zero without one
	Run       time.Duration // from the grant to the end; 0 without one
	FirstByte time.Duration // from the grant to the first byte; 0 without one
	Attempts  int
	Status    int // of the provider's answer; 0 without one
	// As the provider counted them; -1 = it did not.
	InputTokens, OutputTokens int
	// Empty: a completed answer that has no text, because its length was used up.
	Empty       bool
	TraceParent string // as the client sent it; for observers, and not kept
	Estimated   int    // input tokens
	Threshold   int    // from which on it would have been long
}

// Counter is a Sink that can say what the provider has counted.
type Counter interface {
	// Tokens are those of prompt and answer; -1 = not told.
	Tokens() (input, output int)
}

// Emptiable is a Sink that can say that an answer has no text because its length was used up.
type Emptiable interface{ Empty() bool }

// traffic is what a Dispatcher knows of its requests.
type traffic struct {
	mu      sync.Mutex
	live    map[admission.Seq]*live
	endings [keptEndings]Ending // a ring
	ended   uint64
}

func (t *traffic) begin(l *live) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[admission.Seq]*live{}
	}
	t.live[l.seq] = l
}

func (t *traffic) end(e *Ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, e.Seq)
	kept := &t.endings[t.ended%keptEndings]
	*kept = *e
	kept.TraceParent = ""
	t.ended++
}

// Live is every request that waits or runs, by its number.
func (d *Dispatcher) Live() map[admission.Seq]Live {
	t := &d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[admission.Seq]Live, len(t.live))
	for seq, l := range t.live {
		all[seq] = l.show()
	}
	return all
}

// Endings are the last n requests that have ended, the newest first, and how many have ended in all.
func (d *Dispatcher) Endings(n int) (last []Ending, total uint64) {
	t := &d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range min(uint64(n), t.ended, keptEndings) {
		last = append(last, t.endings[(t.ended-1-i)%keptEndings])
	}
	return last, t.ended
}

// Find is the newest request of that id: live, or of the last that have ended; 0 if there is none.
func (d *Dispatcher) Find(id string) admission.Seq {
	t := &d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest admission.Seq
	for seq, l := range t.live {
		if l.request.ID == id {
			newest = max(newest, seq)
		}
	}
	for i := range min(t.ended, keptEndings) {
		if e := &t.endings[i]; e.ID == id {
			newest = max(newest, e.Seq)
		}
	}
	return newest
}

// Explain is what is known of one request besides its decision record: as it is, or how it ended. Both are nil if it is forgotten.
func (d *Dispatcher) Explain(seq admission.Seq) (*Live, *Ending) {
	t := &d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.live[seq]; l != nil {
		shown := l.show()
		return &shown, nil
	}
	for i := range min(t.ended, keptEndings) {
		if e := t.endings[i]; e.Seq == seq {
			return nil, &e
		}
	}
	return nil, nil
}

// Cancel ends a live request as if its client had gone, and returns what it was. Its client is told. The error is ErrNotLive, or
// ErrAmbiguous where seq is 0 and several have the id.
func (d *Dispatcher) Cancel(seq admission.Seq, id string) (Live, error) {
	t := &d.traffic
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.live[seq]
	if seq == 0 {
		for _, l := range t.live {
			switch {
			case l.request.ID != id:
			case found != nil:
				return Live{}, ErrAmbiguous
			default:
				found = l
			}
		}
	}
	if found == nil {
		return Live{}, ErrNotLive
	}
	was := found.show()
	found.cancel(errAdmin)
	return was, nil
}

// ended writes a request's end down, where it is looked for and in the log.
func (d *Dispatcher) ended(ctx context.Context, r *Request, x *exchange, began time.Time, err error) {
	e := endingOf(ctx, err)
	e.Began, e.TraceParent = began, r.TraceParent
	e.ID, e.Client, e.Group, e.Class, e.Path = r.ID, r.Client, r.Group, r.Input.Class(), r.Path
	e.Estimated, e.Threshold = r.Input.Tokens, r.Input.Threshold
	e.At, e.InputTokens, e.OutputTokens = d.clock.Now(), -1, -1
	if x != nil {
		e.Seq, e.Attempts = x.seq, int(x.attempts.Load())
		if e.Grant = x.grant; x.grant.Node != "" {
			e.Run = e.At.Sub(x.granted)
		}
		if first := x.firstByte.Load(); first != 0 {
			e.FirstByte = time.Unix(0, first).Sub(x.granted)
		}
		e.Status = x.status
		if c, ok := x.sink.(Counter); ok && x.started {
			e.InputTokens, e.OutputTokens = c.Tokens()
		}
		if s, ok := x.sink.(Emptiable); ok && err == nil {
			e.Empty = s.Empty()
		}
	}
	if err == nil && e.Status >= 400 {
		e.Outcome = "provider_error"
	}
	d.traffic.end(&e)
	d.record(ctx, r, x, &e)
	for _, f := range d.observers {
		f(&e)
	}
}

// Observe has f told of every request's end, from the goroutine that carried it. Call it before the first request.
func (d *Dispatcher) Observe(f func(*Ending)) { d.observers = append(d.observers, f) }

// ObserveGrants has f told how long each request had waited when it was granted a slot for the first time. Call it before the first request.
func (d *Dispatcher) ObserveGrants(f func(waited time.Duration)) {
	d.grantObservers = append(d.grantObservers, f)
}

// rejected are the facts of an error that admission ended a request with.
func rejected(err error) (outcome string, seq admission.Seq, reason admission.Reason) {
	var (
		full    *broker.QueueFullError
		timeout *broker.QueueTimeoutError
		none    *broker.UnavailableError
	)
	switch {
	case errors.As(err, &full):
		return "queue_full", full.Seq, full.Reason
	case errors.As(err, &timeout):
		return "queue_timeout", timeout.Seq, timeout.Reason
	case errors.As(err, &none):
		return "unavailable", none.Seq, none.Reason
	}
	return "", 0, admission.ReasonNone
}
