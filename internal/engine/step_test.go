package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

func TestACompositeRunsAgainOnResumeAndALeafDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "composite", func(ctx context.Context) (int, error) {
				c.Hit("composite")
				if err := c.OK(ctx, "leaf"); err != nil {
					return 0, err
				}
				if err := kit.AskYesNo(ctx, "one"); err != nil {
					return 0, err
				}
				return 1, c.OK(ctx, "leaf 2")
			})
			if err != nil {
				return err
			}
			return kit.AskYesNo(ctx, "two")
		})
		k.AnswerYes(run, "/composite/one")
		run = k.WaitFor("t", perdure.Suspended)
		k.AnswerYes(run, "/two")
		k.WaitFor("t", perdure.Succeeded)
		// Once finished, a composite is not entered again either.
		want := map[string]int{"composite": 2, "leaf": 1, "leaf 2": 1}
		kit.NoDiff(t, cmp.Diff(want, c.All()))
	})
}

func TestAStepWithANilResultNeverRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			p, err1 := perdure.Step(ctx, "pointer", func(context.Context) (*int, error) { c.Hit("pointer"); return nil, nil })
			a, err2 := perdure.Step(ctx, "any", func(context.Context) (any, error) { c.Hit("any"); return nil, nil })
			s, err3 := perdure.Step(ctx, "slice", func(context.Context) ([]int, error) { c.Hit("slice"); return nil, nil })
			e, err4 := perdure.Step(ctx, "empty", func(context.Context) ([]int, error) { c.Hit("empty"); return []int{}, nil })
			_, err5 := perdure.Step(ctx, "nothing", func(context.Context) (struct{}, error) { c.Hit("nothing"); return struct{}{}, nil })
			if p != nil || a != nil || s != nil || e == nil {
				t.Errorf("results %v %v %v %v", p, a, s, e)
			}
			return errors.Join(err1, err2, err3, err4, err5, kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		for name, n := range c.All() {
			if n != 1 {
				t.Errorf("%s ran %d times", name, n)
			}
		}
	})
}

func TestSuspendedTimeDoesNotCountForATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "patient", func(ctx context.Context) (int, error) {
				if err := perdure.Sleep(ctx, "alone", time.Hour); err != nil {
					return 0, err
				}
				// Here the pass continues: the other branch is outside the
				// step.
				return 1, nil
			}, perdure.Timeout(time.Second))
			if err != nil {
				return err
			}
			g := perdure.NewGroup(ctx)
			g.Go("busy", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "works", func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil })
				return err
			})
			g.Go("waits", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "patient", func(ctx context.Context) (int, error) {
					return 1, perdure.Sleep(ctx, "beside another", 30*time.Second)
				}, perdure.Timeout(time.Second))
				return err
			})
			return g.Wait()
		})
	})
}

func TestTheTimeOfInnerStepsCountsForATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(2 * time.Second):
				return 1, nil
			}
		}
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "leaf", late, perdure.Timeout(time.Second))
			kit.WantErr(t, "a slow leaf", err, perdure.ErrTimeout)
			_, err = perdure.Step(ctx, "composite", func(ctx context.Context) (int, error) {
				return perdure.Step(ctx, "inner", late)
			}, perdure.Timeout(time.Second))
			kit.WantErr(t, "a slow composite", err, perdure.ErrTimeout)
			// A function that fails for its own reasons after its timeout has
			// still timed out.
			_, err = perdure.Step(ctx, "own", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, errors.New("gave up")
			}, perdure.Timeout(time.Second))
			if !errors.Is(err, perdure.ErrTimeout) || !strings.Contains(err.Error(), "gave up") {
				t.Errorf("a slow leaf with an error of its own: %v", err)
			}
			return nil
		})
		if n := k.KindsOf("t")["step"]; n != 4 {
			t.Errorf("%d outcomes are recorded:\n%s", n, k.Trace("t"))
		}
	})
}

