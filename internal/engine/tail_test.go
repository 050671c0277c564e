package engine_test

import (
	"context"
	"errors"
	"fmt"
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

func retryRun(k *kit.Kit) {
	k.T.Helper()
	kit.NoErr(k.T, k.Retry(k.T.Context(), "t", "", perdure.Note{}))
}

func TestRetryByAPersonReachesIntoBranchesScopesAndSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			if err := c.Step(ctx, "handled", []error{errSpec, nil}); err == nil {
				t.Error("a handled failure was forgotten")
			}
			g := perdure.NewGroup(ctx)
			g.Go("fine", func(ctx context.Context) error { return c.OK(ctx, "fine") })
			g.Go("scope", func(ctx context.Context) error {
				_, err := perdure.Scope(ctx, "s", func(ctx context.Context) (int, error) {
					return 1, errors.Join(c.OK(ctx, "good"), c.Step(ctx, "in a scope", []error{errSpec, nil}))
				})
				return err
			})
			g.Go("step", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "s", func(ctx context.Context) (int, error) {
					c.Hit("composite")
					return 1, errors.Join(c.OK(ctx, "also good"), c.Step(ctx, "in a step", []error{errSpec, errSpec, errSpec, nil}))
				}, retry(2, 0))
				return err
			})
			return g.Wait()
		})
		retryRun(k)
		k.WaitFor("t", perdure.Succeeded)
		// The composite has two attempts before and two after the retry.
		want := map[string]int{"handled": 1, "fine": 1, "good": 1, "in a scope": 2, "composite": 4, "also good": 1, "in a step": 4}
		if d := cmp.Diff(want, c.All()); d != "" {
			t.Errorf("%s\n%s", d, k.Trace("t"))
		}
	})
}

func TestRetryOfAFlowThatFailedByItselfKeepsItsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			if err := c.OK(ctx, "a"); err != nil {
				return err
			}
			if c.Hit("flow") == 1 {
				return errSpec
			}
			return c.OK(ctx, "b")
		})
		retryRun(k)
		k.WaitFor("t", perdure.Succeeded)
		kit.NoDiff(t, cmp.Diff(map[string]int{"flow": 2, "a": 1, "b": 1}, c.All()))
	})
}

// Many children make a frame use another way to find them.
func TestAFailedTailBehindManyChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				for i := range 40 {
					var results []error
					if i%13 == 12 {
						results = []error{errSpec, nil}
					}
					if err := c.Step(ctx, fmt.Sprint("s", i), results); err != nil {
						return 0, err
					}
				}
				return 1, nil
			}, retry(9, 0))
			return err
		})
		for i := range 40 {
			want := 1
			if i%13 == 12 {
				want = 2
			}
			if n := c.Of(fmt.Sprint("s", i)); n != want {
				t.Errorf("s%d ran %d times\n%s", i, n, k.Trace("t"))
			}
		}
	})
}

func TestAPanicEndsTheBranchesOfItsFrame(t *testing.T) {
	for what, frame := range map[string]func(context.Context, func(context.Context) (int, error)) error{
		"flow": func(ctx context.Context, fn func(context.Context) (int, error)) error { _, err := fn(ctx); return err },
		"step": func(ctx context.Context, fn func(context.Context) (int, error)) error {
			_, err := perdure.Step(ctx, "in", fn)
			return err
		},
		"scope": func(ctx context.Context, fn func(context.Context) (int, error)) error {
			_, err := perdure.Scope(ctx, "in", fn)
			return err
		},
	} {
		kit.Bubble(t, what, func(t *testing.T) {
			over := false
			_, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
				return frame(ctx, func(ctx context.Context) (int, error) {
					started := make(chan bool)
					g := perdure.NewGroup(ctx)
					g.Go("branch", func(ctx context.Context) error {
						close(started)
						<-ctx.Done()
						time.Sleep(time.Minute)
						over = true
						return ctx.Err()
					})
					<-started
					panic("boom")
				})
			})
			if !over || !errors.Is(run.Err, perdure.ErrPanic) {
				t.Errorf("the branch is over: %v, the run failed with %v", over, run.Err)
			}
		})
	}
}

func TestAPanicInACleanupIsRecordedAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			err := c.Step(ctx, "x", []error{errSpec})
			_ = perdure.Cleanup(ctx, "one", func(context.Context) error { panic("bang") })
			_ = perdure.Cleanup(ctx, "two", func(context.Context) error { c.Hit("two"); return nil })
			return err
		})
		if c.Of("two") != 1 || !strings.Contains(run.Error, "boom") {
			t.Errorf("ran %v, failed with %s", c.All(), run.Error)
		}
		k.WantLines("step /one panic: bang")
	})
}

