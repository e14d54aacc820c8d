package join

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// How many attempts there may be: a rate a second, after a burst.
const (
	ownRate, ownBurst = 2, 5 // from one address
	allRate, allBurst = 20, 40
)

// bucket has room for bursts and is filled at a rate.
type bucket struct {
	room float64
	at   time.Time // when room was that
}

// take takes one attempt; false = there is none.
func (b *bucket) take(now time.Time, rate, burst float64) bool {
	b.fill(now, rate, burst)
	if b.room < 1 {
		return false
	}
	b.room--
	return true
}

func (b *bucket) fill(now time.Time, rate, burst float64) {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.room = min(burst, b.room+passed*rate)
	}
	b.at = now
}

// limiter bounds attempts. It remembers an address only until that has all of its
// room back, and takes no more of them than can have used some: what allRate lets
// through meanwhile.
type limiter struct {
	clock clockwork.Clock

	mu     sync.Mutex
	all    bucket
	own    map[netip.Prefix]*bucket
	looked time.Time // for addresses that have all of their room back
}

func newLimiter(clock clockwork.Clock) *limiter {
	return &limiter{clock: clock, all: bucket{room: allBurst, at: clock.Now()}, own: map[netip.Prefix]*bucket{}}
}

// take counts an attempt from an address (host:port); false = it is one too many.
func (l *limiter) take(remote string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, who := l.clock.Now(), networkOf(remote)
	if now.Sub(l.looked) >= time.Second {
		l.looked = now
		for p, b := range l.own {
			if b.fill(now, ownRate, ownBurst); b.room >= ownBurst {
				delete(l.own, p)
			}
		}
	}
	b := l.own[who]
	if b == nil {
		b = &bucket{room: ownBurst, at: now}
	}
	if !b.take(now, ownRate, ownBurst) || !l.all.take(now, allRate, allBurst) {
		return false
	}
	l.own[who] = b
	return true
}

// networkOf is what counts as one address: an IPv4 address, or the /64 that one
// machine has of IPv6.
func networkOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.WithZone("").Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // bits fit
	return p
}
