package perdure

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// runtime returns a runtime whose flow f takes as many seconds as its
// input says.
func queueRuntime(t *testing.T, s store.Store, o Options) *Runtime {
	t.Helper()
	o.Version = "test"
	r, err := New(t.Context(), s, o, NewFlow("f", func(ctx context.Context, seconds float64) (string, error) {
		return Step(ctx, "nap", func(ctx context.Context) (string, error) {
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

func startRun(t *testing.T, r *Runtime, thread string, seconds float64) {
	t.Helper()
	if _, err := r.Start(t.Context(), StartRequest{Thread: thread, Flow: "f", Input: seconds}); err != nil {
		t.Fatal(err)
	}
}

// makeSuspect starts a run that two workers in a row have claimed and died of.
func makeSuspect(t *testing.T, r *Runtime, thread string, seconds float64) {
	t.Helper()
	startRun(t, r, thread, seconds)
	o, err := r.open(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, _, err := r.change(t.Context(), o.name, func(th *journal.Thread) ([]line, []string, error) {
			return []line{{kind: journal.Claimed, run: th.Runs[0].N, epoch: th.Epoch + 1,
				body: journal.Body{Worker: fmt.Sprint("dead", i), Version: "test"}}}, nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// work starts a worker and returns what stops it.
func work(t *testing.T, r *Runtime) (stop func()) {
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

func status(t *testing.T, r *Runtime, thread string) Status {
	t.Helper()
	info, err := r.Get(t.Context(), thread)
	if err != nil {
		t.Fatal(err)
	}
	return info.Status
}

// What a scan was about to take does not begin beside a suspect that has
// begun to run alone meanwhile.
func TestNothingBeginsBesideASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		r := queueRuntime(t, s, Options{})
		makeSuspect(t, r, "suspect", 10)
		startRun(t, r, "innocent", 1)
		io, gone := context.WithCancel(context.Background())
		defer gone()
		w := newWorker(r.core, io)
		var err error
		if w.lease, err = lease.Hold(io, s, w.id, time.Second); err != nil {
			t.Fatal(err)
		}
		hint := func(thread string) due.Hint {
			o, err := r.open(t.Context(), thread)
			if err != nil {
				t.Fatal(err)
			}
			h, _, err := due.Get(t.Context(), s, "f", o.name)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		suspect, innocent := hint("suspect"), hint("innocent")
		if w.full() {
			t.Fatal("the worker has no room")
		}
		w.take(suspect)
		synctest.Wait()
		if w.take(innocent) {
			t.Error("an innocent run was begun beside a suspect")
		}
		w.running.Wait()
	})
}

// All suspects get their turn, one after the other.
func TestManySuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queueRuntime(t, memstore.New(), Options{Concurrency: 8})
		for i := range 40 {
			makeSuspect(t, r, fmt.Sprint(i), 0.1)
		}
		defer work(t, r)()
		time.Sleep(20 * time.Second)
		for i := range 40 {
			if got := status(t, r, fmt.Sprint(i)); got != Succeeded {
				t.Errorf("suspect %d is %s", i, got)
			}
		}
	})
}

// A suspect gets its turn in a worker that always has something to do.
func TestASuspectInABusyWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queueRuntime(t, memstore.New(), Options{Concurrency: 2})
		startRun(t, r, "first", 2)
		time.Sleep(time.Second) // names sort by time, and hints by name
		makeSuspect(t, r, "suspect", 1)
		time.Sleep(time.Second)
		for i := range 200 {
			startRun(t, r, fmt.Sprint(i), 4)
		}
		defer work(t, r)()
		time.Sleep(time.Minute)
		if got := status(t, r, "suspect"); got != Succeeded {
			t.Errorf("after a minute the suspect is %s", got)
		}
	})
}

// A suspect that waits for a long step to end does not keep the worker from
// everything else meanwhile.
func TestASuspectBehindALongStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queueRuntime(t, memstore.New(), Options{Concurrency: 4})
		defer work(t, r)()
		startRun(t, r, "long", 3600)
		synctest.Wait()
		makeSuspect(t, r, "suspect", 1)
		time.Sleep(time.Minute)
		startRun(t, r, "innocent", 1)
		time.Sleep(5 * time.Minute)
		if got := status(t, r, "innocent"); got != Succeeded {
			t.Errorf("a run that came a minute after a suspect is %s five minutes later", got)
		}
		time.Sleep(3 * time.Hour)
		if got := status(t, r, "suspect"); got != Succeeded {
			t.Errorf("after hours the suspect is %s", got)
		}
	})
}
