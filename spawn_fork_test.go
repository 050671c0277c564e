package perdure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

// fork forks a thread as it is now, and lets the fork go on.
func (k *kit) forkAs(thread, as string) {
	k.t.Helper()
	if _, err := k.Fork(k.t.Context(), perdure.ForkRequest{Thread: thread, As: as}); err != nil {
		k.t.Fatal(err)
	}
	if err := k.Resume(k.t.Context(), as, "", perdure.Note{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
		k.t.Fatal(err)
	}
	k.rest()
}

func TestAForkSpawnsAnewTheChildrenThatHadNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, asking, spawnJoin[string]("asking", "well?"))
		k.start("p", "parent", "")
		k.rest()
		k.forkAs("p", "f")
		theirs, ours := k.child("p", 0), k.child("f", 1)
		if theirs == ours || k.child("f", 0) != theirs {
			t.Fatalf("the fork has the child %s, the other %s", ours, theirs)
		}
		for child, value := range map[string]string{theirs: "one", ours: "two"} {
			k.answer(k.wait(child, perdure.Suspended), "/ask", perdure.Answer{Value: value})
		}
		for thread, want := range map[string]string{"p": "one", "f": "two"} {
			if got, err := perdure.Output[string](k.wait(thread, perdure.Succeeded)); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", thread, got, err, want)
			}
		}
	})
}

func TestAForkHasTheEndsOfChildrenThatItsPastHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, double, perdure.NewFlow("parent", func(ctx context.Context, _ string) (int, error) {
			c, err := perdure.Spawn(ctx, "child", "double", 4)
			if err != nil {
				return 0, err
			}
			if _, err := perdure.Ask[string](ctx, "ask", perdure.Question{}); err != nil {
				return 0, err
			}
			return perdure.Join[int](ctx, "join", c)
		}))
		k.start("p", "parent", "")
		k.rest()
		k.forkAs("p", "f")
		k.answer(k.wait("f", perdure.Suspended), "/ask", perdure.Answer{Value: "yes"})
		run := k.wait("f", perdure.Succeeded)
		if got, err := perdure.Output[int](run); err != nil || got != 8 || len(run.Children) != 1 {
			t.Errorf("%d, %v, %+v", got, err, run.Children)
		}
	})
}

func TestAForkDoesNotRetryTheChildOfTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, double, spawnJoin[int]("double", -1))
		k.start("p", "parent", "")
		k.wait("p", perdure.Failed)
		k.forkAs("p", "f")
		if err := k.Retry(t.Context(), "f", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		if run := k.wait("f", perdure.Failed); run.Retries != 1 || !errors.Is(run.Err, errTorn) {
			t.Errorf("%+v", run)
		}
		if run, err := k.GetRun(t.Context(), k.child("p", 0), ""); err != nil || run.Retries != 0 {
			t.Errorf("%v %+v", err, run)
		}
	})
}
