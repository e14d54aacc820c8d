package provider

import (
	"time"

	"github.com/jonboulle/clockwork"
)

// drainLimit bounds how long a cancelled request of a `cancel: drain` provider
// is read on, should no other limit end it first.
const drainLimit = 10 * time.Minute

// reason is why an exchange stops before its answer is complete.
type reason int

const (
	goesOn       reason = iota
	clientGone          // ctx ended: client gone or session lost
	readerGone          // out failed
	headTimeout         // request_timeout_ms
	idleTimeout         // idle_timeout_ms
	totalTimeout        // total_timeout_ms
	drainTimeout        // drainLimit
	nodeStops           // Set.Close ran out of patience
)

// stop ends the exchange before its answer is complete. The first reason counts.
// The provider's connection is half-closed and has the grace to end; run sees it
// end and draws the consequences. A provider with `cancel: drain` is left to
// finish unless a limit says otherwise.
func (x *exchange) stop(why reason) {
	x.mu.Lock()
	if x.ended || why == headTimeout && x.headSeen {
		x.mu.Unlock()
		return
	}
	if x.why == goesOn {
		x.why = why
	}
	if x.severed {
		x.mu.Unlock()
		return
	}
	if x.settings.drain && x.conn != nil && (why == clientGone || why == readerGone) {
		x.armLocked(drainLimit, func() { x.stop(drainTimeout) })
		x.mu.Unlock()
		return
	}
	x.severed = true
	c, grace := x.conn, x.settings.cancelGrace
	if c == nil {
		// Nothing is sent: the wait for a connection is given up, and gotConn
		// refuses one that comes all the same.
		x.abort()
	} else if grace > 0 {
		x.armLocked(grace, x.overstay)
	}
	x.mu.Unlock()
	if c != nil {
		c.sever(x, grace <= 0 || x.instance.profile.deafToHalfClose)
	}
	close(x.told)
}

// overstay ends the grace: the connection is closed and the slot returned,
// whatever the provider still does and even if run is held up by a slow reader.
func (x *exchange) overstay() {
	x.mu.Lock()
	if x.ended {
		x.mu.Unlock()
		return
	}
	c, slot := x.conn, x.slot
	select {
	case <-x.graceOver:
	default:
		close(x.graceOver)
	}
	x.mu.Unlock()
	if c != nil {
		c.drop(x)
	}
	if slot != nil {
		slot.Release()
	}
}

// giveUp is the first half of an end without any grace, for a node that stops:
// from here on the exchange opens nothing. overstay is the second half, which
// gives the slot to whoever waits for it.
func (x *exchange) giveUp() {
	x.mu.Lock()
	if x.why == goesOn {
		x.why = nodeStops
	}
	if !x.severed {
		x.severed = true
		close(x.told)
	}
	if x.abort != nil {
		x.abort()
	}
	x.mu.Unlock()
}

// settle waits, if the exchange was severed, until the provider has ended its
// connection or the grace is over.
func (x *exchange) settle() {
	x.mu.Lock()
	c, severed := x.conn, x.severed
	x.mu.Unlock()
	if !severed {
		return
	}
	<-x.told
	if c == nil {
		return
	}
	if x.instance.profile.deafToHalfClose && x.settings.cancelGrace > 0 {
		<-x.graceOver
	} else if c.spend(x) {
		c.drain()
	}
	c.drop(x)
}

// limit stops the exchange d after its hand-off; 0 is no limit.
func (x *exchange) limit(d time.Duration, why reason) {
	if d <= 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armLocked(max(d-x.config.Clock.Since(x.started), 0), func() { x.stop(why) })
}

// watchSilence stops the exchange when the provider has been silent for limit.
// Only time spent waiting for the provider counts: a slow reader is no silence.
// One timer per limit, not per read, keeps reads cheap.
func (x *exchange) watchSilence(limit time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.silence = x.armLocked(limit, func() {
		next := limit
		if since := x.waitingSince.Load(); since != 0 {
			next -= x.config.Clock.Since(x.started) - time.Duration(since-1)
		}
		if next <= 0 {
			x.stop(idleTimeout)
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if !x.ended {
			x.silence.Reset(next)
		}
	})
}

// armLocked starts a timer that end stops; nil if there is nothing left to time.
func (x *exchange) armLocked(d time.Duration, f func()) clockwork.Timer {
	if x.ended {
		return nil
	}
	timer := x.config.Clock.AfterFunc(d, f)
	x.timers = append(x.timers, timer)
	return timer
}
