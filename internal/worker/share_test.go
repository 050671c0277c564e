package worker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// TestTwoHandlesOnOneStoreWorkTogether has one runtime that executes and one,
// as in another process, that starts, watches, steers and answers.
func TestTwoHandlesOnOneStoreWorkTogether(t *testing.T) {
	for _, scheme := range []string{"sqlite:", "file:", "postgres:"} {
		t.Run(scheme, func(t *testing.T) {
			url := scheme + filepath.Join(t.TempDir(), "s")
			if scheme == "postgres:" {
				url = pgtest.Schema(pgtest.URL(t), t.TempDir())
			}
			open := func() store.Store {
				s, err := store.Open(t.Context(), url)
				kit.NoErr(t, err)
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
				if err := kit.SetTone(ctx, "one", in); err != nil {
					return "", err
				}
				a, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
				if err != nil {
					return "", err
				}
				b, err := perdure.Receive[string](ctx, "r", "go", 0)
				return in + a + b, err
			})
			k := kit.New(t, open(), perdure.Options{}, flow)
			away := kit.Runtime(t, open(), perdure.Options{Version: "other"}, flow)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run, err := away.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "f", Input: "a"})
			kit.NoErr(t, err)
			var kinds []string
			for e, err := range away.Events(ctx, "t", perdure.EventOptions{}) {
				kit.NoErr(t, err)
				kinds = append(kinds, e.Kind)
				switch e.Kind {
				case "asked":
					kit.NoErr(t, away.Answer(ctx, perdure.AskAnswer{Ask: e.Ask, Answer: perdure.Answer{Value: "b"}}))
				case "waiting":
					kit.NoErr(t, away.Signal(ctx, "t", "go", "c", perdure.SignalOptions{}))
				}
				if e.Kind == "ended" {
					break
				}
			}
			want := []string{"created", "queued", "claimed", "step", "asked", "suspended", "answered", "claimed", "waiting", "suspended", "signal", "claimed", "ended"}
			kit.NoDiff(t, cmp.Diff(want, kinds))
			for _, rt := range []*perdure.Runtime{away, k.Runtime} {
				got, err := rt.Wait(ctx, "t", run.ID)
				kit.NoErr(t, err)
				kit.WantOutput(t, got, "abc")
				c, err := rt.StateAt(ctx, "t", 0)
				if err != nil || string(c.State["tone"]) != `"a"` {
					t.Errorf("the state is %s, %v", c.State, err)
				}
			}
		})
	}
}

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
		var kits []*kit.Kit
		for range 3 {
			kits = append(kits, kit.New(t, s, perdure.Options{Concurrency: 4}, flow))
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
			kit.WantOutput(t, kits[(i+1)%3].WaitFor(thread, perdure.Succeeded), thread)
			for _, e := range kits[0].EventsOf(thread) {
				if e.Kind == "claimed" {
					workers[e.Worker] = true
				}
			}
			if n := kits[0].KindsOf(thread); n["step"] != 3 || n["ended"] != 1 || n["claimed"] != 4 {
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
		starter := kit.Runtime(t, s, perdure.Options{Version: "test"}, kit.EchoFlow("rare"), kit.EchoFlow("common"))
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("common"))
		for _, flow := range []string{"rare", "common"} {
			kit.Start(t, starter, perdure.StartRequest{Thread: flow, Flow: flow, Input: flow})
		}
		k.WaitForRun("common", "", perdure.Succeeded)
		time.Sleep(5 * time.Minute)
		run, err := k.GetRun(t.Context(), "rare", "")
		if err != nil || run.Status != perdure.Queued {
			t.Errorf("it is %+v, %v", run, err)
		}
		_, err = k.Start(t.Context(), perdure.StartRequest{Thread: "rare", Flow: "rare", Input: ""})
		kit.WantErr(t, "starting a flow that is not there", err, perdure.ErrNoFlow)
		k2 := kit.New(t, s, perdure.Options{}, kit.EchoFlow("rare"))
		kit.WantOutput(t, k2.WaitForRun("rare", "", perdure.Succeeded), "rare")
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
					if !errors.Is(context.Cause(ctx), perdure.ErrFenced) {
						t.Errorf("the context ended with %v", context.Cause(ctx))
					}
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
		kit.Bubble(t, name, func(t *testing.T) {
			mu.Lock()
			ran = nil
			mu.Unlock()
			k := kit.New(t, nil, perdure.Options{Grace: c.grace}, flow)
			k.StartOn("t", "f", "")
			time.Sleep(7 * time.Second) // inside the second step
			begun := time.Now()
			k.Stop()
			if d := time.Since(begun); d > c.stop+100*time.Millisecond {
				t.Errorf("stopping took %v", d)
			}
			run, err := k.GetRun(t.Context(), "t", "")
			if err != nil || run.Steps != c.steps {
				t.Errorf("%d steps are recorded, %v", run.Steps, err)
			}
			if n := k.KindsOf("t")["released"]; n != 1 {
				t.Errorf("it was released %d times:\n%s", n, k.Trace("t"))
			}
			begun = time.Now()
			k2 := kit.New(t, k.Store, perdure.Options{}, flow)
			kit.WantOutput(t, k2.WaitForRun("t", "", perdure.Succeeded), "done")
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
