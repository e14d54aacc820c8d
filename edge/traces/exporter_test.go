package traces

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(endpoint string) Config {
	return Config{
		Endpoint: endpoint, EdgeID: "e", Instance: "i", Version: "v", Clock: clockwork.NewRealClock(), Log: slog.New(slog.DiscardHandler),
		Type: func(k admission.ResourceKey) string { return map[string]string{"n/p": "vllm"}[k.String()] },
	}
}

var at = time.Date(2026, 12, 1, 0, 0, 10, 0, time.UTC)

func ending() *dispatch.Ending {
	return &dispatch.Ending{
		Seq: 7, ID: "r1", Client: "laptop", Group: "m", Path: "/v1/chat/completions", Outcome: "completed", Began: at.Add(-10 * time.Second), At: at,
		Grant: dispatch.Grant{Node: "n", Provider: "p", Target: "served", QueueWait: 4 * time.Second}, Run: 6 * time.Second, FirstByte: time.Second,
		Attempts: 1, Status: 200, InputTokens: 12, OutputTokens: 3, Detail: "of the log only",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// collect starts a collector and returns what it is told.
func collect(t *testing.T) (url string, spans chan *otlp.Span) {
	spans = make(chan *otlp.Span, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
			t.Errorf("%s is no export", r.URL.Path)
			return
		}
		for _, rs := range m.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, span := range ss.GetSpans() {
					spans <- span
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, spans
}

func plain(all []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range all {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = int(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = v.BoolValue
		}
	}
	return out
}

func TestASpanForEachRequest(t *testing.T) {
	url, spans := collect(t)
	x, err := New(config(url))
	require.NoError(t, err)
	x.Ended(ending())
	refused := &dispatch.Ending{
		Seq: 8, ID: "r2", Group: "m", Path: "/v1/rerank", Outcome: "queue_full", Reason: admission.ReasonFull, Class: admission.Long, Began: at, At: at,
		InputTokens: -1, OutputTokens: -1, TraceParent: "no trace",
	}
	x.Ended(refused)
	x.Close()

	s := <-spans
	require.Equal(t, "chat m", s.GetName())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(s.GetTraceId()))
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(s.GetParentSpanId()))
	require.Equal(t, otlp.Span_SPAN_KIND_SERVER, s.GetKind())
	require.Equal(t, map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.model": "served", "gen_ai.provider.name": "vllm",
		"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3,
		"iop.outcome": "completed", "iop.request.id": "r1", "iop.client": "laptop", "iop.context_class": "normal", "iop.estimated_input_tokens": 0,
		"iop.enqueue_seq": 7, "iop.node": "n", "iop.provider": "p", "iop.queue_wait_ms": 4000, "iop.attempts": 1, "iop.provider_status": 200,
	}, plain(s.GetAttributes()))
	require.EqualValues(t, at.Add(-10*time.Second).UnixNano(), s.GetStartTimeUnixNano())
	require.EqualValues(t, at.UnixNano(), s.GetEndTimeUnixNano())
	require.Len(t, s.GetEvents(), 2)
	require.Equal(t, "grant", s.GetEvents()[0].GetName())
	require.EqualValues(t, at.Add(-6*time.Second).UnixNano(), s.GetEvents()[0].GetTimeUnixNano())
	require.Equal(t, "first byte", s.GetEvents()[1].GetName())
	require.EqualValues(t, at.Add(-5*time.Second).UnixNano(), s.GetEvents()[1].GetTimeUnixNano())

	s = <-spans
	require.Equal(t, "rerank m", s.GetName())
	require.Empty(t, s.GetParentSpanId())
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, s.GetStatus().GetCode())
	have := plain(s.GetAttributes())
	require.Equal(t, "queue_full", have["error.type"])
	require.Equal(t, "full", have["iop.reason"])
	require.Equal(t, "long", have["iop.context_class"])
	require.NotContains(t, have, "gen_ai.usage.input_tokens")
	require.NotContains(t, have, "iop.node")
	require.Empty(t, spans)
}

func TestNothingIsSentUnlessConfigured(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
		t.Setenv(name, "")
	}
	x, err := New(config(""))
	require.NoError(t, err)
	require.Nil(t, x)
	x.Close()
	url, spans := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	x, err = New(config(""))
	require.NoError(t, err)
	x.Ended(ending())
	x.Close()
	require.Equal(t, "chat m", (<-spans).GetName())
	t.Setenv("OTEL_SDK_DISABLED", "true")
	x, err = New(config(url))
	require.NoError(t, err)
	require.Nil(t, x)
}

// A collector that is dead, or that takes a request and never answers, costs spans and nothing else.
func TestNoCollectorHoldsARequestUp(t *testing.T) {
	let := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
		case <-let:
		}
	}))
	defer hanging.Close()
	defer close(let)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for name, url := range map[string]string{"dead": dead.URL, "hanging": hanging.URL} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			x, err := New(config(url))
			require.NoError(t, err)
			e := ending()
			start := time.Now()
			for range 20_000 { // many times what the queue holds
				x.Ended(e)
			}
			require.Less(t, time.Since(start), time.Minute, "each delivery that is waited for would take ten seconds")
			x.Close()
			require.Eventually(t, func() bool { return goleak.Find(before) == nil }, time.Minute, 10*time.Millisecond, "deliveries go on")
		})
	}
}

// hang starts a collector that takes a request, says so, and never answers while the test runs.
func hang(t *testing.T) (url string, took <-chan struct{}) {
	let, came := make(chan struct{}), make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		came <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-let:
		}
	}))
	t.Cleanup(func() { close(let); s.Close() })
	return s.URL, came
}

// Of what a collector does not take a bounded number waits, and no more memory is held.
func TestWhatWaitsForACollectorIsBounded(t *testing.T) {
	url, took := hang(t)
	x, err := New(config(url))
	require.NoError(t, err)
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	e := ending()
	for range 4000 {
		x.Ended(e)
	}
	<-took
	before := held()
	for range 50_000 { // a kilobyte and more each
		x.Ended(e)
	}
	require.Less(t, held()-before, int64(10<<20))
	x.Close()
}

// A stop gives a collector that hangs a moment, then lets go of it.
func TestAStopWaitsForNoCollector(t *testing.T) {
	url, took := hang(t)
	c := config(url)
	clock := clockwork.NewFakeClock()
	c.Clock = clock
	x, err := New(c)
	require.NoError(t, err)
	x.Ended(ending())
	ended := make(chan struct{})
	go func() {
		x.Close()
		close(ended)
	}()
	<-took // the stop delivers what waits
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, clock.BlockUntilContext(limit, 1), "a stop has no limit")
	clock.Advance(lastDelivery)
	select {
	case <-ended:
	case <-limit.Done(): // a delivery would be tried for longer
		t.Fatal("the stop waits for the collector")
	}
	x.Close() // once more does nothing
}

func TestTracesURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://collector:4318": "http://collector:4318/v1/traces", "https://collector/": "https://collector/v1/traces",
		"https://collector/otlp/v1/traces": "https://collector/otlp/v1/traces",
	} {
		require.Equal(t, want, tracesURL(endpoint))
	}
}
