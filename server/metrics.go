package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// metricsType is the media type of Prometheus' text format.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// meter counts the requests of the server.
type meter struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

// buckets are the upper bounds of the histograms of requests, in seconds.
var buckets = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60}

func newMeter() meter {
	return meter{
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "perdure_http_requests_total", Help: "Requests by operation and class of status."}, []string{"operation", "status"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "perdure_http_request_duration_seconds", Help: "How long requests took by operation, without event streams.", Buckets: buckets}, []string{"operation"}),
	}
}

// request counts a request. Only names of operations and faces are labels, so
// clients cannot add any.
func (m *meter) request(op string, status int, took time.Duration, stream bool) {
	m.requests.WithLabelValues(op, strconv.Itoa(status/100)+"xx").Inc()
	if !stream { // it lasts as long as its reader stays
		m.took.WithLabelValues(op).Observe(took.Seconds())
	}
}

// exposition collects the samples of one scrape that are not counted as they happen. It
// is a prometheus.Collector.
type exposition struct {
	name, help string
	kind       prometheus.ValueType
	metrics    []prometheus.Metric
}

// Describe says nothing, since the families depend on what there is.
func (e *exposition) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e *exposition) Collect(to chan<- prometheus.Metric) {
	for _, m := range e.metrics {
		to <- m
	}
}

// family begins a family, once per name.
func (e *exposition) family(name string, kind prometheus.ValueType, help string) {
	e.name, e.kind, e.help = name, kind, help
}

// sample adds a sample to the family. Labels are pairs of name and value.
func (e *exposition) sample(value float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, strings.ToValidUTF8(labels[i+1], "\uFFFD"))
	}
	e.metrics = append(e.metrics, prometheus.MustNewConstMetric(prometheus.NewDesc(e.name, e.help, names, nil), e.kind, value, values...))
}

// gauge adds a family of one sample.
func (e *exposition) gauge(name, help string, value float64) {
	e.family(name, prometheus.GaugeValue, help)
	e.sample(value)
}

// scrape collects what a caller sees of a server. It is a prometheus.Collector.
type scrape struct {
	ctx context.Context
	s   *Server
	c   *Call
}

// Collector returns the metrics that GET /metrics shows, except those of the process, for
// exporters such as that of package otel/otlp. It also works when the store does not
// answer, since the other metrics are most needed then.
func (s *Server) Collector() prometheus.Collector {
	return scrape{context.Background(), s, &Call{Runtime: s.rt, Who: nobody, s: s}}
}

// Describe says nothing, since the families depend on what there is.
func (r scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r scrape) Collect(to chan<- prometheus.Metric) {
	s := r.s
	ctx, cancel := context.WithTimeout(r.ctx, metricsWithin)
	defer cancel()
	n, err := s.counts.ofCaller(ctx, r.c)
	if err != nil {
		if !errors.Is(err, store.ErrClosed) { // an exporter may still be at it when the process stops
			s.opts.Logger.Error("metrics without the numbers of threads", "error", err)
		}
		n = nil
	}
	kept, err := r.c.Runtime.Retention(ctx)
	if err != nil {
		kept = nil // the store does not answer: that is logged above
	}
	e := &exposition{}
	e.family("perdure_build_info", prometheus.GaugeValue, "What this server is.")
	e.sample(1, "version", s.opts.Version, "goversion", runtime.Version())
	e.gauge("perdure_streams_open", "Event streams that are open.", float64(s.events.open.Load()))
	e.family("perdure_events_sent_total", prometheus.CounterValue, "Events that were sent on streams.")
	e.sample(float64(s.events.sent.Load()))
	writeCount(e, n)
	if found, ok := s.warnings(ctx); ok {
		writeWarnings(e, found)
	}
	if s.quotas.on() {
		s.quotas.writeTenants(e)
	}
	writeRetention(e, kept)
	all := []prometheus.Collector{e, s.meter.requests, s.meter.took}
	if s.opts.Metrics != nil {
		all = append(all, s.opts.Metrics)
	}
	for _, c := range all {
		c.Collect(to)
	}
}

