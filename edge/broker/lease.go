package broker

import (
	"context"
	"time"

	"github.com/iop-dev/iop/edge/admission"
)

// Lease is one request's right to one execution on one provider resource. It
// belongs to one goroutine.
type Lease struct {
	// Of the current grant; Await sets them anew.
	Resource   admission.ResourceKey
	Generation admission.Generation
	Target     string        // the served target: the provider's own name for the model
	Waited     time.Duration // from enqueue to the grant

	// WaitReason is why the request had to wait at first; ReasonNone if it had not.
	WaitReason admission.Reason

	broker   *Broker
	seq      admission.Seq
	enqueued time.Time
	id       admission.LeaseID

	// Guarded by broker.mu.
	decided chan struct{}    // closed when the wait in progress has its decision; nil before the first wait
	grant   admission.Effect // what the core holds for it: a lease, kind Granted; zero while it waits
	ended   error            // the request's end
}

// Seq is the request's enqueue_seq.
func (l *Lease) Seq() admission.Seq { return l.seq }

// Track marks the lease as handed off, if its generation is still current;
// otherwise it returns ErrFenced and the caller must Await.
func (l *Lease) Track() error {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	if !l.broker.core.Track(l.seq, l.id) {
		return ErrFenced
	}
	return nil
}

// Refuse gives the lease back because nothing was opened upstream; the request
// waits again, with its place and deadline, for its other candidates. The caller
// must Await. It does nothing if the lease was fenced or revoked meanwhile.
func (l *Lease) Refuse() {
	b := l.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ended != nil || l.grant.Lease != l.id {
		return // the fence came first: the core has this lease back already
	}
	effects, _ := b.core.Refuse(b.clock.Now(), l.seq, l.id)
	b.deliverLocked(effects)
}

// Await waits for the next decision and fills the lease with the new grant. It
// fails like Acquire, or with ErrRevoked; the request has then ended and holds
// nothing.
func (l *Lease) Await(ctx context.Context) error {
	for {
		decided, err := l.settle(ctx)
		if decided == nil {
			return err
		}
		select {
		case <-decided:
		case <-ctx.Done():
		}
	}
}

// settle takes the decision, or gives the place up when ctx has ended. Until
// there is one it returns what is closed by the next.
func (l *Lease) settle(ctx context.Context) (decided <-chan struct{}, err error) {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	return l.settleLocked(ctx)
}

func (l *Lease) settleLocked(ctx context.Context) (decided <-chan struct{}, err error) {
	if l.ended != nil {
		return nil, l.ended
	}
	granted := l.grant.Kind == admission.Granted
	if granted {
		l.grantedLocked(l.grant)
	}
	switch {
	case ctx.Err() != nil:
		l.closeLocked() // a grant that loses to the cancel gives its slot back
		return nil, context.Cause(ctx)
	case granted:
		return nil, nil
	}
	return l.decided, nil
}

// Close ends the request, whatever its outcome, and returns what it holds: the
// lease, or, where that was fenced before hand-off, the one that came in its
// place, or its place in the queue.
func (l *Lease) Close() {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	l.closeLocked()
}

func (l *Lease) closeLocked() {
	b := l.broker
	if l.ended != nil {
		return // revoked: the core has it back already
	}
	if l.grant.Kind != admission.Granted {
		effects, _ := b.core.Cancel(b.clock.Now(), l.seq)
		b.deliverLocked(effects)
		return
	}
	effects, ok := b.core.Release(b.clock.Now(), l.seq, l.grant.Lease)
	if !ok {
		return
	}
	delete(b.leases, l.seq)
	b.deliverLocked(effects)
}

// grantedLocked fills in the grant that the holder is about to be given.
func (l *Lease) grantedLocked(e admission.Effect) {
	l.Resource, l.Generation, l.Target, l.id = e.Resource, e.Gen, e.Target, e.Lease
	l.Waited = l.broker.clock.Now().Sub(l.enqueued)
}
