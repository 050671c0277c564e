package perdure_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// TestWorkersShareAStore has three workers on one store: every run is executed
// by one of them, every step once.
func TestWorkersShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var steps atomic.Int64
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
			for i := range 3 {
				if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) {
					steps.Add(1)
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					return i, nil
				}); err != nil {
					return "", err
				}
				if err := perdure.Sleep(ctx, fmt.Sprint("nap", i), time.Second); err != nil {
					return "", err
				}
			}
			return in, nil
		})
		var kits []*kit
		for range 3 {
			kits = append(kits, newKit(t, s, perdure.Options{Concurrency: 4}, flow))
		}
		const threads = 30
		var all sync.WaitGroup
		for i := range threads {
			all.Go(func() {
				thread := fmt.Sprint("t", i)
				if _, err := kits[i%3].Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "f", Input: thread}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		workers := map[string]bool{}
		for i := range threads {
			thread := fmt.Sprint("t", i)
			wantOutput(t, kits[(i+1)%3].wait(thread, perdure.Succeeded), thread)
			for _, e := range kits[0].events(thread) {
				if e.Kind == "claimed" {
					workers[e.Worker] = true
				}
			}
			if n := kits[0].kinds(thread); n["step"] != 3 || n["ended"] != 1 || n["claimed"] != 4 {
				t.Errorf("%s: %v", thread, n)
			}
		}
		if steps.Load() != 3*threads {
			t.Errorf("%d steps ran for %d", steps.Load(), 3*threads)
		}
		if len(workers) < 2 {
			t.Errorf("%d workers took part", len(workers))
		}
	})
}

// TestFlowThatNobodyHasWaitsForItsWorker starts a flow that the only worker
// does not have.
func TestFlowThatNobodyHasWaitsForItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		starter, err := perdure.New(t.Context(), s, perdure.Options{Version: "test"}, echoFlow("rare"), echoFlow("common"))
		if err != nil {
			t.Fatal(err)
		}
		k := newKit(t, s, perdure.Options{}, echoFlow("common"))
		for _, flow := range []string{"rare", "common"} {
			if _, err := starter.Start(t.Context(), perdure.StartRequest{Thread: flow, Flow: flow, Input: flow}); err != nil {
				t.Fatal(err)
			}
		}
		k.waitRun("common", "", perdure.Succeeded)
		time.Sleep(5 * time.Minute)
		run, err := k.GetRun(t.Context(), "rare", "")
		if err != nil || run.Status != perdure.Queued {
			t.Errorf("it is %+v, %v", run, err)
		}
		k2 := newKit(t, s, perdure.Options{}, echoFlow("rare"))
		wantOutput(t, k2.waitRun("rare", "", perdure.Succeeded), "rare")
	})
}

// TestStoppedWorkerHandsOver stops a worker between steps and inside one.
func TestStoppedWorkerHandsOver(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		for i := range 4 {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				case <-time.After(5 * time.Second):
				}
				mu.Lock()
				ran = append(ran, fmt.Sprint(i))
				mu.Unlock()
				return i, nil
			}); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	for name, c := range map[string]struct {
		grace time.Duration
		stop  time.Duration // how long stopping takes
		steps int           // recorded then
	}{
		"a step that ends within the grace is recorded": {10 * time.Second, 3 * time.Second, 2},
		"one that does not is given up":                 {time.Second, time.Second, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			mu.Lock()
			ran = nil
			mu.Unlock()
			k := newKit(t, nil, perdure.Options{Grace: c.grace}, flow)
			k.start("t", "f", "")
			time.Sleep(7 * time.Second) // inside the second step
			begun := time.Now()
			k.stop()
			if d := time.Since(begun); d > c.stop+100*time.Millisecond {
				t.Errorf("stopping took %v", d)
			}
			run, err := k.GetRun(t.Context(), "t", "")
			if err != nil || run.Steps != c.steps {
				t.Errorf("%d steps are recorded, %v", run.Steps, err)
			}
			if n := k.kinds("t")["released"]; n != 1 {
				t.Errorf("it was released %d times:\n%s", n, k.trace("t"))
			}
			begun = time.Now()
			k2 := newKit(t, k.store, perdure.Options{}, flow)
			wantOutput(t, k2.waitRun("t", "", perdure.Succeeded), "done")
			if d := time.Since(begun); d > time.Duration(4-c.steps)*5*time.Second+100*time.Millisecond {
				t.Errorf("what was handed over took %v", d)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := fmt.Sprint(ran); got != "[0 1 2 3]" {
				t.Errorf("finished steps: %s", got)
			}
		})
	}
}