func TestAStepThatCallsVerbsAndChangesThingsGetsErrComposite(t *testing.T) {
	s, n, l := perdure.NewState[int]("s"), perdure.NewCounter("n"), perdure.NewList[int]("l")
	changes := map[string]func(context.Context) error{
		"Set":    func(ctx context.Context) error { return s.Set(ctx, 1) },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx) },
		"Add":    func(ctx context.Context) error { return n.Add(ctx, 1) },
		"Append": func(ctx context.Context) error { return l.Append(ctx, 1) },
		"Spend":  func(ctx context.Context) error { return perdure.Spend(ctx, "tokens", 1) },
	}
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			verbs := append(verbCases(func() {}), verbCase{"Plan", func(ctx context.Context, _ string) error { return perdure.Plan(ctx, "a") }})
			for what, change := range changes {
				for _, v := range verbs {
					_, err := perdure.Step(ctx, what+" then "+v.name, func(ctx context.Context) (int, error) {
						c.Hit(what + " then " + v.name)
						if err := change(ctx); err != nil {
							t.Errorf("%s in a step: %v", what, err)
						}
						return 0, v.call(ctx, "x")
					}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
					if !errors.Is(err, perdure.ErrComposite) {
						t.Errorf("%s then %s: %v", what, v.name, err)
					}
				}
			}
			for _, v := range verbs {
				_, err := perdure.Step(ctx, v.name+" then change", func(ctx context.Context) (int, error) {
					if err := v.call(ctx, "x"); err != nil {
						return 0, err
					}
					for what, change := range changes {
						if err := change(ctx); !errors.Is(err, perdure.ErrComposite) {
							t.Errorf("%s after %s: %v", what, v.name, err)
						}
					}
					return 1, nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
		k.StartOn("t", "f", struct{}{})
		run := k.EndsAs("t", perdure.Succeeded)
		for name, n := range c.All() {
			if n != 1 {
				t.Errorf("%s ran %d times: what cannot get better is not tried again", name, n)
			}
		}
		state, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || len(state.State) != 0 {
			t.Errorf("the state is %v, %v", state, err)
		}
		if got := run.Spent["tokens"]; got != 10 {
			t.Errorf("%d tokens are spent: what a failed leaf spent counts", got)
		}
	})
}

func TestKeyNowDeltaAndReadsLeaveALeafALeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := perdure.NewState[int]("s")
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (int, error) {
				if perdure.Key(ctx) == "" || perdure.Now(ctx).IsZero() {
					t.Error("no key, or no time")
				}
				perdure.Delta(ctx, "x")
				if _, err := s.Get(ctx); err != nil {
					t.Error(err)
				}
				err := errors.Join(perdure.Spend(ctx, "tokens", 1), s.Set(ctx, 1))
				if v, err2 := s.Get(ctx); v != 1 || err2 != nil {
					t.Errorf("a leaf does not see its own change: %d, %v", v, err2)
				}
				return 1, err
			})
			return err
		})
	})
}

func TestChangesCommitWithSuccessAndSpendWithFailureToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := perdure.NewState[string]("s"), perdure.NewCounter("n")
		k, run := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			attempt := 0
			_, err := perdure.Step(ctx, "retried", func(ctx context.Context) (int, error) {
				attempt++
				if v, _ := n.Get(ctx); v != 0 {
					t.Errorf("attempt %d sees the change of a failed one", attempt)
				}
				err := errors.Join(n.Add(ctx, 10), perdure.Spend(ctx, "tokens", 100))
				if attempt < 3 {
					err = errors.New("not yet")
				}
				return attempt, err
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
			if err != nil {
				return err
			}
			_, err = perdure.Step(ctx, "fails", func(ctx context.Context) (int, error) {
				return 0, errors.Join(s.Set(ctx, "lost"), perdure.Spend(ctx, "tokens", 1000), errors.New("boom"))
			})
			if err == nil {
				t.Error("the step did not fail")
			}
			if v, there, err := s.Lookup(ctx); there || err != nil {
				t.Errorf("a failed step left %q, %v", v, err)
			}
			if v, err := n.Get(ctx); v != 10 || err != nil {
				t.Errorf("the count is %d, %v", v, err)
			}
			return nil
		})
		if run.Spent["tokens"] != 1300 {
			t.Errorf("%d tokens are spent", run.Spent["tokens"])
		}
		state, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || string(state.State["n"]) != "10" || len(state.State) != 1 {
			t.Errorf("the state is %v, %v", state, err)
		}
	})
}

func TestAnInnerStepsChangesStayWhenTheOuterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := perdure.NewCounter("n")
		boom := errors.New("boom")
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				_, err := perdure.Step(ctx, "inner", func(ctx context.Context) (int, error) { return 1, n.Add(ctx, 1) })
				return 0, errors.Join(err, boom)
			})
			if err == nil {
				t.Error("the outer step did not fail")
			}
			if v, err := n.Get(ctx); v != 1 || err != nil {
				t.Errorf("the count is %d, %v", v, err)
			}
			return kit.AskYesNo(ctx, "ok")
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestChangesOutsideAStepAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(at string, ctx context.Context) {
			for what, err := range map[string]error{
				"Set":    perdure.NewState[int]("s").Set(ctx, 1),
				"Delete": perdure.NewState[int]("s").Delete(ctx),
				"Add":    perdure.NewCounter("n").Add(ctx, 1),
				"Append": perdure.NewList[int]("l").Append(ctx, 1),
				"Spend":  perdure.Spend(ctx, "tokens", 1),
			} {
				if !errors.Is(err, perdure.ErrNoLeaf) {
					t.Errorf("%s in a %s: %v", what, at, err)
				}
			}
		}
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			refused("flow", ctx)
			_, err := perdure.Scope(ctx, "scope", func(ctx context.Context) (int, error) { refused("scope", ctx); return 0, nil })
			g := perdure.NewGroup(ctx)
			g.Go("branch", func(ctx context.Context) error { refused("branch", ctx); return nil })
			return errors.Join(err, g.Wait())
		})
		state, err := k.StateAt(t.Context(), "t", 0)
		if err != nil || len(state.State) != 0 {
			t.Errorf("the state is %v, %v", state, err)
		}
	})
}

func TestAtMostOnceStepsAreLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "once", func(ctx context.Context) (int, error) {
				for _, v := range verbCases(func() { t.Error("a function ran") }) {
					if err := v.call(ctx, "x"); !errors.Is(err, perdure.ErrComposite) {
						t.Errorf("%s: %v", v.name, err)
					}
				}
				return 1, perdure.NewCounter("n").Add(ctx, 1)
			}, perdure.AtMostOnce(), perdure.Timeout(time.Second))
			return err
		})
	})
}

func TestEveryVerbButScopeIsARecordedChild(t *testing.T) {
	kinds := map[string]string{"Step": "step", "Ask": "asked", "Receive": "waiting", "Sleep": "timer", "Take": "took", "Emit": "emitted", "Cleanup": "step"}
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			for _, v := range verbCases(func() {}) {
				if err := v.call(ctx, v.name); err != nil {
					return err
				}
			}
			return perdure.Plan(ctx, "x")
		}))
		k.StartOn("t", "f", struct{}{})
		k.EndsAs("t", perdure.Succeeded)
		recorded := map[string]string{}
		for _, e := range k.EventsOf("t") {
			if name, ok := strings.CutPrefix(e.Path, "/"); ok && recorded[name] == "" {
				recorded[name] = e.Kind
			}
		}
		delete(recorded, "#plan")
		kit.NoDiff(t, cmp.Diff(kinds, recorded))
		if k.KindsOf("t")["planned"] != 1 {
			t.Error("the plan is not recorded")
		}
	})
}

type loopOf struct{ Next *loopOf }

// What JSON cannot carry exactly is refused loudly wherever it enters.
func TestWhatJSONCannotCarryIsRefused(t *testing.T) {
	loop := &loopOf{}
	loop.Next = loop
	bad := map[string]any{
		"2^53+1 in an any":  int64(1<<53 + 1),
		"2^53+1 deep":       map[string]any{"a": []any{uint64(1<<63 + 1)}},
		"NaN":               math.NaN(),
		"infinity":          math.Inf(1),
		"invalid UTF-8":     "a\xff",
		"half a surrogate":  json.RawMessage(`"a\ud800"`),
		"invalid UTF-8 key": map[string]any{"a\xff": 1},
		"cycle":             loop,
		"channel":           make(chan int),
		"function":          func() {},
		"complex":           1i,
	}
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			for what, v := range bad {
				_, err := perdure.Step(ctx, what, func(context.Context) (any, error) {
					c.Hit(what)
					return v, nil
				}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
				if !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("a step that returns %s: %v", what, err)
				}
				_, err = perdure.Step(ctx, "state "+what, func(ctx context.Context) (int, error) {
					err := perdure.NewState[any]("s").Set(ctx, v)
					if !errors.Is(err, perdure.ErrNotJSON) {
						t.Errorf("state of %s: %v", what, err)
					}
					if err := perdure.NewList[any]("l").Append(ctx, v); !errors.Is(err, perdure.ErrNotJSON) {
						t.Errorf("a list with %s: %v", what, err)
					}
					return 1, nil
				})
				if err != nil {
					return err
				}
				_, err = perdure.Step(ctx, "input "+what, func(context.Context) (int, error) {
					return 1, nil
				}, perdure.Input(map[string]any{"v": v}))
				if !errors.Is(err, perdure.ErrOption) {
					t.Errorf("Input of %s: %v", what, err)
				}
				if err := perdure.Emit(ctx, "emit "+what, map[string]any{"v": v}); !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("emit %s: %v", what, err)
				}
				_, err = perdure.Ask[int](ctx, "ask "+what, perdure.Question{Data: map[string]any{"v": v}})
				if !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("ask about %s: %v", what, err)
				}
				perdure.Delta(ctx, v)
			}
			return nil
		})
		for name, n := range c.All() {
			if n != 1 {
				t.Errorf("the step that returns %s ran %d times", name, n)
			}
		}
		for what, v := range bad {
			_, err := k.Start(t.Context(), perdure.StartRequest{Flow: "f", Thread: "t", Input: map[string]any{"v": v}})
			if !errors.Is(err, perdure.ErrNotJSON) {
				t.Errorf("start with %s: %v", what, err)
			}
			if err := k.Signal(t.Context(), "t", "s", map[string]any{"v": v}, perdure.SignalOptions{}); !errors.Is(err, perdure.ErrNotJSON) {
				t.Errorf("signal with %s: %v", what, err)
			}
		}
		flow := perdure.NewFlow("f", func(context.Context, struct{}) (any, error) { return math.NaN(), nil })
		k2 := kit.New(t, nil, perdure.Options{}, flow)
		k2.StartOn("t", "f", struct{}{})
		if run := k2.WaitFor("t", perdure.Failed); !errors.Is(run.Err, perdure.ErrNotJSON) {
			t.Errorf("a flow that returns NaN: %v", run.Err)
		}
	})
}
