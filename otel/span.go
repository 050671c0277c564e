package otel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scrub"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// runKey is the key of the span of the run that a context belongs to, a
// trace.SpanContext.
type runKey struct{}

// TraceContext implements perdure.Tracer. A run that another run starts is placed below
// that run's span, not below the span of a step, which may never end.
func (t *Telemetry) TraceContext(ctx context.Context, given string) string {
	here := trace.SpanContextFromContext(ctx)
	if run, ok := ctx.Value(runKey{}).(trace.SpanContext); ok {
		here = run
	}
	if there := parse(given); there.IsValid() && there.TraceID() != here.TraceID() || !here.IsValid() {
		return given
	}
	return format(here)
}

// PassStarted implements perdure.Tracer. The span of the run begins again with each
// pass, under the same id, and is sent by the pass in which the run ends. A retry has a
// span of its own below it.
func (t *Telemetry) PassStarted(ctx context.Context, p perdure.PassStart) (context.Context, func(perdure.PassEnd)) {
	about := []attribute.KeyValue{attribute.String("perdure.flow", p.Flow), attribute.String("perdure.thread", p.Thread), attribute.String("perdure.run", p.Run)}
	if p.Tenant != "" {
		about = append(about, attribute.String("perdure.tenant", p.Tenant))
	}
	of := append(about[:len(about):len(about)], attribute.String("gen_ai.operation.name", "invoke_workflow"),
		attribute.String("gen_ai.workflow.name", p.Flow), attribute.String("gen_ai.conversation.id", p.Thread))
	if p.Parent != "" {
		of = append(of, attribute.String("perdure.parent", p.Parent))
	}
	above := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if parent := parse(p.Trace); parent.IsValid() {
		above = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, run := t.start(above, ids{traceOf(p.Tenant, p.Thread, p.Run), runSpan(p.Tenant, p.Thread, p.Run)}, "invoke_workflow "+p.Flow, p.Created, of)
	if p.Retries > 0 { // the first one has been sent, and cannot be changed
		_, run = t.start(trace.ContextWithSpanContext(ctx, run.SpanContext()), ids{span: retrySpan(p.Tenant, p.Thread, p.Run, p.Retries)}, "invoke_workflow "+p.Flow, p.Created,
			append(of[:len(of):len(of)], attribute.Int("perdure.retries", p.Retries)))
	}
	ctx = context.WithValue(ctx, runKey{}, run.SpanContext())
	below := trace.ContextWithSpanContext(ctx, run.SpanContext())
	options := []trace.SpanStartOption{}
	if lost := p.Lost; lost.Seq != 0 {
		dead := t.takenOver(below, p, about)
		options = append(options, trace.WithLinks(trace.Link{SpanContext: dead,
			Attributes: []attribute.KeyValue{attribute.String("perdure.link", "takeover"), attribute.String("perdure.worker", lost.Worker)}}))
		about = append(about, attribute.Bool("perdure.takeover", true))
	}
	about = append(about, attribute.String("perdure.worker", p.Claim.Worker), attribute.Int("perdure.pass", p.Passes))
	inner, pass := t.start(below, ids{span: passSpan(p.Tenant, p.Thread, p.Run, p.Claim.Seq)}, "pass", p.Claim.Time, about, options...)
	if p.Lost.Seq != 0 {
		pass.AddEvent("takeover", trace.WithTimestamp(p.Claim.Time), trace.WithAttributes(attribute.String("perdure.worker", p.Lost.Worker)))
	}
	return inner, func(end perdure.PassEnd) {
		if errors.Is(end.Err, perdure.ErrFenced) {
			return // the pass that takes over reports this one, and the end of the run
		}
		pass.SetAttributes(attribute.String("perdure.status", string(end.Status)))
		if end.Status == perdure.Blocked {
			pass.SetStatus(codes.Error, "the code does not fit the record")
		}
		pass.End()
		if end.Ended.IsZero() {
			return
		}
		run.SetAttributes(attribute.String("perdure.status", string(end.Status)), attribute.Int("perdure.passes", p.Passes))
		if end.Status == perdure.Failed {
			run.SetStatus(codes.Error, clip(end.Error, maxText)) // the record has no secrets
		}
		run.End(trace.WithTimestamp(end.Ended))
	}
}

// takenOver reports the pass that another one takes over from, and returns its span.
func (t *Telemetry) takenOver(ctx context.Context, p perdure.PassStart, about []attribute.KeyValue) trace.SpanContext {
	about = append(about[:len(about):len(about)], attribute.Bool("perdure.pass.lost", true), attribute.String("perdure.worker", p.Lost.Worker), attribute.Int("perdure.pass", p.Passes-1))
	_, dead := t.start(ctx, ids{span: passSpan(p.Tenant, p.Thread, p.Run, p.Lost.Seq)}, "pass", p.Lost.Time, about)
	dead.SetStatus(codes.Error, "its worker died or lost its lease")
	dead.End(trace.WithTimestamp(p.Claim.Time))
	return dead.SpanContext()
}

// start starts a span with the given ids.
func (t *Telemetry) start(ctx context.Context, as ids, name string, at time.Time, about []attribute.KeyValue, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	_, span := t.tracer.Start(context.WithValue(ctx, idsKey{}, as), name, append(options, trace.WithTimestamp(at), trace.WithAttributes(about...))...)
	return trace.ContextWithSpan(ctx, span), span // not with the ids
}

// StepStarted implements perdure.Observer.
func (t *Telemetry) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	name := s.Path[strings.LastIndexByte(s.Path, '/')+1:]
	about := []attribute.KeyValue{attribute.String("perdure.step", s.Path), attribute.Int("perdure.attempt", s.Attempt)}
	kind := trace.SpanKindInternal
	title := "step " + name
	if said := t.attributes(ctx, s.Attrs); len(said) > 0 {
		about = append(about, said...)
		if op, of := operation(said); op != "" {
			title = strings.TrimSpace(op + " " + of)
			about = append(about, attribute.String("gen_ai.conversation.id", s.Thread))
			if op == "chat" {
				kind = trace.SpanKindClient
			}
		}
	}
	ctx, span := t.tracer.Start(ctx, title, trace.WithSpanKind(kind), trace.WithAttributes(about...))
	return ctx, func(err error) {
		defer span.End()
		switch {
		case err == nil:
		case errors.Is(err, perdure.ErrSuspended):
			span.SetAttributes(attribute.String("perdure.outcome", "suspended"))
		case errors.Is(err, perdure.ErrFenced):
			span.SetAttributes(attribute.String("perdure.outcome", "lost"))
			span.SetStatus(codes.Error, "another worker has the run, or the store does not answer")
		case errors.Is(err, perdure.ErrCancelled):
			span.SetAttributes(attribute.String("perdure.outcome", "cancelled"))
		default:
			span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", err)))
			span.SetStatus(codes.Error, scrub.From(ctx).Limited(err.Error(), maxText))
		}
	}
}

// operation returns what a span of an agent is about.
func operation(attrs []attribute.KeyValue) (op, of string) {
	said := map[attribute.Key]string{}
	for _, a := range attrs {
		said[a.Key] = a.Value.AsString()
	}
	switch op = said["gen_ai.operation.name"]; op {
	case "invoke_agent":
		return op, said["gen_ai.agent.name"]
	case "execute_tool":
		return op, said["gen_ai.tool.name"]
	default:
		return op, said["gen_ai.request.model"]
	}
}

// Annotate implements perdure.Tracer.
func (t *Telemetry) Annotate(ctx context.Context, attrs []slog.Attr) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(t.attributes(ctx, attrs)...)
	}
}

// Committed implements perdure.Observer.
func (t *Telemetry) Committed(perdure.Event) {}

// isCall reports whether a request of a path is a call, rather than a look at the state
// of the server or a file.
func isCall(path string) bool {
	switch path {
	case "/healthz", "/readyz", "/livez", "/metrics", "/openapi.json", "/favicon.ico", "/":
		return false
	}
	return !strings.HasPrefix(path, "/console")
}
