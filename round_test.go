package perdure

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// crowd writes hints of so many threads that are not due for an hour, as
// those of blocked runs are not.
func crowd(t *testing.T, s store.Store, n int) {
	t.Helper()
	for i := range n {
		if err := due.Announce(t.Context(), s, "f", fmt.Sprintf("blocked.%016d", i*7919%n), 1, clock.Micros()+time.Hour.Microseconds()); err != nil {
			t.Fatal(err)
		}
	}
}

// A thread that becomes due among many that are not is found at once, wherever
// its hint is.
func TestADueThreadAmongManyThatAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		r := queueRuntime(t, s, Options{})
		crowd(t, s, 5_000)
		defer work(t, r)()
		time.Sleep(time.Minute)
		for i := range 5 {
			name := fmt.Sprint("t", i)
			if _, err := r.Start(t.Context(), StartRequest{Thread: name, User: name, Flow: "f", Input: 0}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := status(t, r, name); got != Succeeded {
				t.Errorf("a second after its start the run of thread %s is %s", name, got)
			}
		}
	})
}

// A timer among many hints is in time, though other pages were read since its
// hint was.
func TestTimersAmongManyHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		r, err := New(t.Context(), s, Options{Version: "test"}, NewFlow("f", func(ctx context.Context, seconds int) (string, error) {
			return "", Sleep(ctx, "doze", time.Duration(seconds)*time.Second)
		}))
		if err != nil {
			t.Fatal(err)
		}
		crowd(t, s, 5_000)
		defer work(t, r)()
		time.Sleep(time.Minute)
		for i := range 5 {
			name := fmt.Sprint("t", i)
			if _, err := r.Start(t.Context(), StartRequest{Thread: name, User: name, Flow: "f", Input: 5}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		for i := range 5 {
			if got := status(t, r, fmt.Sprint("t", i)); got != Succeeded {
				t.Errorf("a second after its timer the run of thread t%d is %s", i, got)
			}
		}
	})
}

// Threads of one owner that are due again and again do not keep others of that
// owner from their turn.
func TestThreadsOfOneOwnerTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var mu sync.Mutex
		steps := map[int]int{}
		r, err := New(t.Context(), s, Options{Version: "test", Concurrency: 4}, NewFlow("f", func(ctx context.Context, n int) (string, error) {
			for i := 0; ; i++ {
				if _, err := Step(ctx, fmt.Sprint("poll", i), func(context.Context) (string, error) {
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					steps[n]++
					return "", nil
				}); err != nil {
					return "", err
				}
				if err := Sleep(ctx, fmt.Sprint("doze", i), 10*time.Millisecond); err != nil {
					return "", err
				}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		const threads = 600 // more than two pages
		for i := range threads {
			if _, err := r.Start(t.Context(), StartRequest{Thread: fmt.Sprint(i), Flow: "f", Input: i}); err != nil {
				t.Fatal(err)
			}
		}
		stop := work(t, r)
		time.Sleep(threads / 4 * 3 * 100 * time.Millisecond) // for three steps of each
		stop()
		mu.Lock()
		defer mu.Unlock()
		most, never := 0, 0
		for i := range threads {
			most = max(most, steps[i])
			if steps[i] == 0 {
				never++
			}
		}
		if never > 0 || most > 6 {
			t.Errorf("%d of %d threads had no turn, and one had %d", never, threads, most)
		}
	})
}
