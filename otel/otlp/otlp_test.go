package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/otel"
	"github.com/perdure/perdure/otel/otlp"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/sqlitestore"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("OTLP_TEST_STORE"); url != "" {
		if err := work(url, os.Getenv("OTLP_TEST_FILE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// pair is a flow of two steps. While there is a file, the second does not end.
func pair(file string) perdure.Flow {
	return perdure.NewFlow("pair", func(ctx context.Context, _ int) (int, error) {
		if _, err := perdure.Step(ctx, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return 0, err
		}
		return perdure.Step(ctx, "second", func(ctx context.Context) (int, error) {
			if _, err := os.Stat(file); err == nil {
				<-ctx.Done()
			}
			return 2, ctx.Err()
		})
	})
}

// work is the process of a worker, which sends its spans where the environment says.
func work(url, file string) error {
	ctx := context.Background()
	t, err := otlp.New(ctx, otlp.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Observer: t, Version: "test", Lease: time.Second}, pair(file))
	if err != nil {
		return err
	}
	return rt.Work(ctx)
}

// endpoint is where a collector listens. It decodes what arrives.
type endpoint struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
	news  chan struct{} // has an element if something has arrived
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{news: make(chan struct{}, 1)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			t.Errorf("something was sent to %s", r.URL.Path)
		}
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		raw, err := io.ReadAll(body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(raw, &request)
		}
		if err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, r := range request.ResourceSpans {
			for _, s := range r.ScopeSpans {
				e.spans = append(e.spans, s.Spans...)
			}
		}
		select {
		case e.news <- struct{}{}:
		default:
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(e.Close)
	return e
}

// await waits until a span has arrived, and returns all.
func (e *endpoint) await(t *testing.T, name string) []*tracepb.Span {
	t.Helper()
	for {
		e.mu.Lock()
		for _, s := range e.spans {
			if s.Name == name {
				defer e.mu.Unlock()
				return e.spans[:len(e.spans):len(e.spans)]
			}
		}
		e.mu.Unlock()
		select {
		case <-e.news:
		case <-t.Context().Done():
			t.Fatal("the test is over")
		case <-time.After(time.Minute):
			t.Fatalf("no span %q arrives", name)
		}
	}
}

func attr(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// A worker is killed in the middle of a step, and another process takes its run over: a
// collector sees one trace, in which the takeover links to the pass that was lost and no
// parent is missing.
func TestTraceThroughAKill(t *testing.T) {
	e, dir := newEndpoint(t), t.TempDir()
	url, file := "sqlite:"+filepath.Join(dir, "store.db"), filepath.Join(dir, "hang")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func() *exec.Cmd {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(os.Environ(), "OTLP_TEST_STORE="+url, "OTLP_TEST_FILE="+file, "OTEL_EXPORTER_OTLP_ENDPOINT="+e.URL, "OTEL_BSP_SCHEDULE_DELAY=20")
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	rt, err := perdure.Open(t.Context(), url, pair(file))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "pair", Input: 1, Thread: "t", Trace: caller}); err != nil {
		t.Fatal(err)
	}
	first := begin()
	e.await(t, "step first")
	if err := first.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	_ = first.Wait()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	second := begin()
	spans := e.await(t, "invoke_workflow pair")
	_ = second.Process.Kill()
	_ = second.Wait()

	byID := map[string]*tracepb.Span{}
	names := map[string]int{}
	for _, s := range spans {
		byID[string(s.SpanId)] = s
		names[s.Name]++
		if got := fmt.Sprintf("%x", s.TraceId); got != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is in trace %s", s.Name, got)
		}
	}
	if len(byID) != len(spans) {
		t.Error("two spans have one id")
	}
	if want := "map[invoke_workflow pair:1 pass:2 step first:1 step second:1]"; fmt.Sprint(names) != want {
		t.Errorf("the spans are %v, want %s", names, want)
	}
	links := 0
	for _, s := range spans {
		if parent := fmt.Sprintf("%x", s.ParentSpanId); byID[string(s.ParentSpanId)] == nil && parent != "b7ad6b7169203331" {
			t.Errorf("the parent of %s is missing", s.Name)
		}
		for _, l := range s.Links {
			links++
			lost := byID[string(l.SpanId)]
			if s.Name != "pass" || attr(s, "perdure.takeover") == "" || lost == nil || attr(lost, "perdure.pass.lost") == "" {
				t.Errorf("%s links to %v", s, lost)
			}
		}
	}
	if links != 1 {
		t.Errorf("there are %d links, want one at the crash", links)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	news chan struct{} // has an element if something was written
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// traced opens a runtime that sends its spans to url, and returns what executes n runs,
// of four spans each, and the lines of the log.
func traced(t *testing.T, url string) (*otel.Telemetry, func(n int), *lockedBuffer) {
	lines := lockedBuffer{news: make(chan struct{}, 1)}
	tel, err := otlp.New(t.Context(), otlp.Options{URL: url, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := perdure.New(t.Context(), s, perdure.Options{Observer: tel, Version: "test"}, pair("nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	return tel, func(n int) {
		ctx, stop := context.WithCancel(t.Context())
		worked := make(chan error)
		go func() { worked <- rt.Work(ctx) }()
		for i := range n {
			run, err := rt.Start(ctx, perdure.StartRequest{Flow: "pair", Input: i})
			if err == nil {
				run, err = rt.WaitEnd(ctx, run.Thread, run.ID)
			}
			if err != nil || run.Status != perdure.Succeeded {
				t.Fatal(run, err)
			}
		}
		stop()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	}, &lines
}

// count says how many of the log's lines hold a text.
func (l *lockedBuffer) count(text string) int { return strings.Count(l.String(), text) }

// nobody returns an address at which nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A collector that is not there, or never answers, fails no run. That is reported once,
// and at the end how many spans are lost: also those that found the queue full.
func TestCollectorThatDoesNotAnswer(t *testing.T) {
	held := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer silent.Close()
	defer close(held)
	urls := map[string]string{"gone": "http://" + nobody(t), "silent": silent.URL}
	for name, most := range map[string]string{"gone": "7", "silent": "7", "gone for long": "", "silent for long": ""} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", most)
			if most == "" {
				t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "20") // batches are dropped, the queue never fills
			}
			url, _, _ := strings.Cut(name, " ")
			tel, execute, lines := traced(t, urls[url])
			execute(10)
			if most == "" {
				_ = tel.Flush(t.Context())
			}
			if n := lines.count("traces cannot be delivered"); n != 1 {
				t.Errorf("before the end, it is reported %d times:\n%s", n, lines)
			}
			last, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_ = tel.Shutdown(last)
			if n := lines.count("traces cannot be delivered"); n != 1 {
				t.Errorf("it is reported %d times:\n%s", n, lines)
			}
			if lines.count("could not be delivered\" lost=40\n") != 1 {
				t.Errorf("the log does not say that 40 spans are lost:\n%s", lines)
			}
		})
	}
}

// Spans wait for a collector that is back late, and all of them arrive.
func TestCollectorThatComesBack(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	e := newEndpoint(t)
	var back atomic.Bool
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !back.Load() {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		e.Config.Handler.ServeHTTP(w, r)
	}))
	defer late.Close()
	tel, execute, lines := traced(t, late.URL)
	execute(10)
	<-lines.news
	flushed := make(chan error, 1)
	go func() { flushed <- tel.Flush(t.Context()) }()
	back.Store(true)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if n := len(e.await(t, "pass")); n != 40 {
		t.Errorf("%d spans arrive, want all 40", n)
	}
	if lines.count("traces cannot be delivered") != 1 || lines.count("delivered again\" lost=0") != 1 {
		t.Errorf("the log says:\n%s", lines)
	}
	if err := tel.Shutdown(t.Context()); err != nil || lines.count("lost") != 1 {
		t.Errorf("after the end (%v), the log says:\n%s", err, lines)
	}
}

func TestWrongAddress(t *testing.T) {
	for _, url := range []string{"127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "://", "http://ann:secret@127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/otlp/v1/logs/"} {
		if _, err := otlp.New(t.Context(), otlp.Options{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s as the address of a collector: %v", url, err)
		}
		t.Run("OTEL_EXPORTER_OTLP_ENDPOINT", func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			if _, err := otlp.New(t.Context(), otlp.Options{}); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT: ") {
				t.Errorf("%s as the address of a collector: %v", url, err)
			}
		})
	}
}

// Variables that cannot be heeded are reported.
func TestEnvironmentIsChecked(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_TRACES_SAMPLER", "sometimes")
	var lines lockedBuffer
	if _, err := otlp.New(t.Context(), otlp.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}); err != nil {
		t.Fatal(err)
	}
	if lines.count("gRPC") != 1 || lines.count("sampler=sometimes") != 1 {
		t.Errorf("the log says:\n%s", &lines)
	}
}
