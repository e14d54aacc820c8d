package admission

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkSnapshot compares what a snapshot lists with its own totals and with the core's requests. It holds while both lists are below their
// bounds.
func checkSnapshot(c *Core, now time.Time) error {
	s := c.Snapshot(now)
	if len(s.Leases) != s.InFlight || len(s.Waiters) != s.QueueTotal {
		return fmt.Errorf("%d leases and %d waiters are listed of %d and %d", len(s.Leases), len(s.Waiters), s.InFlight, s.QueueTotal)
	}
	for _, l := range s.Leases {
		r := c.requests.get(l.Seq)
		if r == nil || r.lease != l.Lease || r.res.cfg.Key != l.Resource || l.HandedOff != (r.state == tracked) {
			return fmt.Errorf("lease %d of request %d is listed wrongly", l.Lease, l.Seq)
		}
	}
	heads := map[Seq]Head{}
	for _, h := range s.Heads {
		heads[h.Seq] = h
	}
	behind := map[Seq]int{}
	var by [ReasonBehind + 1]int
	last := Seq(0)
	for _, w := range s.Waiters {
		r := c.requests.get(w.Seq)
		head, isHead := heads[w.Seq]
		switch {
		case r == nil || r.state != waiting:
			return fmt.Errorf("request %d is listed and does not wait", w.Seq)
		case w.Seq <= last:
			return fmt.Errorf("waiter %d is listed after %d", w.Seq, last)
		case isHead != (w.Reason != ReasonBehind):
			return fmt.Errorf("waiter %d says %s, and its being a head is %t", w.Seq, w.Reason, isHead)
		case isHead && (w.Reason != head.Reason || len(w.On) == 0 || w.Behind != 0):
			return fmt.Errorf("head %d waits for %s on %v, as a head for %s", w.Seq, w.Reason, w.On, head.Reason)
		case !isHead && (heads[w.Behind].Seq == 0 || w.Behind >= w.Seq):
			return fmt.Errorf("waiter %d is behind %d, which is no older head", w.Seq, w.Behind)
		case !isHead:
			behind[w.Behind]++
		}
		by[w.Reason]++
		last = w.Seq
	}
	if by != s.WaitingBy {
		return fmt.Errorf("by reason %v wait, which are listed as %v", s.WaitingBy, by)
	}
	for seq, h := range heads {
		if h.Behind != behind[seq] {
			return fmt.Errorf("%d requests wait behind %d, which counts %d", behind[seq], seq, h.Behind)
		}
	}
	return nil
}

func TestSnapshotListsWhoHoldsAndWhoWaits(t *testing.T) {
	now := time.Unix(1000, 0)
	key := ResourceKey{"n", "p"}
	c := New(Config{
		Scopes:    []Scope{{PoolScope, 8, time.Minute}},
		Resources: []Resource{{Key: key, Capacity: 2, LongCapacity: 1, Enabled: true, Surfaces: SurfaceChat}},
		Groups:    []Group{{Key: "m", Scope: PoolScope, Candidates: []Candidate{{key, "served"}}}},
	})
	c.Connect(now, "n")
	for i, class := range []Class{Long, Normal, Long, Long, Normal} {
		c.Enqueue(now.Add(time.Duration(i)*time.Second), Request{Group: "m", Class: class, Surface: SurfaceChat, InputTokens: 10 * i})
	}
	require.True(t, c.Track(1, 1))

	s := c.Snapshot(now.Add(10 * time.Second))
	require.Equal(t, []LeaseState{
		{Seq: 1, Lease: 1, Resource: key, Group: "m", Class: Long, Enqueued: now, Granted: now, HandedOff: true},
		{Seq: 2, Lease: 2, Resource: key, Group: "m", InputTokens: 10, Enqueued: now.Add(time.Second), Granted: now.Add(time.Second)},
	}, s.Leases)
	on := []ResourceKey{key}
	at := func(s int) (time.Time, time.Time) {
		return now.Add(time.Duration(s) * time.Second), now.Add(time.Duration(s)*time.Second + time.Minute)
	}
	e2, d2 := at(2)
	e3, d3 := at(3)
	e4, d4 := at(4)
	require.Equal(t, []WaiterState{
		{Seq: 3, Group: "m", Class: Long, InputTokens: 20, Enqueued: e2, Deadline: d2, Reason: ReasonLongFull, On: on},
		{Seq: 4, Group: "m", Class: Long, InputTokens: 30, Enqueued: e3, Deadline: d3, Reason: ReasonBehind, Behind: 3},
		{Seq: 5, Group: "m", Class: Normal, InputTokens: 40, Enqueued: e4, Deadline: d4, Reason: ReasonFull, On: on},
	}, s.Waiters)
}

