package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	// Kept is how long minutes are kept.
	Kept = 24 * time.Hour
	// settle is how long after a minute's end its points are fetched at the
	// earliest, and spread how much later at most.
	settle = 2 * time.Second
	spread = 10 * time.Second
	// ahead is how far an Edge's clock may be ahead for its points to be kept.
	ahead = time.Hour
)

// Store keeps minutes. It is safe for concurrent use.
type Store interface {
	// Last is the latest minute of an Edge; zero if there is none.
	Last(ctx context.Context, edge string) (Minute, error)
	// Put keeps minutes of an Edge, each in the place of what was kept of it, and
	// forgets what ended before oldest.
	Put(ctx context.Context, edge string, minutes []Minute, oldest time.Time) error
	// Since are the points of an Edge that ended after a moment, in order.
	Since(ctx context.Context, edge string, after time.Time) ([]*controlv1.HistoryPoint, error)
	// Notice is what the operator should know of the store; empty = nothing.
	Notice() string
}

// UnknownEdgeError names an Edge that is not configured.
type UnknownEdgeError struct{ ID string }

func (e *UnknownEdgeError) Error() string { return fmt.Sprintf("no Edge %q is configured", e.ID) }

// recordAlways keeps an Edge's minutes until ctx ends: once at the start, for what
// happened before, then after each minute.
func (f *Fleet) recordAlways(ctx context.Context, e *edge) {
	after := settle + time.Duration(f.o.Chance()*float64(spread))
	timer := f.o.Clock.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.Chan():
		}
		f.recordOnce(ctx, e)
		now := f.o.Clock.Now()
		next := now.Truncate(time.Minute).Add(after)
		for !next.After(now) {
			next = next.Add(time.Minute)
		}
		timer.Reset(next.Sub(now))
	}
}

// recordOnce asks an Edge that answers for its history, and keeps what is new of
// the minutes that have ended. What cannot be kept now is asked for again.
func (f *Fleet) recordOnce(ctx context.Context, e *edge) {
	e.mu.Lock()
	answers, until := e.snapshot != nil && e.failures == 0, e.snapshot.GetAt()
	e.mu.Unlock()
	if !answers || until == nil {
		return
	}
	limited, cancel := clockwork.WithTimeout(ctx, f.o.Clock, f.o.Timeout)
	points, err := e.reader.History(limited)
	cancel()
	e.mu.Lock()
	if e.noHistory = errors.Is(err, ErrNotOffered); e.noHistory {
		points, err = slices.Clone(e.samples.points), nil
	}
	e.mu.Unlock()
	if err == nil {
		// By the Edge's clock, as the points are.
		err = f.keep(ctx, e, points, until.AsTime().Truncate(time.Minute))
		f.stored(ctx, err)
		return
	}
	if ctx.Err() == nil {
		f.o.Log.Debug("the history of an edge cannot be read", "edge", e.id, "error", err)
	}
}

