package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

func cancelRun(k *kit.Kit) {
	k.T.Helper()
	kit.NoErr(k.T, k.Cancel(k.T.Context(), "t", "", perdure.Note{By: "ann", Reason: "enough"}))
}

func TestAQueuedRunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") }))
		first := k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Suspended)
		second := k.StartOn("t", "f", struct{}{})
		kit.NoErr(t, k.Cancel(t.Context(), "t", second.ID, perdure.Note{}))
		run, err := k.Wait(t.Context(), "t", second.ID)
		if err != nil || run.Status != perdure.Cancelled || !run.Started.IsZero() {
			t.Errorf("the second run is %+v, %v", run, err)
		}
		if run, err := k.GetRun(t.Context(), "t", first.ID); err != nil || run.Status != perdure.Suspended {
			t.Errorf("the first run is %+v, %v", run, err)
		}
	})
}

// waitCases are all the ways in which a run can wait.
var waitCases = map[string]func(context.Context) error{
	"ask":     func(ctx context.Context) error { return kit.AskYesNo(ctx, "x") },
	"sleep":   func(ctx context.Context) error { return perdure.Sleep(ctx, "x", 100*time.Hour) },
	"receive": func(ctx context.Context) error { _, err := perdure.Receive[int](ctx, "x", "s", 0); return err },
	"retry": func(ctx context.Context) error {
		return new(kit.Tally).Step(ctx, "x", []error{errSpec}, retry(9, 10*time.Hour))
	},
	"short retry": func(ctx context.Context) error {
		return new(kit.Tally).Step(ctx, "x", []error{errSpec}, perdure.Retry(perdure.RetryPolicy{Attempts: 1 << 20, Wait: time.Second, MaxWait: time.Second}))
	},
	"outcome": func(ctx context.Context) error {
		return new(kit.Tally).Step(ctx, "x", []error{errSpec}, kit.AtMostOnce()...)
	},
	"leaf": func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		return err
	},
	"once": func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, perdure.AtMostOnce(), perdure.Timeout(100*time.Hour))
		return err
	},
	"group": func(ctx context.Context) error {
		g := perdure.NewGroup(ctx)
		g.Go("a", func(ctx context.Context) error { return kit.AskYesNo(ctx, "x") })
		g.Go("b", func(ctx context.Context) error { return perdure.Sleep(ctx, "x", 100*time.Hour) })
		return g.Wait()
	},
	"mixed group": func(ctx context.Context) error {
		g := perdure.NewGroup(ctx)
		g.Go("a", func(ctx context.Context) error { return kit.AskYesNo(ctx, "x") })
		g.Go("b", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			return err
		})
		return g.Wait()
	},
}

func TestCancelEndsARunThatWaitsForAnything(t *testing.T) {
	for what, wait := range waitCases {
		for _, nested := range []string{"flow", "scope", "step", "branch"} {
			kit.Bubble(t, what+" in a "+nested, func(t *testing.T) {
				var c kit.Tally
				fn := func(ctx context.Context, _ *kit.Tally) error { return wait(ctx) }
				if nested != "flow" {
					fn = nestedIn(nested, "in", fn)
				}
				k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
					err := fn(ctx, &c)
					if errors.Is(err, perdure.ErrCancelled) {
						c.Hit("told")
					}
					if later := c.OK(context.WithoutCancel(ctx), "later"); later == nil {
						t.Error("a step started in a cancelled run")
					}
					return err
				}))
				k.StartOn("t", "f", struct{}{})
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				before := k.EventsOf("t")
				cancelled := time.Now()
				cancelRun(k)
				run := k.EndsAs("t", perdure.Cancelled)
				if c.Of("told") == 0 || c.Of("later") != 0 {
					t.Errorf("the code was not told: %v\n%s", c.All(), k.Trace("t"))
				}
				for _, e := range k.EventsOf("t")[len(before):] {
					// An attempt that ends while the news travels is recorded.
					racing := e.Kind == "attempt" && e.Time.Sub(cancelled) < 100*time.Millisecond
					if !racing && !slices.Contains([]string{"cancel", "claimed", "ended", "suspended"}, e.Kind) {
						t.Errorf("after the cancel %s is recorded:\n%s", e.Kind, k.Trace("t"))
					}
				}
				for _, ask := range run.Asks {
					t.Errorf("an ask is open: %+v", ask)
				}
				if unknown := len(run.Unknown) > 0; unknown != (what == "outcome" || what == "once") {
					t.Errorf("unknown outcomes %v", run.Unknown)
				}
				if run.Resumes > 1 {
					t.Errorf("it took %d passes:\n%s", run.Resumes+1, k.Trace("t"))
				}
			})
		}
	}
}

