package server_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// Every family that a server shows is in docs/metrics.md with its type and labels, and
// the other way round; the linter of Prometheus has nothing to say about them; and the
// dashboard asks for nothing else.
func TestMetricsAreDocumented(t *testing.T) {
	model := script.New(script.Say("Hello."))
	s := servertest.New(t, server.Options{Metrics: server.NewMetrics(), Quota: server.Quota{Threads: 100}},
		agent.NewFlow("greet", agent.New("greeter", model, agent.Options{})))
	run := plainStart(s, "secret-thread", "greet", `"Hi"`)
	plainWait(s, run)
	eventually(t, "the end of the run is not counted", func() bool {
		return bytes.Contains(s.Do("GET", "/metrics", "").Want(200).Body, []byte(`perdure_runs_ended_total{flow="greet",status="succeeded"} 1`))
	})
	eventually(t, "the tenant is not counted", func() bool {
		return bytes.Contains(s.Do("GET", "/metrics", "").Want(200).Body, []byte("perdure_tenant_threads{"))
	})
	text := s.Do("GET", "/metrics", "").Want(200).Body
	samples := plainMetrics(t, text)
	for key, want := range map[string]float64{
		`perdure_passes_total{flow="greet"}`:                                                     1,
		`perdure_takeovers_total{flow="greet"}`:                                                  0,
		`perdure_runs_ended_total{flow="greet",status="failed"}`:                                 0,
		`perdure_passes_active{flow="greet"}`:                                                    0,
		`perdure_run_queue_seconds_count{flow="greet"}`:                                          1,
		`perdure_run_duration_seconds_count{flow="greet"}`:                                       1,
		`perdure_steps_total{flow="greet",name="script",operation="chat",outcome="ok"}`:          1,
		`perdure_steps_total{flow="greet",name="greeter",operation="invoke_agent",outcome="ok"}`: 1,
		`perdure_step_duration_seconds_count{flow="greet",operation="chat"}`:                     1,
	} {
		if got, there := samples[key]; got != want || !there {
			t.Errorf("%s is %v (there: %t), want %v", key, got, there, want)
		}
	}
	if samples[`perdure_tokens_total{direction="output",flow="greet",model="script"}`] == 0 {
		t.Error("no tokens are counted")
	}
	if bytes.Contains(text, []byte("secret-thread")) {
		t.Error("a metric names a thread")
	}
	problems, err := promlint.New(bytes.NewReader(append(text[:len(text):len(text)], 10))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "perdure_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}

	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		shown[m[1]] = m[2]
	}
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(perdure_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(doc), -1) {
		name, kind := m[1], m[2]
		documented[name] = true
		if name == "perdure_retention_look_time_seconds" && shown[name] == "" {
			continue // no worker has looked for threads to remove
		}
		if shown[name] != kind {
			t.Errorf("docs/metrics.md says that %s is a %s; it is %q", name, kind, shown[name])
		}
		for label := range strings.SplitSeq(strings.ReplaceAll(m[3], " ", ""), ",") {
			if label != "" && !regexp.MustCompile(`(?m)^`+name+`(_bucket)?\{[^}]*\b`+label+`="`).Match(text) {
				t.Errorf("docs/metrics.md says that %s has the label %s", name, label)
			}
		}
	}
	for name := range shown {
		if !documented[name] && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("docs/metrics.md has no line about %s", name)
		}
	}
	if len(documented) < 20 {
		t.Errorf("docs/metrics.md has only %d families", len(documented))
	}

	raw, err := os.ReadFile("../deploy/grafana/perdure.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\b(perdure|go|process)_\w+`).FindAllString(target.Expr, -1) {
				asked++
				family := name
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					if base, ok := strings.CutSuffix(name, suffix); ok && shown[base] == "histogram" {
						family = base
					}
				}
				if shown[family] == "" && !documented[family] {
					t.Errorf("the panel %q asks for %s, which nothing shows", p.Title, name)
				}
			}
		}
	}
	if asked < 15 {
		t.Errorf("the dashboard asks for only %d families", asked)
	}
}

// An exporter that is still collecting when the process stops logs no error.
func TestMetricsOfAClosedStore(t *testing.T) {
	s := memstore.New()
	rt, err := perdure.New(t.Context(), s, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	api := server.New(rt, server.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := prometheus.NewRegistry()
	all.MustRegister(api.Collector())
	if families, err := all.Gather(); err != nil || len(families) == 0 || strings.Contains(said.String(), "ERROR") {
		t.Errorf("%d families, %v, and it logs %s", len(families), err, &said)
	}
}
