package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// A worker that is stopped while a step waits for its next attempt hands the run
// over at once: the wait is the next worker's.
func TestAStopDoesNotWaitForTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			return perdure.Step(ctx, "x", func(context.Context) (string, error) {
				if tries++; tries == 1 {
					return "", errors.New("not yet")
				}
				return in, nil
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: 1500 * time.Millisecond}))
		})
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, flow)
		k.StartOn("t", "f", "in")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		k.Stop()
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the worker took %v to stop", took)
		}
		if tries != 1 {
			t.Errorf("%d attempts were made before their time", tries)
		}
		kit.New(t, s, perdure.Options{}, flow).WaitFor("t", perdure.Succeeded)
		if tries != 2 {
			t.Errorf("%d attempts, want 2", tries)
		}
	})
}

// stopAt stops a worker when an event of a kind is in the journal.
type stopAt struct {
	kind string
	stop func()
}

func (stopAt) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (s stopAt) Committed(e perdure.Event) {
	if e.Kind == s.kind {
		s.stop()
	}
}

// TestAWorkerThatIsStoppedLeavesTheListRight: nobody may come to bring it up to
// date.
func TestAWorkerThatIsStoppedLeavesTheListRight(t *testing.T) {
	for kind, want := range map[string]perdure.Status{"suspended": perdure.Suspended, "ended": perdure.Succeeded} {
		for i := range 20 {
			s := memstore.New()
			ctx, stop := context.WithCancel(t.Context())
			rt, err := perdure.New(t.Context(), s, perdure.Options{Observer: stopAt{kind, stop}}, perdure.NewFlow("f", func(ctx context.Context, ask bool) (bool, error) {
				if !ask {
					return true, nil
				}
				return perdure.Ask[bool](ctx, "ok", perdure.Question{})
			}))
			kit.NoErr(t, err)
			kit.Start(t, rt, perdure.StartRequest{Flow: "f", Thread: fmt.Sprint("t", i), Input: want == perdure.Suspended})
			kit.NoErr(t, rt.Work(ctx))
			n := 0
			for sum, err := range rt.List(t.Context(), perdure.ListOptions{}) {
				if n++; err != nil || sum.Status != want || (want == perdure.Suspended) != (sum.Asks == 1) {
					t.Fatalf("after %s the list shows %s with %d asks (%v)", kind, sum.Status, sum.Asks, err)
				}
			}
			if n != 1 {
				t.Fatalf("the list shows %d threads", n)
			}
			stop()
			s.Close()
		}
	}
}

// TestAWorkerStopsWithoutAStore: Work returns a while after its context ended,
// even if the store has been gone since the start, since a step began, or since
// it was done.
func TestAWorkerStopsWithoutAStore(t *testing.T) {
	all := func(store.Op) bool { return true }
	for name, c := range map[string]struct {
		when string
		hit  func(store.Op) bool
	}{
		"from the start":         {"start", all},
		"inside a step":          {"step", all},
		"behind a step":          {"done", all},
		"appends behind a step":  {"done", func(op store.Op) bool { return op == store.OpAppend }},
		"appends inside a step":  {"step", func(op store.Op) bool { return op == store.OpAppend }},
		"appends from the start": {"start", func(op store.Op) bool { return op == store.OpAppend }},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var down atomic.Bool
			s := faulty.New(memstore.New(), func(call faulty.Call) faulty.Fault {
				if down.Load() && c.hit(call.Op) {
					return faulty.FailBefore
				}
				return faulty.None
			})
			rt := kit.Runtime(t, s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return perdure.Step(ctx, "a", func(context.Context) (string, error) {
					if c.when == "step" {
						down.Store(true)
						time.Sleep(5 * time.Second)
					}
					down.Store(true)
					return "x", nil
				})
			}))
			kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
			down.Store(c.when == "start")
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- rt.Work(ctx) }()
			time.Sleep(2 * time.Second)
			cancel()
			select {
			case <-done: // with an error, or none
			case <-time.After(time.Hour):
				t.Error("Work has not returned after an hour")
				down.Store(false)
				<-done
			}
		})
	}
}
