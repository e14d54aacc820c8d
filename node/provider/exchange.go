package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	runtimev1 "github.com/iop-dev/iop/gen/go/iop/runtime/v1"
	"github.com/iop-dev/iop/node/gate"
	"github.com/iop-dev/iop/node/normalize"
)

// staleConns is how many dead pooled connections one request may come upon
// before it gives up; each is tried only while nothing of the request was sent.
const staleConns = 16

// exchange is one request from its hand-off to its end. run and what it calls
// belong to the goroutine in Set.Run; stop, giveUp and the limits come from anywhere.
type exchange struct {
	config   Config
	begin    *runtimev1.RequestBegin
	body     []byte
	out      Writer
	started  time.Time
	instance *instance
	gate     *gate.Gate
	owner    gate.Owner
	settings *settings

	// buffer holds the bytes of the frame that is written at the moment.
	buffer *[]byte
	// waitingSince is when the present wait for the provider's next bytes began,
	// in nanoseconds after started, plus 1; 0 while not waiting.
	waitingSince atomic.Int64

	mu   sync.Mutex
	slot *gate.Slot
	// abort gives up waiting for a slot, later for a connection.
	abort context.CancelFunc
	// conn is nil while no connection carries the request; reused says that the
	// last one tried came from the pool.
	conn   *conn
	reused bool
	// headSeen is true once the head of the answer has come.
	headSeen bool
	// why is written once; goesOn until then.
	why reason
	// severed is true once the connection is told to end; told is closed when it was.
	severed bool
	told    chan struct{}
	// graceOver is closed when the provider has had its time to end.
	graceOver chan struct{}
	// ended is true when the exchange has no claim on anything any more.
	ended   bool
	timers  []clockwork.Timer
	silence clockwork.Timer
}

// run takes the exchange through all its states and writes the final frame.
func (x *exchange) run(ctx context.Context) error {
	defer x.returnBuffer()
	final, err := x.execute(ctx)
	if err != nil {
		return err
	}
	return x.out.Frame(final)
}

// execute returns the final frame, with the slot returned and nothing left at
// the provider; or the error of out.
func (x *exchange) execute(ctx context.Context) (*Frame, error) {
	if uint64(len(x.body)) != x.begin.GetContentLength() {
		return failed(neverOpened, "the request body has %d bytes instead of %d", len(x.body), x.begin.GetContentLength()), nil
	}
	target := x.instance.endpoints[x.begin.GetPath()]
	if x.begin.GetPath() == normalize.Path {
		if err := x.normalize(); err != nil {
			return failed(neverOpened, "provider %s cannot be asked for this run: %v", x.instance.id, err), nil
		}
		target = x.instance.run
	}
	if target == nil {
		return failed(neverOpened, "path %q is not one that providers are asked for", x.begin.GetPath()), nil
	}
	if refusal := x.enterGate(ctx); refusal != nil {
		return refusal, nil
	}
	defer x.end()
	dialCtx, abort := context.WithCancel(context.Background())
	defer abort()
	x.mayAbort(abort)
	x.limit(x.settings.requestTimeout, headTimeout)
	x.limit(milliseconds(x.begin.GetTotalTimeoutMs()), totalTimeout)
	defer context.AfterFunc(ctx, func() { x.stop(clientGone) })()

	resp, err := x.send(dialCtx, target)
	if err != nil {
		return x.unanswered(err), nil
	}
	return x.relay(resp)
}

// enterGate waits for a slot: gate_wait_ms, which counts while nothing but the
// provider's own requests of this account keep it full, and in any case no longer
// than the limits of the request.
func (x *exchange) enterGate(ctx context.Context) *Frame {
	claim := gate.Claim{Owner: x.owner, Patience: x.settings.gateWait}
	for _, limit := range []time.Duration{x.settings.requestTimeout, milliseconds(x.begin.GetTotalTimeoutMs())} {
		if limit > 0 && (claim.Limit == 0 || limit < claim.Limit) {
			claim.Limit = limit
		}
	}
	if claim.Limit > 0 {
		claim.Limit = max(claim.Limit-x.config.Clock.Since(x.started), 1)
	}
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	x.mayAbort(abort)
	slot, err := x.gate.Acquire(ctx, claim)
	switch {
	case errors.Is(err, gate.ErrBusy):
		return failed(busy, "provider %s already runs as many requests as it may (%d)", x.instance.id, x.gate.Capacity())
	case err != nil:
		return failed(neverOpened, "cancelled while it waited for provider %s", x.instance.id)
	}
	x.mu.Lock()
	x.slot = slot
	x.mu.Unlock()
	return nil
}

