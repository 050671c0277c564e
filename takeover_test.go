package perdure_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// A worker that comes when another has just died may meet the dead one in the
// journal while its lease is still there, and never see it on a roster, because
// a third one buries it first. It takes over all the same.
func TestTakeoverOfAWorkerThatAnotherBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		inner := memstore.New()
		calls := 0
		flow := specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "step", func(ctx context.Context) (int, error) {
				if calls++; calls == 1 {
					<-ctx.Done()
				}
				return 0, ctx.Err()
			})
			return err
		})
		m := newSpecMortal(t, inner, perdure.Options{Lease: lease}, flow)
		m.start("t", flow.Name(), nil)
		synctest.Wait()
		m.die()
		k := newKit(t, inner, perdure.Options{Lease: lease}, flow)
		synctest.Wait() // it has looked at the thread
		for cell, err := range inner.List(t.Context(), "worker/", "") {
			holder := k.events("t")[2].Worker
			if err == nil && cell.Key == "worker/"+holder {
				err = inner.Delete(t.Context(), cell.Key, cell.Version)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		buried := time.Now()
		k.wait("t", perdure.Succeeded)
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
		k := newKit(t, s, perdure.Options{Observer: specCommitted(func(e perdure.Event) {
			if e.Kind == "intent" {
				if intents++; intents == 1 {
					lapse.Store(true)
					time.Sleep(10 * time.Second)
					lapse.Store(false)
				}
			}
		})}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(context.Context) (int, error) { ran++; return 1, nil }, specAtMostOnce()...)
			return err
		}))
		k.start("t", "f", struct{}{})
		k.wait("t", perdure.Succeeded)
		if intents != 2 || ran != 1 {
			t.Errorf("%d intents, and it ran %d times", intents, ran)
		}
	})
}

// A worker that has the right code, and looked at a run while one with wrong code
// held it, goes on as soon as the run is blocked, also if it looked between the
// hint of that and the entry.
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
		return specFlow(func(ctx context.Context) error {
			before()
			if err := new(specTally).ok(ctx, name); err != nil {
				return err
			}
			return specAsk(ctx, "ask")
		})
	}
	right := flow("right", func() {})
	k := newKit(t, s, perdure.Options{Version: "right"}, right)
	k.start("t", "f", struct{}{})
	run := k.wait("t", perdure.Suspended)
	k.stop()
	var diverged atomic.Bool
	delayed := faulty.New(s, func(c faulty.Call) faulty.Fault {
		if diverged.Load() && c.Op == store.OpAppend {
			return faulty.Delay(slow)
		}
		return faulty.None
	})
	wrong := newKit(t, delayed, perdure.Options{Version: "wrong"}, flow("wrong", func() { <-diverge }))
	wrong.yes(run, "/ask")
	synctest.Wait() // it holds the run
	k = newKit(t, s, perdure.Options{Version: "right"}, right)
	synctest.Wait() // it has looked at it
	diverged.Store(true)
	close(diverge)
	began := time.Now()
	if run, err := k.WaitEnd(t.Context(), "t", ""); err != nil || run.Status != perdure.Succeeded {
		t.Fatalf("%+v, %v", run, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it went on after %v\n%s", took, k.trace("t"))
	}
}