func TestASleepOfNothingIsOverAtOnceAndRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		begun := time.Now()
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			for _, d := range []time.Duration{0, -time.Hour} {
				if err := perdure.Sleep(ctx, fmt.Sprint("nap ", d), d); err != nil {
					return err
				}
			}
			return errors.Join(c.OK(ctx, "x"), kit.AskYesNo(ctx, "ok"))
		})
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if kinds := k.KindsOf("t"); kinds["timer"] != 2 || kinds["fired"] != 2 || c.Of("x") != 1 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

// A step is at-least-once: a crash before its outcome is in the journal makes
// it run again, with the same key; one after that does not.
func TestALeafRunsAgainOnlyIfItsOutcomeIsNotInTheJournal(t *testing.T) {
	for what, want := range map[string]int{"before": 2, "after": 1} {
		kit.Bubble(t, what, func(t *testing.T) {
			inner := memstore.New()
			ran, keys := 0, map[string]bool{}
			var armed atomic.Bool
			flow := kit.FlowOf(func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) {
					ran++
					armed.Store(true)
					keys[perdure.Key(ctx)] = true
					return ran, nil
				})
				return err
			})
			dying := faulty.New(inner, func(c faulty.Call) faulty.Fault {
				if !armed.Load() || c.Op != store.OpAppend {
					return faulty.None
				}
				if what == "before" {
					return faulty.CrashBefore
				}
				return faulty.CrashAfter
			})
			rt := kit.Runtime(t, dying, perdure.Options{Version: "test"}, flow)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = rt.Work(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			kit.Start(t, rt, perdure.StartRequest{Flow: "f", Thread: "t", Input: struct{}{}})
			(&kit.Kit{T: t, Runtime: rt}).Until("the crash", dying.Crashed)
			k := kit.New(t, inner, perdure.Options{}, flow)
			k.WaitFor("t", perdure.Succeeded)
			if ran != want || len(keys) != 1 {
				t.Errorf("it ran %d times, want %d, with the keys %v", ran, want, keys)
			}
			if k.KindsOf("t")["step"] != 1 {
				t.Errorf("the journal is\n%s", k.Trace("t"))
			}
		})
	}
}

// The effect happened, only its result cannot be kept: that is no failure.
func TestAResultOfAnAtMostOnceStepThatJSONCannotCarryIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(context.Context) (any, error) { ran++; return "a\xff", nil }, kit.AtMostOnce(retry(3, 0))...)
			return err
		})
		if ran != 1 || len(run.Asks) != 1 || run.Asks[0].Kind != perdure.KindOutcome {
			t.Fatalf("it ran %d times, asks %+v", ran, run.Asks)
		}
		k.AnswerAt(run, "/pay", perdure.Answer{Decision: perdure.DecisionDone, Value: "a?"})
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestAnAtMostOnceStepThatFinishesLateIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := perdure.NewCounter("n")
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				time.Sleep(2 * time.Minute)
				return 1, n.Add(ctx, 1)
			}, kit.AtMostOnce()...)
			if v, err := n.Get(ctx); v != 1 || err != nil {
				t.Errorf("the count is %d, %v", v, err)
			}
			return err
		})
		k.WantLines("step /pay 1")
	})
}

// NotDone is knowledge, even as the response to a cancel.
func TestNotDoneUnderACancelIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan bool, 1)
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				entered <- true
				<-ctx.Done()
				return 0, perdure.NotDone(ctx.Err())
			}, perdure.AtMostOnce(), perdure.Timeout(time.Hour))
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		<-entered
		cancelRun(k)
		if run := k.EndsAs("t", perdure.Cancelled); len(run.Unknown) != 0 {
			t.Errorf("unknown outcomes %v:\n%s", run.Unknown, k.Trace("t"))
		}
	})
}

// While a new worker sits out the time of a lost start, the run can be
// cancelled; the start stays unknown.
func TestACancelDoesNotWaitForALostStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 1)
		flow := kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "pay", func(ctx context.Context) (int, error) {
				entered <- true
				<-ctx.Done()
				return 0, ctx.Err()
			}, perdure.AtMostOnce(), perdure.Timeout(24*time.Hour), perdure.Reconcile(func(context.Context) (int, perdure.Outcome, error) {
				t.Error("Reconcile was called")
				return 0, 0, nil
			}))
			return err
		})
		m := kit.NewMortal(t, inner, perdure.Options{}, flow)
		m.StartOn("t", "f", struct{}{})
		<-entered
		m.Die()
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.Until("it is taken over", func() bool { return len(claimsOf(k)) == 2 })
		cancelRun(k)
		run := k.EndsAs("t", perdure.Cancelled)
		kit.NoDiff(t, cmp.Diff([]string{"/pay"}, run.Unknown))
	})
}