// Any node may write the cancel; whoever claims the thread next honours it. Its
// cleanups run wherever the run had come to, also inside a composite step.
func TestCancelIsHonouredByWhoeverClaimsNext(t *testing.T) {
	for _, deep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New()
			var c kit.Tally
			body := func(ctx context.Context) error {
				err := kit.AskYesNo(ctx, "ok")
				if err != nil && !errors.Is(err, perdure.ErrSuspended) {
					_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.Hit("undo"); return nil })
				}
				return err
			}
			flow := kit.FlowOf(func(ctx context.Context) error {
				if !deep {
					return body(ctx)
				}
				_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) { return 0, body(ctx) })
				return errors.Join(err, c.OK(ctx, "later"))
			})
			k := kit.New(t, inner, perdure.Options{}, flow)
			k.StartOn("t", "f", struct{}{})
			k.WaitFor("t", perdure.Suspended)
			k.Stop()
			rt, err := perdure.New(t.Context(), inner, perdure.Options{}) // it has no flows
			kit.NoErr(t, err)
			kit.NoErr(t, rt.Cancel(t.Context(), "t", "", perdure.Note{}))
			k = kit.New(t, inner, perdure.Options{}, flow)
			k.WaitFor("t", perdure.Cancelled)
			if c.Of("undo") != 1 || c.Of("later") != 0 {
				t.Errorf("ran %v\n%s", c.All(), k.Trace("t"))
			}
		})
	}
}

func TestACancelCanBeRepeatedAndIsRefusedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan bool, 9), make(chan bool)
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { entered <- true; <-release; return 1, nil })
			return err
		}))
		k.StartOn("t", "f", struct{}{})
		<-entered
		cancelRun(k)
		cancelRun(k)
		close(release)
		run := k.EndsAs("t", perdure.Cancelled)
		if k.KindsOf("t")["cancel"] != 1 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
		k.WantLines("step /x 1") // what has run is recorded
		if run.Steps != 1 {
			t.Errorf("%d steps", run.Steps)
		}
		cancelRun(k)
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "cancel of a run that succeeded", k.Cancel(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
		kit.WantErr(t, "cancel of an unknown run", k.Cancel(t.Context(), "t", "nonsense", perdure.Note{}), perdure.ErrRunNotFound)
		kit.WantErr(t, "cancel on an unknown thread", k.Cancel(t.Context(), "nonsense", "", perdure.Note{}), perdure.ErrNoThread)
	})
}

func TestARunningStepIsToldOfTheCancelAndItsErrorIsNoOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		entered := make(chan bool, 1)
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				_, err := perdure.Step(ctx, "inner", func(ctx context.Context) (int, error) {
					entered <- true
					<-ctx.Done()
					cause = context.Cause(ctx)
					return 0, ctx.Err()
				}, retry(5, 0))
				_ = err // swallowed: the outer step still did not do its work
				return 1, nil
			})
			if !errors.Is(err, perdure.ErrCancelled) {
				t.Errorf("the flow sees %v", err)
			}
			return nil // swallowed too
		}))
		k.StartOn("t", "f", struct{}{})
		<-entered
		cancelRun(k)
		k.EndsAs("t", perdure.Cancelled)
		if !errors.Is(cause, perdure.ErrCancelled) {
			t.Errorf("the step's context ended with %v", cause)
		}
		if kinds := k.KindsOf("t"); kinds["step"] != 0 || kinds["attempt"] != 0 {
			t.Errorf("the journal is\n%s", k.Trace("t"))
		}
	})
}

// A cancel in the wait between two attempts is no outcome of the step around.
func TestACancelBetweenAttemptsIsNoOutcome(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, time.Hour} {
		kit.Bubble(t, wait.String(), func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
					_ = new(kit.Tally).Step(ctx, "inner", []error{errSpec}, retry(9, wait))
					return 1, nil
				})
				return err
			}))
			k.StartOn("t", "f", struct{}{})
			k.Until("an attempt failed", func() bool { return k.KindsOf("t")["attempt"] == 1 })
			cancelRun(k)
			k.EndsAs("t", perdure.Cancelled)
			if k.KindsOf("t")["step"] != 0 {
				t.Errorf("the journal is\n%s", k.Trace("t"))
			}
		})
	}
}

