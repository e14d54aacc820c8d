package edged

import (
	"net/http"
	"sync/atomic"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/events"
	"github.com/iop-dev/iop/edge/metrics"
	"github.com/iop-dev/iop/edge/traces"
)

// metricsPath is where a scrape is answered.
const metricsPath = "/metrics"

// tallies count what is told as it happens and kept nowhere else.
type tallies struct {
	connections, disconnections atomic.Uint64
	applied, refused            atomic.Uint64 // refreshes
}

func (t *tallies) add(k events.Kind) {
	switch k {
	case events.NodeConnected:
		t.connections.Add(1)
	case events.NodeDisconnected:
		t.disconnections.Add(1)
	case events.ConfigApplied:
		t.applied.Add(1)
	case events.ConfigRefused:
		t.refused.Add(1)
	}
}

// publish counts an event, and hands it to whoever has room for it.
func (e *Edge) publish(ev events.Event) {
	e.tallies.add(ev.Kind)
	e.bus.Publish(ev)
}

// watchTraffic has the metrics, and a collector of traces if there is one, told of all requests.
func (e *Edge) watchTraffic() (err error) {
	e.metrics = metrics.New(e.version, e.measured, e.log)
	e.dispatcher.Observe(e.metrics.Ended)
	e.surface.Watch(e.metrics)
	e.typed.Watcher = e.metrics
	edge := e.snapshot().Config.GetEdge()
	e.traces, err = traces.New(traces.Config{
		Endpoint: edge.GetTelemetry().GetOtlpEndpoint(), EdgeID: edge.GetId(), Instance: e.instance, Version: e.version,
		Type: e.typeOf, Clock: e.clock, Log: e.log,
	})
	if e.traces != nil {
		e.dispatcher.Observe(e.traces.Ended)
	}
	return err
}

// scrape is the handler of metricsPath, for read and admin tokens.
func (e *Edge) scrape() http.Handler {
	return allow(e.metrics.Handler(), func(secret string) bool {
		_, ok := e.keyring.Reader(secret)
		return ok
	})
}

// measured is what a scrape shows.
func (e *Edge) measured() metrics.State {
	e.mu.Lock()
	snap := e.snapshot()
	st := metrics.State{At: e.clock.Now(), Admission: e.broker.Snapshot(), ConfigRevision: e.history.revision}
	e.mu.Unlock()
	st.EventsDropped, st.Scales = e.bus.Dropped(), e.estimates.Scales(shownScales)
	t := &e.tallies
	st.Refreshes = metrics.Refreshes{Applied: t.applied.Load(), Refused: t.refused.Load()}
	c := e.link.Counters()
	st.Link = metrics.Link{
		Connections: t.connections.Load(), Disconnections: t.disconnections.Load(),
		StaleTokens: c.StaleTokens, UnknownTokens: c.UnknownTokens, MissingTokens: c.MissingTokens, ReplayedTokens: c.ReplayedTokens,
		StaleFrames: c.StaleFrames, Overflows: c.Overflows, Rejections: c.Rejections,
	}
	at := map[admission.NodeID]int{}
	for i, n := range snap.Config.GetNodes() {
		id := admission.NodeID(n.GetId())
		at[id] = i
		st.Nodes = append(st.Nodes, metrics.Node{ID: id})
	}
	for _, n := range e.link.Nodes() {
		if i, ok := at[n.Node]; ok {
			st.Nodes[i].Connected, st.Nodes[i].Draining = n.Connected, n.Draining
		}
	}
	return st
}