// Without Options.Version the fingerprint is a checksum of the executable.
func TestTheFingerprintIsTheVersionOrAChecksumOfTheExecutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		rt, err := perdure.New(t.Context(), inner, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") }))
		kit.NoErr(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- rt.Work(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		k := &kit.Kit{Runtime: rt, T: t, Store: inner}
		k.StartOn("t", "f", struct{}{})
		run := k.WaitFor("t", perdure.Suspended)
		if len(run.Version) != 16 || strings.Trim(run.Version, "0123456789abcdef") != "" {
			t.Errorf("the fingerprint is %q", run.Version)
		}
	})
}

// A verb that was refused because its context had ended is refused again, and
// is not taken for a new one before what is recorded after it.
func TestAVerbRefusedForItsContextDoesNotBlockTheResume(t *testing.T) {
	for _, v := range verbCases(func() {}) {
		if v.name == "Cleanup" || v.name == "Scope" || v.name == "Group" {
			continue // these do not ask their context
		}
		kit.Bubble(t, v.name, func(t *testing.T) {
			k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
				over, cancel := context.WithCancel(ctx)
				cancel()
				if err := v.call(over, "refused"); !errors.Is(err, context.Canceled) && !errors.Is(err, perdure.ErrBlocked) {
					t.Errorf("with a context that has ended: %v", err)
				}
				_, err := perdure.Scope(ctx, "left early", func(ctx context.Context) (int, error) {
					g := perdure.NewGroup(ctx)
					g.Go("branch", func(ctx context.Context) error {
						<-ctx.Done() // the scope returns without Wait
						return v.call(ctx, "refused too")
					})
					return 1, nil
				})
				return errors.Join(err, kit.AskYesNo(ctx, "ok"))
			})
			k.AnswerYes(run, "/ok")
			k.WaitFor("t", perdure.Succeeded)
		})
	}
}

// Hedged calls are goroutines inside one leaf; they share what it may do.
func TestGoroutinesInsideALeafMayChangeAndSpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := perdure.NewCounter("n"), perdure.NewList[int]("l")
		_, run := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (int, error) {
				errs := make(chan error)
				for i := range 50 {
					go func() {
						perdure.Delta(ctx, i)
						_ = perdure.Now(ctx)
						_, err := n.Get(ctx)
						errs <- errors.Join(err, n.Add(ctx, 1), l.Append(ctx, i), perdure.Spend(ctx, perdure.Key(ctx), 2))
					}()
				}
				var all error
				for range 50 {
					all = errors.Join(all, <-errs)
				}
				return 1, all
			})
			count, err2 := n.Get(ctx)
			list, err3 := l.Get(ctx)
			if count != 50 || len(list) != 50 {
				t.Errorf("the count is %d, the list has %d", count, len(list))
			}
			return errors.Join(err, err2, err3)
		})
		for _, spent := range run.Spent {
			if spent != 100 {
				t.Errorf("spent %d", spent)
			}
		}
	})
}

func TestAStepThatChangesTooMuchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "greedy", func(ctx context.Context) (int, error) {
				c.Hit("greedy")
				for i := range 3000 {
					if err := perdure.NewState[string](fmt.Sprint("key ", i)).Set(ctx, strings.Repeat("x", 200)); err != nil {
						return 0, err
					}
				}
				return 1, nil
			})
			if !errors.Is(err, perdure.ErrTooLarge) {
				t.Errorf("error %v", err)
			}
			if v, there, err := perdure.NewState[string]("key 7").Lookup(ctx); there || err != nil {
				t.Errorf("it left %q, %v", v, err)
			}
			return kit.AskYesNo(ctx, "ok")
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("greedy") != 1 {
			t.Errorf("it ran %d times", c.Of("greedy"))
		}
	})
}

// How far a branch gets before its frame leaves it is a matter of schedule, so
// another schedule on resume is not divergence.
func TestAnAbandonedBranchThatIsFasterNextTimeDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := 0
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			passes++
			slow := passes == 1
			_, err := perdure.Scope(ctx, "left early", func(ctx context.Context) (int, error) {
				g := perdure.NewGroup(ctx)
				g.Go("branch", func(ctx context.Context) error {
					if slow {
						<-ctx.Done()
					}
					_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) {
						t.Error("a step ran behind which others are recorded")
						return 1, nil
					})
					return err
				})
				if !slow {
					time.Sleep(time.Second)
				}
				return 1, nil
			})
			return errors.Join(err, kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}
