package perdure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

func specPause(k *kit) {
	k.t.Helper()
	if err := k.Pause(k.t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
		k.t.Fatal(err)
	}
}

func specResume(k *kit) {
	k.t.Helper()
	if err := k.Resume(k.t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
		k.t.Fatal(err)
	}
}

func TestPauseStopsARunBeforeItsNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		entered, release := make(chan bool, 1), make(chan bool)
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
				entered <- true
				<-release
				return 1, ctx.Err() // a pause does not disturb what runs
			})
			if err != nil {
				return err
			}
			return c.ok(ctx, "second")
		}))
		k.start("t", "f", struct{}{})
		<-entered
		specPause(k)
		specPause(k) // again changes nothing
		time.Sleep(time.Minute)
		close(release)
		run := k.wait("t", perdure.Paused)
		k.hasLines("step /first 1")
		if c.of("second") != 0 || run.Paused.IsZero() || k.kinds("t")["paused"] != 1 {
			t.Errorf("ran %v, paused since %v:\n%s", c.all(), run.Paused, k.trace("t"))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if c.of("second") != 0 {
			t.Fatal("a paused run went on")
		}
		specResume(k)
		run = k.wait("t", perdure.Succeeded)
		if c.of("second") != 1 || !run.Paused.IsZero() {
			t.Errorf("ran %v, paused since %v", c.all(), run.Paused)
		}
	})
}

func TestResumeSaysWhenThereIsNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := specOnce(t, perdure.Suspended, func(ctx context.Context) error { return specAsk(ctx, "ok") })
		refused := func(at string) {
			if err := k.Resume(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
				t.Errorf("resume of a run that is %s: %v", at, err)
			}
		}
		refused("suspended")
		specPause(k)
		specResume(k)
		refused("resumed")
		k.yes(run, "/ok")
		k.wait("t", perdure.Succeeded)
		refused("over")
		if err := k.Pause(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("pause of a run that is over: %v", err)
		}
	})
}

// What happens while a run is paused is kept for when it goes on.
func TestAnswersSignalsAndTimersWaitForTheEndOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		k, run := specOnce(t, perdure.Suspended, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for name, wait := range map[string]func(context.Context) error{
				"ask":    func(ctx context.Context) error { return specAsk(ctx, "x") },
				"timer":  func(ctx context.Context) error { return perdure.Sleep(ctx, "x", time.Minute) },
				"signal": func(ctx context.Context) error { _, err := perdure.Receive[int](ctx, "x", "s", 0); return err },
				"retry": func(ctx context.Context) error {
					return c.step(ctx, "x", []error{errSpec, nil}, specRetry(2, time.Minute))
				},
			} {
				g.Go(name, func(ctx context.Context) error {
					if err := wait(ctx); err != nil {
						return err
					}
					return c.ok(ctx, "after "+name)
				})
			}
			return g.Wait()
		})
		specPause(k)
		k.yes(run, "/ask/x")
		if err := k.Signal(t.Context(), "t", "s", 1, perdure.SignalOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if k.wait("t", perdure.Paused); c.of("x") != 1 || len(c.all()) != 1 {
			t.Fatalf("while it was paused %v ran", c.all())
		}
		specResume(k)
		k.ends("t", perdure.Succeeded)
		want := map[string]int{"x": 2, "after ask": 1, "after timer": 1, "after signal": 1, "after retry": 1}
		if d := cmp.Diff(want, c.all()); d != "" {
			t.Error(d)
		}
	})
}

func TestAQueuedRunCanBePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner := memstore.New()
		flow := specFlow(func(ctx context.Context) error { return c.ok(ctx, "a") })
		rt, err := perdure.New(t.Context(), inner, perdure.Options{}, flow)
		if err != nil {
			t.Fatal(err)
		}
		k := &kit{Runtime: rt, t: t, store: inner} // no worker yet
		k.start("t", "f", struct{}{})
		specPause(k)
		k = newKit(t, inner, perdure.Options{}, flow)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		k.wait("t", perdure.Paused)
		if c.of("a") != 0 {
			t.Error("a paused run began")
		}
		specResume(k)
		k.wait("t", perdure.Succeeded)
	})
}

func TestEveryBranchStopsBeforeItsNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
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
					return c.ok(ctx, "two in "+name)
				})
			}
			return g.Wait()
		}))
		k.start("t", "f", struct{}{})
		time.Sleep(15 * time.Second)
		specPause(k)
		k.wait("t", perdure.Paused)
		if d := cmp.Diff(map[string]int{"two in a": 1}, c.all()); d != "" {
			t.Error(d)
		}
		k.hasLines("step /b/one 1", "step /c/one 1")
		specResume(k)
		k.wait("t", perdure.Succeeded)
		if d := cmp.Diff(map[string]int{"two in a": 1, "two in b": 1, "two in c": 1}, c.all()); d != "" {
			t.Error(d)
		}
	})
}

func TestAPauseThatIsLiftedBeforeTheNextStepHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		entered, release := make(chan bool, 1), make(chan bool)
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(context.Context) (int, error) { entered <- true; <-release; return 1, nil })
			return errors.Join(err, c.ok(ctx, "second"))
		}))
		k.start("t", "f", struct{}{})
		<-entered
		specPause(k)
		time.Sleep(time.Second)
		specResume(k)
		time.Sleep(time.Second)
		close(release)
		k.wait("t", perdure.Succeeded)
		if kinds := k.kinds("t"); kinds["claimed"] != 1 || kinds["suspended"] != 0 {
			t.Errorf("the journal is\n%s", k.trace("t"))
		}
	})
}

func TestAPauseSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner := memstore.New()
		first, entered := true, make(chan bool, 1)
		flow := specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
				c.hit("first")
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
			return c.ok(ctx, "second")
		})
		m := newSpecMortal(t, inner, perdure.Options{}, flow)
		m.start("t", "f", struct{}{})
		<-entered
		specPause(m.kit)
		m.die()
		k := newKit(t, inner, perdure.Options{}, flow)
		k.wait("t", perdure.Paused)
		if c.of("first") != 1 || c.of("second") != 0 {
			t.Errorf("ran %v", c.all())
		}
		specResume(k)
		k.wait("t", perdure.Succeeded)
		if c.of("first") != 2 || c.of("second") != 1 {
			t.Errorf("ran %v", c.all())
		}
	})
}

func TestAPausedRunCanBeCancelledAndCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		k, _ := specOnce(t, perdure.Suspended, func(ctx context.Context) (err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { return c.ok(ctx, "undone") })
				}
			}()
			return specAsk(ctx, "ok")
		})
		specPause(k)
		k.wait("t", perdure.Paused)
		specCancel(k)
		k.ends("t", perdure.Cancelled)
		if c.of("undone") != 1 {
			t.Errorf("the cleanup ran %d times:\n%s", c.of("undone"), k.trace("t"))
		}
		if err := k.Pause(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("pause of a cancelled run: %v", err)
		}
	})
}

// A worker that is stopped hands over what is between two steps, and lets a
// running step end.
func TestAStoppedWorkerHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner := memstore.New()
		flow := specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "first", func(ctx context.Context) (int, error) {
				c.hit("first")
				time.Sleep(5 * time.Second)
				return 1, ctx.Err()
			})
			if err != nil {
				return err
			}
			return c.ok(ctx, "second")
		})
		k := newKit(t, inner, perdure.Options{}, flow)
		k.start("t", "f", struct{}{})
		time.Sleep(time.Second)
		k.stop()
		if c.of("first") != 1 || c.of("second") != 0 {
			t.Errorf("ran %v", c.all())
		}
		k.hasLines("step /first 1", "released")
		k = newKit(t, inner, perdure.Options{}, flow)
		k.wait("t", perdure.Succeeded)
		if c.of("first") != 1 || c.of("second") != 1 {
			t.Errorf("ran %v:\n%s", c.all(), k.trace("t"))
		}
	})
}

