package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/worker"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// nappers returns a runtime whose flow f takes as many seconds as its
// input says.
func nappers(t *testing.T, s store.Store, o perdure.Options) *perdure.Runtime {
	t.Helper()
	o.Version = "test"
	r, err := perdure.New(t.Context(), s, o, perdure.NewFlow("f", func(ctx context.Context, seconds float64) (string, error) {
		return perdure.Step(ctx, "nap", func(ctx context.Context) (string, error) {
			select {
			case <-time.After(time.Duration(seconds * float64(time.Second))):
			case <-ctx.Done():
			}
			return "", ctx.Err()
		})
	}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func startNap(t *testing.T, r *perdure.Runtime, thread string, seconds float64) {
	t.Helper()
	if _, err := r.Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "f", Input: seconds}); err != nil {
		t.Fatal(err)
	}
}

// startSuspect starts a run that two workers in a row have claimed and died of.
func startSuspect(t *testing.T, r *perdure.Runtime, thread string, seconds float64) {
	t.Helper()
	startNap(t, r, thread, seconds)
	o, err := threads.Behind(r).Open(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, _, err := threads.Behind(r).All.Change(t.Context(), o.Name, func(th *journal.Thread) ([]threads.Line, []string, error) {
			return []threads.Line{{Kind: journal.Claimed, Run: th.Runs[0].N, Epoch: th.Epoch + 1,
				Body: journal.Body{Worker: fmt.Sprint("dead", i), Version: "test"}}}, nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// work starts a worker and returns what stops it.
func work(t *testing.T, r *perdure.Runtime) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Work(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	}
}

func statusOf(t *testing.T, r *perdure.Runtime, thread string) perdure.Status {
	t.Helper()
	info, err := r.Get(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	return info.Status
}

// What a scan was about to take does not begin beside a suspect that has begun
// to run alone in the meantime.
func TestNothingBeginsBesideASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		r := nappers(t, s, perdure.Options{})
		startSuspect(t, r, "suspect", 10)
		startNap(t, r, "innocent", 1)
		io, gone := context.WithCancel(context.Background())
		defer gone()
		w := hold(t, io, r)
		hint := func(thread string) due.Hint {
			o, err := threads.Behind(r).Open(t.Context(), thread)
			if err != nil {
				t.Fatal(err)
			}
			h, _, err := due.Get(t.Context(), s, "f", o.Name)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		suspect, innocent := hint("suspect"), hint("innocent")
		w.Take(suspect)
		synctest.Wait()
		if w.Take(innocent) {
			t.Error("an innocent run was begun beside a suspect")
		}
		w.Join()
	})
}

// All suspects get their turn, one after the other.
func TestManySuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nappers(t, memstore.New(), perdure.Options{Concurrency: 8})
		for i := range 40 {
			startSuspect(t, r, fmt.Sprint(i), 0.1)
		}
		defer work(t, r)()
		time.Sleep(20 * time.Second)
		for i := range 40 {
			if got := statusOf(t, r, fmt.Sprint(i)); got != perdure.Succeeded {
				t.Errorf("suspect %d is %s", i, got)
			}
		}
	})
}

// A suspect gets its turn in a worker that always has something to do.
func TestASuspectInABusyWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nappers(t, memstore.New(), perdure.Options{Concurrency: 2})
		startNap(t, r, "first", 2)
		time.Sleep(time.Second) // names sort by time, and hints by name
		startSuspect(t, r, "suspect", 1)
		time.Sleep(time.Second)
		for i := range 200 {
			startNap(t, r, fmt.Sprint(i), 4)
		}
		defer work(t, r)()
		time.Sleep(time.Minute)
		if got := statusOf(t, r, "suspect"); got != perdure.Succeeded {
			t.Errorf("after a minute the suspect is %s", got)
		}
	})
}

// A suspect that waits for a long step to end does not keep the worker from
// everything else until then.
func TestASuspectBehindALongStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nappers(t, memstore.New(), perdure.Options{Concurrency: 4})
		defer work(t, r)()
		startNap(t, r, "long", 3600)
		synctest.Wait()
		startSuspect(t, r, "suspect", 1)
		time.Sleep(time.Minute)
		startNap(t, r, "innocent", 1)
		time.Sleep(5 * time.Minute)
		if got := statusOf(t, r, "innocent"); got != perdure.Succeeded {
			t.Errorf("a run that came a minute after a suspect is %s five minutes later", got)
		}
		time.Sleep(3 * time.Hour)
		if got := statusOf(t, r, "suspect"); got != perdure.Succeeded {
			t.Errorf("after hours the suspect is %s", got)
		}
	})
}

