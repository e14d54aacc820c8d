package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/estimate"
)

// State is what a scrape shows of an Edge besides the traffic. Admission is one consistent cut.
type State struct {
	At             time.Time
	Admission      admission.Snapshot
	Nodes          []Node // configured ones
	Link           Link
	EventsDropped  uint64
	ConfigRevision uint64
	Refreshes      Refreshes
	Scales         []estimate.Scale
}

// Node is one configured node.
type Node struct {
	ID        admission.NodeID
	Connected bool
	Draining  bool
}

// Link is the node link's totals since the start.
type Link struct {
	Connections, Disconnections uint64
	// Work streams refused for their token.
	StaleTokens, UnknownTokens, MissingTokens, ReplayedTokens uint64
	StaleFrames                                               uint64 // dropped: of a generation that was over
	Overflows                                                 uint64 // sessions ended because the node did not read
	Rejections                                                map[string]uint64
}

// Refreshes are how often the configuration was read since the start, by the end of it.
type Refreshes struct{ Applied, Refused uint64 }

// Of the labels that have a closed list of values.
var nodeStates = []string{"connected", "draining", "offline"}

// What a request can wait for; these are shown at 0 too.
var waitReasons = []admission.Reason{admission.ReasonOverCapacity, admission.ReasonFull, admission.ReasonLongFull, admission.ReasonBehind}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// The series of a scrape's State.
var (
	leasesGranted  = describe("iop_leases_granted_total", "Slots given to requests.")
	leasesReleased = describe("iop_leases_released_total", "Slots that came back, fences included. Granted minus released is what is in flight.")
	leasesFenced   = describe("iop_leases_fenced_total", "Slots that ended because the connection of their node did.")
	doubleReleases = describe("iop_lease_double_releases_total", "Second ends of a lease, each without effect. Above 0 is a bug.")
	staleCloses    = describe("iop_stale_closes_total", "Disconnects and drains of a node's connection that another had replaced.")

	inFlight     = describe("iop_in_flight", "Requests that hold a slot of the provider.", "node", "provider")
	longInFlight = describe("iop_long_in_flight", "Those of them with a long context.", "node", "provider")
	capacity     = describe("iop_capacity", "Slots of the provider, as configured or overridden.", "node", "provider")
	longCapacity = describe("iop_long_capacity", "Slots for long contexts; 0 is no separate limit.", "node", "provider")
	available    = describe("iop_provider_available", "1 if the provider is a live candidate, else 0.", "node", "provider")
	excluded     = describe("iop_provider_excluded", "1 with the reason for which the provider is no live candidate; absent if it is one.", "node", "provider", "reason")
	oldestLease  = describe("iop_oldest_lease_seconds", "For how long the oldest request of the provider has held its slot; 0 without one.", "node", "provider")

	queueDepth = describe("iop_queue_depth", "Requests that wait.", "scope")
	queueLimit = describe("iop_queue_limit", "Most that may wait.", "scope")
	waitingBy  = describe("iop_waiting_requests", "Requests that wait, by what for.", "reason")
	oldestWait = describe("iop_oldest_wait_seconds", "For how long the oldest waiting request has waited; 0 without one.")

	nodes          = describe("iop_nodes", "Configured nodes, by their state.", "state")
	nodeConnected  = describe("iop_node_connected", "1 if the node is connected, else 0.", "node")
	connections    = describe("iop_node_connections_total", "Connections of nodes that were accepted.")
	disconnections = describe("iop_node_disconnections_total", "Connections of nodes that have ended.")
	refusedNodes   = describe("iop_node_registrations_refused_total", "Registrations of nodes that were refused.", "reason")
	refusedTokens  = describe("iop_link_tokens_refused_total", "Work streams of nodes refused for their token.", "reason")
	staleFrames    = describe("iop_link_stale_frames_total", "Frames dropped that came over a connection which another had replaced.")
	linkOverflows  = describe("iop_link_overflows_total", "Connections ended because the node did not read.")

	eventsDropped  = describe("iop_events_dropped_total", "Events that a subscriber was too slow for.")
	configRevision = describe("iop_config_revision", "Configurations accepted since the start, the first included.")
	refreshes      = describe("iop_config_refreshes_total", "Readings of the configuration since the start.", "result")
	estimateScale  = describe("iop_estimate_scale", "What the input estimate of a served target is multiplied by, from what providers have counted.", "target", "kind")
)

