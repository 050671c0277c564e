package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the workers of a process do: runs, passes, steps, calls of models
// and tools. It is an Observer of their runtime, and a prometheus.Collector, which
// [Options] adds to /metrics of the server. Its labels are names in the program's code:
// flows, models and tools; none is the name of a thread or a user.
type Metrics struct {
	ended     *prometheus.CounterVec
	lasted    *prometheus.HistogramVec
	queued    *prometheus.HistogramVec
	passes    *prometheus.CounterVec
	active    *prometheus.GaugeVec
	takeovers *prometheus.CounterVec
	steps     *prometheus.CounterVec
	took      *prometheus.HistogramVec
	tokens    *prometheus.CounterVec
}

var (
	_ perdure.Tracer       = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	long := []float64{0.01, 0.1, 0.5, 2.5, 10, 60, 300, 1800, 14_400, 86_400, 604_800}
	short := []float64{0.001, 0.01, 0.1, 0.5, 2.5, 10, 30, 120, 600}
	return &Metrics{
		ended:     counter("perdure_runs_ended_total", "Runs that ended in this process, by flow and status.", "flow", "status"),
		lasted:    histogram("perdure_run_duration_seconds", "How long runs took that ended in this process, from their start to their end, with all waits.", long, "flow"),
		queued:    histogram("perdure_run_queue_seconds", "How long new runs waited for a worker of this process.", short, "flow"),
		passes:    counter("perdure_passes_total", "Passes that this process began: executions of a run until it waits or ends.", "flow"),
		active:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "perdure_passes_active", Help: "Runs that this process is executing."}, []string{"flow"}),
		takeovers: counter("perdure_takeovers_total", "Passes that took over from a worker that died or lost its lease.", "flow"),
		steps:     counter("perdure_steps_total", "Attempts of steps by flow, operation (step, invoke_agent, chat or execute_tool), name of the agent, model or tool, and outcome (ok, error, suspended, cancelled or lost).", "flow", "operation", "name", "outcome"),
		took:      histogram("perdure_step_duration_seconds", "How long attempts of steps took by flow and operation.", short, "flow", "operation"),
		tokens:    counter("perdure_tokens_total", "Tokens of models by flow, model and direction (input or output).", "flow", "model", "direction"),
	}
}

// expect begins the counters of rare events at zero. Prometheus does not see the first
// event of a counter that begins with it.
func (m *Metrics) expect(flows []string) {
	for _, flow := range flows {
		m.takeovers.WithLabelValues(flow)
		for _, status := range []perdure.Status{perdure.Succeeded, perdure.Failed, perdure.Cancelled} {
			m.ended.WithLabelValues(flow, string(status))
		}
	}
}

// Handler serves the metrics of a process that executes the runs of a runtime without a
// server, and those of the process itself. It does not authenticate readers.
func (m *Metrics) Handler(rt *perdure.Runtime) http.Handler {
	m.expect(rt.Flows())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", metricsType)
		_ = expose(w, m) // the reader has gone away
	})
	return mux
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.ended, m.lasted, m.queued, m.passes, m.active, m.takeovers, m.steps, m.took, m.tokens}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

// PassStarted implements perdure.Tracer.
func (m *Metrics) PassStarted(ctx context.Context, p perdure.PassStart) (context.Context, func(perdure.PassEnd)) {
	m.passes.WithLabelValues(p.Flow).Inc()
	m.active.WithLabelValues(p.Flow).Inc()
	if p.Lost.Seq != 0 {
		m.takeovers.WithLabelValues(p.Flow).Inc()
	}
	if p.Passes == 1 {
		m.queued.WithLabelValues(p.Flow).Observe(max(0, p.Claim.Time.Sub(p.Created).Seconds()))
	}
	return ctx, func(end perdure.PassEnd) {
		m.active.WithLabelValues(p.Flow).Dec()
		if !end.Ended.IsZero() && !errors.Is(end.Err, perdure.ErrFenced) {
			m.ended.WithLabelValues(p.Flow, string(end.Status)).Inc()
			m.lasted.WithLabelValues(p.Flow).Observe(max(0, end.Ended.Sub(p.Created).Seconds()))
		}
	}
}

// stepKey is the key of the *measured of a step.
type stepKey struct{}

// measured is what is known about an attempt of a step.
type measured struct{ flow, model string }

// StepStarted implements perdure.Observer.
func (m *Metrics) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	about := map[string]string{"gen_ai.operation.name": "step"}
	for _, a := range s.Attrs {
		if a.Value.Kind() == slog.KindString {
			about[a.Key] = a.Value.String()
		}
	}
	operation, name := about["gen_ai.operation.name"], ""
	switch operation {
	case "invoke_agent":
		name = about["gen_ai.agent.name"]
	case "execute_tool":
		name = about["gen_ai.tool.name"]
	case "chat":
		name = about["gen_ai.request.model"]
	default:
		operation = "step" // a program may say anything
	}
	begun := time.Now()
	ctx = context.WithValue(ctx, stepKey{}, measured{s.Flow, about["gen_ai.request.model"]})
	return ctx, func(err error) {
		m.steps.WithLabelValues(s.Flow, operation, name, outcomeOf(err)).Inc()
		m.took.WithLabelValues(s.Flow, operation).Observe(time.Since(begun).Seconds())
	}
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, perdure.ErrSuspended):
		return "suspended"
	case errors.Is(err, perdure.ErrFenced):
		return "lost"
	case errors.Is(err, perdure.ErrCancelled):
		return "cancelled"
	}
	return "error"
}

// Annotate implements perdure.Tracer.
func (m *Metrics) Annotate(ctx context.Context, attrs []slog.Attr) {
	of, ok := ctx.Value(stepKey{}).(measured)
	if !ok {
		return
	}
	for _, a := range attrs {
		direction := ""
		switch a.Key {
		case "gen_ai.usage.input_tokens":
			direction = "input"
		case "gen_ai.usage.output_tokens":
			direction = "output"
		default:
			continue
		}
		if a.Value.Kind() == slog.KindInt64 && a.Value.Int64() > 0 {
			m.tokens.WithLabelValues(of.flow, of.model, direction).Add(float64(a.Value.Int64()))
		}
	}
}

// TraceContext implements perdure.Tracer.
func (m *Metrics) TraceContext(_ context.Context, given string) string { return given }

// Committed implements perdure.Observer.
func (m *Metrics) Committed(perdure.Event) {}
