package metrics

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/iop-dev/iop/edge/dispatch"
)

// Metrics is what one Edge shows. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	traffic  *traffic
	log      *slog.Logger
}

// New returns metrics whose gauges are computed from state at each scrape.
func New(version string, state func() State, log *slog.Logger) *Metrics {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "iop_build_info", Help: "1, with the version that runs.",
		ConstLabels: prometheus.Labels{"version": valid(version), "goversion": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info, collector{state}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{registry: r, traffic: newTraffic(r), log: log}
}

// Received counts a request of a client as it comes. Exactly one of Ended, Refused and Local follows.
func (m *Metrics) Received() { m.traffic.received.Inc() }

// Ended counts a request that was dispatched.
func (m *Metrics) Ended(e *dispatch.Ending) { m.traffic.ended(e) }

// Refused counts a request that was refused before admission. code is of the surfaces' closed lists.
func (m *Metrics) Refused(code string) {
	m.traffic.requests.WithLabelValues(unknown, refusedOutcome).Inc()
	m.traffic.refused.WithLabelValues(code).Inc()
}

// Local counts a request that the Edge has answered itself.
func (m *Metrics) Local() { m.traffic.requests.WithLabelValues(unknown, localOutcome).Inc() }

// Registry holds all series.
func (m *Metrics) Registry() prometheus.Gatherer { return m.registry }

// patience is how long a scrape may take to come, and its answer to be taken. Few run at once: one that is forgotten is not to
// keep the next one out.
const patience = 30 * time.Second

// Handler answers a scrape. A metric that cannot be shown is left out and logged, so that one fault does not hide the rest.
func (m *Metrics) Handler() http.Handler {
	scrapes := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w) // unsupported only in writers that are no connection
		_ = rc.SetReadDeadline(time.Now().Add(patience))
		_ = rc.SetWriteDeadline(time.Now().Add(patience))
		defer func() {
			_ = rc.Flush() // the end of it, while the limit holds
			_ = rc.SetWriteDeadline(time.Time{})
		}()
		scrapes.ServeHTTP(w, r)
	})
}

// valid makes a name from the configuration a label's value, which is UTF-8.
func valid(name string) string { return strings.ToValidUTF8(name, "?") }
