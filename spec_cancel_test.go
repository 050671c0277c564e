package perdure_test

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
	"github.com/perdure/perdure/store/memstore"
)

func specCancel(k *kit) {
	k.t.Helper()
	if err := k.Cancel(k.t.Context(), "t", "", perdure.Note{By: "ann", Reason: "enough"}); err != nil {
		k.t.Fatal(err)
	}
}

func TestAQueuedRunIsCancelledWithoutRunningCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error { return specAsk(ctx, "ok") }))
		first := k.start("t", "f", struct{}{})
		k.wait("t", perdure.Suspended)
		second := k.start("t", "f", struct{}{})
		if err := k.Cancel(t.Context(), "t", second.ID, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		run, err := k.Wait(t.Context(), "t", second.ID)
		if err != nil || run.Status != perdure.Cancelled || !run.Started.IsZero() {
			t.Errorf("the second run is %+v, %v", run, err)
		}
		if run, err := k.GetRun(t.Context(), "t", first.ID); err != nil || run.Status != perdure.Suspended {
			t.Errorf("the first run is %+v, %v", run, err)
		}
	})
}

// specWaits are all the ways in which a run can stand still.
var specWaits = map[string]func(context.Context) error{
	"ask":     func(ctx context.Context) error { return specAsk(ctx, "x") },
	"sleep":   func(ctx context.Context) error { return perdure.Sleep(ctx, "x", 100*time.Hour) },
	"receive": func(ctx context.Context) error { _, err := perdure.Receive[int](ctx, "x", "s", 0); return err },
	"retry": func(ctx context.Context) error {
		return new(specTally).step(ctx, "x", []error{errSpec}, specRetry(9, 10*time.Hour))
	},
	"short retry": func(ctx context.Context) error {
		return new(specTally).step(ctx, "x", []error{errSpec}, perdure.Retry(perdure.RetryPolicy{Attempts: 1 << 20, Wait: time.Second, MaxWait: time.Second}))
	},
	"outcome": func(ctx context.Context) error {
		return new(specTally).step(ctx, "x", []error{errSpec}, specAtMostOnce()...)
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
		g.Go("a", func(ctx context.Context) error { return specAsk(ctx, "x") })
		g.Go("b", func(ctx context.Context) error { return perdure.Sleep(ctx, "x", 100*time.Hour) })
		return g.Wait()
	},
	"mixed group": func(ctx context.Context) error {
		g := perdure.NewGroup(ctx)
		g.Go("a", func(ctx context.Context) error { return specAsk(ctx, "x") })
		g.Go("b", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			return err
		})
		return g.Wait()
	},
}

func TestCancelEndsARunThatWaitsForAnything(t *testing.T) {
	for what, wait := range specWaits {
		for _, nested := range []string{"flow", "scope", "step", "branch"} {
			t.Run(what+" in a "+nested, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var c specTally
					fn := func(ctx context.Context, _ *specTally) error { return wait(ctx) }
					if nested != "flow" {
						fn = specIn(nested, "in", fn)
					}
					k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
						err := fn(ctx, &c)
						if errors.Is(err, perdure.ErrCancelled) {
							c.hit("told")
						}
						if later := c.ok(context.WithoutCancel(ctx), "later"); later == nil {
							t.Error("a step started in a cancelled run")
						}
						return err
					}))
					k.start("t", "f", struct{}{})
					time.Sleep(time.Minute + time.Second)
					synctest.Wait()
					before := k.events("t")
					cancelled := time.Now()
					specCancel(k)
					run := k.ends("t", perdure.Cancelled)
					if c.of("told") == 0 || c.of("later") != 0 {
						t.Errorf("the code was not told: %v\n%s", c.all(), k.trace("t"))
					}
					for _, e := range k.events("t")[len(before):] {
						// An attempt that ends while the news travels is recorded.
						racing := e.Kind == "attempt" && e.Time.Sub(cancelled) < 100*time.Millisecond
						if !racing && !slices.Contains([]string{"cancel", "claimed", "ended", "suspended"}, e.Kind) {
							t.Errorf("after the cancel %s is recorded:\n%s", e.Kind, k.trace("t"))
						}
					}
					for _, ask := range run.Asks {
						t.Errorf("an ask is open: %+v", ask)
					}
					if unknown := len(run.Unknown) > 0; unknown != (what == "outcome" || what == "once") {
						t.Errorf("unknown outcomes %v", run.Unknown)
					}
					if run.Resumes > 1 {
						t.Errorf("it took %d passes:\n%s", run.Resumes+1, k.trace("t"))
					}
				})
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
			var c specTally
			body := func(ctx context.Context) error {
				err := specAsk(ctx, "ok")
				if err != nil && !errors.Is(err, perdure.ErrSuspended) {
					_ = perdure.Cleanup(ctx, "undo", func(context.Context) error { c.hit("undo"); return nil })
				}
				return err
			}
			flow := specFlow(func(ctx context.Context) error {
				if !deep {
					return body(ctx)
				}
				_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) { return 0, body(ctx) })
				return errors.Join(err, c.ok(ctx, "later"))
			})
			k := newKit(t, inner, perdure.Options{}, flow)
			k.start("t", "f", struct{}{})
			k.wait("t", perdure.Suspended)
			k.stop()
			rt, err := perdure.New(t.Context(), inner, perdure.Options{}) // it has no flows
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.Cancel(t.Context(), "t", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			k = newKit(t, inner, perdure.Options{}, flow)
			k.wait("t", perdure.Cancelled)
			if c.of("undo") != 1 || c.of("later") != 0 {
				t.Errorf("ran %v\n%s", c.all(), k.trace("t"))
			}
		})
	}
}