// TestSnapshotListsRequestsThatWaitAgain: a refused request waits in a line of its own, and is a head there.
func TestSnapshotListsRequestsThatWaitAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := ResourceKey{"n", "a"}, ResourceKey{"n", "b"}
	c := New(Config{
		Scopes: []Scope{{PoolScope, 8, time.Minute}},
		Resources: []Resource{
			{Key: a, Capacity: 1, Enabled: true, Surfaces: SurfaceChat}, {Key: b, Capacity: 1, Enabled: true, Surfaces: SurfaceChat},
		},
		Groups: []Group{{Key: "m", Scope: PoolScope, Candidates: []Candidate{{a, "x"}, {b, "y"}}}},
	})
	c.Connect(now, "n")
	c.Enqueue(now, Request{Group: "m", Surface: SurfaceChat})
	seq, effects := c.Enqueue(now, Request{Group: "m", Surface: SurfaceChat})
	_, done := c.Refuse(now, seq, effects[0].Lease)
	require.True(t, done)

	s := c.Snapshot(now)
	require.Len(t, s.Heads, 1)
	require.Equal(t, seq, s.Heads[0].Seq)
	require.Equal(t, []WaiterState{{
		Seq: seq, Group: "m", Enqueued: now, Deadline: now.Add(time.Minute), Reason: ReasonFull, On: []ResourceKey{a},
	}}, s.Waiters)
	require.NoError(t, checkSnapshot(c, now))
}

func TestSnapshotListsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	key := ResourceKey{"n", "p"}
	c := New(Config{
		Scopes:    []Scope{{PoolScope, 2 * keptWaiters, time.Minute}, {"route:r", 2 * keptWaiters, time.Minute}},
		Resources: []Resource{{Key: key, Capacity: keptLeases + 1, LongCapacity: 1, Enabled: true, Surfaces: SurfaceChat}},
		Groups: []Group{
			{Key: "m", Scope: PoolScope, Candidates: []Candidate{{key, "x"}}}, {Key: "r", Scope: "route:r", Candidates: []Candidate{{key, "x"}}},
		},
	})
	c.Connect(now, "n")
	for range keptLeases + 1 {
		c.Enqueue(now, Request{Group: "m", Surface: SurfaceChat})
	}
	for range keptWaiters {
		c.Enqueue(now, Request{Group: "m", Class: Long, Surface: SurfaceChat})
		c.Enqueue(now, Request{Group: "r", Class: Long, Surface: SurfaceChat})
	}
	s := c.Snapshot(now)
	require.Len(t, s.Leases, keptLeases)
	require.Len(t, s.Waiters, keptWaiters)
	require.True(t, slices.IsSortedFunc(s.Waiters, func(a, b WaiterState) int { return cmp.Compare(a.Seq, b.Seq) }))
	require.Equal(t, Seq(keptLeases+2), s.Waiters[0].Seq, "the oldest are shown")
	require.Equal(t, Seq(keptLeases+1+keptWaiters), s.Waiters[keptWaiters-1].Seq)
	require.Equal(t, keptLeases+1, s.InFlight)
	require.Equal(t, 2*keptWaiters, s.QueueTotal)
}
