package otel

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler returns a handler that adds trace_id and span_id to records logged with the
// context of a run or of a request, and passes them to next and to Options.Logs.
func (t *Telemetry) LogHandler(next slog.Handler) slog.Handler {
	return logHandler{next, cmp.Or(t.opts.Logs, slog.DiscardHandler)}
}

// logHandler passes what one handler is enabled for to both. The other one knows spans.
type logHandler struct{ next, also slog.Handler }

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	also := h.also.Handle(ctx, r)
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return errors.Join(h.next.Handle(ctx, r), also)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.next.WithAttrs(attrs), h.also.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.next.WithGroup(name), h.also.WithGroup(name)}
}