func TestACancelCanBeRepeatedAndIsRefusedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan bool, 9), make(chan bool)
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "x", func(context.Context) (int, error) { entered <- true; <-release; return 1, nil })
			return err
		}))
		k.start("t", "f", struct{}{})
		<-entered
		specCancel(k)
		specCancel(k)
		close(release)
		run := k.ends("t", perdure.Cancelled)
		if k.kinds("t")["cancel"] != 1 {
			t.Errorf("the journal is\n%s", k.trace("t"))
		}
		k.hasLines("step /x 1") // what has run is recorded
		if run.Steps != 1 {
			t.Errorf("%d steps", run.Steps)
		}
		specCancel(k)
		k.start("t", "f", struct{}{})
		k.wait("t", perdure.Succeeded)
		if err := k.Cancel(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("cancel of a run that succeeded: %v", err)
		}
		if err := k.Cancel(t.Context(), "t", "nonsense", perdure.Note{}); !errors.Is(err, perdure.ErrRunNotFound) {
			t.Errorf("cancel of an unknown run: %v", err)
		}
		if err := k.Cancel(t.Context(), "nonsense", "", perdure.Note{}); !errors.Is(err, perdure.ErrNoThread) {
			t.Errorf("cancel on an unknown thread: %v", err)
		}
	})
}

func TestARunningStepIsToldOfTheCancelAndItsErrorIsNoOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		entered := make(chan bool, 1)
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				_, err := perdure.Step(ctx, "inner", func(ctx context.Context) (int, error) {
					entered <- true
					<-ctx.Done()
					cause = context.Cause(ctx)
					return 0, ctx.Err()
				}, specRetry(5, 0))
				_ = err // swallowed: the outer step did not do its work all the same
				return 1, nil
			})
			if !errors.Is(err, perdure.ErrCancelled) {
				t.Errorf("the flow sees %v", err)
			}
			return nil // swallowed too
		}))
		k.start("t", "f", struct{}{})
		<-entered
		specCancel(k)
		k.ends("t", perdure.Cancelled)
		if !errors.Is(cause, perdure.ErrCancelled) {
			t.Errorf("the step's context ended with %v", cause)
		}
		if kinds := k.kinds("t"); kinds["step"] != 0 || kinds["attempt"] != 0 {
			t.Errorf("the journal is\n%s", k.trace("t"))
		}
	})
}

// A cancel in the wait between two attempts is no outcome of the step around.
func TestACancelBetweenAttemptsIsNoOutcome(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, time.Hour} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
						_ = new(specTally).step(ctx, "inner", []error{errSpec}, specRetry(9, wait))
						return 1, nil
					})
					return err
				}))
				k.start("t", "f", struct{}{})
				k.until("an attempt failed", func() bool { return k.kinds("t")["attempt"] == 1 })
				specCancel(k)
				k.ends("t", perdure.Cancelled)
				if k.kinds("t")["step"] != 0 {
					t.Errorf("the journal is\n%s", k.trace("t"))
				}
			})
		})
	}
}

