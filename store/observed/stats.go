package observed

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/perdure/perdure/store"
)

// Stats is an [Observer] that counts calls, errors and bytes, and records how long
// calls take. The zero value is ready to use, by any number of stores at once.
type Stats struct {
	mu  sync.Mutex
	ops map[store.Op]*OpStats
}

var _ Observer = (*Stats)(nil)

// Observe implements Observer.
func (s *Stats) Observe(ctx context.Context, c Call) (context.Context, func(Result)) {
	return ctx, func(r Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ops == nil {
			s.ops = map[store.Op]*OpStats{}
		}
		if s.ops[c.Op] == nil {
			s.ops[c.Op] = &OpStats{Op: c.Op}
		}
		s.ops[c.Op].add(r)
	}
}

// Snapshot returns the current counts.
func (s *Stats) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var snap Snapshot
	for _, op := range store.Ops() {
		if o := s.ops[op]; o != nil {
			snap = append(snap, *o)
		}
	}
	return snap
}

// Snapshot holds the counts of each kind of call that has happened.
type Snapshot []OpStats

// Of returns the counts of one kind of call; they are zero if it never happened.
func (s Snapshot) Of(op store.Op) OpStats {
	if i := slices.IndexFunc(s, func(o OpStats) bool { return o.Op == op }); i >= 0 {
		return s[i]
	}
	return OpStats{Op: op}
}

// String returns a table with a line for each kind of call.
func (s Snapshot) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "call\tcalls\tconflicts\tnot found\tcancelled\tfailed\titems\tbytes\tp50 ≤\tp99 ≤\tmax ≤\t")
	for _, o := range s {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t\n", o.Op, o.Calls, o.Conflicts, o.NotFound, o.Cancelled, o.Failed,
			o.Items, o.Bytes, o.Latency.Quantile(0.5), o.Latency.Quantile(0.99), o.Latency.Quantile(1))
	}
	_ = w.Flush() // a write to memory cannot fail
	return b.String()
}

// OpStats holds the counts of one kind of call.
type OpStats struct {
	Op        store.Op
	Calls     int64 // all that have ended, with or without an error
	Conflicts int64 // ended with store.ErrConflict
	NotFound  int64 // with store.ErrNotFound
	Cancelled int64 // because their context ended
	Failed    int64 // with any other error
	Items     int64 // entries, cells or names carried by calls without an error
	Bytes     int64 // of those entries and values
	Latency   Histogram
}

func (o *OpStats) add(r Result) {
	o.Calls++
	o.Latency.add(r.Duration)
	switch {
	case r.Err == nil:
		o.Items += int64(r.Items)
		o.Bytes += int64(r.Bytes)
	case errors.Is(r.Err, store.ErrConflict):
		o.Conflicts++
	case errors.Is(r.Err, store.ErrNotFound):
		o.NotFound++
	case errors.Is(r.Err, context.Canceled), errors.Is(r.Err, context.DeadlineExceeded):
		o.Cancelled++
	default:
		o.Failed++
	}
}

// buckets reach from a microsecond to about two minutes.
const buckets = 28

// Histogram counts durations in buckets, each twice as wide as the one before.
// Bucket i counts durations of at most 2^i microseconds that no earlier bucket
// counts, and the last bucket also all longer ones.
type Histogram [buckets]int64

func (h *Histogram) add(d time.Duration) {
	us := max(0, int64((d+time.Microsecond-1)/time.Microsecond))
	i := 0
	if us > 1 {
		i = bits.Len64(uint64(us - 1))
	}
	h[min(i, buckets-1)]++
}

// Bound returns the upper bound of bucket i.
func (h Histogram) Bound(i int) time.Duration { return time.Microsecond << i }

// Quantile returns a duration that at least the fraction q of the calls did not
// exceed. It is the upper bound of a bucket, and so may be up to twice too long.
// It is zero if there were no calls.
func (h Histogram) Quantile(q float64) time.Duration {
	var total, seen int64
	for _, n := range h {
		total += n
	}
	if total == 0 {
		return 0
	}
	for i, n := range h {
		if seen += n; n > 0 && float64(seen) >= q*float64(total) {
			return h.Bound(i)
		}
	}
	return h.Bound(buckets - 1)
}
