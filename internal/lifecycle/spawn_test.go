package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// errTorn is a child's own failure.
var errTorn = perdure.Coded("torn", errors.New("it is torn"))

// double is a child that returns twice its input; a negative one fails.
var double = perdure.NewFlow("double", func(ctx context.Context, n int) (int, error) {
	return perdure.Step(ctx, "add", func(ctx context.Context) (int, error) {
		if n < 0 {
			return 0, errTorn
		}
		return n + n, perdure.Spend(ctx, "cents", int64(n))
	})
})

// spawnJoin is a parent of one child.
func spawnJoin[T any](flow string, in any) perdure.Flow {
	return perdure.NewFlow("parent", func(ctx context.Context, _ string) (T, error) {
		var zero T
		c, err := perdure.Spawn(ctx, "child", flow, in)
		if err != nil {
			return zero, err
		}
		return perdure.Join[T](ctx, "join", c)
	})
}

// childOf returns the id of a thread's n-th child.
func childOf(k *kit.Kit, thread string, n int) string {
	k.T.Helper()
	run, err := k.GetRun(k.T.Context(), thread, "")
	if err != nil || len(run.Children) <= n {
		k.T.Fatalf("%v: %+v", err, run)
	}
	return run.Children[n].Thread
}

func TestJoinReturnsWhatTheChildReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, spawnJoin[int]("slow", 21), perdure.NewFlow("slow", func(ctx context.Context, n int) (int, error) {
			return n + n, perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.StartOn("p", "parent", "")
		run := k.WaitFor("p", perdure.Succeeded)
		if got, err := perdure.Output[int](run); err != nil || got != 42 {
			t.Errorf("%d, %v", got, err)
		}
		child := childOf(k, "p", 0)
		if got := k.WaitFor(child, perdure.Succeeded); string(got.Output) != "42" {
			t.Errorf("the child: %s", got.Output)
		}
		k.Rest()
		if d := cmp.Diff(`created
queued ""
claimed
spawned /child 21
waiting /join
suspended
signal /join 42 succeeded
claimed
ended 42 succeeded
`, k.Trace("p")); d != "" {
			t.Error(d)
		}
	})
}

func TestAFailedChildIsAnErrorByItsCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got error
		k := kit.New(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "double", -1)
			if err != nil {
				return "", err
			}
			_, got = perdure.Join[int](ctx, "join", c)
			return "went on", perdure.Sleep(ctx, "nap", time.Hour) // and is resumed
		}))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Succeeded)
		var failed *perdure.StepError
		if !errors.Is(got, perdure.ErrChild) || !errors.Is(got, errTorn) || errors.Is(got, perdure.ErrChildCancelled) || !errors.As(got, &failed) || failed.Path != "/join" {
			t.Errorf("%#v %v", got, got)
		}
		if want := "/join: perdure: the child failed: /add: it is torn"; got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestACancelledChildIsErrChildCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got error
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "asking", "well?")
			if err != nil {
				return "", err
			}
			_, got = perdure.Join[string](ctx, "join", c)
			return "went on", got
		}))
		k.StartOn("p", "parent", "")
		k.Rest()
		kit.NoErr(t, k.Cancel(t.Context(), childOf(k, "p", 0), "", perdure.Note{}))
		run := k.WaitFor("p", perdure.Failed)
		for _, err := range []error{got, run.Err} {
			if !errors.Is(err, perdure.ErrChild) || !errors.Is(err, perdure.ErrChildCancelled) || errors.Is(err, perdure.ErrCancelled) {
				t.Error(err)
			}
		}
	})
}

func TestCancelOfAChildThatNobodyExecutesIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, spawnJoin[int]("elsewhere", 1))
		k.StartOn("p", "parent", "")
		k.Rest()
		kit.NoErr(t, k.Cancel(t.Context(), childOf(k, "p", 0), "", perdure.Note{}))
		if run := k.WaitFor("p", perdure.Failed); !errors.Is(run.Err, perdure.ErrChildCancelled) {
			t.Error(run.Err)
		}
	})
}

func TestCancelOfAParentReachesItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		k.StartOn("p", "parent", "")
		k.Rest()
		kit.NoErr(t, k.Cancel(t.Context(), "p", "", perdure.Note{}))
		k.WaitFor("p", perdure.Cancelled)
		k.WaitFor(childOf(k, "p", 0), perdure.Cancelled)
	})
}

