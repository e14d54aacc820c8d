package fleet

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Minute is one point that is kept of an Edge.
type Minute struct {
	// Point is of the minute that ends at Point.At.
	Point *controlv1.HistoryPoint
	// Through is the moment up to which the Edge has told of it.
	Through time.Time
}

// endOfMinute is the end of the minute that a moment belongs to: one on the full
// minute ends it.
func endOfMinute(at time.Time) time.Time {
	end := at.Truncate(time.Minute)
	if end.Before(at) {
		end = end.Add(time.Minute)
	}
	return end
}

// minutesOf are the minutes of points after a moment and up to another, in order.
func minutesOf(points []*controlv1.HistoryPoint, after, until time.Time) (out []Minute) {
	for start := 0; start < len(points); {
		end := endOfMinute(points[start].GetAt().AsTime())
		next := start
		var of []*controlv1.HistoryPoint
		for ; next < len(points) && endOfMinute(points[next].GetAt().AsTime()).Equal(end); next++ {
			if at := points[next].GetAt().AsTime(); at.After(after) && !at.After(until) {
				of = append(of, points[next])
			}
		}
		if len(of) > 0 {
			out = append(out, Minute{Point: joined(of, end), Through: of[len(of)-1].GetAt().AsTime()})
		}
		start = next
	}
	return out
}

// joined is one point of several that follow each other: levels as at the end,
// events added up.
func joined(points []*controlv1.HistoryPoint, end time.Time) *controlv1.HistoryPoint {
	last := points[len(points)-1]
	p := &controlv1.HistoryPoint{
		At: timestamppb.New(end), Slots: last.GetSlots(), InFlight: last.GetInFlight(), LongInFlight: last.GetLongInFlight(),
		Queued: last.GetQueued(), OldestWaitMs: last.GetOldestWaitMs(),
	}
	addEvents(p, points)
	return p
}

// summed is one point of several Edges at the same time.
func summed(points []*controlv1.HistoryPoint) *controlv1.HistoryPoint {
	p := &controlv1.HistoryPoint{At: points[0].GetAt()}
	for _, of := range points {
		p.Slots += of.GetSlots()
		p.InFlight += of.GetInFlight()
		p.LongInFlight += of.GetLongInFlight()
		p.Queued += of.GetQueued()
		p.OldestWaitMs = max(p.OldestWaitMs, of.GetOldestWaitMs())
	}
	addEvents(p, points)
	return p
}

// addEvents adds up what happened. The median is that of the medians, each counted
// as often as it has grants; the highest 95th percentile is never below that of
// them all.
func addEvents(p *controlv1.HistoryPoint, points []*controlv1.HistoryPoint) {
	var granted []*controlv1.HistoryPoint
	for _, of := range points {
		for outcome, n := range of.GetOutcomes() {
			if p.Outcomes == nil {
				p.Outcomes = map[string]uint32{}
			}
			p.Outcomes[keptOutcome(p.Outcomes, outcome)] += n
		}
		p.OutputTokens += of.GetOutputTokens()
		p.Granted += of.GetGranted()
		p.WaitP95Ms = max(p.WaitP95Ms, of.GetWaitP95Ms())
		if of.GetGranted() > 0 {
			granted = append(granted, of)
		}
	}
	slices.SortFunc(granted, func(a, b *controlv1.HistoryPoint) int { return cmp.Compare(a.GetWaitP50Ms(), b.GetWaitP50Ms()) })
	var below uint32
	for _, of := range granted {
		below += of.GetGranted()
		if 2*below >= p.Granted {
			p.WaitP50Ms = of.GetWaitP50Ms()
			return
		}
	}
}

// keptOutcome is the name under which an outcome is counted: a newer Edge may have
// some that this version does not know, but not any number of any length.
func keptOutcome(counted map[string]uint32, name string) string {
	const most, longest = 64, 64
	if _, known := counted[name]; !known && len(counted) >= most || len(name) > longest {
		return "other"
	}
	return name
}

// joinMinutes is what is kept of a minute, and more of it.
func joinMinutes(kept, more Minute) Minute {
	if kept.Point == nil {
		return more
	}
	return Minute{Point: joined([]*controlv1.HistoryPoint{kept.Point, more.Point}, more.Point.GetAt().AsTime()), Through: more.Through}
}

// sampled makes points of snapshots, for an Edge that tells no history: its levels
// alone, since nothing else can be told apart from what was missed.
type sampled struct{ points []*controlv1.HistoryPoint }

// see takes a snapshot; of each minute the last one counts.
func (s *sampled) see(of *controlv1.EdgeNodeSnapshot) {
	if of.GetAt() == nil {
		return
	}
	p := &controlv1.HistoryPoint{
		At: of.GetAt(), Slots: slotsOf(of), InFlight: of.GetInFlightTotal(), Queued: of.GetQueueTotal(), OldestWaitMs: of.GetOldestWaitMs(),
	}
	for _, n := range of.GetNodes() {
		for _, pr := range n.GetProviders() {
			p.LongInFlight += pr.GetLongInFlight()
		}
	}
	n := len(s.points)
	if n > 0 && endOfMinute(s.points[n-1].GetAt().AsTime()).Equal(endOfMinute(p.GetAt().AsTime())) {
		s.points[n-1] = p
		return
	}
	s.points = append(s.points, p)
	const kept = 60
	if n := len(s.points); n > kept {
		s.points = slices.Clone(s.points[n-kept:])
	}
}
