// Package otlp sends the traces of package otel, logs and metrics to a collector, by OTLP
// over HTTP. It may import package otel, OpenTelemetry and the client of Prometheus.
//
// A program whose commands come from package cli gets the flag --otlp of dev, serve and
// worker by importing it:
//
//	import _ "github.com/perdure/perdure/otel/otlp"
//
// A collector that is slow or cannot be reached neither delays nor fails a run: spans
// wait in memory, up to OTEL_BSP_MAX_QUEUE_SIZE of them and for up to
// OTEL_BSP_EXPORT_TIMEOUT a batch, and are then dropped.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/otel"
	"github.com/prometheus/client_golang/prometheus"
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
	// /v1/traces below it, logs to /v1/logs and metrics to /v1/metrics. "" means
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT, or the usual port
	// of this machine. Logs and metrics are sent only if there is an address for them,
	// and if neither OTEL_LOGS_EXPORTER nor OTEL_METRICS_EXPORTER is none.
	URL string
	// Service names the program, unless OTEL_SERVICE_NAME does; "" means perdure.
	Service string
	// Version is that of the program.
	Version string
	// Content adds what was said: see [otel.Options].
	Content bool
	// Logger receives a line when something can no longer be delivered, and one when it
	// can again. The default discards them.
	Logger *slog.Logger
}

func init() {
	telemetry.Open = func(ctx context.Context, o telemetry.Options) (telemetry.Telemetry, error) {
		return New(ctx, Options(o))
	}
	telemetry.SendMetrics = func(ctx context.Context, o telemetry.Options, from prometheus.Collector) (func(context.Context) error, error) {
		return SendMetrics(ctx, Options(o), from)
	}
}

// New returns telemetry that sends its spans, and the records of its LogHandler, to a
// collector. It does not connect to it.
func New(ctx context.Context, o Options) (*otel.Telemetry, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.checkEnvironment(); err != nil {
		return nil, err
	}
	var to []otlptracehttp.Option
	if o.URL != "" {
		u, err := parseBase(o.URL)
		if err != nil {
			return nil, fmt.Errorf("otlp: %w", err)
		}
		to = append(to, otlptracehttp.WithEndpointURL(strings.TrimSuffix(u.String(), "/")+"/v1/traces"))
	}
	// The batch's own time, OTEL_BSP_EXPORT_TIMEOUT, says for how long.
	to = append(to, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second}))
	exporter, err := otlptracehttp.New(ctx, to...)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	of, err := o.resource(ctx)
	if err != nil {
		return nil, err
	}
	all := otel.Options{Content: o.Content, Provider: []sdk.TracerProviderOption{sdk.WithSpanProcessor(newDelivery(exporter, o.Logger)), sdk.WithResource(of)}}
	if err := o.addLogs(ctx, of, &all); err != nil {
		return nil, err
	}
	return otel.New(all), nil
}

// resource returns what is sent about the process.
func (o *Options) resource(ctx context.Context) (*resource.Resource, error) {
	about := []attribute.KeyValue{attribute.String("service.name", cmp.Or(o.Service, "perdure")), attribute.Int("process.pid", os.Getpid())}
	if o.Version != "" {
		about = append(about, attribute.String("service.version", o.Version))
	}
	// What the environment says comes last, and so counts.
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(about...), resource.WithFromEnv())
	if of == nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	return of, nil
}

// parseURL reads the address of a collector. Its errors do not repeat credentials.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return nil, errors.New("the address of the collector must hold no credentials: put them into OTEL_EXPORTER_OTLP_HEADERS")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not the address of a collector, such as http://127.0.0.1:4318", text)
	}
	return u, nil
}

// parseBase is parseURL for an address that paths such as /v1/traces are added to.
func parseBase(text string) (*url.URL, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"/v1/traces", "/v1/logs", "/v1/metrics"} {
		if strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), path) {
			return nil, fmt.Errorf("the address of the collector is given without %s, which is added to it", path)
		}
	}
	return u, nil
}

// samplers are the values of OTEL_TRACES_SAMPLER that OpenTelemetry's SDK knows.
var samplers = []string{"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

// checkEnvironment reports variables that OpenTelemetry would ignore without a word.
func (o *Options) checkEnvironment() error {
	log := o.Logger
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if strings.Contains(name, "LOGS") && !o.sends("LOGS") || strings.Contains(name, "METRICS") && !o.sends("METRICS") || o.URL != "" {
			continue // it does not count
		}
		if text := os.Getenv(name); text != "" {
			parse := parseURL
			if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
				parse = parseBase
			}
			if _, err := parse(text); err != nil {
				return fmt.Errorf("otlp: %s: %w", name, err)
			}
		}
	}
	if protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol == "grpc" {
		log.Warn("traces are sent over HTTP, not gRPC as OTEL_EXPORTER_OTLP_PROTOCOL says; the usual port is 4318")
	}
	if name := os.Getenv("OTEL_TRACES_SAMPLER"); !slices.Contains(samplers, strings.ToLower(strings.TrimSpace(name))) {
		log.Warn("OTEL_TRACES_SAMPLER names no sampler that this program has; parentbased_always_on is used", "sampler", name)
	}
	return nil
}
