package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// requests lists who holds a slot and who waits. Admission says who is there and
// why; what it does not know (names, phase, progress) comes from dispatch.
func requests(st *State) []*controlv1.RequestSnapshot {
	a := &st.Admission
	out := make([]*controlv1.RequestSnapshot, 0, len(a.Leases)+len(a.Waiters))
	for i := range a.Leases {
		out = append(out, holder(st, &a.Leases[i]))
	}
	for i := range a.Waiters {
		out = append(out, waiter(st, &a.Waiters[i]))
	}
	slices.SortFunc(out, func(a, b *controlv1.RequestSnapshot) int { return cmp.Compare(a.GetEnqueueSeq(), b.GetEnqueueSeq()) })
	return out
}

// shown is one of them; nil if a snapshot does not have it.
func shown(st *State, seq admission.Seq) *controlv1.RequestSnapshot {
	a := &st.Admission
	if i := slices.IndexFunc(a.Leases, func(l admission.LeaseState) bool { return l.Seq == seq }); i >= 0 {
		return holder(st, &a.Leases[i])
	}
	if i := slices.IndexFunc(a.Waiters, func(w admission.WaiterState) bool { return w.Seq == seq }); i >= 0 {
		return waiter(st, &a.Waiters[i])
	}
	return nil
}

func holder(st *State, l *admission.LeaseState) *controlv1.RequestSnapshot {
	r := &controlv1.RequestSnapshot{
		EnqueueSeq: uint64(l.Seq), Model: string(l.Group), ContextClass: l.Class.String(), EstimatedInputTokens: uint64(l.InputTokens),
		EnqueuedAt: timestamp(l.Enqueued), GrantedAt: timestamp(l.Granted),
		Node: string(l.Resource.Node), Provider: string(l.Resource.Provider),
	}
	live, ok := st.Live[l.Seq]
	if ok {
		name(r, &live)
		progress(r, &live)
	}
	phase := dispatch.Reserved
	switch {
	case live.Phase == dispatch.Leaving:
		phase = dispatch.Leaving
	case l.HandedOff:
		phase = max(dispatch.Prefill, live.Phase)
	}
	r.State = phase.String()
	return r
}

func waiter(st *State, w *admission.WaiterState) *controlv1.RequestSnapshot {
	r := &controlv1.RequestSnapshot{
		EnqueueSeq: uint64(w.Seq), Model: string(w.Group), ContextClass: w.Class.String(), EstimatedInputTokens: uint64(w.InputTokens),
		State: dispatch.Waiting.String(), EnqueuedAt: timestamp(w.Enqueued), WaitEndsAt: timestamp(w.Deadline),
		Reason: w.Reason.String(), BehindSeq: uint64(w.Behind),
	}
	r.Sentence, r.Unblocker = waitSentence(w, holders(st, w))
	if live, ok := st.Live[w.Seq]; ok {
		name(r, &live)
	}
	return r
}

func name(r *controlv1.RequestSnapshot, l *dispatch.Live) {
	r.RequestId, r.Client, r.Endpoint, r.Attempts = l.ID, l.Client, l.Path, uint32(l.Attempts)
}

// progress is what is known of one that holds a slot.
func progress(r *controlv1.RequestSnapshot, l *dispatch.Live) {
	r.FirstByteAt, r.Target, r.AnswerParts, r.AnswerBytes = timestamp(l.FirstByte), l.Target, l.AnswerParts, l.AnswerBytes
}

// shownHolders is how many holders of a slot a sentence names.
const shownHolders = 3

// holders are who holds the slots that a head of the queue waits for: the oldest,
// by the name of their key, else by their number.
func holders(st *State, w *admission.WaiterState) []string {
	if len(w.On) == 0 {
		return nil
	}
	var held []*admission.LeaseState
	for i := range st.Admission.Leases {
		l := &st.Admission.Leases[i]
		if (w.Reason != admission.ReasonLongFull || l.Class == admission.Long) && slices.Contains(w.On, l.Resource) {
			held = append(held, l)
		}
	}
	slices.SortFunc(held, func(a, b *admission.LeaseState) int { return a.Granted.Compare(b.Granted) })
	var names []string
	for i, l := range held {
		if i == shownHolders {
			names = append(names, fmt.Sprintf("%d more", len(held)-i))
			break
		}
		who := fmt.Sprintf("#%d", l.Seq)
		if c := st.Live[l.Seq].Client; c != "" {
			who = c + " " + who
		}
		names = append(names, who)
	}
	return names
}

// idle is why a provider's free slot stays free though requests wait; empty if
// none is free, or nobody waits (U8).
func idle(st *State, r admission.ResourceState) string {
	if r.Excluded != admission.ReasonNone || r.InFlight >= r.Capacity || st.Admission.QueueTotal == 0 {
		return ""
	}
	serves := map[admission.GroupKey]bool{}
	for _, m := range st.Models {
		for _, c := range m.Candidates {
			if c.Resource == r.Key {
				serves[admission.GroupKey(m.ID)] = true
			}
		}
	}
	var elsewhere, long, endpoint int
	for i := range st.Admission.Waiters {
		switch w := &st.Admission.Waiters[i]; {
		case !serves[w.Group]:
			elsewhere++
		case w.Class == admission.Long && r.LongCapacity > 0 && r.LongInFlight >= r.LongCapacity:
			long++
		default:
			endpoint++
		}
	}
	var why []string
	add := func(n int, what string) {
		if n > 0 {
			why = append(why, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(elsewhere, "for models it does not serve")
	add(long, "for a long-context slot")
	add(endpoint, "that it may not serve")
	add(st.Admission.QueueTotal-len(st.Admission.Waiters), "further back")
	return "No waiting request fits: " + strings.Join(why, ", ") + "."
}

// endings lists how the last requests ended.
func endings(all []dispatch.Ending) []*controlv1.Ending {
	out := make([]*controlv1.Ending, 0, len(all))
	for i := range all {
		out = append(out, ending(&all[i]))
	}
	return out
}

func ending(e *dispatch.Ending) *controlv1.Ending {
	out := &controlv1.Ending{
		EnqueueSeq: uint64(e.Seq), RequestId: e.ID, Client: e.Client, Model: string(e.Group), Outcome: e.Outcome, Reason: e.Reason.String(),
		Detail: e.Detail, At: timestamp(e.At), QueueMs: uint64(e.Grant.QueueWait.Milliseconds()), RunMs: uint64(e.Run.Milliseconds()),
		FirstByteMs: uint64(e.FirstByte.Milliseconds()), Node: string(e.Grant.Node), Provider: string(e.Grant.Provider),
		ProviderStatus: uint32(e.Status), ContextClass: e.Class.String(),
	}
	if e.InputTokens >= 0 {
		n := uint64(e.InputTokens)
		out.InputTokens = &n
	}
	if e.OutputTokens >= 0 {
		n := uint64(e.OutputTokens)
		out.OutputTokens = &n
	}
	return out
}