func TestCleanupsRunInTheOrderOfTheirDefersAndOnce(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			var c specTally
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
			k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) (err error) {
				defer undo(ctx, &err, "undo a", nil)
				if err := c.ok(ctx, "a"); err != nil {
					return err
				}
				defer undo(ctx, &err, "undo b", errSpec)
				if err := c.ok(ctx, "b"); err != nil {
					return err
				}
				defer undo(ctx, &err, "undo c", nil)
				if cancel {
					return specAsk(ctx, "ok")
				}
				return c.step(ctx, "c", []error{errors.New("the reason")})
			}))
			k.start("t", "f", struct{}{})
			want := perdure.Failed
			if cancel {
				want = perdure.Cancelled
				k.wait("t", perdure.Suspended)
				if len(order) != 0 {
					t.Errorf("in a suspended run %v ran", order)
				}
				specCancel(k)
			}
			run := k.ends("t", want)
			if d := cmp.Diff([]string{"undo c", "undo b", "undo a"}, order); d != "" {
				t.Error(d)
			}
			k.hasLines("step /undo b boom")
			if !cancel && !strings.Contains(run.Error, "the reason") {
				t.Errorf("the run failed because of %q", run.Error)
			}
			if c.of("a") != 1 || c.of("b") != 1 {
				t.Errorf("ran %v", c.all())
			}
		})
	}
}

func TestACleanupMayWaitAndRunStepsInACancelledRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c specTally
		k := newKit(t, nil, perdure.Options{}, specFlow(func(ctx context.Context) (err error) {
			defer func() {
				if err == nil {
					return
				}
				_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
					c.hit("undo")
					if err := c.step(ctx, "call", []error{errSpec, nil}, specRetry(3, time.Minute)); err != nil {
						return err
					}
					if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
						return err
					}
					if err := specAsk(ctx, "sure"); err != nil {
						return err
					}
					g := perdure.NewGroup(ctx)
					g.Go("a", func(ctx context.Context) error { return c.ok(ctx, "in a") })
					g.Go("b", func(ctx context.Context) error { return perdure.Sleep(ctx, "b", time.Minute) })
					return errors.Join(g.Wait(), perdure.Emit(ctx, "undone", 1))
				})
			}()
			return specAsk(ctx, "ok")
		}))
		k.start("t", "f", struct{}{})
		k.wait("t", perdure.Suspended)
		specCancel(k)
		var ask string
		k.until("the cleanup asks", func() bool {
			run, err := k.GetRun(t.Context(), "t", "")
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range run.Asks {
				if a.Path == "/undo/sure" {
					ask = a.ID
				}
			}
			return ask != "" && run.Status == perdure.Suspended
		})
		if err := k.Answer(t.Context(), perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: true}}); err != nil {
			t.Fatal(err)
		}
		k.ends("t", perdure.Cancelled)
		if c.of("call") != 2 || c.of("in a") != 1 {
			t.Errorf("ran %v", c.all())
		}
		k.hasLines("emitted /undo/undone 1", "step /undo")
	})
}

// A worker dies in the middle of the way out; another one goes on with it.
func TestACleanupSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, entered := memstore.New(), make(chan bool, 1)
		var c specTally
		flow := specFlow(func(ctx context.Context) (err error) {
			defer func() {
				if err == nil {
					return
				}
				for _, name := range []string{"one", "two", "three"} {
					_ = perdure.Cleanup(ctx, name, func(ctx context.Context) error {
						if c.hit(name) == 1 && name == "two" {
							entered <- true
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
				}
			}()
			if err := c.ok(ctx, "a"); err != nil {
				return err
			}
			return specAsk(ctx, "ok")
		})
		m := newSpecMortal(t, inner, perdure.Options{}, flow)
		m.start("t", "f", struct{}{})
		m.wait("t", perdure.Suspended)
		specCancel(m.kit)
		<-entered
		m.die()
		k := newKit(t, inner, perdure.Options{}, flow)
		k.ends("t", perdure.Cancelled)
		if d := cmp.Diff(map[string]int{"a": 1, "one": 1, "two": 2, "three": 1}, c.all()); d != "" {
			t.Error(d)
		}
	})
}

func TestTheAsksOfACancelledRunAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := specOnce(t, perdure.Suspended, func(ctx context.Context) error { return specAsk(ctx, "ok") })
		specCancel(k)
		k.wait("t", perdure.Cancelled)
		err := k.Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}})
		if !errors.Is(err, perdure.ErrAskOver) {
			t.Errorf("answer: %v", err)
		}
		if err := k.Retry(t.Context(), "t", "", perdure.Note{}); !errors.Is(err, perdure.ErrNothingToDo) {
			t.Errorf("retry of a cancelled run: %v", err)
		}
	})
}
