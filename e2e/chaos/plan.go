//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// class is a kind of fault.
type class string

const (
	nodeKill    class = "node: kill -9, restart"
	nodeStop    class = "node: SIGTERM, restart"
	freezeShort class = "node: SIGSTOP below the heartbeat timeout"
	freezeLong  class = "node: SIGSTOP beyond the heartbeat timeout"

	edgeKill class = "edge: kill -9, restart"
	edgeStop class = "edge: SIGTERM, restart"

	provCrash class = "provider: crash"
	provHang  class = "provider: stops answering"
	provDeaf  class = "provider: stops answering, deaf to the close"
	provClose class = "provider: closes in mid-answer"
	provReset class = "provider: resets in mid-answer"
	provError class = "provider: answers 500"
	provSlow  class = "provider: slow head"

	linkReset     class = "link: connections reset"
	linkHoleShort class = "link: blackhole below the heartbeat timeout"
	linkHoleLong  class = "link: blackhole beyond the heartbeat timeout"
	linkDelay     class = "link: delay"
	linkThrottle  class = "link: throttle"

	confCapacity class = "config: capacity"
	confEnabled  class = "config: enable/disable"
	confTimeout  class = "config: request_timeout_ms"
	confRemove   class = "config: remove/add a provider"
	confInvalid  class = "config: a file that is refused"
)

// fault is one entry of the schedule.
type fault struct {
	at     time.Duration // since the faults began
	class  class
	target string        // a node, or node/provider; "" = the Edge
	lasts  time.Duration // of those that last
	value  int           // a new capacity, or milliseconds of delay, or a timeout
}

func (f fault) String() string {
	return fmt.Sprintf("%s %s %s %s %d", f.at.Round(time.Millisecond), f.class, f.target, f.lasts.Round(time.Millisecond), f.value)
}

// weights say how often each class comes; the order is part of what a seed means.
var weights = []struct {
	class  class
	weight int
}{
	{nodeKill, 8}, {nodeStop, 5}, {freezeShort, 6}, {freezeLong, 5},
	{edgeKill, 2}, {edgeStop, 2},
	{provCrash, 5}, {provHang, 4}, {provDeaf, 4}, {provClose, 4}, {provReset, 4}, {provError, 3}, {provSlow, 4},
	{linkReset, 6}, {linkHoleShort, 5}, {linkHoleLong, 4}, {linkDelay, 4}, {linkThrottle, 4},
	{confCapacity, 8}, {confEnabled, 5}, {confTimeout, 3}, {confRemove, 3}, {confInvalid, 2},
}

const (
	// meanGap is the mean time between two faults.
	meanGap = 900 * time.Millisecond
	// edgeShare is the part of a run in which the Edge is restarted: after it one
	// process lives on, so that what leaks adds up.
	edgeShare = 0.6
)

// schedule is every fault of a run: each class once, in a random order, so that
// a short run meets them all, then by weight. The same seed gives the same schedule.
func schedule(seed uint64, duration time.Duration) []fault {
	rnd := rand.New(rand.NewPCG(seed, 0x10b))
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(rnd.Int64N(int64(high-low))) }
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	var plan []fault
	order := rnd.Perm(len(weights))
	for at := between(0, meanGap); at < duration; at += between(meanGap/5, meanGap*9/5) {
		f := fault{at: at}
		for n, i := rnd.IntN(total), 0; ; i++ {
			if len(plan) < len(order) {
				f.class = weights[order[len(plan)]].class
				break
			}
			if n -= weights[i].weight; n < 0 {
				f.class = weights[i].class
				break
			}
		}
		node := nodeIDs[rnd.IntN(len(nodeIDs))]
		mortal := nodeIDs[1+rnd.IntN(len(nodeIDs)-1)] // the first node's process lives through it all
		prov := providers[rnd.IntN(len(providers))]
		lasts, value := between(time.Second, 3*time.Second), rnd.IntN(1000)
		switch f.class {
		case edgeKill, edgeStop:
			if float64(at) > edgeShare*float64(duration) {
				f.class, f.target = linkReset, node
				break
			}
			f.lasts = lasts / 8
		case nodeKill, nodeStop:
			f.target, f.lasts = mortal, lasts/8
		case freezeShort, linkHoleShort:
			f.target, f.lasts = node, heartbeatTimeout*time.Duration(10+value%50)/100
		case freezeLong, linkHoleLong:
			f.target, f.lasts = node, heartbeatTimeout*time.Duration(130+value%120)/100
		case linkReset:
			f.target = node
		case linkDelay, linkThrottle:
			f.target, f.lasts, f.value = node, lasts, 5+value%60
		case confCapacity:
			f.target, f.value = prov.key(), value%5
		case confTimeout:
			f.target, f.value = prov.key(), 800+value*2
		case confEnabled, confRemove:
			f.target, f.lasts = prov.key(), lasts
		case confInvalid:
		default:
			f.target, f.lasts = prov.key(), lasts
		}
		plan = append(plan, f)
	}
	return plan
}
