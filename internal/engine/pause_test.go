package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

func pause(k *kit.Kit) {
	k.T.Helper()
	kit.NoErr(k.T, k.Pause(k.T.Context(), "t", "", perdure.Note{By: "ann"}))
}

func resume(k *kit.Kit) {
	k.T.Helper()
	kit.NoErr(k.T, k.Resume(k.T.Context(), "t", "", perdure.Note{By: "ann"}))
}

func TestPauseStopsARunBeforeItsNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		entered, release := make(chan bool, 1), make(chan bool)
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
				entered <- true
				<-release
				return 1, ctx.Err() // a pause does not disturb what runs
			})
			if err != nil {
				return err
			}
			return c.OK(ctx, "second")
		}))
		k.StartOn("t", "f", struct{}{})
		<-entered
		pause(k)
		at := time.Now()
		pause(k) // again changes nothing
		time.Sleep(time.Minute)
		close(release)
		run := k.WaitFor("t", perdure.Paused)
		k.WantLines("step /first 1")
		if c.Of("second") != 0 || run.Steps != 1 || !run.Paused.Equal(at) || k.KindsOf("t")["paused"] != 1 {
			t.Errorf("ran %v, paused since %v:\n%s", c.All(), run.Paused, k.Trace("t"))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if c.Of("second") != 0 {
			t.Fatal("a paused run went on")
		}
		resume(k)
		run = k.WaitFor("t", perdure.Succeeded)
		if c.Of("second") != 1 || !run.Paused.IsZero() {
			t.Errorf("ran %v, paused since %v", c.All(), run.Paused)
		}
	})
}

// What happens while a run is paused is kept until it continues.
func TestAnswersSignalsAndTimersWaitForTheEndOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for name, wait := range map[string]func(context.Context) error{
				"ask":    func(ctx context.Context) error { return kit.AskYesNo(ctx, "x") },
				"timer":  func(ctx context.Context) error { return perdure.Sleep(ctx, "x", time.Minute) },
				"signal": func(ctx context.Context) error { _, err := perdure.Receive[int](ctx, "x", "s", 0); return err },
				"retry": func(ctx context.Context) error {
					return c.Step(ctx, "x", []error{errSpec, nil}, retry(2, time.Minute))
				},
			} {
				g.Go(name, func(ctx context.Context) error {
					if err := wait(ctx); err != nil {
						return err
					}
					return c.OK(ctx, "after "+name)
				})
			}
			return g.Wait()
		})
		pause(k)
		k.AnswerYes(run, "/ask/x")
		kit.NoErr(t, k.Signal(t.Context(), "t", "s", 1, perdure.SignalOptions{}))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if k.WaitFor("t", perdure.Paused); c.Of("x") != 1 || len(c.All()) != 1 {
			t.Fatalf("while it was paused %v ran", c.All())
		}
		resume(k)
		k.EndsAs("t", perdure.Succeeded)
		want := map[string]int{"x": 2, "after ask": 1, "after timer": 1, "after signal": 1, "after retry": 1}
		kit.NoDiff(t, cmp.Diff(want, c.All()))
	})
}

func TestAQueuedRunCanBePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner := memstore.New()
		flow := kit.FlowOf(func(ctx context.Context) error { return c.OK(ctx, "a") })
		rt := kit.Runtime(t, inner, perdure.Options{}, flow)
		k := &kit.Kit{Runtime: rt, T: t, Store: inner} // no worker yet
		k.StartOn("t", "f", struct{}{})
		pause(k)
		k = kit.New(t, inner, perdure.Options{}, flow)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		k.WaitFor("t", perdure.Paused)
		if c.Of("a") != 0 {
			t.Error("a paused run began")
		}
		resume(k)
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestEveryBranchStopsBeforeItsNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for i, name := range []string{"a", "b", "c"} {
				g.Go(name, func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "one", func(context.Context) (int, error) {
						time.Sleep(time.Duration(i+1) * 10 * time.Second)
						return 1, nil
					})
					if err != nil {
						return err
					}
					return c.OK(ctx, "two in "+name)
				})
			}
			return g.Wait()
		}))
		k.StartOn("t", "f", struct{}{})
		time.Sleep(15 * time.Second)
		pause(k)
		k.WaitFor("t", perdure.Paused)
		kit.NoDiff(t, cmp.Diff(map[string]int{"two in a": 1}, c.All()))
		k.WantLines("step /b/one 1", "step /c/one 1")
		resume(k)
		k.WaitFor("t", perdure.Succeeded)
		kit.NoDiff(t, cmp.Diff(map[string]int{"two in a": 1, "two in b": 1, "two in c": 1}, c.All()))
	})
}

