package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/cmd/edged"
	inferencev1 "github.com/iop-dev/iop/gen/go/iop/inference/v1"
	"github.com/iop-dev/iop/gen/go/iop/inference/v1/inferencev1connect"
)

// otlpCollector keeps what it is told. While it hangs it takes exports and answers none.
type otlpCollector struct {
	*httptest.Server
	mu       sync.Mutex
	raw      bytes.Buffer
	headers  []http.Header
	spans    []*otlp.Span
	resource map[string]any
	exports  int
}

func newCollector(t *testing.T, hang <-chan struct{}) *otlpCollector {
	c := &otlpCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &m) != nil {
			t.Errorf("%s of %s is no export: %v", r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		c.mu.Lock()
		c.exports++
		c.raw.Write(body)
		c.headers = append(c.headers, r.Header)
		for _, rs := range m.GetResourceSpans() {
			c.resource = valuesOf(rs.GetResource().GetAttributes())
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
		c.mu.Unlock()
		if hang != nil {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *otlpCollector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exports
}

func valuesOf(all []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range all {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = int(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = v.BoolValue
		default:
			out[kv.GetKey()] = "of another type"
		}
	}
	return out
}

// by finds the one span of a request id.
func (c *otlpCollector) by(t *testing.T, id string) (span *otlp.Span, has map[string]any) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if values := valuesOf(s.GetAttributes()); values["iop.request.id"] == id {
			require.Nil(t, span, "%s has two spans", id)
			span, has = s, values
		}
	}
	require.NotNil(t, span, "%s has no span", id)
	return span, has
}

// tracesTo is what an Edge file says of a collector.
func tracesTo(url string) object {
	return object{"edge": object{"telemetry": object{"otlp_endpoint": url}}}
}

// noOtelVariables takes away what the machine of the test may say.
func noOtelVariables(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_SAMPLER",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "OTEL_EXPORTER_OTLP_COMPRESSION",
	} {
		t.Setenv(name, "")
	}
}

const (
	traceOf, spanOf = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	sampled         = "00-" + traceOf + "-" + spanOf + "-01"
	plantedSecret   = "planted-secret-9"
)

