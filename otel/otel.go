package otel

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/perdure/perdure"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name under which the spans are made.
const Scope = "github.com/perdure/perdure/otel"

// Options configures telemetry.
type Options struct {
	// Provider configures the provider of the spans: where they go (trace.WithBatcher),
	// what they are about (trace.WithResource), and which of them are kept
	// (trace.WithSampler). A sampler that decides by the trace id makes the same
	// decision in every process. This package makes the ids.
	Provider []sdk.TracerProviderOption
	// Content adds the conversation to the spans of agents: prompts, replies, and the
	// arguments and results of tools, without secrets that the tool was given.
	Content bool
	// ContentLimit is how many bytes of each of these are kept; 0 means 8192.
	ContentLimit int
	// Logs also receives the records of LogHandler.
	Logs slog.Handler
	// Closing is called by Shutdown, after the spans have been sent.
	Closing func(context.Context) error
}

// Telemetry traces runs. It is the Observer of a runtime.
type Telemetry struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	opts     Options
}

var _ perdure.Tracer = (*Telemetry)(nil)

// New returns telemetry that sends its spans where the options say.
func New(o Options) *Telemetry {
	o.ContentLimit = cmp.Or(o.ContentLimit, 8192)
	p := sdk.NewTracerProvider(append(o.Provider[:len(o.Provider):len(o.Provider)], sdk.WithIDGenerator(generator{}))...)
	return &Telemetry{provider: p, tracer: p.Tracer(Scope), opts: o}
}

// TracerProvider returns the provider of the spans, so that the program can add its own.
// A step's context carries the step's span, which becomes the parent of spans made with
// that context.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.provider }

// Flush sends all spans that have ended.
func (t *Telemetry) Flush(ctx context.Context) error { return t.provider.ForceFlush(ctx) }

// Shutdown sends the spans that have ended and stops tracing. Runs can continue untraced.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { // beside the spans: neither waits for the other if nobody takes them
		if t.opts.Closing == nil {
			closed <- nil
			return
		}
		closed <- t.opts.Closing(ctx)
	}()
	err := t.provider.Shutdown(ctx)
	return cmp.Or(err, <-closed)
}

// methods are those that name a span.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

// Handler traces the requests that next serves. A request continues the trace of its
// traceparent, and runs that it starts continue the trace of the request. Requests for
// the state of the server and for the files of the console are not traced.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	traced := otelhttp.NewHandler(next, "perdure", otelhttp.WithTracerProvider(t.provider), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool { return isCall(r.URL.Path) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			switch {
			case r.Pattern != "":
				return r.Pattern
			case slices.Contains(methods, r.Method):
				return r.Method
			}
			return "HTTP" // as the conventions have it: callers may send any word
		}))
	return traced
}
