package perdure_test

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

// asking is a child that asks.
var asking = perdure.NewFlow("asking", func(ctx context.Context, prompt string) (string, error) {
	return perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: prompt})
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

// rest lets the workers get done what they can do by themselves.
func (k *kit) rest() {
	time.Sleep(5 * time.Second) // of virtual time
	synctest.Wait()
}

// child returns the id of a thread's n-th child.
func (k *kit) child(thread string, n int) string {
	k.t.Helper()
	run, err := k.GetRun(k.t.Context(), thread, "")
	if err != nil || len(run.Children) <= n {
		k.t.Fatalf("%v: %+v", err, run)
	}
	return run.Children[n].Thread
}

func TestJoinReturnsWhatTheChildReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, spawnJoin[int]("slow", 21), perdure.NewFlow("slow", func(ctx context.Context, n int) (int, error) {
			return n + n, perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.start("p", "parent", "")
		run := k.wait("p", perdure.Succeeded)
		if got, err := perdure.Output[int](run); err != nil || got != 42 {
			t.Errorf("%d, %v", got, err)
		}
		child := k.child("p", 0)
		if got := k.wait(child, perdure.Succeeded); string(got.Output) != "42" {
			t.Errorf("the child: %s", got.Output)
		}
		k.rest()
		if d := cmp.Diff(`created
queued ""
claimed
spawned /child 21
waiting /join
suspended
signal /join 42 succeeded
claimed
ended 42 succeeded
`, k.trace("p")); d != "" {
			t.Error(d)
		}
	})
}

func TestAFailedChildIsAnErrorByItsCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got error
		k := newKit(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "double", -1)
			if err != nil {
				return "", err
			}
			_, got = perdure.Join[int](ctx, "join", c)
			return "went on", perdure.Sleep(ctx, "nap", time.Hour) // and is resumed
		}))
		k.start("p", "parent", "")
		k.wait("p", perdure.Succeeded)
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
		k := newKit(t, nil, perdure.Options{}, asking, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "asking", "well?")
			if err != nil {
				return "", err
			}
			_, got = perdure.Join[string](ctx, "join", c)
			return "went on", got
		}))
		k.start("p", "parent", "")
		k.rest()
		if err := k.Cancel(t.Context(), k.child("p", 0), "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		run := k.wait("p", perdure.Failed)
		for _, err := range []error{got, run.Err} {
			if !errors.Is(err, perdure.ErrChild) || !errors.Is(err, perdure.ErrChildCancelled) || errors.Is(err, perdure.ErrCancelled) {
				t.Error(err)
			}
		}
	})
}

func TestCancelOfAChildThatNobodyExecutesIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, spawnJoin[int]("elsewhere", 1))
		k.start("p", "parent", "")
		k.rest()
		if err := k.Cancel(t.Context(), k.child("p", 0), "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if run := k.wait("p", perdure.Failed); !errors.Is(run.Err, perdure.ErrChildCancelled) {
			t.Error(run.Err)
		}
	})
}

func TestCancelOfAParentReachesItsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, asking, spawnJoin[string]("asking", "well?"))
		k.start("p", "parent", "")
		k.rest()
		if err := k.Cancel(t.Context(), "p", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.wait("p", perdure.Cancelled)
		k.wait(k.child("p", 0), perdure.Cancelled)
	})
}

func TestAParentEndsOnlyAfterItsOpenChildrenHaveTheirCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, asking, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			for i, flow := range []string{"asking", "elsewhere"} {
				if _, err := perdure.Spawn(ctx, fmt.Sprint("child-", i), flow, "well?"); err != nil {
					return "", err
				}
			}
			return "done", perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.start("p", "parent", "")
		ended := k.wait("p", perdure.Succeeded).Ended
		for n := range 2 {
			child := k.child("p", n)
			k.wait(child, perdure.Cancelled)
			cancelled := false
			for e, err := range k.Events(t.Context(), child, perdure.EventOptions{Replay: true}) {
				if err != nil {
					t.Fatal(err)
				}
				cancelled = cancelled || e.Kind == "cancel" && !e.Time.After(ended) && e.Reason == "its parent has ended"
			}
			if !cancelled {
				t.Errorf("no cancel before %v:\n%s", ended, k.trace(child))
			}
		}
	})
}