// keep stores the minutes of points up to a moment that are not stored yet.
func (f *Fleet) keep(ctx context.Context, e *edge, points []*controlv1.HistoryPoint, until time.Time) error {
	now := f.o.Clock.Now()
	oldest := now.Add(-Kept)
	points = slices.DeleteFunc(slices.Clone(points), func(p *controlv1.HistoryPoint) bool {
		return p.GetAt() == nil || p.GetAt().AsTime().Before(oldest) || p.GetAt().AsTime().After(now.Add(ahead))
	})
	slices.SortStableFunc(points, func(a, b *controlv1.HistoryPoint) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
	last, err := f.o.Store.Last(ctx, e.id)
	if err != nil {
		return err
	}
	if last.Through.After(now.Add(ahead)) {
		last = Minute{} // from before a clock was set back
	}
	minutes := minutesOf(points, last.Through, until)
	if len(minutes) == 0 {
		return nil
	}
	if last.Point != nil && minutes[0].Point.GetAt().AsTime().Equal(last.Point.GetAt().AsTime()) {
		minutes[0] = joinMinutes(last, minutes[0])
	}
	return f.o.Store.Put(ctx, e.id, minutes, oldest)
}

// stored notes whether points could be kept.
func (f *Fleet) stored(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	trouble := ""
	if err != nil {
		trouble = fmt.Sprintf("the history is not kept: %v; what an Edge tells within the hour after is made good", err)
	}
	f.storage.Lock()
	before := f.trouble
	f.trouble = trouble
	f.storage.Unlock()
	if trouble != "" && before == "" {
		f.o.Log.Error("the history is not kept", "error", err)
	}
}

func (f *Fleet) storageNotices() (out []string) {
	f.storage.Lock()
	defer f.storage.Unlock()
	for _, n := range []string{f.o.Store.Notice(), f.trouble} {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

// History are the points of an Edge, or the sums of all where id is empty, of the
// last minutes, the oldest first; 0 = all that are kept. That the store cannot be
// read is logged.
func (f *Fleet) History(ctx context.Context, id string, minutes int) ([]*controlv1.HistoryPoint, error) {
	if id != "" && f.byID[id] == nil {
		return nil, &UnknownEdgeError{id}
	}
	points, err := f.history(ctx, id, minutes)
	if err != nil && ctx.Err() == nil {
		f.o.Log.Error("the history cannot be read", "error", err)
	}
	return points, err
}

func (f *Fleet) history(ctx context.Context, id string, minutes int) ([]*controlv1.HistoryPoint, error) {
	back := Kept
	if minutes > 0 {
		back = min(back, time.Duration(minutes)*time.Minute)
	}
	after := f.o.Clock.Now().Add(-back)
	if id != "" {
		return f.o.Store.Since(ctx, id, after)
	}
	all, err := f.sums(ctx)
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(all, func(p *controlv1.HistoryPoint) bool { return p.GetAt().GetSeconds() > after.Unix() })
	if first < 0 {
		return nil, nil
	}
	return all[first:len(all):len(all)], nil
}

// summing is the sums of all Edges as they were worked out last. Nobody changes the
// points.
type summing struct {
	turn   chan struct{} // holds one while somebody works them out
	at     time.Time     // when; zero = never
	points []*controlv1.HistoryPoint
}

// sums are the sums of all Edges of all that is kept, the oldest first. They are
// worked out by one caller at a time, and serve others for a while: there is a new
// minute once a minute, and each takes every point of every Edge.
func (f *Fleet) sums(ctx context.Context) ([]*controlv1.HistoryPoint, error) {
	const goodFor = 10 * time.Second
	s := &f.summing
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := f.o.Clock.Now()
	if age := now.Sub(s.at); !s.at.IsZero() && age >= 0 && age < goodFor {
		return s.points, nil
	}
	points, err := f.sumsNow(ctx, now.Add(-Kept))
	if err == nil {
		s.at, s.points = now, points
	}
	return points, err
}

func (f *Fleet) sumsNow(ctx context.Context, after time.Time) ([]*controlv1.HistoryPoint, error) {
	byMinute := map[int64][]*controlv1.HistoryPoint{}
	for _, e := range f.counted() {
		points, err := f.o.Store.Since(ctx, e, after)
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			byMinute[p.GetAt().GetSeconds()] = append(byMinute[p.GetAt().GetSeconds()], p)
		}
	}
	out := make([]*controlv1.HistoryPoint, 0, len(byMinute))
	for _, points := range byMinute {
		out = append(out, summed(points))
	}
	slices.SortFunc(out, func(a, b *controlv1.HistoryPoint) int {
		return cmp.Compare(a.GetAt().GetSeconds(), b.GetAt().GetSeconds())
	})
	return out, nil
}

// counted are the ids of the Edges whose points add up: one that is configured
// under two names is in once.
func (f *Fleet) counted() (ids []string) {
	seen := map[string]bool{}
	for _, e := range f.edges {
		e.mu.Lock()
		instance := e.snapshot.GetInstanceId()
		e.mu.Unlock()
		if instance != "" && seen[instance] {
			continue
		}
		seen[instance] = true
		ids = append(ids, e.id)
	}
	return ids
}
