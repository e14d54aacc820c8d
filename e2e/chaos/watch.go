//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// watch judges snapshots until stop is closed, and returns how many it saw.
func (s *site) watch(stop <-chan struct{}) int {
	seen := 0
	for {
		select {
		case <-stop:
			return seen
		case <-time.After(100 * time.Millisecond):
		}
		began := time.Now()
		snap, err := s.snapshot(context.Background())
		if err != nil {
			if !s.outages.excuse(began, false, time.Minute) {
				s.verdict.breach("no snapshot though the Edge was up: %v", err)
			}
			continue
		}
		seen++
		for _, bad := range judge(snap) {
			s.verdict.breach("snapshot %d: %s", snap.GetRevision(), bad)
		}
	}
}

// judge returns what must not be in any snapshot.
func judge(snap *controlv1.EdgeNodeSnapshot) (bad []string) {
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	c := snap.GetCounters()
	if c.GetDoubleReleases() != 0 {
		say("%d leases were released twice", c.GetDoubleReleases())
	}
	if held := c.GetGranted() - c.GetReleased(); held != uint64(snap.GetInFlightTotal()) {
		say("%d granted less %d released are not the %d in flight", c.GetGranted(), c.GetReleased(), snap.GetInFlightTotal())
	}
	// A request that is admitted again after a refusal keeps its place in a queue
	// that has filled up since: at most as many as there were leases.
	leases := uint32(0)
	for _, n := range snap.GetNodes() {
		for _, p := range n.GetProviders() {
			leases += p.GetConfiguredCapacity()
		}
	}
	waiting := uint32(0)
	for _, scope := range snap.GetScopes() {
		waiting += scope.GetPending()
		if scope.GetPending() > scope.GetMaxQueue()+leases {
			say("%d wait in %s, at most %d may and %d more that were admitted again", scope.GetPending(), scope.GetKey(), scope.GetMaxQueue(), leases)
		}
	}
	if waiting != snap.GetQueueTotal() {
		say("queue_total is %d, the scopes have %d", snap.GetQueueTotal(), waiting)
	}
	for _, n := range snap.GetNodes() {
		for _, p := range n.GetProviders() {
			key := n.GetId() + "/" + p.GetId()
			switch {
			case !n.GetConnected():
				if p.GetStatus() != "unavailable" || p.GetHealth() != "offline" ||
					p.GetEffectiveCapacity()+p.GetInFlight()+p.GetQueued()+p.GetLongContextCapacity()+p.GetLongInFlight()+p.GetLongQueued() != 0 {
					say("%s is offline and not all 0 (S14): %v", key, p)
				}
			case p.GetInFlight() > p.GetConfiguredCapacity() && p.GetStatus() != "over_capacity" && p.GetStatus() != "unavailable":
				say("%s has %d leases of %d and status %q", key, p.GetInFlight(), p.GetConfiguredCapacity(), p.GetStatus())
			case p.GetLongContextCapacity() > 0 && p.GetLongInFlight() > p.GetLongContextCapacity():
				say("%s has %d long leases of %d", key, p.GetLongInFlight(), p.GetLongContextCapacity())
			case p.GetLongInFlight() > p.GetInFlight() || p.GetLongQueued() > p.GetQueued():
				say("%s has more long ones than all: %v", key, p)
			}
		}
	}
	return bad
}
