package traces

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/dispatch"
)

// operations are the words of the GenAI conventions; other endpoints are called by their path's last part.
var operations = map[string]string{
	"/v1/chat/completions": "chat", "/v1/responses": "chat", "/v1/messages": "chat", "/api/chat": "chat", "/iop.inference.v1.InferenceService/Run": "chat",
	"/v1/completions": "text_completion", "/api/generate": "text_completion",
	"/v1/embeddings": "embeddings", "/api/embed": "embeddings", "/api/embeddings": "embeddings",
}

// Ended makes the span of a request. It never waits.
func (x *Exporter) Ended(e *dispatch.Ending) {
	ctx := context.Background()
	if e.TraceParent != "" {
		ctx = x.parents.Extract(ctx, propagation.MapCarrier{"traceparent": e.TraceParent})
	}
	operation, ok := operations[e.Path]
	if !ok {
		operation = e.Path[strings.LastIndexByte(e.Path, '/')+1:]
	}
	model := string(e.Group)
	if e.Outcome == "unknown_model" {
		model = "unknown"
	}
	_, span := x.tracer.Start(ctx, operation+" "+model, trace.WithTimestamp(e.Began), trace.WithSpanKind(trace.SpanKindServer))
	defer span.End(trace.WithTimestamp(e.At))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("gen_ai.operation.name", operation),
		attribute.String("gen_ai.request.model", model),
		attribute.String("iop.outcome", e.Outcome),
		attribute.String("iop.request.id", e.ID),
		attribute.String("iop.context_class", e.Class.String()),
		attribute.Int("iop.estimated_input_tokens", e.Estimated),
		attribute.Int64("iop.enqueue_seq", int64(e.Seq)),
	)
	if e.Client != "" {
		span.SetAttributes(attribute.String("iop.client", e.Client))
	}
	if e.Reason != admission.ReasonNone {
		span.SetAttributes(attribute.String("iop.reason", e.Reason.String()))
	}
	if e.Outcome != "completed" {
		span.SetAttributes(attribute.String("error.type", e.Outcome))
		span.SetStatus(codes.Error, e.Outcome)
	}
	if e.Grant.Node != "" {
		x.granted(span, e)
	}
}

// granted adds what is known of a request that had a slot.
func (x *Exporter) granted(span trace.Span, e *dispatch.Ending) {
	span.SetAttributes(
		attribute.String("gen_ai.response.model", e.Grant.Target),
		attribute.String("iop.node", string(e.Grant.Node)),
		attribute.String("iop.provider", string(e.Grant.Provider)),
		attribute.Int64("iop.queue_wait_ms", e.Grant.QueueWait.Milliseconds()),
		attribute.Int("iop.attempts", e.Attempts),
	)
	if kind := x.typeOf(admission.ResourceKey{Node: e.Grant.Node, Provider: e.Grant.Provider}); kind != "" {
		span.SetAttributes(attribute.String("gen_ai.provider.name", kind))
	}
	if e.Status != 0 {
		span.SetAttributes(attribute.Int("iop.provider_status", e.Status))
	}
	if e.InputTokens >= 0 {
		span.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", e.InputTokens))
	}
	if e.OutputTokens >= 0 {
		span.SetAttributes(attribute.Int("gen_ai.usage.output_tokens", e.OutputTokens))
	}
	if e.Empty {
		span.SetAttributes(attribute.Bool("iop.empty", true))
	}
	granted := e.At.Add(-e.Run)
	span.AddEvent("grant", trace.WithTimestamp(granted))
	if e.FirstByte > 0 {
		span.AddEvent("first byte", trace.WithTimestamp(granted.Add(e.FirstByte)))
	}
}
