package sim

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
)

// Invariant is one thing that must never be so. Those up to [Determinism] have
// the numbers of the project's list; the rest are rules of requirements.md that
// the books make cheap to check.
type Invariant uint8

// The invariants.
const (
	NoPanic        Invariant = iota // the core never panics
	Capacity                        // 1: live leases ≤ capacity at every grant, over all aliases
	LongSlots                       // 2: a long grant takes both slots or none
	Balance                         // 3: granted − released = live = counters, per resource and globally
	EndsOnce                        // 4: a lease ends once; a second end is a counted no-op
	CurrentGen                      // 5: nothing is granted, handed off or accepted on a generation not current; generations rise
	StaleClose                      // 6: a close of an older generation changes nothing and emits nothing
	NoIdleSlot                      // 7: after each step no waiter has a dispatchable candidate
	Order                           // 8: passing an older waiter only if that one had no dispatchable candidate
	QueueLimit                      // 9: pending ≤ limit per scope; overflow refused in the same step
	OneOutcome                      // 10: exactly one terminal outcome per request
	LiveCandidate                   // 11: waiters without a live candidate end unavailable in that step
	EventsDropped                   // 12: the trace is the same however many events are dropped
	RefreshNoop                     // 13: an identical refresh is a no-op, a failed one changes nothing
	ProviderGate                    // 14: work running at a provider never exceeds its capacity, orphans included
	Independence                    // 15: ending one request never alters another
	SnapshotIsTrue                  // 16: snapshot = state; pressure; offline shows zeros
	NothingLeft                     // 17: at quiescence no lease, waiter, timer or entry is left
	Determinism                     // 18: same seed, same trace
	Liveness                        // once faults stop, everything ends and new requests are served
	Selection                       // of several free candidates the best one, by the documented rule
	Eligibility                     // only live candidates of the live configuration, under their served target, once each
	DeadlineRule                    // waits end at enqueue + the scope's live timeout, not earlier; the next deadline is known
	ReasonRule                      // the blocking reason is the weakest obstacle there is
	invariants
)

var invariantNames = [invariants]string{
	"no panic", "1 capacity", "2 long slots", "3 balance", "4 ends once", "5 current generation", "6 stale close",
	"7 no idle slot", "8 order", "9 queue limit", "10 one outcome", "11 live candidate", "12 events dropped",
	"13 refresh no-op", "14 provider gate", "15 independence", "16 snapshot", "17 nothing left", "18 determinism",
	"liveness", "selection", "eligibility", "deadline", "reason",
}

// String is the invariant's number and name.
func (i Invariant) String() string { return invariantNames[i] }

// Violation is the error of a run: what was seen that must never be so.
type Violation struct {
	Invariant Invariant
	Detail    string
	Seed      uint64
	Episode   int
	Step      int    // of the whole run
	Trace     string // the last commands and effects, oldest first
}

func (v *Violation) Error() string {
	return fmt.Sprintf("invariant %s violated: %s\nseed %d, episode %d, step %d (again: make sim SEED=%d STEPS=%d); the last commands and effects:\n%s",
		v.Invariant, v.Detail, v.Seed, v.Episode, v.Step, v.Seed, v.Step, v.Trace)
}

// entry is one line of the trace: a command, or one effect of the command above it.
type entry struct {
	step   int
	at     int64 // virtual ns
	op     string
	node   admission.NodeID
	seq    admission.Seq
	lease  admission.LeaseID
	gen    admission.Generation
	ok     bool
	note   string
	effect admission.Effect // op == ""
}

func (e *entry) write(b *strings.Builder) {
	if e.op != "" {
		fmt.Fprintf(b, "  %9d %12.3fs %-11s", e.step, float64(e.at)/1e9, e.op)
		if e.node != "" {
			fmt.Fprintf(b, " node=%s gen=%d", e.node, e.gen)
		}
		if e.seq != 0 {
			fmt.Fprintf(b, " seq=%d", e.seq)
		}
		if e.lease != 0 {
			fmt.Fprintf(b, " lease=%d", e.lease)
		}
		if e.note != "" {
			fmt.Fprintf(b, " %s", e.note)
		}
		fmt.Fprintf(b, " → %t\n", e.ok)
		return
	}
	f := &e.effect
	fmt.Fprintf(b, "                             ↳ %s seq=%d", kindName(f.Kind), f.Seq)
	if f.Lease != 0 {
		fmt.Fprintf(b, " lease=%d %s gen=%d %s", f.Lease, f.Resource, f.Gen, f.Target)
	}
	if f.Kind == admission.Rejected {
		fmt.Fprintf(b, " %s", f.Result)
	}
	if f.Reason != admission.ReasonNone {
		fmt.Fprintf(b, " (%s)", f.Reason)
	}
	b.WriteByte('\n')
}

func kindName(k admission.EffectKind) string {
	switch k {
	case admission.Queued:
		return "queued"
	case admission.Granted:
		return "granted"
	case admission.Requeued:
		return "requeued"
	case admission.Rejected:
		return "rejected"
	case admission.Revoked:
		return "revoked"
	}
	return fmt.Sprintf("effect kind %d", k)
}

// trace is the memory of the last commands and effects, and the running hash of
// all of them.
type trace struct {
	hash uint64
	ring []entry
	next int
	full bool
}

const hashSeed, hashPrime = 14695981039346656037, 1099511628211 // FNV-1a, by words

func (t *trace) mix(v uint64) {
	t.hash = (t.hash ^ v) * hashPrime
	t.hash ^= t.hash >> 29 // so that high bits come down again
}

func (t *trace) mixString(s string) {
	t.mix(uint64(len(s)))
	for i := range len(s) {
		t.hash = (t.hash ^ uint64(s[i])) * hashPrime
	}
}

func (t *trace) slot() *entry {
	e := &t.ring[t.next]
	if t.next++; t.next == len(t.ring) {
		t.next, t.full = 0, true
	}
	return e
}

func (t *trace) tail() string {
	var b strings.Builder
	if t.full {
		for i := t.next; i < len(t.ring); i++ {
			t.ring[i].write(&b)
		}
	}
	for i := range t.next {
		t.ring[i].write(&b)
	}
	return b.String()
}