// mayAbort hands stop and giveUp the way to interrupt the present wait.
func (x *exchange) mayAbort(abort context.CancelFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abort = abort
	if x.severed {
		abort()
	}
}

// send opens the upstream request. A request that met a dead pooled connection
// is tried on another one, but only while certainly none of it was sent.
func (x *exchange) send(ctx context.Context, target *url.URL) (*http.Response, error) {
	var credential string
	if x.config.Credential != nil {
		credential = x.config.Credential(x.instance.id)
	}
	header := requestHeader(x.begin.GetHeaders(), credential)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: x.gotConn})
	for attempt := 1; ; attempt++ {
		req := (&http.Request{
			Method: http.MethodPost, URL: target, Host: target.Host, Header: header,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			ContentLength: int64(len(x.body)), Body: http.NoBody,
		}).WithContext(ctx)
		if len(x.body) > 0 {
			// Of this type the transport knows that it never blocks, and sends head
			// and body together.
			req.Body = io.NopCloser(bytes.NewReader(x.body))
		}
		resp, err := x.instance.transport.RoundTrip(req)
		if err == nil || attempt == staleConns || !x.metDeadConn() {
			return resp, err
		}
	}
}

// gotConn makes the connection that the transport has chosen carry this
// exchange. If that must not be, it is closed before anything is written.
func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	c := unwrap(info.Conn)
	x.mu.Lock()
	x.conn, x.reused = nil, info.Reused
	if !x.severed && c.claim(x) {
		x.conn = c
		x.mu.Unlock()
		return
	}
	x.mu.Unlock()
	_ = c.Conn.Close()
}

// metDeadConn reports whether the attempt which just failed came upon a pooled
// connection that had died, with nothing sent.
func (x *exchange) metDeadConn() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.severed || !x.reused || x.sentLocked() {
		return false
	}
	x.conn, x.reused = nil, false
	return true
}

// sentLocked tells whether any of the request may have reached the provider.
func (x *exchange) sentLocked() bool { return x.conn != nil && x.conn.sent.Load() }

// unanswered is the final frame of a request without a response head.
func (x *exchange) unanswered(err error) *Frame {
	x.settle()
	x.mu.Lock()
	why, sent := x.why, x.sentLocked()
	x.mu.Unlock()
	switch {
	case why != goesOn:
		return x.stopped(why, sent)
	case sent:
		return failed(disconnected, "provider %s was lost before it answered: %s", x.instance.id, describe(err))
	}
	return failed(unreachable, "provider %s cannot be reached: %s", x.instance.id, describe(err))
}

// stopped is the final frame of a request that stop has ended.
func (x *exchange) stopped(why reason, sent bool) *Frame {
	id := x.instance.id
	switch {
	case why == headTimeout && !sent:
		return failed(unreachable, "provider %s could not be reached within request_timeout_ms (%d)", id, x.settings.requestTimeout.Milliseconds())
	case why == headTimeout:
		return failed(timeout, "provider %s did not begin to answer within request_timeout_ms (%d)", id, x.settings.requestTimeout.Milliseconds())
	case why == idleTimeout:
		return failed(timeout, "provider %s went silent in its answer for idle_timeout_ms (%d)", id, x.begin.GetIdleTimeoutMs())
	case why == totalTimeout:
		return failed(timeout, "provider %s was not done within the time for the whole exchange (%d ms)", id, x.begin.GetTotalTimeoutMs())
	case !sent:
		return failed(neverOpened, "ended before anything was sent to provider %s", id)
	case why == nodeStops:
		return failed(disconnected, "the node stopped while provider %s was answering", id)
	}
	return failed(cancelled, "cancelled; provider %s has been let go", id)
}

// end returns the slot and gives up every claim. Later calls do nothing.
func (x *exchange) end() {
	x.mu.Lock()
	timers, slot := x.timers, x.slot
	x.ended, x.timers = true, nil
	x.mu.Unlock()
	for _, timer := range timers {
		timer.Stop()
	}
	slot.Release()
}