func TestCleanupsRunInTheOrderOfTheirDefersAndOnce(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			var c kit.Tally
			undo := func(ctx context.Context, err *error, name string, result error) {
				if *err == nil {
					return
				}
				got := perdure.Cleanup(ctx, name, func(ctx context.Context) error {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					if ctx.Err() != nil {
						t.Errorf("the context of cleanup %s is cancelled: %v", name, context.Cause(ctx))
					}
					return result
				})
				if result != nil && got == nil {
					t.Errorf("cleanup %s does not tell its failure", name)
				}
			}
			k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) (err error) {
				defer undo(ctx, &err, "undo a", nil)
				if err := c.OK(ctx, "a"); err != nil {
					return err
				}
				defer undo(ctx, &err, "undo b", errSpec)
				if err := c.OK(ctx, "b"); err != nil {
					return err
				}
				defer undo(ctx, &err, "undo c", nil)
				if cancel {
					return kit.AskYesNo(ctx, "ok")
				}
				return c.Step(ctx, "c", []error{errors.New("the reason")})
			}))
			k.StartOn("t", "f", struct{}{})
			want := perdure.Failed
			if cancel {
				want = perdure.Cancelled
				k.WaitFor("t", perdure.Suspended)
				if len(order) != 0 {
					t.Errorf("in a suspended run %v ran", order)
				}
				cancelRun(k)
			}
			run := k.EndsAs("t", want)
			kit.NoDiff(t, cmp.Diff([]string{"undo c", "undo b", "undo a"}, order))
			k.WantLines("step /undo b boom")
			if !cancel && !strings.Contains(run.Error, "the reason") {
				t.Errorf("the run failed because of %q", run.Error)
			}
			if c.Of("a") != 1 || c.Of("b") != 1 {
				t.Errorf("ran %v", c.All())
			}
		})
	}
}

func TestACleanupMayWaitAndRunStepsInACancelledRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) (err error) {
			defer func() {
				if err == nil {
					return
				}
				_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
					c.Hit("undo")
					if err := c.Step(ctx, "call", []error{errSpec, nil}, retry(3, time.Minute)); err != nil {
						return err
					}
					if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
						return err
					}
					if err := kit.AskYesNo(ctx, "sure"); err != nil {
						return err
					}
					g := perdure.NewGroup(ctx)
					g.Go("a", func(ctx context.Context) error { return c.OK(ctx, "in a") })
					g.Go("b", func(ctx context.Context) error { return perdure.Sleep(ctx, "b", time.Minute) })
					return errors.Join(g.Wait(), perdure.Emit(ctx, "undone", 1))
				})
			}()
			return kit.AskYesNo(ctx, "ok")
		}))
		k.StartOn("t", "f", struct{}{})
		k.WaitFor("t", perdure.Suspended)
		cancelRun(k)
		var ask string
		k.Until("the cleanup asks", func() bool {
			run, err := k.GetRun(t.Context(), "t", "")
			kit.NoErr(t, err)
			for _, a := range run.Asks {
				if a.Path == "/undo/sure" {
					ask = a.ID
				}
			}
			return ask != "" && run.Status == perdure.Suspended
		})
		kit.NoErr(t, k.Answer(t.Context(), perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: true}}))
		k.EndsAs("t", perdure.Cancelled)
		if c.Of("call") != 2 || c.Of("in a") != 1 {
			t.Errorf("ran %v", c.All())
		}
		k.WantLines("emitted /undo/undone 1", "step /undo")
	})
}

// A worker dies in the middle of a cancelled run's cleanups; another one
// continues them.
func TestACleanupSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 1)
		var c kit.Tally
		flow := kit.FlowOf(func(ctx context.Context) (err error) {
			defer func() {
				if err == nil {
					return
				}
				for _, name := range []string{"one", "two", "three"} {
					_ = perdure.Cleanup(ctx, name, func(ctx context.Context) error {
						if c.Hit(name) == 1 && name == "two" {
							entered <- true
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
				}
			}()
			if err := c.OK(ctx, "a"); err != nil {
				return err
			}
			return kit.AskYesNo(ctx, "ok")
		})
		m := kit.NewMortal(t, inner, perdure.Options{}, flow)
		m.StartOn("t", "f", struct{}{})
		m.WaitFor("t", perdure.Suspended)
		cancelRun(m.Kit)
		<-entered
		m.Die()
		k := kit.New(t, inner, perdure.Options{}, flow)
		k.EndsAs("t", perdure.Cancelled)
		kit.NoDiff(t, cmp.Diff(map[string]int{"a": 1, "one": 1, "two": 2, "three": 1}, c.All()))
	})
}

func TestTheAsksOfACancelledRunAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error { return kit.AskYesNo(ctx, "ok") })
		cancelRun(k)
		k.WaitFor("t", perdure.Cancelled)
		err := k.Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}})
		kit.WantErr(t, "answer", err, perdure.ErrAskOver)
		kit.WantErr(t, "retry of a cancelled run", k.Retry(t.Context(), "t", "", perdure.Note{}), perdure.ErrNothingToDo)
	})
}
