// Package telemetry is where package otel/otlp, if a program links it, tells the
// commands how to send telemetry. It may import package perdure, and names a type of
// the client of Prometheus.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/prometheus/client_golang/prometheus"
)

// Options says what is sent where.
type Options struct {
	URL     string       // of the collector; "" means that the environment says
	Service string       // the program's name, unless the environment says another
	Version string       // of the program
	Content bool         // send what was said, too
	Logger  *slog.Logger // receives a line when nothing can be delivered, and when it can again
}

// Telemetry is what commands need: see package otel.
type Telemetry interface {
	perdure.Tracer
	Handler(http.Handler) http.Handler
	LogHandler(slog.Handler) slog.Handler
	Shutdown(context.Context) error
}

// Open and SendMetrics are set by package otel/otlp; nil: it is not linked.
var (
	Open        func(ctx context.Context, o Options) (Telemetry, error)
	SendMetrics func(ctx context.Context, o Options, from prometheus.Collector) (stop func(context.Context) error, err error)
)
