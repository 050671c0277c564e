package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// fork forks a thread as it is now, and lets the fork continue.
func forkAs(k *kit.Kit, thread, as string) {
	k.T.Helper()
	if _, err := k.Fork(k.T.Context(), perdure.ForkRequest{Thread: thread, As: as}); err != nil {
		k.T.Fatal(err)
	}
	if err := k.Resume(k.T.Context(), as, "", perdure.Note{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
		k.T.Fatal(err)
	}
	k.Rest()
}

func TestAForkSpawnsAnewTheChildrenThatHadNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, kit.Asking, spawnJoin[string]("asking", "well?"))
		k.StartOn("p", "parent", "")
		k.Rest()
		forkAs(k, "p", "f")
		theirs, ours := childOf(k, "p", 0), childOf(k, "f", 1)
		if theirs == ours || childOf(k, "f", 0) != theirs {
			t.Fatalf("the fork has the child %s, the other %s", ours, theirs)
		}
		for child, value := range map[string]string{theirs: "one", ours: "two"} {
			k.AnswerAt(k.WaitFor(child, perdure.Suspended), "/ask", perdure.Answer{Value: value})
		}
		for thread, want := range map[string]string{"p": "one", "f": "two"} {
			if got, err := perdure.Output[string](k.WaitFor(thread, perdure.Succeeded)); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", thread, got, err, want)
			}
		}
	})
}

func TestAForkHasTheEndsOfChildrenThatItsPastHas(t *testing.T) {
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
		forkAs(k, "p", "f")
		k.AnswerAt(k.WaitFor("f", perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		run := k.WaitFor("f", perdure.Succeeded)
		if got, err := perdure.Output[int](run); err != nil || got != 8 || len(run.Children) != 1 {
			t.Errorf("%d, %v, %+v", got, err, run.Children)
		}
	})
}

func TestAForkDoesNotRetryTheChildOfTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, double, spawnJoin[int]("double", -1))
		k.StartOn("p", "parent", "")
		k.WaitFor("p", perdure.Failed)
		forkAs(k, "p", "f")
		kit.NoErr(t, k.Retry(t.Context(), "f", "", perdure.Note{}))
		if run := k.WaitFor("f", perdure.Failed); run.Retries != 1 || !errors.Is(run.Err, errTorn) {
			t.Errorf("%+v", run)
		}
		if run, err := k.GetRun(t.Context(), childOf(k, "p", 0), ""); err != nil || run.Retries != 0 {
			t.Errorf("%v %+v", err, run)
		}
	})
}
