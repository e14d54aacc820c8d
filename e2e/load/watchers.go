//go:build !windows

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/iop-dev/iop/e2e/link"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
	"github.com/iop-dev/iop/services/control"
)

// stuckWindow is what a client that does not read takes of a stream all the same,
// in bytes; more than that has to wait at the Edge.
const stuckWindow = 16 << 10

// WatchedSetup is the configuration of a site for [Once]: so many requests at once.
func WatchedSetup(p *link.Provider, running int) link.Setup {
	return link.Setup{
		Heartbeat: link.Heartbeat{Interval: 5 * time.Second, Timeout: 15 * time.Second},
		Nodes:     []link.Object{link.Node("a", link.At(p, "p", running, 1))},
		Models:    []link.Object{link.Model("m", "a/p="+link.Once)},
	}
}

// Once asks for a short answer, and is how long the whole of it took.
func Once(ctx context.Context, site *link.Site) (time.Duration, error) {
	begun := time.Now()
	response, err := ask(ctx, site.Client, site.URL(), "m", false, 1)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	return time.Since(begun), err
}

// Watchers follow an Edge's state. Some read all they are sent, each with the state
// that it makes of it; the others read the first update, and no more until they are
// told to.
type Watchers struct {
	reading []*watcher
	stuck   []*watcher

	updates atomic.Int64
	ended   sync.WaitGroup
	leave   context.CancelFunc
	clients []*http.Client
	failed  chan error
}

type watcher struct {
	stream *connect.ServerStreamForClient[controlv1.WatchEdgeNodeSnapshotResponse]

	mu       sync.Mutex
	state    *link.Snapshot
	sequence uint64
	missed   uint64
}

// Watch makes so many watchers that read, and so many that are stuck, and returns
// when each has had its first update.
func Watch(ctx context.Context, site *link.Site, reading, stuck int) (*Watchers, error) {
	ctx, leave := context.WithCancel(ctx)
	w := &Watchers{leave: leave, failed: make(chan error, reading+stuck)}
	quick, slow := NewClient(true), NewClient(true)
	slow.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: stuckWindow}
	w.clients = []*http.Client{quick, slow}
	for i := range reading + stuck {
		client, kind := quick, &w.reading
		if i >= reading {
			client, kind = slow, &w.stuck
		}
		stream, err := site.Watch(ctx, client)
		one := &watcher{stream: stream}
		if err == nil {
			err = one.next()
		}
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("watcher %d: %w", i, err)
		}
		*kind = append(*kind, one)
	}
	for _, one := range w.reading {
		w.read(ctx, one)
	}
	return w, nil
}

// read has a watcher read until ctx ends.
func (w *Watchers) read(ctx context.Context, one *watcher) {
	w.ended.Go(func() {
		for {
			if err := one.next(); err != nil {
				if ctx.Err() == nil {
					w.failed <- err
				}
				return
			}
			w.updates.Add(1)
		}
	})
}

// Resume has those who were stuck read on.
func (w *Watchers) Resume(ctx context.Context) {
	for _, one := range w.stuck {
		w.read(ctx, one)
	}
	w.reading, w.stuck = append(w.reading, w.stuck...), nil
}

// Updates is how many all have read besides their first.
func (w *Watchers) Updates() int64 { return w.updates.Load() }

// Err is why a watch has ended by itself; nil if none has.
func (w *Watchers) Err() error {
	select {
	case err := <-w.failed:
		return err
	default:
		return nil
	}
}

// All reports whether a condition holds for what each of those who read knows.
func (w *Watchers) All(holds link.Condition) bool {
	all := true
	for _, one := range w.reading {
		one.mu.Lock()
		all = all && holds(one.state)
		one.mu.Unlock()
	}
	return all
}

// Missed is how many states each of those who read was never sent, in the order in
// which they came, the ones who were stuck last.
func (w *Watchers) Missed() (states []uint64) {
	for _, one := range w.reading {
		one.mu.Lock()
		states = append(states, one.missed)
		one.mu.Unlock()
	}
	return states
}

// Close ends the watches.
func (w *Watchers) Close() {
	w.leave()
	w.ended.Wait()
	for _, one := range append(w.reading, w.stuck...) {
		_ = one.stream.Close() // it is cut
	}
	for _, c := range w.clients {
		c.CloseIdleConnections()
	}
}

// next reads an update and applies it.
func (o *watcher) next() error {
	if !o.stream.Receive() {
		return errors.Join(errors.New("the watch has ended"), o.stream.Err())
	}
	update := o.stream.Msg()
	o.mu.Lock()
	defer o.mu.Unlock()
	state := update.GetFull()
	if state == nil {
		var err error
		if state, err = control.Apply(o.state, o.sequence, update.GetChanges()); err != nil {
			return err
		}
	}
	if o.state != nil {
		o.missed += update.GetSequence() - o.sequence - 1
	}
	o.state, o.sequence = state, update.GetSequence()
	return nil
}
