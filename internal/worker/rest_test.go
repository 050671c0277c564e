package worker_test

import (
	"context"
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

// live lets a worker live on a store for a while, and then die.
func live(t *testing.T, s store.Store, d time.Duration, flow perdure.Flow) {
	t.Helper()
	var dead atomic.Bool
	f := faulty.New(s, func(faulty.Call) faulty.Fault {
		if dead.Load() {
			return faulty.CrashBefore
		}
		return faulty.None
	})
	rt := kit.Runtime(t, f, perdure.Options{Version: "test"}, flow)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = rt.Work(ctx) // its store is gone
	}()
	time.Sleep(d)
	dead.Store(true)
	cancel()
	<-gone
	synctest.Wait()
}

// TestAWorkerThatDiesWhileARunWaitsDidNotDieOfIt kills workers again and again
// while a run sits out the timeout of an at-most-once step. That does not count
// against the run, and what its code does counts.
func TestAWorkerThatDiesWhileARunWaitsDidNotDieOfIt(t *testing.T) {
	hang := func(ctx context.Context) { <-ctx.Done() }
	var mended *atomic.Bool
	pay := func(ctx context.Context) (string, error) {
		return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
			hang(ctx)
			return "", ctx.Err()
		}, perdure.AtMostOnce(), perdure.Timeout(10*time.Minute), perdure.Reconcile(func(ctx context.Context) (string, perdure.Outcome, error) {
			if !mended.Load() {
				hang(ctx)
			}
			return "paid", perdure.OutcomeDone, nil
		}))
	}
	beside := func(ctx context.Context) (out string, err error) {
		g := perdure.NewGroup(ctx)
		g.Go("pay", func(ctx context.Context) error { out, err = pay(ctx); return err })
		g.Go("other", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "hang", func(ctx context.Context) (bool, error) {
				if !mended.Load() {
					hang(ctx)
				}
				return true, nil
			})
			return err
		})
		return out, g.Wait()
	}
	const first, wait = time.Minute, 11 * time.Minute // one in which it waits only, and one in which Reconcile begins
	for name, c := range map[string]struct {
		flow   func(context.Context) (string, error)
		lives  []time.Duration
		deaths int // 0: none, and the run ends
	}{
		"it waits":              {pay, []time.Duration{first, first, first, first, first, first, first, first}, 0},
		"reconcile":             {pay, []time.Duration{first, wait, wait, wait, wait, wait}, 5},
		"reconcile, and waits":  {pay, []time.Duration{first, wait, first, wait, wait, first, wait, first, wait}, 5},
		"a leaf beside a wait":  {beside, []time.Duration{first, first, first, first, first, first, first}, 5},
		"reconcile, four times": {pay, []time.Duration{first, wait, wait, first, wait, wait}, 0},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			mended = new(atomic.Bool)
			s := memstore.New()
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) { return c.flow(ctx) })
			rt := kit.Runtime(t, s, perdure.Options{Version: "test"}, flow)
			kit.Start(t, rt, perdure.StartRequest{Thread: "t", Flow: "f", Input: ""})
			for _, d := range c.lives {
				live(t, s, d+10*time.Second, flow) // with the time until the one before is missed
			}
			mended.Store(c.deaths == 0)
			k := kit.New(t, s, perdure.Options{}, flow)
			time.Sleep(time.Hour)
			run, err := k.PostMortem(t.Context(), "t", "")
			switch {
			case err != nil:
				t.Fatal(err)
			case c.deaths == 0 && run.Status != perdure.Succeeded, c.deaths > 0 && (run.Status != perdure.Quarantined || run.Deaths != c.deaths):
				t.Errorf("it is %s, with the post-mortem %+v\n%s", run.Status, run, k.Trace("t"))
			}
		})
	}
}
