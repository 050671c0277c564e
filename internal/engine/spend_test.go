package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// pay is a leaf that spends and may fail.
func pay(ctx context.Context, name string, cents int64, fail error, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) {
		if err := perdure.Spend(ctx, "cents", cents); err != nil {
			return false, err
		}
		return true, fail
	}, opts...)
	return err
}

func TestSpendIsCountedWithEachOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			if err := pay(ctx, "good", 1, nil); err != nil {
				return false, err
			}
			// A step that fails has still spent, in each attempt.
			if err := pay(ctx, "bad", 10, no, perdure.Retry(perdure.RetryPolicy{Attempts: 3})); err == nil {
				return false, errors.New("it did not fail")
			}
			if err := pay(ctx, "once", 100, no, perdure.AtMostOnce(), perdure.Timeout(time.Second),
				perdure.Reconcile(func(context.Context) (bool, perdure.Outcome, error) { return true, perdure.OutcomeDone, nil })); err != nil {
				return false, err
			}
			_, err := perdure.Step(ctx, "twice", func(ctx context.Context) (bool, error) {
				return true, errors.Join(perdure.Spend(ctx, "cents", 1000), perdure.Spend(ctx, "cents", 1000), perdure.Spend(ctx, "tokens", 7))
			})
			if err != nil {
				return false, err
			}
			_, err = perdure.Ask[string](ctx, "ask", perdure.Question{})
			return true, err
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		want := map[string]int64{"cents": 2131, "tokens": 7}
		kit.NoDiff(t, cmp.Diff(want, run.Spent))
		k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
		run = k.WaitForRun("t", "", perdure.Succeeded)
		if d := cmp.Diff(want, run.Spent); d != "" {
			t.Errorf("a resumed run counts again: %s", d)
		}
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Suspended)
		thread, err := k.Get(t.Context(), "t")
		if err != nil || thread.Spent["cents"] != 2*2131 || thread.Runs[1].Spent["cents"] != 2131 {
			t.Errorf("the thread has spent %v, its second run %v; %v", thread.Spent, thread.Runs[1].Spent, err)
		}
	})
}

func TestOverBudgetIsAnErrorAndCounts(t *testing.T) {
	type result struct{ Exact, Over, Later bool }
	tries := 0
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (result, error) {
		var r result
		r.Exact = pay(ctx, "exact", 10, nil) == nil
		_, err := perdure.Step(ctx, "over", func(ctx context.Context) (bool, error) {
			tries++
			return true, perdure.Spend(ctx, "cents", 1)
		}, perdure.Retry(perdure.RetryPolicy{}))
		r.Over = errors.Is(err, perdure.ErrBudget)
		if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
			return r, err
		}
		r.Later = errors.Is(pay(ctx, "later", 0, nil), perdure.ErrBudget)
		if err := pay(ctx, "free", 5, nil); !errors.Is(err, perdure.ErrBudget) {
			return r, fmt.Errorf("over the budget: %w", err)
		}
		_, err = perdure.Step(ctx, "unlimited", func(ctx context.Context) (bool, error) { return true, perdure.Spend(ctx, "tokens", math.MaxInt64) })
		return r, err
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"cents": 10}})
		run := k.WaitFor("t", perdure.Suspended)
		if run.Spent["cents"] != 11 || run.Budget["cents"] != 10 {
			t.Errorf("spent %v of %v", run.Spent, run.Budget)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: ""})
		run = k.WaitForRun("t", "", perdure.Succeeded)
		if got, err := perdure.Output[result](run); err != nil || !got.Exact || !got.Over || !got.Later || tries != 1 {
			t.Errorf("%+v, %v; the step over budget ran %d times", got, err, tries)
		}
		if run.Spent["cents"] != 16 || run.Spent["tokens"] != math.MaxInt64 {
			t.Errorf("spent %v", run.Spent)
		}
	})
}

// TestParallelLeavesShareTheBudget has leaves that spend at the same time:
// what the others have spent and not yet recorded counts.
func TestParallelLeavesShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		allowed := 0
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			g := perdure.NewGroup(ctx)
			for i := range 10 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "s", func(ctx context.Context) (bool, error) {
						if err := perdure.Spend(ctx, "cents", 10); err != nil {
							return false, err
						}
						mu.Lock()
						allowed++
						mu.Unlock()
						time.Sleep(time.Second) // all of them are inside at once
						return true, nil
					})
					if err != nil && !errors.Is(err, perdure.ErrBudget) {
						return err
					}
					return nil
				})
			}
			return true, g.Wait()
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"cents": 45}})
		run := k.WaitFor("t", perdure.Succeeded)
		if allowed != 4 || run.Spent["cents"] != 100 {
			t.Errorf("%d leaves were allowed to spend, %v in all", allowed, run.Spent)
		}
	})
}

func TestSpendRefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
			return perdure.Step(ctx, "s", func(ctx context.Context) (bool, error) {
				kit.WantErr(t, "negative", perdure.Spend(ctx, "cents", -1), perdure.ErrOption)
				kit.WantErr(t, "no unit", perdure.Spend(ctx, "", 1), perdure.ErrOption)
				kit.WantErr(t, "much", perdure.Spend(ctx, "cents", math.MaxInt64), nil)
				kit.WantErr(t, "and more", perdure.Spend(ctx, "cents", math.MaxInt64), nil)
				return true, nil
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Succeeded)
		if run.Spent["cents"] != math.MaxInt64 {
			t.Errorf("spent %v", run.Spent)
		}
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		thread, err := k.Get(t.Context(), "t")
		if err != nil || thread.Spent["cents"] != math.MaxInt64 {
			t.Errorf("the thread has spent %v, %v", thread.Spent, err)
		}
		kit.WantErr(t, "outside a run", perdure.Spend(t.Context(), "cents", 1), perdure.ErrNoRun)
	})
}
