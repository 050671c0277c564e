package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/otel"
	"github.com/perdure/perdure/otel/otlp"
	"github.com/prometheus/client_golang/prometheus"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// taken is what a collector has taken, by path, as the text of its messages.
type taken struct {
	mu    sync.Mutex
	texts map[string]string
	deny  map[string]bool
}

func (c *taken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	raw, _ := io.ReadAll(body)
	message := map[string]proto.Message{"/v1/logs": &logs.ExportLogsServiceRequest{}, "/v1/metrics": &metrics.ExportMetricsServiceRequest{}}[r.URL.Path]
	if message == nil || c.deny[r.URL.Path] || proto.Unmarshal(raw, message) != nil {
		http.NotFound(w, r)
		return
	}
	c.texts[r.URL.Path] += message.(interface{ String() string }).String()
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// send logs a line in a span and counts something, and returns what the logger said.
func send(t *testing.T, o otlp.Options) string {
	t.Helper()
	var said bytes.Buffer
	o.Service, o.Version, o.Logger = "clerk", "v7", slog.New(slog.NewTextHandler(&said, nil))
	tel, err := otlp.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "perdure_test_total", Help: "Tests."}, []string{"flow"})
	counter.WithLabelValues("triage").Add(3)
	stop, err := otlp.SendMetrics(t.Context(), o, counter)
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tel.TracerProvider().Tracer(otel.Scope).Start(t.Context(), "s")
	log := slog.New(tel.LogHandler(slog.NewTextHandler(io.Discard, nil))).With("thread", "trip-7")
	log.InfoContext(ctx, "run ended")
	log.DebugContext(ctx, "nobody asked for this")
	span.End()
	over := context.WithoutCancel(t.Context())
	if err := stop(over); err != nil {
		t.Error(err)
	}
	if err := tel.Shutdown(over); err != nil {
		t.Error(err)
	}
	return said.String()
}

// Logs have the ids of their trace, and metrics are those of Prometheus.
func TestLogsAndMetrics(t *testing.T) {
	c := &taken{texts: map[string]string{}}
	s := httptest.NewServer(c)
	defer s.Close()
	send(t, otlp.Options{URL: s.URL})
	for path, words := range map[string][]string{
		"/v1/logs":    {"run ended", "trip-7", "trace_id:", "span_id:", "clerk", "v7"},
		"/v1/metrics": {"perdure_test_total", "triage", "as_double:3", "go_goroutines", "process_", "clerk", "v7"},
	} {
		for _, word := range words {
			if !strings.Contains(c.texts[path], word) {
				t.Errorf("%s has no %s:\n%.3000s", path, word, c.texts[path])
			}
		}
	}
	if strings.Contains(c.texts["/v1/logs"], "nobody asked") {
		t.Error("a line below the level of the log was sent")
	}
}

// Without an address of their own, or if they are switched off, nothing is sent.
func TestLogsAndMetricsAreSwitchedOff(t *testing.T) {
	c := &taken{texts: map[string]string{}}
	s := httptest.NewServer(c)
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", s.URL+"/v1/traces")
	send(t, otlp.Options{})
	t.Setenv("OTEL_LOGS_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	send(t, otlp.Options{URL: s.URL})
	if len(c.texts) != 0 {
		t.Errorf("sent were %v", c.texts)
	}
}

// A collector that takes traces only is told of once for each kind.
func TestCollectorOfTracesOnly(t *testing.T) {
	c := &taken{texts: map[string]string{}, deny: map[string]bool{"/v1/logs": true, "/v1/metrics": true}}
	s := httptest.NewServer(c)
	defer s.Close()
	said := send(t, otlp.Options{URL: s.URL})
	for _, what := range []string{"LOGS", "METRICS"} {
		if strings.Count(said, "OTEL_"+what+"_EXPORTER=none") != 1 {
			t.Errorf("of %s it says\n%s", what, said)
		}
	}
}