func TestAParentEndsOnlyAfterItsOpenChildrenHaveTheirCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			for i, flow := range []string{"asking", "elsewhere"} {
				if _, err := perdure.Spawn(ctx, fmt.Sprint("child-", i), flow, "well?"); err != nil {
					return "", err
				}
			}
			return "done", perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.StartOn("p", "parent", "")
		ended := k.WaitFor("p", perdure.Succeeded).Ended
		for n := range 2 {
			child := childOf(k, "p", n)
			k.WaitFor(child, perdure.Cancelled)
			cancelled := false
			for e, err := range k.Events(t.Context(), child, perdure.EventOptions{Replay: true}) {
				kit.NoErr(t, err)
				cancelled = cancelled || e.Kind == "cancel" && !e.Time.After(ended) && e.Reason == "its parent has ended"
			}
			if !cancelled {
				t.Errorf("no cancel before %v:\n%s", ended, k.Trace(child))
			}
		}
	})
}

func TestABlockedParentThatIsCancelledCancelsItsChildren(t *testing.T) {
	for _, interrupt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{Version: "1"}, kit.Asking, spawnJoin[string]("asking", "well?"))
			k.StartOn("p", "parent", "")
			k.Rest()
			child := childOf(k, "p", 0)
			k.Stop()
			// The code of version 2 has another step in its place.
			k = kit.New(t, s, perdure.Options{Version: "2"}, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				return "", perdure.Sleep(ctx, "nap", time.Hour)
			}))
			kit.NoErr(t, k.Pause(t.Context(), "p", "", perdure.Note{}))
			kit.NoErr(t, k.Resume(t.Context(), "p", "", perdure.Note{}))
			first := k.WaitFor("p", perdure.Blocked)
			if interrupt {
				k.MustStart(perdure.StartRequest{Thread: "p", Flow: "parent", Input: "", Policy: perdure.Interrupt})
			} else if err := k.Cancel(t.Context(), "p", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			if run, err := k.GetRun(t.Context(), "p", first.ID); err != nil || run.Status != perdure.Cancelled {
				t.Errorf("%v %+v", err, run)
			}
			k.Stop()
			k = kit.New(t, s, perdure.Options{Version: "1"}, kit.Asking)
			k.WaitFor(child, perdure.Cancelled)
		})
	}
}

func TestAChildHasWhatIsLeftOfTheBudgetAndGivesBackWhatItSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spend := func(ctx context.Context, name string, n int64) error {
			_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) { return true, perdure.Spend(ctx, "cents", n) })
			return err
		}
		k := kit.New(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			if err := spend(ctx, "first", 10); err != nil {
				return "", err
			}
			for i, n := range []int{30, 40, 50} {
				c, err := perdure.Spawn(ctx, fmt.Sprint("child-", i), "double", n)
				if err != nil {
					return "", err
				}
				if _, err := perdure.Join[int](ctx, fmt.Sprint("join-", i), c); errors.Is(err, perdure.ErrBudget) {
					return fmt.Sprint("over with ", i), spend(ctx, "last", 0)
				} else if err != nil {
					return "", err
				}
			}
			return "", nil
		}))
		run, err := k.Start(t.Context(), perdure.StartRequest{Thread: "p", Flow: "parent", Input: "", Budget: map[string]int64{"cents": 100}})
		kit.NoErr(t, err)
		run, err = k.WaitEnd(t.Context(), "p", run.ID)
		if err != nil || run.Status != perdure.Failed || !errors.Is(run.Err, perdure.ErrBudget) {
			t.Fatalf("%v: %s, %v", err, run.Status, run.Err)
		}
		if run.Spent["cents"] != 130 {
			t.Errorf("spent %v", run.Spent)
		}
		var budgets []int64
		for n := range run.Children {
			child, err := k.GetRun(t.Context(), childOf(k, "p", n), "")
			kit.NoErr(t, err)
			budgets = append(budgets, child.Budget["cents"])
		}
		kit.NoDiff(t, cmp.Diff([]int64{90, 60, 20}, budgets))
	})
}

func TestRetryOfAParentRetriesTheChildThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		k := kit.New(t, nil, perdure.Options{}, spawnJoin[string]("flaky", "x"), perdure.NewFlow("flaky", func(ctx context.Context, in string) (string, error) {
			first, err := perdure.Step(ctx, "first", func(ctx context.Context) (string, error) { return in + "y", perdure.Spend(ctx, "cents", 3) })
			if err != nil {
				return "", err
			}
			return perdure.Step(ctx, "second", func(ctx context.Context) (string, error) {
				if calls++; calls < 3 {
					return "", errors.Join(errTorn, perdure.Spend(ctx, "cents", 1))
				}
				return first + "z", perdure.Spend(ctx, "cents", 1)
			})
		}))
		k.StartOn("p", "parent", "")
		for range 2 {
			k.WaitFor("p", perdure.Failed)
			kit.NoErr(t, k.Retry(t.Context(), "p", "", perdure.Note{}))
		}
		run := k.WaitFor("p", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != "xyz" || calls != 3 || len(run.Children) != 1 {
			t.Errorf("%q, %v, %d calls, %+v", got, err, calls, run.Children)
		}
		if run.Spent["cents"] != 6 {
			t.Errorf("spent %v: what was told before counts once", run.Spent)
		}
	})
}

func TestRetryOfAParentSpawnsAnewWhatItsEndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			ended, err := perdure.Spawn(ctx, "ended", "double", 4)
			if err != nil {
				return "", err
			}
			open, err := perdure.Spawn(ctx, "open", "asking", "well?")
			if err != nil {
				return "", err
			}
			if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
				return "", err
			}
			if _, err := perdure.Step(ctx, "work", func(context.Context) (bool, error) {
				if fail {
					return false, errTorn
				}
				return true, nil
			}); err != nil {
				return "", err
			}
			n, err := perdure.Join[int](ctx, "join-ended", ended)
			if err != nil {
				return "", err
			}
			s, err := perdure.Join[string](ctx, "join-open", open)
			return fmt.Sprint(n, s), err
		}))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		k.WaitFor(childOf(k, "p", 1), perdure.Cancelled)
		fail = false
		kit.NoErr(t, k.Retry(t.Context(), "p", "", perdure.Note{}))
		k.Rest()
		k.AnswerAt(k.WaitFor(childOf(k, "p", 2), perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		run := k.WaitFor("p", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != "8yes" || len(run.Children) != 3 {
			t.Errorf("%q, %v, %+v", got, err, run.Children)
		}
	})
}

func TestChildrenOfChildrenUpToADepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("deep", func(ctx context.Context, n int) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "deep", n+1)
			if errors.Is(err, perdure.ErrInvalid) {
				return n, nil
			}
			if err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.StartOn("p", "deep", 0)
		if got, err := perdure.Output[int](k.WaitFor("p", perdure.Succeeded)); err != nil || got != 64 {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestLargeValuesGoToAndFroBetweenParentAndChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 200<<10)
		k := kit.New(t, nil, perdure.Options{}, spawnJoin[string]("echo", large), perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) {
			return in + "!", nil
		}))
		k.StartOn("p", "parent", "")
		if got, err := perdure.Output[string](k.WaitFor("p", perdure.Succeeded)); err != nil || got != large+"!" {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

func TestAnotherWorkerMayHaveTheChildsFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, spawnJoin[int]("double", 21))
		k.StartOn("p", "parent", "")
		k.Rest()
		kit.New(t, s, perdure.Options{}, double)
		if got, err := perdure.Output[int](k.WaitFor("p", perdure.Succeeded)); err != nil || got != 42 {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestAPausedChildKeepsItsParentWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, spawnJoin[string]("slow", ""), perdure.NewFlow("slow", func(ctx context.Context, _ string) (string, error) {
			return "slept", perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.StartOn("p", "parent", "")
		k.Rest()
		child := childOf(k, "p", 0)
		kit.NoErr(t, k.Pause(t.Context(), child, "", perdure.Note{}))
		time.Sleep(time.Hour)
		if run, err := k.GetRun(t.Context(), "p", ""); err != nil || run.Status != perdure.Suspended || run.Waits[0].Kind != "child" || run.Waits[0].Child != child {
			t.Errorf("%v %+v", err, run)
		}
		kit.NoErr(t, k.Resume(t.Context(), child, "", perdure.Note{}))
		k.WaitFor("p", perdure.Succeeded)
	})
}