// announceLater writes hints of so many threads that are not due for an hour, as
// those of blocked runs are not.
func announceLater(t *testing.T, s store.Store, n int) {
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
		r := nappers(t, s, perdure.Options{})
		announceLater(t, s, kit.Sized(1500, 5000, 5000))
		defer work(t, r)()
		time.Sleep(time.Minute)
		for i := range 5 {
			name := fmt.Sprint("t", i)
			if _, err := r.Start(t.Context(), perdure.StartRequest{Thread: name, User: name, Flow: "f", Input: 0}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := statusOf(t, r, name); got != perdure.Succeeded {
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
		r, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}, perdure.NewFlow("f", func(ctx context.Context, seconds int) (string, error) {
			return "", perdure.Sleep(ctx, "doze", time.Duration(seconds)*time.Second)
		}))
		if err != nil {
			t.Fatal(err)
		}
		announceLater(t, s, kit.Sized(1500, 5000, 5000))
		defer work(t, r)()
		time.Sleep(time.Minute)
		for i := range 5 {
			name := fmt.Sprint("t", i)
			if _, err := r.Start(t.Context(), perdure.StartRequest{Thread: name, User: name, Flow: "f", Input: 5}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Second)
		for i := range 5 {
			if got := statusOf(t, r, fmt.Sprint("t", i)); got != perdure.Succeeded {
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
		r, err := perdure.New(t.Context(), s, perdure.Options{Version: "test", Concurrency: 4}, perdure.NewFlow("f", func(ctx context.Context, n int) (string, error) {
			for i := 0; ; i++ {
				if _, err := perdure.Step(ctx, fmt.Sprint("poll", i), func(context.Context) (string, error) {
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					steps[n]++
					return "", nil
				}); err != nil {
					return "", err
				}
				if err := perdure.Sleep(ctx, fmt.Sprint("doze", i), 10*time.Millisecond); err != nil {
					return "", err
				}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		const many = 600 // more than two pages
		for i := range many {
			if _, err := r.Start(t.Context(), perdure.StartRequest{Thread: fmt.Sprint(i), Flow: "f", Input: i}); err != nil {
				t.Fatal(err)
			}
		}
		stop := work(t, r)
		time.Sleep(many / 4 * 3 * 100 * time.Millisecond) // for three steps of each
		stop()
		mu.Lock()
		defer mu.Unlock()
		most, never := 0, 0
		for i := range many {
			most = max(most, steps[i])
			if steps[i] == 0 {
				never++
			}
		}
		if never > 0 || most > 6 {
			t.Errorf("%d of %d threads had no turn, and one had %d", never, many, most)
		}
	})
}

// What a worker remembers of threads that others execute does not stay.
func TestAWorkerForgetsWhatOthersDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "a", func(context.Context) (string, error) { time.Sleep(2 * time.Second); return "", nil })
		})
		r, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		io, gone := context.WithCancel(context.Background())
		done := make(chan error, 2)
		go func() { done <- r.Work(ctx) }()
		time.Sleep(time.Second)
		w := hold(t, io, r)
		for i := range 50 {
			if _, err := r.Start(t.Context(), perdure.StartRequest{Thread: fmt.Sprint(i), Flow: "f", Input: ""}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the first worker executes them
		go func() { done <- w.Loop(ctx) }()
		for i := range 50 {
			if _, err := r.Wait(t.Context(), fmt.Sprint(i), ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := w.Remembered(); n > 0 {
			t.Errorf("an idle worker remembers %d threads of others that have ended", n)
		}
		cancel()
		<-done
		<-done
		w.Join()
		gone()
	})
}

// hold returns a worker on the store of a runtime that has not begun to look for
// work, with a flow that naps for ten seconds.
func hold(t *testing.T, io context.Context, r *perdure.Runtime) *worker.Worker {
	t.Helper()
	all := threads.Behind(r).All
	e := engine.New(all, engine.Options{Version: "test", Lease: time.Second, Grace: time.Second, DumpInterval: time.Hour})
	nap := func(context.Context, json.RawMessage) (json.RawMessage, error) {
		time.Sleep(10 * time.Second)
		return json.RawMessage(`""`), nil
	}
	w, err := worker.New(all, e, worker.Options{Version: "test", Flows: map[string]engine.FlowFunc{"f": nap}, Concurrency: 64, Lease: time.Second, Grace: time.Second}).Hold(io)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
