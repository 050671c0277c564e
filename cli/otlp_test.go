package cli

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/otel"
	"github.com/prometheus/client_golang/prometheus"
)

// A program that does not link the exporter says so, and what to do.
func TestOTLPNeedsTheExporter(t *testing.T) {
	p := stored(t)
	for _, command := range []string{"serve", "worker"} {
		p.run("", command, "--otlp", "http://127.0.0.1:4318").want(exit.BadUsage, "import github.com/perdure/perdure/otel/otlp")
	}
}

// OpenTelemetry's variables switch traces off, also those of the flag.
func TestTracesAreSwitchedOff(t *testing.T) {
	telemetry.Open = func(context.Context, telemetry.Options) (telemetry.Telemetry, error) {
		return otel.New(otel.Options{}), nil
	}
	defer func() { telemetry.Open = nil }()
	const url = "http://127.0.0.1:4318"
	for _, one := range []struct {
		url, name, value string
		sends, warns     bool
	}{
		{url: url, sends: true},
		{name: "OTEL_EXPORTER_OTLP_ENDPOINT", value: url, sends: true},
		{url: url, name: "OTEL_SDK_DISABLED", value: "TRUE", warns: true},
		{url: url, name: "OTEL_SDK_DISABLED", value: "false", sends: true},
		{url: url, name: "OTEL_TRACES_EXPORTER", value: "none", warns: true},
		{name: "OTEL_SDK_DISABLED", value: "true"},
	} {
		var said bytes.Buffer
		env := func(name string) string {
			if name == one.name {
				return one.value
			}
			return ""
		}
		s, err := (&sendFlags{url: one.url}).open(t.Context(), &app{term: &terminal.Terminal{Env: env, Err: &said}})
		if err != nil {
			t.Fatal(err)
		}
		if sends := s.Telemetry != nil; sends != one.sends || strings.Contains(said.String(), one.name) != one.warns && one.name != "" {
			t.Errorf("%+v: it sends: %v, and says %q", one, sends, &said)
		}
	}
}

// The lines about a run have the ids of its trace.
func TestTransitionsNameTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := otel.New(otel.Options{})
		var lines bytes.Buffer
		s := &sending{Telemetry: tel, log: slog.New(tel.LogHandler(slog.NewTextHandler(&lines, nil)))}
		flow := perdure.NewFlow("f", func(ctx context.Context, _ int) (bool, error) {
			return perdure.Ask[bool](ctx, "q", perdure.Question{Prompt: "Yes?"})
		})
		k := kit.New(t, nil, perdure.Options{Observer: s.observer()}, flow)
		k.StartOn("t", "f", 1)
		run := k.WaitFor("t", perdure.Suspended)
		kit.NoErr(t, k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: true}))
		k.WaitFor("t", perdure.Succeeded)
		k.Stop()
		traces, said := map[string]bool{}, ""
		for _, line := range regexp.MustCompile(`msg="run (\w+)" .*trace_id=(\w{32}) span_id=\w{16}`).FindAllStringSubmatch(lines.String(), -1) {
			said += line[1] + " "
			traces[line[2]] = true
		}
		if said != "claimed suspended claimed ended " || len(traces) != 1 {
			t.Errorf("the lines with a trace are %q, of %d traces:\n%s", said, len(traces), &lines)
		}
	})
}

// What is sent at the end is what was true while the store was open.
func TestTheLastMetricsAreTrue(t *testing.T) {
	telemetry.Open = func(context.Context, telemetry.Options) (telemetry.Telemetry, error) {
		return otel.New(otel.Options{}), nil
	}
	defer func() { telemetry.Open, telemetry.SendMetrics = nil, nil }()
	for _, command := range []string{"serve", "dev"} {
		p := stored(t)
		ctx, stop := context.WithCancel(t.Context())
		sent := map[string]float64{}
		telemetry.SendMetrics = func(_ context.Context, _ telemetry.Options, from prometheus.Collector) (func(context.Context) error, error) {
			stop()
			return func(context.Context) error {
				all := prometheus.NewRegistry()
				all.MustRegister(from)
				families, err := all.Gather()
				for _, f := range families {
					sent[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
				}
				return err
			}, nil
		}
		r := p.runIn(ctx, "", command, "--addr", "127.0.0.1:0", "--otlp", "http://127.0.0.1:4318").want(exit.OK)
		if _, counted := sent["perdure_asks_open"]; sent["perdure_store_up"] != 1 || !counted || strings.Contains(r.err, "ERROR") {
			t.Errorf("%s sends %v at its end and logs %s", command, sent, r.err)
		}
	}
}

// A command does not wait for telemetry that does not heed its context, and for all of it
// not longer than for one.
func TestTelemetryDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled, s, began := make(chan struct{}), new(sending), time.Now()
		for range 2 {
			s.atMost(func(context.Context) error { <-stalled; return nil })
		}
		if waited := time.Since(began); waited != maxSend {
			t.Errorf("it waits for %v", waited)
		}
		close(stalled)
	})
}

// stopAt is a handler of logs that calls a function at a message.
type stopAt struct {
	slog.Handler
	message string
	stop    func()
}

func (h stopAt) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.stop()
	}
	return h.Handler.Handle(ctx, r)
}

// A worker logs what becomes of runs, as serve does.
func TestWorkerLogsTransitions(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "tea", "--detach", "--thread", "t").want(exit.OK)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var lines buffer
	p.setUp = func(a *app) {
		a.opts.Runtime.Logger = slog.New(stopAt{slog.NewTextHandler(&lines, nil), "run ended", stop})
	}
	p.runIn(ctx, "", "worker").want(exit.OK)
	for _, line := range []string{`msg="run claimed" thread=t`, `msg="run ended" thread=t`} {
		if !strings.Contains(lines.String(), line) {
			t.Errorf("the log has no %s:\n%s", line, &lines)
		}
	}
}
