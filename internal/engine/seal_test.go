package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func TestTheVerbReturnsErrSuspendedAndTheContextEndsWithThatCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := 0
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			passes++
			err := kit.AskYesNo(ctx, "ok")
			if passes == 1 {
				if !errors.Is(err, perdure.ErrSuspended) || ctx.Err() == nil || !errors.Is(context.Cause(ctx), perdure.ErrSuspended) {
					t.Errorf("Ask returned %v, the context's cause is %v", err, context.Cause(ctx))
				}
			} else if err != nil || ctx.Err() != nil {
				t.Errorf("answered: %v, %v", err, ctx.Err())
			}
			return err
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}

// Code that swallows ErrSuspended and detaches its context gets nothing done.
func TestAfterTheSealNothingIsStartedOrRecorded(t *testing.T) {
	type body = func(context.Context) (int, error)
	frames := map[string]func(context.Context, body){
		"flow":  func(ctx context.Context, in body) { _, _ = in(ctx) },
		"scope": func(ctx context.Context, in body) { _, _ = perdure.Scope(ctx, "in", in) },
		"step":  func(ctx context.Context, in body) { _, _ = perdure.Step(ctx, "in", in) },
		"branch": func(ctx context.Context, in body) {
			g := perdure.NewGroup(ctx)
			g.Go("in", func(ctx context.Context) error { _, _ = in(ctx); return nil })
			_ = g.Wait()
		},
	}
	for name, frame := range frames {
		kit.Bubble(t, name, func(t *testing.T) {
			var c kit.Tally
			sealed := false
			swallow := func(ctx context.Context) (int, error) {
				if sealed = kit.AskYesNo(ctx, "ok") != nil; !sealed {
					return 1, nil
				}
				loose := context.WithoutCancel(ctx)
				for _, v := range verbCases(func() { t.Error("a function ran after the seal") }) {
					if err := v.call(loose, "late "+v.name); !errors.Is(err, perdure.ErrSuspended) {
						t.Errorf("%s: %v", v.name, err)
					}
				}
				kit.WantErr(t, "Plan", perdure.Plan(loose, "x"), perdure.ErrSuspended)
				perdure.Delta(loose, "late")
				return 1, nil
			}
			k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
				frame(ctx, swallow)
				err := c.OK(context.WithoutCancel(ctx), "behind")
				if sealed && !errors.Is(err, perdure.ErrSuspended) {
					t.Errorf("a step behind the seal: %v", err)
				}
				return nil // the flow believes that it is done
			})
			path := run.Asks[0].Path
			if got, want := k.Trace("t"), fmt.Sprintf("created\nqueued {}\nclaimed\nasked %s\nsuspended\n", path); got != want {
				t.Errorf("the journal is\n%s", got)
			}
			k.AnswerYes(run, path)
			k.WaitFor("t", perdure.Succeeded)
			if c.Of("behind") != 1 {
				t.Errorf("the step ran %d times", c.Of("behind"))
			}
		})
	}
}

func TestTheSuspensionSharesTheAppendOfItsAsk(t *testing.T) {
	for verb, park := range map[string]func(context.Context) error{
		"ask":     func(ctx context.Context) error { return kit.AskYesNo(ctx, "x") },
		"sleep":   func(ctx context.Context) error { return perdure.Sleep(ctx, "x", 24*time.Hour) },
		"receive": func(ctx context.Context) error { _, err := perdure.Receive[int](ctx, "x", "s", 0); return err },
	} {
		kit.Bubble(t, verb, func(t *testing.T) {
			appends := 0
			s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpAppend && strings.HasPrefix(c.Name, "thread/") {
					appends++
				}
				return faulty.None
			})
			k := kit.New(t, s, perdure.Options{}, kit.FlowOf(park))
			synctest.Wait() // for the worker, which claims what is started
			k.StartOn("t", "f", struct{}{})
			k.Until("it is suspended", func() bool {
				run, err := k.GetRun(t.Context(), "t", "")
				return err == nil && run.Status == perdure.Suspended
			})
			if appends != 2 { // start and claim, wait and suspension
				t.Errorf("%d appends:\n%s", appends, k.Trace("t"))
			}
		})
	}
}

// The answer arrives between the decision to suspend and its append.
func TestAConflictWithTheSuspensionIsAbsorbedAndUnparks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other *kit.Kit
		var answered atomic.Bool
		inner := memstore.New()
		flow := kit.FlowOf(func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("asks", func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") })
			g.Go("works", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "step", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil })
				return err
			})
			return g.Wait()
		})
		s := &kit.AppendHook{Store: inner, Before: func(journal, lines string) {
			if !strings.Contains(lines, "suspended") || answered.Swap(true) {
				return
			}
			run, err := other.GetRun(t.Context(), "t", "")
			if err != nil {
				t.Error(err)
				return
			}
			other.AnswerYes(run, "/asks/ok")
		}}
		rt := kit.Runtime(t, inner, perdure.Options{}, flow)
		other = &kit.Kit{Runtime: rt, T: t, Store: inner}
		k := kit.New(t, s, perdure.Options{}, flow)
		k.StartOn("t", "f", struct{}{})
		k.EndsAs("t", perdure.Succeeded)
		if !answered.Load() {
			t.Fatal("the run never tried to suspend")
		}
		if d := k.KindsOf("t"); d["claimed"] != 1 || d["suspended"] != 0 {
			t.Errorf("the answer did not unpark the run:\n%s", k.Trace("t"))
		}
	})
}

