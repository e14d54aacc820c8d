package control

import (
	"context"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

const (
	// updatePace is how often a changed state is sent at most, updateLimit the
	// longest that nothing is sent, and how often progress of answers is told.
	updatePace  = 200 * time.Millisecond
	updateLimit = time.Second
	// keptVersions is how many states a caller may come back to.
	keptVersions = 64
)

// updates makes the states that watchers are sent. One state serves them all, and
// is made by whoever asks first: without watchers there is no work.
type updates struct {
	clock clockwork.Clock
	make  func() *controlv1.EdgeNodeSnapshot

	mu         sync.Mutex
	made       time.Time // when a state was made last
	progressed time.Time // when progress was last told
	versions   []*version
}

// version is one state that was sent. Its messages are shared and never changed.
type version struct {
	sequence uint64
	at       time.Time
	state    *controlv1.EdgeNodeSnapshot
	since    map[uint64]*controlv1.SnapshotChanges // from that sequence on
}

// watch sends the state, and its changes until ctx ends or send fails. from is the
// sequence of the state that the caller has; 0 = none.
func (u *updates) watch(ctx context.Context, from uint64, send func(*controlv1.WatchEdgeNodeSnapshotResponse) error) error {
	ticker := u.clock.NewTicker(updatePace)
	defer ticker.Stop()
	for {
		now, update := u.next(from)
		if update != nil {
			if err := send(update); err != nil {
				return err
			}
			from = now
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.Chan():
		}
	}
}

// next is what leads from one state to the newest; nil if that is the same.
func (u *updates) next(from uint64) (sequence uint64, update *controlv1.WatchEdgeNodeSnapshotResponse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := u.newestLocked()
	if v.sequence == from {
		return from, nil
	}
	update = &controlv1.WatchEdgeNodeSnapshotResponse{Sequence: v.sequence}
	base := u.findLocked(from)
	if base == nil {
		update.Update = &controlv1.WatchEdgeNodeSnapshotResponse_Full{Full: v.state}
		return v.sequence, update
	}
	changes := v.since[from]
	if changes == nil {
		changes = between(base.state, v.state)
		changes.FromSequence = from
		v.since[from] = changes
	}
	update.Update = &controlv1.WatchEdgeNodeSnapshotResponse_Changes{Changes: changes}
	return v.sequence, update
}

// newestLocked makes a state if the last one is old enough, and a version of it if
// it differs, or if nothing was sent for long.
func (u *updates) newestLocked() *version {
	now := u.clock.Now()
	var last *version
	if n := len(u.versions); n > 0 {
		last = u.versions[n-1]
	}
	if last != nil && now.Sub(u.made) < updatePace {
		return last
	}
	u.made = now
	v := &version{sequence: 1, at: now, state: u.make(), since: map[uint64]*controlv1.SnapshotChanges{}}
	if last == nil {
		u.versions, u.progressed = append(u.versions, v), now
		return v
	}
	v.sequence = last.sequence + 1
	told := now.Sub(u.progressed) < updateLimit
	if told {
		keepProgress(last.state, v.state)
	}
	changes := between(last.state, v.state)
	if now.Sub(last.at) < updateLimit && !differs(last.state, changes) {
		return last
	}
	if !told {
		u.progressed = now
	}
	changes.FromSequence = last.sequence
	v.since[last.sequence] = changes
	if len(u.versions) == keptVersions {
		u.versions = append(u.versions[:0], u.versions[1:]...)
	}
	u.versions = append(u.versions, v)
	return v
}

func (u *updates) findLocked(sequence uint64) *version {
	for _, v := range u.versions {
		if v.sequence == sequence {
			return v
		}
	}
	return nil
}