func TestABlockedParentThatIsCancelledCancelsItsChildren(t *testing.T) {
	for _, interrupt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := newKit(t, s, perdure.Options{Version: "1"}, asking, spawnJoin[string]("asking", "well?"))
			k.start("p", "parent", "")
			k.rest()
			child := k.child("p", 0)
			k.stop()
			// The code of version 2 has another step in its place.
			k = newKit(t, s, perdure.Options{Version: "2"}, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				return "", perdure.Sleep(ctx, "nap", time.Hour)
			}))
			if err := k.Pause(t.Context(), "p", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			if err := k.Resume(t.Context(), "p", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			first := k.wait("p", perdure.Blocked)
			if interrupt {
				if _, err := k.Start(t.Context(), perdure.StartRequest{Thread: "p", Flow: "parent", Input: "", Policy: perdure.Interrupt}); err != nil {
					t.Fatal(err)
				}
			} else if err := k.Cancel(t.Context(), "p", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
			if run, err := k.GetRun(t.Context(), "p", first.ID); err != nil || run.Status != perdure.Cancelled {
				t.Errorf("%v %+v", err, run)
			}
			k.stop()
			k = newKit(t, s, perdure.Options{Version: "1"}, asking)
			k.wait(child, perdure.Cancelled)
		})
	}
}

func TestAChildHasWhatIsLeftOfTheBudgetAndGivesBackWhatItSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spend := func(ctx context.Context, name string, n int64) error {
			_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) { return true, perdure.Spend(ctx, "cents", n) })
			return err
		}
		k := newKit(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
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
		if err != nil {
			t.Fatal(err)
		}
		run, err = k.WaitEnd(t.Context(), "p", run.ID)
		if err != nil || run.Status != perdure.Failed || !errors.Is(run.Err, perdure.ErrBudget) {
			t.Fatalf("%v: %s, %v", err, run.Status, run.Err)
		}
		if run.Spent["cents"] != 130 {
			t.Errorf("spent %v", run.Spent)
		}
		var budgets []int64
		for n := range run.Children {
			child, err := k.GetRun(t.Context(), k.child("p", n), "")
			if err != nil {
				t.Fatal(err)
			}
			budgets = append(budgets, child.Budget["cents"])
		}
		if d := cmp.Diff([]int64{90, 60, 20}, budgets); d != "" {
			t.Error(d)
		}
	})
}

func TestRetryOfAParentRetriesTheChildThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		k := newKit(t, nil, perdure.Options{}, spawnJoin[string]("flaky", "x"), perdure.NewFlow("flaky", func(ctx context.Context, in string) (string, error) {
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
		k.start("p", "parent", "")
		for range 2 {
			k.wait("p", perdure.Failed)
			if err := k.Retry(t.Context(), "p", "", perdure.Note{}); err != nil {
				t.Fatal(err)
			}
		}
		run := k.wait("p", perdure.Succeeded)
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
		k := newKit(t, nil, perdure.Options{}, asking, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
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
		k.start("p", "parent", "")
		k.wait("p", perdure.Failed)
		k.wait(k.child("p", 1), perdure.Cancelled)
		fail = false
		if err := k.Retry(t.Context(), "p", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.rest()
		k.answer(k.wait(k.child("p", 2), perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		run := k.wait("p", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != "8yes" || len(run.Children) != 3 {
			t.Errorf("%q, %v, %+v", got, err, run.Children)
		}
	})
}

func TestChildrenOfChildrenUpToADepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, perdure.NewFlow("deep", func(ctx context.Context, n int) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "deep", n+1)
			if errors.Is(err, perdure.ErrInvalid) {
				return n, nil
			}
			if err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.start("p", "deep", 0)
		if got, err := perdure.Output[int](k.wait("p", perdure.Succeeded)); err != nil || got != 64 {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestLargeValuesGoToAndFroBetweenParentAndChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 200<<10)
		k := newKit(t, nil, perdure.Options{}, spawnJoin[string]("echo", large), perdure.NewFlow("echo", func(_ context.Context, in string) (string, error) {
			return in + "!", nil
		}))
		k.start("p", "parent", "")
		if got, err := perdure.Output[string](k.wait("p", perdure.Succeeded)); err != nil || got != large+"!" {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

func TestAnotherWorkerMayHaveTheChildsFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := newKit(t, s, perdure.Options{}, spawnJoin[int]("double", 21))
		k.start("p", "parent", "")
		k.rest()
		newKit(t, s, perdure.Options{}, double)
		if got, err := perdure.Output[int](k.wait("p", perdure.Succeeded)); err != nil || got != 42 {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestAPausedChildKeepsItsParentWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, spawnJoin[string]("slow", ""), perdure.NewFlow("slow", func(ctx context.Context, _ string) (string, error) {
			return "slept", perdure.Sleep(ctx, "nap", time.Minute)
		}))
		k.start("p", "parent", "")
		k.rest()
		child := k.child("p", 0)
		if err := k.Pause(t.Context(), child, "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if run, err := k.GetRun(t.Context(), "p", ""); err != nil || run.Status != perdure.Suspended || run.Waits[0].Kind != "child" || run.Waits[0].Child != child {
			t.Errorf("%v %+v", err, run)
		}
		if err := k.Resume(t.Context(), child, "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		k.wait("p", perdure.Succeeded)
	})
}
