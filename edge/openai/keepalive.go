package openai

import (
	"context"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/iop-dev/iop/edge/dispatch"
	"github.com/iop-dev/iop/edge/openai/splice"
)

const comment = ": keep-alive\n\n"

// refusalWindow is the earliest, after the hand-off, at which a comment may stand for a head that the provider has not sent. A gate or a
// connection that refuses has done so by then (gate_wait_ms is 2000 unless set), with its real status.
const refusalWindow = 5 * time.Second

// keepalive writes comments into the silence of a stream: between its events, and from refusalWindow after the hand-off on before its head.
// The first of these commits the answer to 200, so that whatever goes wrong afterwards is told in-band.
type keepalive struct {
	clock clockwork.Clock
	every time.Duration
	gone  context.CancelFunc // ends the request of a client that cannot be written to

	// mu is held by whoever writes to the client. All of the relay is its as long as the request runs.
	mu    sync.Mutex
	relay *relay
	timer clockwork.Timer // nil before the first hand-off
	grant dispatch.Grant
	last  time.Time // of the last byte to the client, or of the hand-off
	// running: a provider has the request, or the answer has begun.
	running, ended bool
}

// handedOff starts the wait for the provider's first byte.
func (k *keepalive) handedOff(g *dispatch.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grant = *g
	if k.relay.begun {
		return // comments run on
	}
	k.running, k.last = true, k.clock.Now()
	if k.timer == nil {
		k.timer = k.clock.AfterFunc(k.patience(), k.tick)
		return
	}
	k.timer.Reset(k.patience())
}

// refused stops the wait, unless comments have begun: they go on while the request waits once more.
func (k *keepalive) refused() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.relay.begun {
		k.running = false
		k.timer.Stop()
	}
}

// end gives the relay up; no comment is written afterwards.
func (k *keepalive) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

// patience is how long a silence is left alone. The lock is held.
func (k *keepalive) patience() time.Duration {
	if k.relay.begun {
		return k.every
	}
	return max(k.every, refusalWindow)
}

func (k *keepalive) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	y := k.relay
	if k.ended || !k.running || y.gone {
		return
	}
	if left := k.patience() - k.clock.Since(k.last); left > 0 {
		k.timer.Reset(left)
		return
	}
	if y.begun {
		switch {
		case !y.judged && !y.committed, y.late != nil, y.splicer.Seen().Done:
			return // not a stream of events, or one that is over
		case !y.splicer.BetweenEvents():
			k.timer.Reset(k.every)
			return
		}
	} else {
		y.commit(&k.grant)
	}
	y.watch()
	if y.write([]byte(comment)) != nil || y.flush() != nil {
		k.gone()
		return
	}
	k.last = k.clock.Now()
	k.timer.Reset(k.every)
}

// commit begins a stream of events for a provider that has not begun its answer.
func (y *relay) commit(g *dispatch.Grant) {
	y.setGrant(g)
	h := y.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	y.asEvents(h)
	y.begun, y.committed = true, true
	y.sse, y.splicing = true, true
	y.splicer.Reset(splice.SSE, y.model)
	y.w.WriteHeader(200)
}
