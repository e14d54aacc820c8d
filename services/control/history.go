package control

import (
	"slices"
	"sync"
	"time"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	// historyInterval is what one point is about, historyPoints how many are kept:
	// an hour.
	historyInterval = 10 * time.Second
	historyPoints   = 360
	// waitPoints are those that WaitStatistics are of: 15 minutes.
	waitPoints = 90
	// keptWaits bounds the waits that one interval keeps; of more, every grant
	// takes the place of an earlier one.
	keptWaits = 512
)

// Waits are how long requests have waited lately.
type Waits struct {
	Granted  int
	P50, P95 time.Duration
}

func (w Waits) message() *controlv1.WaitStatistics {
	if w.Granted == 0 {
		return nil
	}
	return &controlv1.WaitStatistics{Granted: uint32(w.Granted), P50Ms: uint64(w.P50.Milliseconds()), P95Ms: uint64(w.P95.Milliseconds())}
}

// History keeps the last hour of an Edge. It is safe for concurrent use; the zero
// value is empty.
type History struct {
	mu   sync.Mutex
	now  interval
	past []interval // a ring of historyPoints
	next int
}

// interval is one point in the making.
type interval struct {
	point    *controlv1.HistoryPoint // nil in the present one
	granted  int
	waits    []time.Duration
	outcomes map[string]uint32
	tokens   uint64
}

// Interval is how often Sample is to be called.
func (*History) Interval() time.Duration { return historyInterval }

// Granted notes that a request got a slot.
func (h *History) Granted(waited time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := &h.now; len(i.waits) < keptWaits {
		i.waits = append(i.waits, waited)
	} else {
		i.waits[i.granted%keptWaits] = waited
	}
	h.now.granted++
}

// Ended notes that a request ended.
func (h *History) Ended(e *dispatch.Ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.outcomes == nil {
		h.now.outcomes = map[string]uint32{}
	}
	h.now.outcomes[e.Outcome]++
	h.now.tokens += uint64(max(e.OutputTokens, 0))
}

// Sample ends an interval with the state as it is.
func (h *History) Sample(st *State) {
	p := &controlv1.HistoryPoint{
		At: timestamp(st.At), InFlight: uint32(st.Admission.InFlight), Queued: uint32(st.Admission.QueueTotal),
		OldestWaitMs: uint64(st.Admission.OldestWait.Milliseconds()),
	}
	for i := range st.Admission.Resources {
		r := &st.Admission.Resources[i]
		p.LongInFlight += uint32(r.LongInFlight)
		if r.Excluded == admission.ReasonNone {
			p.Slots += uint32(r.Capacity)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.now
	h.now = interval{}
	w := waitsOf(i.waits)
	p.Granted, p.WaitP50Ms, p.WaitP95Ms = uint32(i.granted), uint64(w.P50.Milliseconds()), uint64(w.P95.Milliseconds())
	p.Outcomes, p.OutputTokens = i.outcomes, i.tokens
	i.point = p
	if len(h.past) < historyPoints {
		h.past = append(h.past, i)
		return
	}
	h.past[h.next] = i
	h.next = (h.next + 1) % historyPoints
}

// Waits are those of the last 15 minutes, the present interval included.
func (h *History) Waits() Waits {
	h.mu.Lock()
	all, granted := slices.Clone(h.now.waits), h.now.granted
	for i := range min(waitPoints, len(h.past)) {
		p := &h.past[(h.next-1-i+2*len(h.past))%len(h.past)]
		all, granted = append(all, p.waits...), granted+p.granted
	}
	h.mu.Unlock()
	w := waitsOf(all) // without the lock: it takes milliseconds, and every request asks for it
	w.Granted = granted
	return w
}

// waitsOf orders its argument.
func waitsOf(all []time.Duration) Waits {
	if len(all) == 0 {
		return Waits{}
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100] }
	return Waits{Granted: len(all), P50: at(50), P95: at(95)}
}

// points are what was kept, the oldest first.
func (h *History) points() []*controlv1.HistoryPoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*controlv1.HistoryPoint, 0, len(h.past))
	for i := range h.past {
		out = append(out, h.past[(h.next+i)%len(h.past)].point)
	}
	return out
}
