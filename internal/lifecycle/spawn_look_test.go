package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

func TestParentAndChildShowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		first, err := k.Start(t.Context(), perdure.StartRequest{Thread: "p", Flow: "parent", Input: "", User: "ann", Trace: "trace-7"})
		kit.NoErr(t, err)
		k.Rest()
		id := childOf(k, "p", 0)
		parent, err := k.GetRun(t.Context(), "p", "")
		kit.NoErr(t, err)
		child, err := k.Get(t.Context(), id)
		kit.NoErr(t, err)
		kit.NoDiff(t, cmp.Diff([]perdure.ChildInfo{{Path: "/child", Thread: id, Flow: "asking"}}, parent.Children))
		if d := cmp.Diff(&perdure.ParentInfo{Thread: "p", Run: first.ID, Path: "/child"}, child.Parent); d != "" || child.User != "ann" {
			t.Error(child.User, d)
		}
		parents := map[string]string{}
		for s, err := range k.List(t.Context(), perdure.ListOptions{User: "ann"}) {
			kit.NoErr(t, err)
			parents[s.ID] = s.Parent
		}
		kit.NoDiff(t, cmp.Diff(map[string]string{"p": "", id: "p"}, parents))
		k.AnswerAt(k.WaitFor(id, perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		if run := k.WaitFor("p", perdure.Succeeded); !run.Children[0].Joined {
			t.Error("the child is not joined")
		}
		var told []string
		for e, err := range k.Events(t.Context(), "p", perdure.EventOptions{Replay: true}) {
			kit.NoErr(t, err)
			if e.Child != "" {
				told = append(told, fmt.Sprint(e.Kind, " ", e.Name, " ", e.Child == id))
			}
		}
		kit.NoDiff(t, cmp.Diff([]string{"spawned asking true", "waiting  true", "signal  true"}, told))
	})
}

func TestJoinOfWhatIsNoChildOfTheRunIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other *perdure.Child
		k := kit.New(t, nil, perdure.Options{}, double,
			perdure.NewFlow("one", func(ctx context.Context, _ string) (_ string, err error) {
				other, err = perdure.Spawn(ctx, "child", "double", 1)
				return other.Thread(), err
			}),
			perdure.NewFlow("two", func(ctx context.Context, _ string) (string, error) {
				if _, err := perdure.Join[int](ctx, "nothing", nil); !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("nil: %v", err)
				}
				if _, err := perdure.Join[int](ctx, "other", other); !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("another's: %v", err)
				}
				if _, err := perdure.Spawn(ctx, "text", "double", "text"); !errors.Is(err, perdure.ErrInvalid) {
					t.Errorf("an input that the flow does not take: %v", err)
				}
				if _, err := perdure.Spawn(ctx, "chan", "unknown", make(chan int)); !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("an input that is no JSON: %v", err)
				}
				if _, err := perdure.Spawn(ctx, "named", "a/b", 1); !errors.Is(err, perdure.ErrName) {
					t.Errorf("a bad name: %v", err)
				}
				return "", nil
			}))
		k.StartOn("a", "one", "")
		k.WaitFor("a", perdure.Succeeded)
		k.StartOn("b", "two", "")
		k.WaitFor("b", perdure.Succeeded)
		if _, err := perdure.Spawn(t.Context(), "c", "double", 1); !errors.Is(err, perdure.ErrNoRun) {
			t.Error(err)
		}
		if _, err := perdure.Join[int](t.Context(), "c", other); !errors.Is(err, perdure.ErrNoRun) {
			t.Error(err)
		}
	})
}

func TestNobodyForgesTheEndOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		k.StartOn("p", "parent", "")
		k.Rest()
		child := childOf(k, "p", 0)
		kit.WantErr(t, "its signal", k.Signal(t.Context(), "p", "#child-"+child, "forged", perdure.SignalOptions{}), perdure.ErrName)
		// A key that was heard would keep the real end from being told.
		for seq := range 20 {
			if err := k.Signal(t.Context(), "p", "other", "", perdure.SignalOptions{Key: fmt.Sprintf("#child-%s@%d", child, seq)}); !errors.Is(err, perdure.ErrInvalid) {
				t.Fatalf("its key: %v", err)
			}
		}
		k.AnswerAt(k.WaitFor(child, perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		if got, err := perdure.Output[string](k.WaitFor("p", perdure.Succeeded)); err != nil || got != "yes" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestAChildMayBeJoinedMoreThanOnce(t *testing.T) {
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, kit.Asking, perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
				c, err := perdure.Spawn(ctx, "child", "asking", "well?")
				if err != nil {
					return "", err
				}
				var got [3]string
				if together {
					g := perdure.NewGroup(ctx)
					for i := range got {
						g.Go(fmt.Sprint("branch-", i), func(ctx context.Context) (err error) {
							got[i], err = perdure.Join[string](ctx, "join", c)
							return err
						})
					}
					err = g.Wait()
				} else {
					for i := range got {
						if got[i], err = perdure.Join[string](ctx, fmt.Sprint("join-", i), c); err != nil {
							break
						}
					}
				}
				return fmt.Sprint(got), err
			}))
			k.StartOn("p", "parent", "")
			k.Rest()
			k.AnswerAt(k.WaitFor(childOf(k, "p", 0), perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
			if got, err := perdure.Output[string](k.WaitFor("p", perdure.Succeeded)); err != nil || got != "[yes yes yes]" {
				t.Errorf("%q, %v\n%s", got, err, k.Trace("p"))
			}
		})
	}
}

func TestAnEndThatComesBeforeItsJoinIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "double", 4)
			if err != nil {
				return 0, err
			}
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.StartOn("p", "parent", "")
		k.Rest()
		run := k.WaitFor("p", perdure.Suspended)
		if !run.Children[0].Joined || run.Spent["cents"] != 4 {
			t.Errorf("%+v, spent %v", run.Children, run.Spent)
		}
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "yes"})
		if got, err := perdure.Output[int](k.WaitFor("p", perdure.Succeeded)); err != nil || got != 8 {
			t.Errorf("%d, %v\n%s", got, err, k.Trace("p"))
		}
	})
}

func TestALaterEndOfARetriedChildIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("flaky", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "try", func(context.Context) (string, error) {
				if calls++; calls == 1 {
					return "", errTorn
				}
				return "mended", nil
			})
		}), perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "flaky", "")
			if err != nil {
				return "", err
			}
			_, first := perdure.Join[string](ctx, "join", c)
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return "", err
			}
			second, err := perdure.Join[string](ctx, "again", c)
			return fmt.Sprint(errors.Is(first, errTorn), " ", second), err
		}))
		k.StartOn("p", "parent", "")
		run := k.WaitFor("p", perdure.Suspended)
		child := childOf(k, "p", 0)
		kit.NoErr(t, k.Retry(t.Context(), child, "", perdure.Note{}))
		k.WaitFor(child, perdure.Succeeded)
		k.Rest()
		k.AnswerAt(run, "/ask", perdure.Answer{Value: "yes"})
		if got, err := perdure.Output[string](k.WaitFor("p", perdure.Succeeded)); err != nil || got != "true mended" {
			t.Errorf("%q, %v\n%s", got, err, k.Trace("p"))
		}
	})
}

func TestWaitReturnsWhenAChildWaitsForTheOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("middle", ""), perdure.NewFlow("middle", func(ctx context.Context, _ string) (string, error) {
			if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
				return "", err
			}
			c, err := perdure.Spawn(ctx, "child", "asking", "well?")
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		}))
		k.StartOn("p", "parent", "")
		run := k.WaitFor("p", perdure.Suspended)
		middle := k.WaitFor(run.Waits[0].Child, perdure.Suspended)
		leaf := k.WaitFor(middle.Waits[0].Child, perdure.Suspended)
		k.AnswerAt(leaf, "/ask", perdure.Answer{Value: "yes"})
		if got, err := perdure.Output[string](k.WaitFor("p", perdure.Succeeded)); err != nil || got != "yes" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestAChildThatIsErasedFailsForItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Suspended)
		kit.NoErr(t, k.Erase(t.Context(), childOf(k, "p", 0), perdure.EraseOptions{}))
		run := k.WaitFor("p", perdure.Failed)
		if !errors.Is(run.Err, perdure.ErrErased) || !errors.Is(run.Err, perdure.ErrChild) {
			t.Error(run.Err)
		}
		// A retry finds nothing to retry, and starts nothing again.
		kit.NoErr(t, k.Retry(t.Context(), "p", "", perdure.Note{}))
		if run := k.WaitFor("p", perdure.Failed); !errors.Is(run.Err, perdure.ErrErased) || len(run.Children) != 1 {
			t.Errorf("%v, %+v", run.Err, run.Children)
		}
		if _, err := k.Get(t.Context(), childOf(k, "p", 0)); !errors.Is(err, perdure.ErrNoThread) {
			t.Error(err)
		}
	})
}

func TestAnErasedChildThatHadEndedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "double", 4)
			if err != nil {
				return 0, err
			}
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.StartOn("p", "parent", "")
		k.Rest()
		kit.WantErr(t, "the parent of a child", k.Erase(t.Context(), "p", perdure.EraseOptions{}), perdure.ErrPinned)
		kit.NoErr(t, k.Erase(t.Context(), childOf(k, "p", 0), perdure.EraseOptions{}))
		k.AnswerAt(k.WaitFor("p", perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		if got, err := perdure.Output[int](k.WaitFor("p", perdure.Succeeded)); err != nil || got != 8 {
			t.Errorf("%d, %v\n%s", got, err, k.Trace("p"))
		}
		if err := k.Erase(t.Context(), "p", perdure.EraseOptions{}); err != nil {
			t.Error(err)
		}
	})
}
