package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/iop-dev/iop/edge/dispatch"
)

// unknown is the model of a request that named none of the configured ones, or was refused before its model was looked at.
const unknown = "unknown"

// The outcomes of requests that never reach admission; the others are those of dispatch.Ending.
const (
	refusedOutcome = "refused" // by the Edge, with an error
	localOutcome   = "local"   // answered by the Edge itself: a list of models, a probe
)

// outcomes is every outcome there is. Any other word would be a bug, and is shown as "other".
var outcomes = func() map[string]bool {
	all := map[string]bool{}
	for _, o := range []string{
		refusedOutcome, localOutcome,
		"completed", "provider_error", "cancelled", "client_gone", "draining", "queue_full", "queue_timeout", "unavailable", "unknown_model",
		"never_opened", "provider_busy", "provider_unreachable", "provider_disconnected", "provider_timeout",
	} {
		all[o] = true
	}
	return all
}()

// seconds are the bounds of all histograms: from a full cache to an hour of queueing.
var seconds = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

// traffic counts requests.
type traffic struct {
	received     prometheus.Counter
	requests     *prometheus.CounterVec
	refused      *prometheus.CounterVec
	readmitted   *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	firstByte    *prometheus.HistogramVec
	duration     *prometheus.HistogramVec
	input        *prometheus.CounterVec
	output       *prometheus.CounterVec
	withoutUsage *prometheus.CounterVec
	empty        *prometheus.CounterVec
}

func newTraffic(r prometheus.Registerer) *traffic {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, []string{"model"})
		r.MustRegister(v)
		return v
	}
	t := &traffic{
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "iop_requests_received_total", Help: "Requests of clients, whatever became of them."}),
		requests: counter("iop_requests_total", "Requests that have ended, each in one outcome.", "model", "outcome"),
		refused:  counter("iop_requests_refused_total", "Requests refused before admission, by the error's code.", "code"),
		readmitted: counter("iop_readmissions_total",
			"Times that a request waited again, because its node was lost or refused it before a provider had it.", "model"),
		wait:         histogram("iop_queue_wait_seconds", "From a request's first admission attempt to the grant that it ended with. Requests without a grant are not in it."),
		firstByte:    histogram("iop_first_byte_seconds", "From the grant to the first byte of the provider's answer."),
		duration:     histogram("iop_request_duration_seconds", "From the first admission attempt to the end, of requests that had a grant."),
		input:        counter("iop_input_tokens_total", "Tokens of prompts, as providers have counted them.", "model", "node", "provider"),
		output:       counter("iop_output_tokens_total", "Tokens of answers, as providers have counted them.", "model", "node", "provider"),
		withoutUsage: counter("iop_answers_without_usage_total", "Completed answers whose tokens are unknown: the provider has not said.", "model", "node", "provider"),
		empty:        counter("iop_empty_answers_total", "Completed answers without any text that say that their length was used up.", "model", "node", "provider"),
	}
	r.MustRegister(t.received)
	return t
}

// ended counts one request that dispatch has carried.
func (t *traffic) ended(e *dispatch.Ending) {
	model, outcome := valid(string(e.Group)), e.Outcome
	if outcome == "unknown_model" {
		model = unknown
	}
	if !outcomes[outcome] {
		outcome = "other"
	}
	t.requests.WithLabelValues(model, outcome).Inc()
	if e.Attempts > 1 {
		t.readmitted.WithLabelValues(model).Add(float64(e.Attempts - 1))
	}
	if e.Grant.Node == "" {
		return
	}
	node, provider := valid(string(e.Grant.Node)), valid(string(e.Grant.Provider))
	t.wait.WithLabelValues(model).Observe(e.Grant.QueueWait.Seconds())
	t.duration.WithLabelValues(model).Observe((e.Grant.QueueWait + e.Run).Seconds())
	if e.FirstByte > 0 {
		t.firstByte.WithLabelValues(model).Observe(e.FirstByte.Seconds())
	}
	if e.InputTokens >= 0 {
		t.input.WithLabelValues(model, node, provider).Add(float64(e.InputTokens))
	}
	if e.OutputTokens >= 0 {
		t.output.WithLabelValues(model, node, provider).Add(float64(e.OutputTokens))
	}
	if e.InputTokens < 0 && e.OutputTokens < 0 && e.Outcome == "completed" {
		t.withoutUsage.WithLabelValues(model, node, provider).Inc()
	}
	if e.Empty {
		t.empty.WithLabelValues(model, node, provider).Inc()
	}
}
