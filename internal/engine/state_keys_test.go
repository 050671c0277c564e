package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// TestStateKeysAreThoseOfTheFrame lists keys before, in and after steps and in
// branches, which do not see each other, with a crash at every write.
func TestStateKeysAreThoseOfTheFrame(t *testing.T) {
	set := func(ctx context.Context, name, key string) error {
		_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) {
			return true, perdure.NewState[int](key).Set(ctx, 1)
		})
		return err
	}
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		var seen []string
		look := func(ctx context.Context, at string) error {
			keys, err := perdure.StateKeys(ctx, "f:")
			seen = append(seen, at+" "+strings.Join(keys, ","))
			return err
		}
		for i, key := range []string{"f:b", "g:x", "f:a", "f:"} {
			if err := set(ctx, fmt.Sprint("set-", i), key); err != nil {
				return "", err
			}
		}
		if err := look(ctx, "flow"); err != nil {
			return "", err
		}
		leaf, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (string, error) {
			if err := perdure.NewState[int]("f:b").Delete(ctx); err != nil {
				return "", err
			}
			if err := perdure.NewText("f:text").Set(ctx, "hello"); err != nil {
				return "", err
			}
			keys, err := perdure.StateKeys(ctx, "f:")
			return strings.Join(keys, ","), err
		})
		if err != nil {
			return "", err
		}
		seen = append(seen, "leaf "+leaf)
		g := perdure.NewGroup(ctx)
		branches := make([]string, 2)
		for i := range branches {
			g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
				if err := set(ctx, "set", fmt.Sprint("f:branch-", i)); err != nil {
					return err
				}
				keys, err := perdure.StateKeys(ctx, "f:br")
				branches[i] = fmt.Sprint("branch ", keys)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return "", err
		}
		seen = append(seen, branches...)
		err = look(ctx, "after")
		return strings.Join(seen, "\n"), err
	})
	want := strings.Join([]string{
		"flow f:,f:a,f:b",
		"leaf f:,f:a,f:text",
		"branch [f:branch-0]",
		"branch [f:branch-1]",
		"after f:,f:a,f:branch-0,f:branch-1,f:text",
	}, "\n")
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "")
		got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
	perduretest.CrashEverywhere(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "f", Input: ""}}, Want: perdure.Succeeded})
}
