package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// sendFlags says where telemetry is sent.
type sendFlags struct {
	url     string
	content bool
}

func (s *sendFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.url, "otlp", "", "send traces, logs and metrics to the OpenTelemetry collector at this URL, such as http://127.0.0.1:4318 ($OTEL_EXPORTER_OTLP_ENDPOINT)")
	f.BoolVar(&s.content, "otlp-content", false, "send prompts, replies, and arguments and results of tools too")
}

// sending is the telemetry of a command.
type sending struct {
	telemetry.Telemetry              // nil: none
	log                 *slog.Logger // of the command
	metrics             *server.Metrics
	options             telemetry.Options
	waited              time.Duration // at the end, for what was left to send
}

// open begins to send, if the flags or the environment say so.
func (s *sendFlags) open(ctx context.Context, a *app) (*sending, error) {
	log := a.logger()
	env := a.term.Env
	wanted := s.url != "" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	off := strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || strings.EqualFold(env("OTEL_TRACES_EXPORTER"), "none")
	switch {
	case off && s.url != "":
		log.Warn("--otlp is not heeded: OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER switches traces off")
		return &sending{log: log}, nil
	case off || !wanted:
		return &sending{log: log}, nil
	case telemetry.Open == nil && s.url != "":
		return nil, exit.Usage(errors.New("--otlp needs the exporter, which this program does not link: import github.com/perdure/perdure/otel/otlp in it"))
	case telemetry.Open == nil:
		return &sending{log: log}, nil
	}
	o := telemetry.Options{URL: s.url, Service: a.shellName(), Version: version(), Content: s.content, Logger: log}
	t, err := telemetry.Open(ctx, o)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return &sending{Telemetry: t, log: slog.New(t.LogHandler(log.Handler())), options: o}, nil
}

// collect also sends what a collector collects, until stop is called, which sends the
// last of it: call it before the store is closed.
func (s *sending) collect(ctx context.Context, from prometheus.Collector) (stop func(), err error) {
	if s.Telemetry == nil || telemetry.SendMetrics == nil {
		return func() {}, nil
	}
	end, err := telemetry.SendMetrics(ctx, s.options, from)
	return func() { s.atMost(end) }, err
}

// observer returns the observer of a worker, which logs its transitions.
func (s *sending) observer() perdure.Observer {
	var all []perdure.Observer
	if s.Telemetry != nil {
		all = append(all, s.Telemetry)
	}
	all = append(all, newTransitions(s.log)) // with the contexts that have spans
	if s.metrics != nil {
		all = append(all, s.metrics)
	}
	return perdure.Observers(all...)
}

// serves lets a server trace its requests, and show what its worker does.
func (s *sending) serves(o *server.Options) {
	o.Metrics = cmp.Or(o.Metrics, s.metrics)
	if s.Telemetry != nil && o.Middleware == nil {
		o.Middleware = s.Handler
	}
}

// maxSend is how long the end of a command waits in all until everything has been sent.
const maxSend = 2 * time.Second

func (s *sending) close() {
	if s.Telemetry != nil {
		s.atMost(s.Shutdown)
	}
}

// atMost calls what sends the rest, and waits no longer than what is left of maxSend: that may be
// collecting from a store that does not answer, and does not look at its context then. It
// has logged what could not be sent.
func (s *sending) atMost(end func(context.Context) error) {
	began := time.Now()
	defer func() { s.waited += time.Since(began) }()
	ctx, cancel := context.WithTimeout(context.Background(), maxSend-s.waited)
	go func() {
		defer cancel()
		_ = end(ctx)
	}()
	<-ctx.Done()
}
