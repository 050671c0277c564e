package worker_test

import (
	"context"
	"strings"
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

// A worker that starts when another has just died may meet the dead one in the
// journal while its lease still exists, and never see it on a roster, because a
// third one buries it first. It still takes over.
func TestTakeoverOfAWorkerThatAnotherBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		inner := memstore.New()
		calls := 0
		flow := kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "step", func(ctx context.Context) (int, error) {
				if calls++; calls == 1 {
					<-ctx.Done()
				}
				return 0, ctx.Err()
			})
			return err
		})
		m := kit.NewMortal(t, inner, perdure.Options{Lease: lease}, flow)
		m.StartOn("t", flow.Name(), nil)
		synctest.Wait()
		m.Die()
		k := kit.New(t, inner, perdure.Options{Lease: lease}, flow)
		synctest.Wait() // it has looked at the thread
		for cell, err := range inner.List(t.Context(), "worker/", "") {
			holder := k.EventsOf("t")[2].Worker
			if err == nil && cell.Key == "worker/"+holder {
				err = inner.Delete(t.Context(), cell.Key, cell.Version)
			}
			kit.NoErr(t, err)
		}
		buried := time.Now()
		k.WaitFor("t", perdure.Succeeded)
		if took := time.Since(buried); took > lease {
			t.Errorf("the takeover took %v, longer than the lease of %v", took, lease)
		}
	})
}

// A worker whose lease runs out between the intent of an at-most-once step and
// its start knows that it did not happen, so nobody is asked.
func TestAnIntentWhoseLeaseRanOutIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lapse atomic.Bool
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if lapse.Load() && strings.HasPrefix(c.Name, "worker/") {
				return faulty.FailBefore
			}
			return faulty.None
		})
		intents, ran := 0, 0
		k := kit.New(t, s, perdure.Options{Lease: 3 * time.Second, Observer: kit.Committed(func(e perdure.Event) {
			if e.Kind == "intent" {
				if intents++; intents == 1 {
					lapse.Store(true)
					time.Sleep(10 * time.Second)
					lapse.Store(false)
				}
			}
		})}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(context.Context) (int, error) { ran++; return 1, nil }, kit.AtMostOnce()...)
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Succeeded)
		if intents != 2 || ran != 1 {
			t.Errorf("%d intents, and it ran %d times", intents, ran)
		}
	})
}

// A worker that has the right code, and looked at a run while one with wrong
// code held it, continues as soon as the run is blocked, even if it looked
// between the hint and the entry.
func TestABlockedRunGoesOnAtOnceWhereItsCodeIs(t *testing.T) {
	for name, slow := range map[string]time.Duration{"at once": 0, "slow append": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { blockedGoesOn(t, slow) })
		})
	}
}

func blockedGoesOn(t *testing.T, slow time.Duration) {
	s, diverge := memstore.New(), make(chan struct{})
	flow := func(name string, before func()) perdure.Flow {
		return kit.FlowOf(func(ctx context.Context) error {
			before()
			if err := new(kit.Tally).OK(ctx, name); err != nil {
				return err
			}
			return kit.AskYesNo(ctx, "ask")
		})
	}
	right := flow("right", func() {})
	k := kit.New(t, s, perdure.Options{Version: "right"}, right)
	k.StartOn("t", "f", struct{}{})
	run := k.WaitFor("t", perdure.Suspended)
	k.Stop()
	var diverged atomic.Bool
	delayed := faulty.New(s, func(c faulty.Call) faulty.Fault {
		if diverged.Load() && c.Op == store.OpAppend {
			return faulty.Delay(slow)
		}
		return faulty.None
	})
	wrong := kit.New(t, delayed, perdure.Options{Version: "wrong"}, flow("wrong", func() { <-diverge }))
	wrong.AnswerYes(run, "/ask")
	synctest.Wait() // it holds the run
	k = kit.New(t, s, perdure.Options{Version: "right"}, right)
	synctest.Wait() // it has looked at it
	diverged.Store(true)
	close(diverge)
	began := time.Now()
	if run, err := k.WaitEnd(t.Context(), "t", ""); err != nil || run.Status != perdure.Succeeded {
		t.Fatalf("%+v, %v", run, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it went on after %v\n%s", took, k.Trace("t"))
	}
}
