package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/perdure/perdure/otel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// sends reports whether LOGS or METRICS are sent.
func (o *Options) sends(signal string) bool {
	return !strings.EqualFold(os.Getenv("OTEL_"+signal+"_EXPORTER"), "none") &&
		cmp.Or(o.URL, os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// addLogs adds that records are sent, in batches.
func (o *Options) addLogs(ctx context.Context, of *resource.Resource, to *otel.Options) error {
	if !o.sends("LOGS") {
		return nil
	}
	var at []otlploghttp.Option
	if o.URL != "" {
		at = append(at, otlploghttp.WithEndpointURL(strings.TrimSuffix(o.URL, "/")+"/v1/logs"))
	}
	exporter, err := otlploghttp.New(ctx, at...)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(of), sdklog.WithProcessor(sdklog.NewBatchProcessor(logSender{exporter, &outage{what: "LOGS", log: o.Logger}})))
	to.Logs, to.Closing = otelslog.NewHandler(otel.Scope, otelslog.WithLoggerProvider(p)), p.Shutdown
	return nil
}

// SendMetrics sends the collected metrics, and those of the process, to a collector every
// minute, or every OTEL_METRIC_EXPORT_INTERVAL milliseconds. The returned function sends
// them once more and stops.
func SendMetrics(ctx context.Context, o Options, from prometheus.Collector) (stop func(context.Context) error, err error) {
	if !o.sends("METRICS") {
		return func(context.Context) error { return nil }, nil
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	var at []otlpmetrichttp.Option
	if o.URL != "" {
		u, err := parseBase(o.URL)
		if err != nil {
			return nil, fmt.Errorf("otlp: %w", err)
		}
		at = append(at, otlpmetrichttp.WithEndpointURL(strings.TrimSuffix(u.String(), "/")+"/v1/metrics"))
	}
	all := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{from, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := all.Register(c); err != nil {
			return nil, fmt.Errorf("otlp: %w", err)
		}
	}
	of, err := o.resource(ctx)
	if err != nil {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx, at...)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	reader := sdkmetric.NewPeriodicReader(metricSender{exporter, &outage{what: "METRICS", log: o.Logger}}, sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(all))))
	return sdkmetric.NewMeterProvider(sdkmetric.WithResource(of), sdkmetric.WithReader(reader)).Shutdown, nil
}

// outage logs once that something cannot be delivered, and once that it can again.
type outage struct {
	what   string // LOGS or METRICS
	log    *slog.Logger
	mu     sync.Mutex
	failed bool
}

// note notes what came of a delivery. Nobody else has to know.
func (o *outage) note(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.failed
	switch o.failed = err != nil; {
	case o.failed && !before:
		o.log.Warn("the collector does not take what is sent; runs go on without it", "what", o.what, "error", err, "advice", "if it takes none at all, set OTEL_"+o.what+"_EXPORTER=none")
	case !o.failed && before:
		o.log.Info("the collector takes it again", "what", o.what)
	}
	return nil
}

type metricSender struct {
	sdkmetric.Exporter
	*outage
}

// Export implements sdkmetric.Exporter. It is no fault of the collector if the process
// stops, or has used up the time before there was something to send.
func (s metricSender) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if ctx.Err() != nil {
		return nil
	}
	err := s.Exporter.Export(ctx, m)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return s.note(err)
}

type logSender struct {
	sdklog.Exporter
	*outage
}

// Export implements sdklog.Exporter.
func (s logSender) Export(ctx context.Context, records []sdklog.Record) error {
	return s.note(s.Exporter.Export(ctx, records))
}
