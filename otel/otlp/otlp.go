// Package otlp sends the traces of package otel to a collector, by OTLP over HTTP. It
// may import package otel and OpenTelemetry.
//
// A program whose commands come from package cli gets the flag --otlp of dev, serve and
// worker by importing it:
//
//	import _ "github.com/perdure/perdure/otel/otlp"
//
// A collector that is slow or cannot be reached neither delays nor fails a run: spans
// wait in memory, up to a bound, and are then dropped.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Options configures what is sent. The environment variables of OpenTelemetry count for
// everything else, such as OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_TRACES_SAMPLER and OTEL_BSP_SCHEDULE_DELAY.
type Options struct {
	// URL is the address of the collector, such as http://127.0.0.1:4318; traces go to
	// /v1/traces below it. "" means OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
	// OTEL_EXPORTER_OTLP_ENDPOINT, or the usual port of this machine.
	URL string
	// Service names the program, unless OTEL_SERVICE_NAME does; "" means perdure.
	Service string
	// Version is that of the program.
	Version string
	// Content adds what was said: see [otel.Options].
	Content bool
	// Logger receives a line when spans can no longer be delivered, and one when they
	// can again. The default discards them.
	Logger *slog.Logger
}

func init() {
	telemetry.Open = func(ctx context.Context, o telemetry.Options) (telemetry.Telemetry, error) {
		return New(ctx, Options(o))
	}
}

// New returns telemetry that sends its spans to a collector. It does not connect to it.
func New(ctx context.Context, o Options) (*otel.Telemetry, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var to []otlptracehttp.Option
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("otlp: %q is not the address of a collector, such as http://127.0.0.1:4318", o.URL)
		}
		to = append(to, otlptracehttp.WithEndpointURL(strings.TrimSuffix(u.String(), "/")+"/v1/traces"))
	}
	to = append(to, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: 20 * time.Second}))
	exporter, err := otlptracehttp.New(ctx, to...)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	about := []attribute.KeyValue{attribute.String("service.name", cmp.Or(o.Service, "perdure")), attribute.Int("process.pid", os.Getpid())}
	if o.Version != "" {
		about = append(about, attribute.String("service.version", o.Version))
	}
	// What the environment says comes last, and so counts.
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(about...), resource.WithFromEnv())
	if of == nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	return otel.New(otel.Options{Content: o.Content, Provider: []sdk.TracerProviderOption{
		sdk.WithBatcher(&delivery{SpanExporter: exporter, log: o.Logger}), sdk.WithResource(of)}}), nil
}

// delivery is an exporter that says once that it cannot deliver, instead of each time.
type delivery struct {
	sdk.SpanExporter
	log *slog.Logger

	mu     sync.Mutex
	failed bool
	lost   int
}

// ExportSpans implements sdk.SpanExporter. It returns no error: OpenTelemetry would
// write it to the standard error of the process.
func (d *delivery) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := d.SpanExporter.ExportSpans(ctx, spans)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && errors.Is(err, context.Canceled):
	case err != nil:
		d.lost += len(spans)
		if !d.failed {
			d.log.Warn("traces cannot be delivered, and are dropped until they can; runs are not affected", "error", err)
		}
		d.failed = true
	case d.failed:
		d.log.Info("traces are delivered again", "lost", d.lost)
		d.failed, d.lost = false, 0
	}
	return nil
}
