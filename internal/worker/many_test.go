package worker_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// TestManyDueThreadsDoNotStampede lets a worker start on few and on many due
// threads: what a thread costs is the same.
func TestManyDueThreadsDoNotStampede(t *testing.T) {
	type cost struct{ calls, listed float64 }
	measure := func(n int, d time.Duration) (got cost) {
		synctest.Test(t, func(t *testing.T) {
			const concurrency = 16
			s := newCountStore(memstore.New())
			var c crowd
			flow := c.flow("f", "w", d)
			queueUp(t, kit.Runtime(t, s, perdure.Options{}, flow), "f", "ann", n)
			s.reset()
			k := kit.New(t, s, perdure.Options{Concurrency: concurrency}, flow)
			until(t, "all were executed", func() bool { return c.came() == n })
			time.Sleep(time.Second)
			k.Stop()
			calls, listed := s.reset()
			got = cost{float64(calls) / float64(n), float64(listed) / float64(n)}
			if c.most > concurrency {
				t.Errorf("%d runs at once, want at most %d", c.most, concurrency)
			}
			if c.came() != n {
				t.Errorf("%d steps of %d runs", c.came(), n)
			}
		})
		return got
	}
	for _, d := range []time.Duration{0, 70 * time.Millisecond} {
		few, many := measure(kit.Sized(300, 500, 1000), d), measure(kit.Sized(900, 1500, 100_000), d)
		t.Logf("steps of %v: %.4g calls and %.4g listed cells a thread of few, %.4g and %.4g of many", d, few.calls, few.listed, many.calls, many.listed)
		if math.Abs(many.calls/few.calls-1) > 0.2 {
			t.Errorf("a thread costs %.4g calls of the store among many, %.4g among few", many.calls, few.calls)
		}
		// Of the last page of few there is less to list, so this is a bound.
		if many.listed > 1.5*few.listed || many.listed > 40 {
			t.Errorf("a thread costs %.4g listed cells among many, %.4g among few", many.listed, few.listed)
		}
	}
}

// TestOwnersTakeTurns: an owner with few threads does not wait for one with
// many.
func TestOwnersTakeTurns(t *testing.T) {
	for _, c := range []struct {
		name             string
		many             []string // owners of many threads
		workers, tenants int
	}{
		{"users", []string{"big"}, 1, 0},
		{"tenants", []string{"big"}, 1, 1},
		{"three users", []string{"big", "bigger"}, 1, 0},
		{"two workers", []string{"big"}, 2, 0},
	} {
		kit.Bubble(t, c.name, func(t *testing.T) {
			const few, first = 10, 40
			s := memstore.New()
			var in crowd
			rt := kit.Runtime(t, s, perdure.Options{}, in.flow("f", "", 0))
			for _, owner := range append(slices.Clone(c.many), "small") {
				of, n := rt, kit.Sized(300, 1000, 1000)
				if owner == "small" {
					n = few
				}
				if c.tenants > 0 {
					of = rt.Tenant(owner)
				}
				queueUp(t, of, "f", owner, n)
			}
			for i := range c.workers {
				kit.New(t, s, perdure.Options{Concurrency: 4}, in.flow("f", fmt.Sprint(i), 10*time.Millisecond))
			}
			until(t, "some were executed", func() bool { return in.came() > 2*first })
			small, order := 0, in.first(first)
			for _, who := range order {
				if who == "small" {
					small++
				}
			}
			if small != few {
				t.Errorf("of the first %d runs %d were of the owner with %d threads: %q", first, small, few, order)
			}
		})
	}
}

// TestSuspendedThreadsCostNothing: goroutines, memory and calls of an idle
// worker do not depend on how many threads wait.
func TestSuspendedThreadsCostNothing(t *testing.T) {
	type idle struct {
		calls, listed, heap int64
		goroutines          int
	}
	measure := func(n int) (got idle) {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			flows := []perdure.Flow{kit.AskFlow("ask", perdure.Question{}), perdure.NewFlow("sleep", func(ctx context.Context, d time.Duration) (string, error) {
				return "slept", perdure.Sleep(ctx, "nap", d)
			})}
			k := kit.New(t, inner, perdure.Options{}, flows...)
			for i := range n {
				if i%2 == 0 {
					k.MustStart(perdure.StartRequest{Flow: "ask", Input: ""})
				} else {
					k.MustStart(perdure.StartRequest{Flow: "sleep", Input: 1000 * time.Hour})
				}
			}
			until(t, "all are suspended", func() bool {
				for sum, err := range k.List(t.Context(), perdure.ListOptions{}) {
					if err != nil || sum.Status != perdure.Suspended {
						return false
					}
				}
				return true
			})
			k.Stop()
			heap := func() int64 {
				var m runtime.MemStats
				for range 3 {
					runtime.GC()
				}
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			s := newCountStore(inner)
			k = kit.New(t, s, perdure.Options{}, flows...)
			time.Sleep(time.Minute)
			synctest.Wait()
			s.reset()
			time.Sleep(time.Hour)
			synctest.Wait()
			got.calls, got.listed = s.reset()
			got.goroutines, got.heap = runtime.NumGoroutine(), heap()-before
			k.Stop()
		})
		return got
	}
	few, many := measure(10), measure(kit.Sized(1000, 3000, 100_000))
	t.Logf("few: %+v, many: %+v", few, many)
	if d := many.calls - few.calls; d < -5 || d > 5 {
		t.Errorf("an idle worker calls the store %d times an hour, and %d times where many wait", few.calls, many.calls)
	}
	// Each look at the alarms sees the first that is not due.
	if many.listed > few.listed+5 {
		t.Errorf("an idle worker lists %d cells an hour, and %d where many wait", few.listed, many.listed)
	}
	if many.goroutines > few.goroutines { // one of an earlier test may have ended in the meantime
		t.Errorf("%d goroutines, and %d where many wait", few.goroutines, many.goroutines)
	}
	if many.heap > 512<<10 {
		t.Errorf("an idle worker keeps %d bytes where many wait", many.heap)
	}
}