func TestAPauseThatIsLiftedBeforeTheNextStepHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		entered, release := make(chan bool, 1), make(chan bool)
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(context.Context) (int, error) { entered <- true; <-release; return 1, nil })
			return errors.Join(err, c.OK(ctx, "second"))
		}))
		k.StartOn("t", "f", struct{}{})
		<-entered
		pause(k)
		time.Sleep(time.Second)
		resume(k)
		time.Sleep(time.Second)
		close(release)
		k.WaitFor("t", perdure.Succeeded)
		if kinds := k.KindsOf("t"); kinds["claimed"] != 1 || kinds["suspended"] != 0 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

func TestAPauseSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner := memstore.New()
		first, entered := true, make(chan bool, 1)
		flow := kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
				c.Hit("first")
				if first {
					first = false
					entered <- true
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return 1, nil
			})
			if err != nil {
				return err
			}
			return c.OK(ctx, "second")
		})
		m := kit.NewMortal(t, inner, perdure.Options{}, flow)
		m.StartOn("t", "f", struct{}{})
		<-entered
		pause(m.Kit)
		m.Die()
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.WaitFor("t", perdure.Paused)
		if c.Of("first") != 1 || c.Of("second") != 0 {
			t.Errorf("ran %v", c.All())
		}
		resume(k)
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("first") != 2 || c.Of("second") != 1 {
			t.Errorf("ran %v", c.All())
		}
	})
}

func TestAPausedRunCanBeCancelledAndCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) (err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { return c.OK(ctx, "undone") })
				}
			}()
			return kit.AskYesNo(ctx, "ok")
		})
		pause(k)
		k.WaitFor("t", perdure.Paused)
		cancelRun(k)
		k.EndsAs("t", perdure.Cancelled)
		if c.Of("undone") != 1 {
			t.Errorf("the cleanup ran %d times:\n%s", c.Of("undone"), k.Trace("t"))
		}
		kit.WantErr(t, "pause of a cancelled run", k.Pause(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
	})
}

func TestAPausedRunThatHasNotBegunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		flow := kit.FlowOf(func(context.Context) error { t.Error("it ran"); return nil })
		rt := kit.Runtime(t, inner, perdure.Options{}, flow)
		k := &kit.Kit{Runtime: rt, T: t, Store: inner}
		k.StartOn("t", "f", struct{}{})
		pause(k)
		cancelRun(k)
		k.WaitFor("t", perdure.Cancelled)
		kit.WantErr(t, "resume of a cancelled run", k.Resume(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
		kit.New(t, inner, perdure.Options{}, flow)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	})
}

// A paused run keeps those after it waiting: a person holds the thread.
func TestAPausedRunHoldsTheRunsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		flow := perdure.NewFlow("f", func(ctx context.Context, name string) (int, error) {
			return 1, errors.Join(c.OK(ctx, name), perdure.Sleep(ctx, "nap", time.Minute))
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		first := k.StartOn("t", "f", "first")
		k.Until("the first sleeps", func() bool { return k.KindsOf("t")["suspended"] == 1 })
		kit.NoErr(t, k.Pause(t.Context(), "t", first.ID, perdure.Note{}))
		k.StartOn("t", "f", "second")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if c.Of("second") != 0 {
			t.Error("the second run overtook the paused one")
		}
		kit.NoErr(t, k.Resume(t.Context(), "t", first.ID, perdure.Note{}))
		k.WaitFor("t", perdure.Succeeded)
		kit.NoDiff(t, cmp.Diff(map[string]int{"first": 1, "second": 1}, c.All()))
	})
}

// What a pass sees of a pause does not depend on who wrote it, or when.
func TestPauseAndResumeFromAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		inner := memstore.New()
		k := kit.New(t, inner, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			for _, name := range []string{"a", "b", "c"} {
				_, err := perdure.Step(ctx, name, func(context.Context) (int, error) { c.Hit(name); time.Sleep(time.Minute); return 1, nil })
				if err != nil {
					return err
				}
			}
			return nil
		}))
		rt := kit.Runtime(t, inner, perdure.Options{})
		far := &kit.Kit{Runtime: rt, T: t, Store: inner}
		k.StartOn("t", "f", struct{}{})
		time.Sleep(90 * time.Second)
		pause(far)
		far.WaitFor("t", perdure.Paused)
		kit.NoDiff(t, cmp.Diff(map[string]int{"a": 1, "b": 1}, c.All()))
		resume(far)
		far.WaitFor("t", perdure.Succeeded)
		kit.NoDiff(t, cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, c.All()))
	})
}
