package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/admission"
)

// Broker serialises access to one admission core.
type Broker struct {
	clock clockwork.Clock

	mu      sync.Mutex
	core    core
	leases  map[admission.Seq]*Lease    // of every live request, waiting ones included
	bare    map[admission.GroupKey]bool // the groups that have no candidate at all
	timer   clockwork.Timer             // runs expire; armed for armed
	armed   time.Time                   // zero = not armed
	stopped bool
}

// core is the admission core: [admission.Core], whose methods it lists.
type core interface {
	Enqueue(time.Time, admission.Request) (admission.Seq, []admission.Effect)
	Cancel(time.Time, admission.Seq) ([]admission.Effect, bool)
	Track(admission.Seq, admission.LeaseID) bool
	Release(time.Time, admission.Seq, admission.LeaseID) ([]admission.Effect, bool)
	Refuse(time.Time, admission.Seq, admission.LeaseID) ([]admission.Effect, bool)
	Connect(time.Time, admission.NodeID) (admission.Generation, []admission.Effect)
	Disconnect(time.Time, admission.NodeID, admission.Generation) ([]admission.Effect, bool)
	Drain(time.Time, admission.NodeID, admission.Generation) ([]admission.Effect, bool)
	Reconfigure(time.Time, admission.Config) []admission.Effect
	Expire(time.Time) []admission.Effect
	NextDeadline() (time.Time, bool)
	Snapshot(time.Time) admission.Snapshot
	Record(admission.Seq) (admission.Record, bool)
}

// New returns a broker over a core with this configuration. Stop it in the end.
func New(clock clockwork.Clock, cfg admission.Config) *Broker {
	return &Broker{clock: clock, core: admission.New(cfg), leases: map[admission.Seq]*Lease{}, bare: bareGroups(cfg)}
}

func bareGroups(cfg admission.Config) map[admission.GroupKey]bool {
	bare := map[admission.GroupKey]bool{}
	for _, g := range cfg.Groups {
		if len(g.Candidates) == 0 {
			bare[g.Key] = true
		}
	}
	return bare
}

// Stop disarms the deadline timer; waits no longer time out. It is idempotent.
func (b *Broker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// Acquire admits a request, waiting for as long as its policy allows. It returns
// a reserved lease, or ErrUnknownGroup, a *QueueFullError, *QueueTimeoutError,
// *UnavailableError, or the cause of ctx's end.
func (b *Broker) Acquire(ctx context.Context, req admission.Request) (*Lease, error) {
	l, decided, err := b.acquire(ctx, req)
	if decided != nil {
		err = l.Await(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// acquire enters and takes what is decided at once in one step: between two,
// others could fence the grant. Otherwise it returns what the decision closes.
func (b *Broker) acquire(ctx context.Context, req admission.Request) (l *Lease, decided <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, err = b.enterLocked(req); err != nil {
		return nil, nil, err
	}
	decided, err = l.settleLocked(ctx)
	return l, decided, err
}

// Enter makes a request known: it has its seq, and a grant or a place in the
// queue. The caller must Await, which fails like Acquire. Enter itself fails for
// what is rejected on arrival.
func (b *Broker) Enter(req admission.Request) (*Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enterLocked(req)
}

func (b *Broker) enterLocked(req admission.Request) (*Lease, error) {
	now := b.clock.Now()
	seq, effects := b.core.Enqueue(now, req)
	e := effects[0]
	if e.Kind == admission.Rejected {
		err := b.rejectionLocked(e, nil)
		var none *UnavailableError
		if errors.As(err, &none) {
			none.Bare = b.bare[req.Group]
		}
		return nil, err
	}
	l := &Lease{broker: b, seq: seq, enqueued: now}
	b.leases[seq] = l
	if e.Kind == admission.Granted {
		l.grant = e
		return l, nil
	}
	l.WaitReason = e.Reason
	l.decided = make(chan struct{})
	b.deliverLocked(effects)
	return l, nil
}

// Connect makes a new connection the owner of the node, fencing a former one,
// and returns its generation (S15).
func (b *Broker) Connect(node admission.NodeID) admission.Generation {
	b.mu.Lock()
	defer b.mu.Unlock()
	gen, effects := b.core.Connect(b.clock.Now(), node)
	b.deliverLocked(effects)
	return gen
}

// Disconnect fences a connection: no lease, hand-off or grant happens on it once
// this returns. False means that gen was not current, and nothing changed (S12).
func (b *Broker) Disconnect(node admission.NodeID, gen admission.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	effects, ok := b.core.Disconnect(b.clock.Now(), node, gen)
	b.deliverLocked(effects)
	return ok
}

// Drain stops new work for a connection and keeps its leases. False means that
// gen was not current.
func (b *Broker) Drain(node admission.NodeID, gen admission.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	effects, ok := b.core.Drain(b.clock.Now(), node, gen)
	b.deliverLocked(effects)
	return ok
}

// Reconfigure puts a configuration into force; it reaches waiters at once.
func (b *Broker) Reconfigure(cfg admission.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bare = bareGroups(cfg)
	b.deliverLocked(b.core.Reconfigure(b.clock.Now(), cfg))
}

// Record returns the decision record of a live request, or of one of the last
// that have ended.
func (b *Broker) Record(seq admission.Seq) (admission.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Record(seq)
}

// Snapshot returns one consistent cut of the core.
func (b *Broker) Snapshot() admission.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Snapshot(b.clock.Now())
}

// deliverLocked hands each effect to its request and re-arms the timer.
func (b *Broker) deliverLocked(effects []admission.Effect) {
	for _, e := range effects {
		l := b.leases[e.Seq]
		switch e.Kind {
		case admission.Granted:
			l.grant = e
			close(l.decided)
		case admission.Requeued:
			l.decided, l.grant = make(chan struct{}), admission.Effect{}
		case admission.Rejected:
			delete(b.leases, e.Seq)
			l.ended = b.rejectionLocked(e, l)
			close(l.decided)
		case admission.Revoked:
			delete(b.leases, e.Seq)
			l.ended = ErrRevoked
		}
	}
	b.armLocked()
}

// rejectionLocked is the error of a request's end; l is nil for one that was
// rejected on arrival.
func (b *Broker) rejectionLocked(e admission.Effect, l *Lease) error {
	switch e.Result {
	case admission.ResultFull:
		return &QueueFullError{Seq: e.Seq, Reason: e.Reason, RetryAfter: e.RetryAfter}
	case admission.ResultTimeout:
		return &QueueTimeoutError{Seq: e.Seq, Waited: b.clock.Now().Sub(l.enqueued), Reason: e.Reason, RetryAfter: e.RetryAfter}
	case admission.ResultUnavailable:
		return &UnavailableError{Seq: e.Seq, Reason: e.Reason, Waited: l != nil}
	case admission.ResultCancelled:
		return context.Canceled
	default:
		return ErrUnknownGroup
	}
}

// armLocked sets the timer for the core's next deadline. A timer that fires
// early, because the deadline it was set for has gone, finds nothing to do.
func (b *Broker) armLocked() {
	next, ok := b.core.NextDeadline()
	if !ok || b.stopped || !b.armed.IsZero() && !next.Before(b.armed) {
		return
	}
	b.armed = next
	wait := next.Sub(b.clock.Now())
	if b.timer == nil {
		b.timer = b.clock.AfterFunc(wait, b.expire)
		return
	}
	b.timer.Reset(wait)
}

func (b *Broker) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return // the timer had fired already
	}
	b.armed = time.Time{}
	b.deliverLocked(b.core.Expire(b.clock.Now()))
}