// collector shows a State. It implements prometheus.Collector.
type collector struct{ state func() State }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leasesGranted, leasesReleased, leasesFenced, doubleReleases, staleCloses,
		inFlight, longInFlight, capacity, longCapacity, available, excluded, oldestLease,
		queueDepth, queueLimit, waitingBy, oldestWait,
		nodes, nodeConnected, connections, disconnections, refusedNodes, refusedTokens, staleFrames, linkOverflows,
		eventsDropped, configRevision, refreshes, estimateScale,
	} {
		to <- d
	}
}

// scrape is one Collect.
type scrape chan<- prometheus.Metric

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s scrape) total(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	st := c.state()
	s := scrape(to)
	k := &st.Admission.Counters
	s.total(leasesGranted, k.Granted)
	s.total(leasesReleased, k.Released)
	s.total(leasesFenced, k.Fenced)
	s.total(doubleReleases, k.DoubleReleases)
	s.total(staleCloses, k.Stale)
	s.providers(&st)
	s.queue(&st.Admission)
	s.link(&st)
	s.total(eventsDropped, st.EventsDropped)
	s.gauge(configRevision, float64(st.ConfigRevision))
	s.total(refreshes, st.Refreshes.Applied, "applied")
	s.total(refreshes, st.Refreshes.Refused, "refused")
	for _, e := range st.Scales {
		if e.Factor > 0 {
			s.gauge(estimateScale, e.Factor, valid(e.Target), e.Kind)
		}
	}
}

func (s scrape) providers(st *State) {
	oldest := map[admission.ResourceKey]time.Time{}
	for i := range st.Admission.Leases {
		l := &st.Admission.Leases[i]
		if t, ok := oldest[l.Resource]; !ok || l.Granted.Before(t) {
			oldest[l.Resource] = l.Granted
		}
	}
	for i := range st.Admission.Resources {
		r := &st.Admission.Resources[i]
		node, provider := valid(string(r.Key.Node)), valid(string(r.Key.Provider))
		s.gauge(inFlight, float64(r.InFlight), node, provider)
		s.gauge(longInFlight, float64(r.LongInFlight), node, provider)
		s.gauge(capacity, float64(r.Capacity), node, provider)
		s.gauge(longCapacity, float64(r.LongCapacity), node, provider)
		age := 0.0
		if since, ok := oldest[r.Key]; ok {
			age = max(st.At.Sub(since).Seconds(), 0)
		}
		s.gauge(oldestLease, age, node, provider)
		switch {
		case r.Removed:
			s.gauge(available, 0, node, provider)
			s.gauge(excluded, 1, node, provider, "removed")
		case r.Excluded != admission.ReasonNone:
			s.gauge(available, 0, node, provider)
			s.gauge(excluded, 1, node, provider, r.Excluded.String())
		default:
			s.gauge(available, 1, node, provider)
		}
	}
}

func (s scrape) queue(a *admission.Snapshot) {
	for i := range a.Scopes {
		sc := &a.Scopes[i]
		s.gauge(queueDepth, float64(sc.Pending), valid(string(sc.Key)))
		s.gauge(queueLimit, float64(sc.MaxQueue), valid(string(sc.Key)))
	}
	for i, n := range a.WaitingBy {
		if r := admission.Reason(i); n > 0 || slices.Contains(waitReasons, r) {
			s.gauge(waitingBy, float64(n), r.String())
		}
	}
	s.gauge(oldestWait, a.OldestWait.Seconds())
}

func (s scrape) link(st *State) {
	by := map[string]int{}
	for _, n := range st.Nodes {
		up := 0.0
		state := "offline"
		switch {
		case n.Connected && n.Draining:
			state, up = "draining", 1
		case n.Connected:
			state, up = "connected", 1
		}
		by[state]++
		s.gauge(nodeConnected, up, valid(string(n.ID)))
	}
	for _, state := range nodeStates {
		s.gauge(nodes, float64(by[state]), state)
	}
	l := &st.Link
	s.total(connections, l.Connections)
	s.total(disconnections, l.Disconnections)
	for reason, n := range l.Rejections {
		s.total(refusedNodes, n, reason)
	}
	s.total(refusedTokens, l.StaleTokens, "stale")
	s.total(refusedTokens, l.UnknownTokens, "unknown")
	s.total(refusedTokens, l.MissingTokens, "missing")
	s.total(refusedTokens, l.ReplayedTokens, "replayed")
	s.total(staleFrames, l.StaleFrames)
	s.total(linkOverflows, l.Overflows)
}