// Each request that reached admission is one span at the collector, by the GenAI conventions and as docs/metrics.md says: its parent is the
// client's, errors and cancels are marked, and nothing that was said in it, and no key, is on the way.
func TestTraces_ARequestIsASpanAtTheCollector(t *testing.T) {
	noOtelVariables(t)
	begun := time.Now()
	c := newCollector(t, nil)
	s := wordedProvider(t)
	r := startInside(t, busySite(s.URL, time.Hour, tracesTo(c.URL)), io.Discard, func(*edged.Edge) {}, "n", "w")
	ask := func(ctx context.Context, id, path, model, word string, header ...string) answer {
		body := strings.Replace(saying(model, word), "go 97", plantedSecret, 1)
		if path == "/v1/embeddings" {
			body = `{"model":"` + model + `","input":"` + plantedSecret + `"}`
		}
		return r.fetch(ctx, http.MethodPost, path, strings.NewReader(body), append(header, "X-Request-Id", id)...)
	}
	const chat = "/v1/chat/completions"
	require.Equal(t, http.StatusOK, ask(t.Context(), "streamed", chat, "m", sayStream, "Traceparent", sampled).status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "alone", chat, "m", sayMute).status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "malformed", chat, "m", sayFine, "Traceparent", "00-"+plantedSecret).status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "unsampled", chat, "m", sayFine, "Traceparent", strings.TrimSuffix(sampled, "1")+"0").status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "vectors", "/v1/embeddings", "m", sayFine, "Traceparent", sampled).status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "moved", chat, "again", sayFine).status)
	require.Equal(t, http.StatusOK, ask(t.Context(), "emptied", chat, "m", sayEmpty).status)
	require.Equal(t, http.StatusInternalServerError, ask(t.Context(), "failed", chat, "m", sayFail).status)
	require.Equal(t, http.StatusServiceUnavailable, ask(t.Context(), "nowhere", chat, "gone", sayFine, "Traceparent", sampled).status)
	require.Equal(t, http.StatusNotFound, ask(t.Context(), "refused-model", chat, "nobody", sayFine, "Traceparent", sampled).status)
	require.Equal(t, http.StatusUnauthorized, ask(t.Context(), "refused-key", chat, "m", sayFine, "Authorization", "Bearer "+plantedSecret).status)

	// One runs, two wait behind it, a third finds no room; then they leave, the last first.
	var leave []func()
	for i, id := range []string{"left-running", "left-waiting", "left-behind"} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan answer, 1)
		go func() { gone <- ask(ctx, id, chat, "m", sayHang) }()
		leave = append(leave, func() { cancel(); require.Error(t, (<-gone).err) })
		r.running(1)
		r.waiting(uint32(i))
	}
	require.Equal(t, "queue_full", ask(t.Context(), "no-room", chat, "m", sayFine).code(t))
	for i := len(leave) - 1; i >= 0; i-- {
		leave[i]()
		r.waiting(uint32(max(0, i-1)))
	}
	r.running(0)

	// The typed API, as its own client speaks it.
	call, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set("Authorization", "Bearer "+apiKey)
	info.RequestHeader().Set("Traceparent", sampled)
	run, err := inferencev1connect.NewInferenceServiceClient(r.client, r.url).Run(call, &inferencev1.RunRequest{
		Model: "m", Messages: []*inferencev1.Message{{
			Role: inferencev1.Role_ROLE_USER, Parts: []*inferencev1.Part{{Content: &inferencev1.Part_Text{Text: plantedSecret + " " + sayStream}}},
		}},
	})
	require.NoError(t, err)
	typedID := ""
	for run.Receive() {
		if started := run.Msg().GetStarted(); started != nil {
			typedID = started.GetRequestId()
		}
	}
	require.NoError(t, run.Err())
	require.NoError(t, run.Close())
	require.NotEmpty(t, typedID)
	r.balanced()
	r.halt() // what waits is delivered

	common := map[string]any{ // of every request to m that had the slot
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.model": "served", "gen_ai.provider.name": "openai",
		"iop.client": "test", "iop.context_class": "normal", "iop.node": "n", "iop.provider": "p", "iop.attempts": 1,
	}
	const completed = "completed"
	for id, tt := range map[string]struct {
		name, outcome string
		parent        bool
		has           map[string]any // besides common, or in its place; nil: must not be there
		events        int
	}{
		"streamed":  {"chat m", completed, true, map[string]any{"gen_ai.usage.input_tokens": countedInput, "gen_ai.usage.output_tokens": countedOutput, "iop.provider_status": 200}, 2},
		"alone":     {"chat m", completed, false, map[string]any{"gen_ai.usage.input_tokens": nil, "gen_ai.usage.output_tokens": nil}, 2},
		"malformed": {"chat m", completed, false, nil, 2},
		"vectors":   {"embeddings m", completed, true, map[string]any{"gen_ai.operation.name": "embeddings"}, 2},
		"moved":     {"chat again", completed, false, map[string]any{"gen_ai.request.model": "again", "iop.node": "w", "iop.provider": "q", "iop.attempts": 2}, 2},
		"emptied":   {"chat m", completed, false, map[string]any{"iop.empty": true}, 2},
		"failed":    {"chat m", "provider_error", false, map[string]any{"iop.provider_status": 500, "gen_ai.usage.output_tokens": nil}, 2},
		"nowhere": {"chat gone", "unavailable", true, map[string]any{
			"gen_ai.request.model": "gone", "gen_ai.response.model": nil, "gen_ai.provider.name": nil, "iop.node": nil, "iop.provider": nil, "iop.attempts": nil, "iop.reason": "offline",
		}, 0},
		"no-room": {"chat m", "queue_full", false, map[string]any{
			"gen_ai.response.model": nil, "gen_ai.provider.name": nil, "iop.node": nil, "iop.provider": nil, "iop.attempts": nil, "iop.reason": "full",
		}, 0},
		"left-running": {"chat m", "cancelled", false, map[string]any{"iop.provider_status": nil, "gen_ai.usage.output_tokens": nil}, 1},
		"left-waiting": {"chat m", "cancelled", false, map[string]any{
			"gen_ai.response.model": nil, "gen_ai.provider.name": nil, "iop.node": nil, "iop.provider": nil, "iop.attempts": nil,
		}, 0},
		"left-behind": {"chat m", "cancelled", false, map[string]any{
			"gen_ai.response.model": nil, "gen_ai.provider.name": nil, "iop.node": nil, "iop.provider": nil, "iop.attempts": nil,
		}, 0},
		typedID: {"chat m", completed, true, map[string]any{"gen_ai.usage.output_tokens": countedOutput}, 2},
	} {
		span, has := c.by(t, id)
		require.Equal(t, tt.name, span.GetName(), id)
		require.Equal(t, otlp.Span_SPAN_KIND_SERVER, span.GetKind(), id)
		require.Equal(t, tt.outcome, has["iop.outcome"], id)
		if tt.outcome == completed {
			require.Equal(t, otlp.Status_STATUS_CODE_UNSET, span.GetStatus().GetCode(), id)
			require.NotContains(t, has, "error.type", id)
		} else {
			require.Equal(t, otlp.Status_STATUS_CODE_ERROR, span.GetStatus().GetCode(), id)
			require.Equal(t, tt.outcome, has["error.type"], id)
		}
		if tt.parent {
			require.Equal(t, traceOf, hex.EncodeToString(span.GetTraceId()), id)
			require.Equal(t, spanOf, hex.EncodeToString(span.GetParentSpanId()), id)
		} else {
			require.NotEqual(t, traceOf, hex.EncodeToString(span.GetTraceId()), id)
			require.Empty(t, span.GetParentSpanId(), id)
		}
		for key, want := range common {
			if _, other := tt.has[key]; !other {
				require.Equal(t, want, has[key], "%s: %s", id, key)
			}
		}
		for key, want := range tt.has {
			if want == nil {
				require.NotContains(t, has, key, id)
			} else {
				require.Equal(t, want, has[key], "%s: %s", id, key)
			}
		}
		// The times are in order, and of this test.
		times := []uint64{uint64(begun.UnixNano()), span.GetStartTimeUnixNano()}
		for i, e := range span.GetEvents() {
			require.Equal(t, []string{"grant", "first byte"}[i], e.GetName(), id)
			times = append(times, e.GetTimeUnixNano())
		}
		require.Len(t, span.GetEvents(), tt.events, id)
		times = append(times, span.GetEndTimeUnixNano(), uint64(time.Now().UnixNano()))
		require.IsNonDecreasing(t, times, id)
	}
	require.Len(t, c.spans, 13, "the unsampled one and those that were refused are not among them")
	require.Equal(t, "iop-edge", c.resource["service.name"])
	require.Equal(t, "v9", c.resource["service.version"])
	require.Equal(t, "e2e", c.resource["iop.edge.id"])
	require.NotEmpty(t, c.resource["service.instance.id"])

	for _, secret := range []string{plantedSecret, "answer-text", apiKey, readToken, nodeToken, hash(apiKey), s.URL, "Bearer"} {
		require.NotContains(t, c.raw.String(), secret)
	}
	for _, h := range c.headers {
		require.Empty(t, h.Get("Authorization"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.headers)
	for _, h := range s.headers {
		require.Empty(t, h.Get("Traceparent"), "a trace is the client's and the collector's")
		require.Empty(t, h.Get("Tracestate"))
	}
}

// A collector that takes what it is told and never answers, or is not there, holds no request up, and a stop only for a moment: of more spans than
// there is room for the rest is lost.
func TestTraces_ACollectorThatHangsHoldsNothingUp(t *testing.T) {
	noOtelVariables(t)
	const requests, hands = 3000, 8 // the queue holds 2048
	never := make(chan struct{})
	hung := newCollector(t, never)
	t.Cleanup(func() { close(never) })
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for name, url := range map[string]string{
		"hangs": hung.URL, "is not there": strings.Replace(dead.URL, "http://", "http://user:"+plantedSecret+"@", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := wordedProvider(t)
			log := &lockedBuffer{}
			r := startInside(t, busySite(s.URL, time.Hour, tracesTo(url)), log, func(*edged.Edge) {}, "n", "w")
			begun := time.Now()
			var workers sync.WaitGroup
			for range hands {
				workers.Go(func() {
					for range requests / hands {
						if a := r.ask(t.Context(), saying("gone", sayFine)); a.status != http.StatusServiceUnavailable {
							t.Errorf("answered %d %v", a.status, a.err)
							return
						}
					}
				})
			}
			workers.Wait()
			require.Equal(t, http.StatusOK, r.ask(t.Context(), saying("m", sayFine)).status)
			// Were they delivered before requests go on, each 512 would take the 30 s that a delivery is tried for.
			require.Less(t, time.Since(begun), 25*time.Second)
			got := r.balanced()
			require.EqualValues(t, requests, got.sum("iop_requests_total", `model="gone"`, `outcome="unavailable"`))
			if name == "hangs" {
				require.Eventually(t, func() bool { return hung.count() > 0 }, 20*time.Second, 10*time.Millisecond)
			}
			stopping := time.Now()
			r.halt()
			require.Less(t, time.Since(stopping), 15*time.Second)
			require.True(t, strings.Contains(log.String(), "traces are not delivered"), "the operator is not told")
			require.False(t, strings.Contains(log.String(), plantedSecret), "the collector's password is in the log")
		})
	}
}

// lockedBuffer is a buffer for many writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
