package traces

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jonboulle/clockwork"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/iop-dev/iop/edge/admission"
)

const (
	// attemptLimit is how long one delivery may take, patience how long it is tried again.
	attemptLimit, patience = 5 * time.Second, 30 * time.Second
	// lastDelivery bounds what a stop waits for the collector.
	lastDelivery = 2 * time.Second
)

// Config says where spans go and who sends them.
type Config struct {
	// Endpoint is the collector's URL; empty = what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says.
	Endpoint string
	EdgeID   string
	Instance string
	Version  string
	// Type is the configured type of a provider; empty if it is configured no longer.
	Type  func(admission.ResourceKey) string
	Clock clockwork.Clock
	Log   *slog.Logger
}

// Exporter makes spans of endings. A nil one makes none.
type Exporter struct {
	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
	tracer   trace.Tracer
	parents  propagation.TraceContext
	typeOf   func(admission.ResourceKey) string
	clock    clockwork.Clock
	log      *slog.Logger
}

// on reports whether spans are wanted at all.
func (c *Config) on() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return false
	}
	return c.Endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// New returns nil where nothing is configured. It does not look for the collector, which may come later.
func New(c Config) (*Exporter, error) {
	if !c.on() {
		return nil, nil
	}
	options := []otlptracehttp.Option{
		otlptracehttp.WithTimeout(attemptLimit),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: attemptLimit, MaxElapsedTime: patience}),
	}
	if c.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(c.Endpoint)))
	}
	client, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("edge.telemetry: %w", err)
	}
	// What the operator says in OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES goes first.
	who, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "iop-edge"), attribute.String("service.version", c.Version),
		attribute.String("service.instance.id", c.Instance), attribute.String("iop.edge.id", c.EdgeID),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		c.Log.Warn("OTEL_RESOURCE_ATTRIBUTES is taken in part only", "error", err)
	}
	// The library has one place for what goes wrong in the background.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("traces are not delivered", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(client), sdktrace.WithResource(who))
	return &Exporter{
		provider: provider, exporter: client, tracer: provider.Tracer("github.com/iop-dev/iop/edge/traces"), typeOf: c.Type, clock: c.Clock, log: c.Log,
	}, nil
}

// tracesURL is the path of traces at a collector, unless the operator has named one.
func tracesURL(endpoint string) string {
	trimmed := strings.TrimRight(endpoint, "/")
	if strings.Count(trimmed, "/") > len("//") {
		return trimmed
	}
	return trimmed + "/v1/traces"
}

// Close delivers what waits, for a moment.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	ctx, cancel := clockwork.WithTimeout(context.Background(), x.clock, lastDelivery)
	defer cancel()
	if err := x.provider.Shutdown(ctx); err != nil {
		x.log.Warn("the last traces are not delivered", "error", err)
		_ = x.exporter.Shutdown(context.Background()) // ends what is still being delivered
	}
}
