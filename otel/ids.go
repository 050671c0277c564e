package otel

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"strconv"

	"encoding/binary"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// idsKey is the key of the ids that the next span in a context is to have.
type idsKey struct{}

type ids struct {
	trace trace.TraceID // of a span without a parent
	span  trace.SpanID
}

// generator gives a span the ids that its context has, and others random ones.
type generator struct{}

var _ sdk.IDGenerator = generator{}

// NewIDs implements sdk.IDGenerator.
func (g generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if given, ok := ctx.Value(idsKey{}).(ids); ok && given.trace.IsValid() {
		return given.trace, given.span
	}
	var t trace.TraceID
	for !t.IsValid() {
		binary.BigEndian.PutUint64(t[:8], rand.Uint64())
		binary.BigEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID implements sdk.IDGenerator.
func (generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if given, ok := ctx.Value(idsKey{}).(ids); ok && given.span.IsValid() {
		return given.span
	}
	var s trace.SpanID
	for !s.IsValid() {
		binary.BigEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}

// hash returns 16 bytes that follow from texts, none of which is ambiguous. The first
// and the last eight of them are not all zero, for any texts that will ever occur.
func hash(texts ...string) (h [16]byte) {
	d := sha256.New()
	for _, t := range texts {
		d.Write([]byte(strconv.Quote(t)))
	}
	copy(h[:], d.Sum(nil))
	return h
}

// traceOf returns the id of the trace of a run that was started outside any.
func traceOf(tenant, thread, run string) trace.TraceID {
	return trace.TraceID(hash("trace", tenant, thread, run))
}

// runSpan returns the id of the span of a run.
func runSpan(tenant, thread, run string) trace.SpanID {
	h := hash("run", tenant, thread, run)
	return trace.SpanID(h[:8])
}

// retrySpan returns the id of the span of a run that was retried.
func retrySpan(tenant, thread, run string, retries int) trace.SpanID {
	h := hash("retry", tenant, thread, run, strconv.Itoa(retries))
	return trace.SpanID(h[:8])
}

// passSpan returns the id of the span of a pass, which the sequence of its claim tells
// from all others of the thread.
func passSpan(tenant, thread, run string, claim uint64) trace.SpanID {
	h := hash("pass", tenant, thread, run, strconv.FormatUint(claim, 10))
	return trace.SpanID(h[:8])
}

const traceparent = "traceparent"

// parse returns the span that a traceparent names. It is not valid if the text is none.
func parse(text string) trace.SpanContext {
	carrier := propagation.MapCarrier{traceparent: text}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// format returns the traceparent of a span, "" of none.
func format(s trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return carrier[traceparent]
}
