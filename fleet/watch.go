package fleet

import (
	"context"
	"time"
)

const (
	// updatePace is how often a watcher is told of changes at most, updateLimit the
	// longest that it is told nothing, less one pace.
	updatePace  = 250 * time.Millisecond
	updateLimit = 750 * time.Millisecond
)

// Update is what a watcher is told.
type Update struct {
	// Full says that Now has every Edge; else it has those that have changed.
	Full bool
	Now
}

// Watch sends the fleet, then what changes, until ctx ends or send fails. While
// send takes its time nothing is kept for it: the next update is of the newest
// state.
func (f *Fleet) Watch(ctx context.Context, send func(Update) error) error {
	ticker := f.o.Clock.NewTicker(updatePace)
	defer ticker.Stop()
	told := map[string]View{}
	var last time.Time
	for {
		now := f.Now()
		u := Update{Full: last.IsZero(), Now: now}
		u.Edges = nil
		for _, v := range now.Edges {
			if before, known := told[v.ID]; !known || before.pulls != v.pulls || before.State != v.State || len(before.Notices) != len(v.Notices) {
				u.Edges = append(u.Edges, v)
			}
		}
		if u.Full || len(u.Edges) > 0 || now.At.Sub(last) >= updateLimit {
			if err := send(u); err != nil {
				return err
			}
			last = now.At
			for _, v := range u.Edges {
				told[v.ID] = v
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.Chan():
		}
	}
}