// expose writes metrics, and those of the process, in Prometheus' text format.
func expose(w io.Writer, all ...prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	for _, c := range append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	to := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := to.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// writeCount writes the numbers of a tenant.
func writeCount(e *exposition, n *count) {
	if n == nil {
		e.gauge("perdure_store_up", "Whether the store answers.", 0)
		return
	}
	e.gauge("perdure_store_up", "Whether the store answers.", 1)
	e.family("perdure_threads", prometheus.GaugeValue, "Threads of the tenant by status.")
	for status, k := range n.statuses {
		e.sample(float64(k), "status", status)
	}
	e.gauge("perdure_asks_open", "Open asks of the tenant.", float64(n.asks))
	e.gauge("perdure_workers", "Workers that are alive.", float64(n.workers))
}

// writeWarnings writes how much is wrong with the store, by kind.
func writeWarnings(e *exposition, found []store.Warning) {
	kinds := map[string]int{}
	for _, w := range found {
		kinds[w.Kind]++
	}
	e.family("perdure_store_warnings", prometheus.GaugeValue, "What an operator should mend about the store, by kind.")
	for _, kind := range store.WarningKinds {
		e.sample(float64(kinds[kind]), "kind", kind)
	}
}

// count holds the counts of a tenant's threads. It is immutable.
type count struct {
	threads  int
	statuses map[string]int
	asks     int
	workers  int
	runs     int
	bytes    int64 // uploads too
	uploads  int64
	more     int64 // that uploads count in a quota beyond their bytes
	spent    map[string]int64
	at       time.Time
}

// counts caches the counts of tenants for a while.
type counts struct {
	count   func(context.Context, *perdure.Runtime) (*count, error)
	mu      sync.Mutex
	tenants map[string]*counted
}

// counted caches the counts of a tenant.
type counted struct {
	turn  chan struct{} // full while someone counts
	last  *count
	until time.Time // last is valid
}

// keepCounts is how long counts are valid at least. They are valid 10 times as
// long as counting took, so that at most a tenth of the time is spent on it.
const keepCounts = 2 * time.Second

// ofCaller returns the counts of the caller's tenant. Of several concurrent callers one
// counts.
func (n *counts) ofCaller(ctx context.Context, c *Call) (*count, error) {
	own := n.tenant(c.Who.Tenant + "\x00" + c.Who.User)
	select {
	case own.turn <- struct{}{}:
		defer func() { <-own.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := time.Now()
	if own.last != nil && begun.Before(own.until) {
		return own.last, nil
	}
	last, err := n.count(ctx, c.Runtime)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	own.last = last
	n.mu.Lock()
	own.until = now.Add(max(keepCounts, 10*now.Sub(begun)))
	n.mu.Unlock()
	return last, nil
}

// maxTenants is how many tenants are cached.
const maxTenants = 1000

func (n *counts) tenant(name string) *counted {
	n.mu.Lock()
	defer n.mu.Unlock()
	if own := n.tenants[name]; own != nil {
		return own
	}
	if len(n.tenants) >= maxTenants {
		now := time.Now()
		maps.DeleteFunc(n.tenants, func(_ string, c *counted) bool { return now.After(c.until) })
	}
	if len(n.tenants) >= maxTenants {
		clear(n.tenants)
	}
	own := &counted{turn: make(chan struct{}, 1)}
	n.tenants[name] = own
	return own
}

// countStatuses counts the threads and asks that a runtime reaches, without reading
// all of them.
func countStatuses(ctx context.Context, rt *perdure.Runtime) (*count, error) {
	counts, err := rt.Count(ctx)
	if err != nil {
		return nil, err
	}
	n := &count{threads: counts.Threads, asks: counts.Asks, statuses: map[string]int{}}
	for status, k := range counts.Statuses {
		n.statuses[string(status)] = k
	}
	for t, err := range rt.List(ctx, perdure.ListOptions{Limit: 1}) {
		if err == nil && t.Moved != "" { // the whole store has: nothing is to be done here
			n.statuses, n.asks = map[string]int{kindMoved: n.threads}, 0
		}
	}
	workers, err := rt.Workers(ctx)
	n.workers = len(workers)
	return n, cmp.Or(err, ctx.Err())
}
