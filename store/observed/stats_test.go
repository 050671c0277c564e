package observed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
)

// tell gives stats a call that ended with r.
func tell(s *observed.Stats, op store.Op, r observed.Result) {
	_, done := s.Observe(context.Background(), observed.Call{Op: op})
	done(r)
}

func TestStatsCount(t *testing.T) {
	var stats observed.Stats
	for _, err := range []error{
		nil, nil, store.NotAtEnd("j", 1, 2), store.NoCell("c"), context.Canceled,
		fmt.Errorf("get: %w", context.DeadlineExceeded), store.ErrCorrupt, store.ErrClosed, store.ErrFull,
	} {
		tell(&stats, store.OpAppend, observed.Result{Items: 2, Bytes: 10, Duration: time.Microsecond, Err: err})
	}
	want := observed.OpStats{
		Op: store.OpAppend, Calls: 9, Conflicts: 1, NotFound: 1, Cancelled: 2, Failed: 3,
		Items: 4, Bytes: 20, Latency: observed.Histogram{9},
	}
	snap := stats.Snapshot()
	if diff := cmp.Diff(observed.Snapshot{want}, snap); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observed.OpStats{Op: store.OpGet}, snap.Of(store.OpGet)); diff != "" {
		t.Errorf("an operation that did not happen (-want +got):\n%s", diff)
	}
}

func TestHistogramBounds(t *testing.T) {
	for _, test := range []struct {
		d, bound time.Duration
	}{
		{-time.Second, time.Microsecond},
		{0, time.Microsecond},
		{1, time.Microsecond},
		{time.Microsecond, time.Microsecond},
		{time.Microsecond + 1, 2 * time.Microsecond},
		{2 * time.Microsecond, 2 * time.Microsecond},
		{3 * time.Microsecond, 4 * time.Microsecond},
		{time.Millisecond, 1024 * time.Microsecond},
		{1024 * time.Microsecond, 1024 * time.Microsecond},
		{1025 * time.Microsecond, 2048 * time.Microsecond},
		{time.Hour, time.Microsecond << 27},
	} {
		var stats observed.Stats
		tell(&stats, store.OpGet, observed.Result{Duration: test.d})
		if got := stats.Snapshot().Of(store.OpGet).Latency.Quantile(1); got != test.bound {
			t.Errorf("%v is in the bucket up to %v, want %v", test.d, got, test.bound)
		}
	}
}

func TestQuantile(t *testing.T) {
	var h observed.Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	h[0], h[3], h[10] = 50, 49, 1
	for q, want := range map[float64]time.Duration{0: h.Bound(0), 0.5: h.Bound(0), 0.51: h.Bound(3), 0.99: h.Bound(3), 1: h.Bound(10)} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestStatsConcurrently(t *testing.T) {
	var stats observed.Stats
	s := observed.New(memstore.New(), &stats)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				_, _ = s.Get(t.Context(), "c")
				_ = stats.Snapshot()
			}
		})
	}
	all.Wait()
	if got := stats.Snapshot().Of(store.OpGet); got.Calls != 1600 || got.NotFound != 1600 {
		t.Errorf("counted %d calls, %d not found; want 1600 of both", got.Calls, got.NotFound)
	}
}

func ExampleStats() {
	var stats observed.Stats
	tell(&stats, store.OpAppend, observed.Result{Items: 2, Bytes: 300, Duration: 700 * time.Microsecond})
	tell(&stats, store.OpAppend, observed.Result{Items: 1, Bytes: 100, Duration: 3 * time.Millisecond, Err: store.ErrConflict})
	tell(&stats, store.OpGet, observed.Result{Duration: 4 * time.Microsecond, Err: store.ErrNotFound})
	fmt.Print(stats.Snapshot())
	// Output:
	//     call  calls  conflicts  not found  cancelled  failed  items  bytes    p50 ≤    p99 ≤    max ≤
	//   append      2          1          0          0       0      2    300  1.024ms  4.096ms  4.096ms
	//      get      1          0          1          0       0      0      0      4µs      4µs      4µs
}