// Past the grace a step is cut off; its error is not an outcome and it runs
// again elsewhere.
func TestAStepThatOutlivesTheGraceRunsAgainElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner, entered := memstore.New(), make(chan bool, 1)
		flow := specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) {
				if c.hit("x") == 1 {
					entered <- true
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), perdure.ErrFenced) {
						t.Errorf("the context ended with %v", context.Cause(ctx))
					}
					return 0, ctx.Err()
				}
				return 1, nil
			})
			return err
		})
		k := newKit(t, inner, perdure.Options{Grace: time.Second}, flow)
		k.start("t", "f", struct{}{})
		<-entered
		k.stop()
		k = newKit(t, inner, perdure.Options{}, flow)
		run := k.wait("t", perdure.Succeeded)
		if c.of("x") != 2 || len(run.Errors) != 0 {
			t.Errorf("it ran %d times, errors %+v", c.of("x"), run.Errors)
		}
	})
}

func TestAPausedRunThatHasNotBegunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		flow := specFlow(func(context.Context) error { t.Error("it ran"); return nil })
		rt, err := perdure.New(t.Context(), inner, perdure.Options{}, flow)
		if err != nil {
			t.Fatal(err)
		}
		k := &kit{Runtime: rt, t: t, store: inner}
		k.start("t", "f", struct{}{})
		specPause(k)
		specCancel(k)
		k.wait("t", perdure.Cancelled)
		if err := k.Resume(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("resume of a cancelled run: %v", err)
		}
		newKit(t, inner, perdure.Options{}, flow)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	})
}

// A paused run keeps those behind it waiting: a person holds the thread.
func TestAPausedRunHoldsTheRunsBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		flow := perdure.NewFlow("f", func(ctx context.Context, name string) (int, error) {
			return 1, errors.Join(c.ok(ctx, name), perdure.Sleep(ctx, "nap", time.Minute))
		})
		k := newKit(t, nil, perdure.Options{}, flow)
		first := k.start("t", "f", "first")
		k.until("the first sleeps", func() bool { return k.kinds("t")["suspended"] == 1 })
		if err := k.Pause(t.Context(), "t", first.ID, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.start("t", "f", "second")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if c.of("second") != 0 {
			t.Error("the second run overtook the paused one")
		}
		if err := k.Resume(t.Context(), "t", first.ID, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.wait("t", perdure.Succeeded)
		if d := cmp.Diff(map[string]int{"first": 1, "second": 1}, c.all()); d != "" {
			t.Error(d)
		}
	})
}

// What a pass has seen of a pause does not depend on who wrote it, or when.
func TestPauseAndResumeFromAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		inner := memstore.New()
		k := newKit(t, inner, perdure.Options{}, specFlow(func(ctx context.Context) error {
			for _, name := range []string{"a", "b", "c"} {
				_, err := perdure.Step(ctx, name, func(context.Context) (int, error) { c.hit(name); time.Sleep(time.Minute); return 1, nil })
				if err != nil {
					return err
				}
			}
			return nil
		}))
		rt, err := perdure.New(t.Context(), inner, perdure.Options{})
		if err != nil {
			t.Fatal(err)
		}
		far := &kit{Runtime: rt, t: t, store: inner}
		k.start("t", "f", struct{}{})
		time.Sleep(90 * time.Second)
		specPause(far)
		far.wait("t", perdure.Paused)
		if d := cmp.Diff(map[string]int{"a": 1, "b": 1}, c.all()); d != "" {
			t.Error(d)
		}
		specResume(far)
		far.wait("t", perdure.Succeeded)
		if d := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, c.all()); d != "" {
			t.Error(d)
		}
	})
}
