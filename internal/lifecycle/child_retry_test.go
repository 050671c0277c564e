package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// shaky is a child that fails until it is mended.
func shaky(mended *atomic.Bool) perdure.Flow {
	return perdure.NewFlow("shaky", func(ctx context.Context, n int) (int, error) {
		return perdure.Step(ctx, "work", func(ctx context.Context) (int, error) {
			if err := perdure.Spend(ctx, "cents", 3); err != nil {
				return 0, err
			}
			if !mended.Load() {
				return 0, errTorn
			}
			return n + n, nil
		})
	})
}

// retry retries the newest run of a thread.
func retry(k *kit.Kit, thread string) {
	k.T.Helper()
	kit.NoErr(k.T, k.Retry(k.T.Context(), thread, "", perdure.Note{}))
	k.Rest()
}

// settledAs expects the status of the newest run of a thread as it is now.
func settledAs(k *kit.Kit, thread string, want perdure.Status) *perdure.Run {
	k.T.Helper()
	k.Rest()
	run, err := k.GetRun(k.T.Context(), thread, "")
	kit.NoErr(k.T, err)
	if run.Status != want {
		k.T.Fatalf("run is %s, want %s (%s%s)\n%s", run.Status, want, run.Error, run.Diff, k.Trace(thread))
	}
	return run
}

func TestAParentRetriedBehindItsChildGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		k := kit.New(t, nil, perdure.Options{}, shaky(&mended), spawnJoin[int]("shaky", 21))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		mended.Store(true)
		child := childOf(k, "p", 0)
		retry(k, child) // while the parent is failed
		settledAs(k, child, perdure.Succeeded)
		retry(k, "p")
		run := settledAs(k, "p", perdure.Succeeded)
		if string(run.Output) != "42" || run.Spent["cents"] != 6 {
			t.Errorf("%s, spent %v", run.Output, run.Spent)
		}
	})
}

func TestAParentTakenBackBeforeItsRetryIsRetriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		k := kit.New(t, nil, perdure.Options{}, shaky(&mended), spawnJoin[int]("shaky", 21))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		thread, err := k.Get(t.Context(), "p")
		kit.NoErr(t, err)
		mended.Store(true)
		retry(k, "p")
		settledAs(k, "p", perdure.Succeeded)
		if _, err := k.Rewind(t.Context(), "p", thread.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		settledAs(k, "p", perdure.Failed)
		retry(k, "p")
		run := settledAs(k, "p", perdure.Succeeded)
		if string(run.Output) != "42" || run.Spent["cents"] != 6 {
			t.Errorf("%s, spent %v", run.Output, run.Spent)
		}
	})
}

func TestAForkRetriesWhatFailedBecauseOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		k := kit.New(t, nil, perdure.Options{}, shaky(&mended), spawnJoin[int]("shaky", 21))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "p", As: "f"}); err != nil {
			t.Fatal(err)
		}
		mended.Store(true)
		retry(k, "f")
		run := settledAs(k, "f", perdure.Succeeded)
		if string(run.Output) != "42" {
			t.Errorf("%s", run.Output)
		}
		if run := settledAs(k, "p", perdure.Failed); !errors.Is(run.Err, errTorn) {
			t.Error(run.Err)
		}
		settledAs(k, childOf(k, "p", 0), perdure.Failed)
	})
}

func TestWhatASuccessfulRetrySpentStaysSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
				if err := perdure.Spend(ctx, "cents", 2); err != nil || fail {
					return "", perdure.Permanent(errors.Join(errTorn, err))
				}
				return "yes", nil
			})
		}))
		k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"cents": 5}})
		k.WaitFor("t", perdure.Failed)
		failed, err := k.Get(t.Context(), "t")
		kit.NoErr(t, err)
		fail = false
		for range 2 {
			retry(k, "t")
			if _, err := k.Rewind(t.Context(), "t", failed.Seq, perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			if got, err := k.GetRun(t.Context(), "t", ""); err != nil || got.Spent["cents"] < 4 {
				t.Errorf("%v, %v are spent", err, got.Spent)
			}
		}
		retry(k, "t")
		if run := settledAs(k, "t", perdure.Failed); !errors.Is(run.Err, perdure.ErrBudget) {
			t.Errorf("the budget was refunded: %v", run.Err)
		}
	})
}

func TestAChildSpawnedInARetryThatWasTakenBackIsSpawnedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		k := kit.New(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
			if _, err := perdure.Step(ctx, "first", func(context.Context) (int, error) {
				if !ready.Load() {
					return 0, errTorn
				}
				return 0, nil
			}); err != nil {
				return 0, err
			}
			c, err := perdure.Spawn(ctx, "child", "double", 21)
			if err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		failed, err := k.Get(t.Context(), "p")
		kit.NoErr(t, err)
		ready.Store(true)
		retry(k, "p")
		settledAs(k, "p", perdure.Succeeded)
		lost := childOf(k, "p", 0)
		if _, err := k.Rewind(t.Context(), "p", failed.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		retry(k, "p")
		run := settledAs(k, "p", perdure.Succeeded)
		if string(run.Output) != "42" || run.Spent["cents"] != 42 || childOf(k, "p", 0) == lost {
			t.Errorf("%s, spent %v, child %s after %s", run.Output, run.Spent, childOf(k, "p", 0), lost)
		}
	})
}

// The same in a fork that is taken back to before it was forked, and in an
// import, whose children may be in another store.
func TestARewoundForkAndAnImportRetryWhatFailedBecauseOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		flows := []perdure.Flow{shaky(&mended), perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "shaky", 21)
			if err != nil {
				return 0, err
			}
			one, err := perdure.Join[int](ctx, "join", c)
			if err != nil {
				return 0, err
			}
			two, err := perdure.Join[int](ctx, "again", c)
			return one + two, err
		})}
		k := kit.New(t, nil, perdure.Options{}, flows...)
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		failed, err := k.Get(t.Context(), "p")
		kit.NoErr(t, err)
		var file bytes.Buffer
		kit.NoErr(t, k.Export(t.Context(), "p", &file, perdure.ExportOptions{}))
		if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "p", As: "f"}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Rewind(t.Context(), "f", failed.Seq, perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		mended.Store(true)
		retry(k, "f")
		if run := settledAs(k, "f", perdure.Succeeded); string(run.Output) != "84" || len(run.Children) != 2 {
			t.Errorf("%s, %+v", run.Output, run.Children)
		}
		other := kit.New(t, nil, perdure.Options{}, flows...)
		if _, err := other.Import(t.Context(), &file, perdure.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		retry(other, "p")
		if run := settledAs(other, "p", perdure.Succeeded); string(run.Output) != "84" || len(run.Children) != 2 {
			t.Errorf("%s, %+v", run.Output, run.Children)
		}
	})
}