// A spurious conflict proves nothing: the run still suspends.
func TestASpuriousConflictDoesNotFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflicts := 0
		s := faulty.New(memstore.New(), func(c faulty.Call) faulty.Fault {
			if c.Op == store.OpAppend && c.W%2 == 0 {
				conflicts++
				return faulty.Conflict
			}
			return faulty.None
		})
		var c kit.Tally
		k := kit.New(t, s, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			for i := range 10 {
				if err := c.OK(ctx, fmt.Sprint("s", i)); err != nil {
					return err
				}
			}
			return kit.AskYesNo(ctx, "ok")
		}))
		k.StartOn("t", "f", struct{}{})
		k.AnswerYes(k.WaitFor("t", perdure.Suspended), "/ok")
		k.WaitFor("t", perdure.Succeeded)
		for name, n := range c.All() {
			if n != 1 {
				t.Errorf("%s ran %d times", name, n)
			}
		}
		if conflicts == 0 {
			t.Error("no conflict happened")
		}
	})
}

func TestARunSuspendsOnlyWhenEveryLeafFrameIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("asks", func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") })
			g.Go("works", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "step", func(ctx context.Context) (int, error) {
					time.Sleep(time.Minute)
					return 1, ctx.Err() // it was not cancelled in the meantime
				})
				return err
			})
			return g.Wait()
		}))
		k.StartOn("t", "f", struct{}{})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Running || len(run.Asks) != 1 {
			t.Fatalf("while a branch works the run is %+v, %v", run, err)
		}
		run = k.WaitFor("t", perdure.Suspended)
		k.WantLines("step /works/step 1")
		k.AnswerYes(run, "/asks/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}

// A suspension is not a failure: it costs no attempt and is not an outcome.
func TestASuspensionIsNoOutcomeOfTheStepsAroundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				return perdure.Step(ctx, "inner", func(ctx context.Context) (int, error) {
					return 1, errors.Join(kit.AskYesNo(ctx, "a"), kit.AskYesNo(ctx, "b"))
				}, perdure.Retry(perdure.RetryPolicy{Attempts: 2}))
			})
			return err
		})
		k.AnswerYes(run, "/outer/inner/a")
		run = k.WaitFor("t", perdure.Suspended)
		k.AnswerYes(run, "/outer/inner/b")
		run = k.WaitFor("t", perdure.Succeeded)
		kinds := k.KindsOf("t")
		if kinds["attempt"] != 0 || kinds["step"] != 2 || len(run.Errors) != 0 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

func TestAWaitingRunHoldsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const runs = 80
		left := 0
		k := kit.New(t, nil, perdure.Options{Concurrency: 1}, kit.FlowOf(func(ctx context.Context) error {
			defer func() { left++ }()
			g := perdure.NewGroup(ctx)
			g.Go("a", func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") })
			g.Go("b", func(ctx context.Context) error { return perdure.Sleep(ctx, "nap", 24*time.Hour) })
			return g.Wait()
		}))
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Suspended)
		synctest.Wait()
		one := runtime.NumGoroutine()
		for i := range runs {
			k.StartOn(fmt.Sprint("t", i), "f", struct{}{})
		}
		for i := range runs {
			k.WaitFor(fmt.Sprint("t", i), perdure.Suspended)
		}
		synctest.Wait()
		if many := runtime.NumGoroutine(); many > one+runs/4 {
			t.Errorf("%d goroutines with one run, %d with %d more", one, many, runs)
		}
		if left != runs+1 {
			t.Errorf("%d of %d flows have returned", left, runs+1)
		}
	})
}

func TestNowIsStableInReplayAndNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen [][]time.Time
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			var times []time.Time
			look := func() { times = append(times, perdure.Now(ctx)) }
			look()
			_, err := perdure.Step(ctx, "a", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil })
			look()
			g := perdure.NewGroup(ctx)
			g.Go("slow", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil })
				return err
			})
			g.Go("fast", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { return 1, nil })
				return err
			})
			err = errors.Join(err, g.Wait())
			look()
			_, err2 := perdure.Scope(ctx, "s", func(ctx context.Context) (int, error) {
				return perdure.Step(ctx, "y", func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil })
			})
			look()
			seen = append(seen, times)
			return errors.Join(err, err2, kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if len(seen) != 2 {
			t.Fatalf("%d passes", len(seen))
		}
		kit.NoDiff(t, cmp.Diff(seen[0], seen[1]))
		for i := 1; i < len(seen[0]); i++ {
			if !seen[0][i].After(seen[0][i-1]) {
				t.Errorf("Now did not move over an outcome: %v", seen[0])
			}
		}
	})
}
