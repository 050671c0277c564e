package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

// meter counts what the server does.
type meter struct {
	mu       sync.Mutex
	requests map[request]int64
	took     map[string]*histogram // by operation
}

// request is a kind of request: an operation and the class of the response's
// status, such as 2xx.
type request struct{ op, class string }

// buckets are the upper bounds of the histograms, in seconds.
var buckets = [...]float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60}

type histogram struct {
	counts [len(buckets)]int64 // not added up
	sum    float64
	n      int64
}

// request counts a request. Only names of operations and faces are labels, so
// clients cannot add any.
func (m *meter) request(op string, status int, took time.Duration, stream bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[request{op, strconv.Itoa(status/100) + "xx"}]++
	if stream {
		return // it lasts as long as its reader stays
	}
	h := m.took[op]
	if h == nil {
		h = &histogram{}
		m.took[op] = h
	}
	h.n++
	h.sum += took.Seconds()
	for i, le := range buckets {
		if took.Seconds() <= le {
			h.counts[i]++
			break
		}
	}
}

// exposition writes metrics in Prometheus' text format.
type exposition struct{ b strings.Builder }

// family begins a family, once per name.
func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(&e.b, "# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help), name, kind)
}

// sample writes a sample. Labels are pairs of name and value.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		e.b.WriteByte("{,"[min(i, 1)])
		text := strings.ToValidUTF8(labels[i+1], "\uFFFD")
		fmt.Fprintf(&e.b, `%s="%s"`, labels[i], strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text))
	}
	if len(labels) > 0 {
		e.b.WriteByte('}')
	}
	e.b.WriteString(" " + number(value) + "\n")
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// gauge writes a family of one sample.
func (e *exposition) gauge(name, help string, value float64) {
	e.family(name, "gauge", help)
	e.sample(name, value)
}

// writeMetrics writes all metrics; n is nil if the store does not answer.
func (s *Server) writeMetrics(w io.Writer, n *count, kept *perdure.RetentionStatus) {
	e := &exposition{}
	e.family("perdure_build_info", "gauge", "What this server is.")
	e.sample("perdure_build_info", 1, "version", s.opts.Version, "goversion", runtime.Version())
	s.meter.write(e)
	e.gauge("perdure_streams_open", "Event streams that are open.", float64(s.events.open.Load()))
	e.family("perdure_events_sent_total", "counter", "Events that were sent on streams.")
	e.sample("perdure_events_sent_total", float64(s.events.sent.Load()))
	writeCount(e, n)
	if s.quotas.on() {
		s.quotas.writeTenants(e)
	}
	writeRetention(e, kept)
	values := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(values)
	e.gauge("go_goroutines", "Goroutines that exist.", float64(values[0].Value.Uint64()))
	e.gauge("go_memstats_heap_alloc_bytes", "Bytes of objects on the heap.", float64(values[1].Value.Uint64()))
	e.gauge("go_memstats_sys_bytes", "Bytes that were got from the system.", float64(values[2].Value.Uint64()))
	e.gauge("process_start_time_seconds", "When the server was started, since the epoch.", float64(s.started.UnixMilli())/1000)
	io.WriteString(w, e.b.String())
}

// writeCount writes the numbers of a tenant.
func writeCount(e *exposition, n *count) {
	if n == nil {
		e.gauge("perdure_store_up", "Whether the store answers.", 0)
		return
	}
	e.gauge("perdure_store_up", "Whether the store answers.", 1)
	e.family("perdure_threads", "gauge", "Threads of the tenant by status.")
	for _, status := range slices.Sorted(maps.Keys(n.statuses)) {
		e.sample("perdure_threads", float64(n.statuses[status]), "status", status)
	}
	e.gauge("perdure_asks_open", "Open asks of the tenant.", float64(n.asks))
	e.gauge("perdure_workers", "Workers that are alive.", float64(n.workers))
}

// write writes what was counted.
func (m *meter) write(e *exposition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.family("perdure_http_requests_total", "counter", "Requests by operation and class of status.")
	byName := func(a, b request) int { return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.class, b.class)) }
	for _, r := range slices.SortedFunc(maps.Keys(m.requests), byName) {
		e.sample("perdure_http_requests_total", float64(m.requests[r]), "operation", r.op, "status", r.class)
	}
	const took = "perdure_http_request_duration_seconds"
	e.family(took, "histogram", "How long requests took by operation, without event streams.")
	for _, op := range slices.Sorted(maps.Keys(m.took)) {
		h, sum := m.took[op], int64(0)
		for i, le := range buckets {
			sum += h.counts[i]
			e.sample(took+"_bucket", float64(sum), "operation", op, "le", number(le))
		}
		e.sample(took+"_bucket", float64(h.n), "operation", op, "le", "+Inf")
		e.sample(took+"_sum", h.sum, "operation", op)
		e.sample(took+"_count", float64(h.n), "operation", op)
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

// of returns the counts of the caller's tenant. Of several concurrent callers one
// counts.
func (n *counts) of(ctx context.Context, c *Call) (*count, error) {
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
