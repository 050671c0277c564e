package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestAppendResultInACleanup appends the result of a step that returns nothing:
// the list stays readable.
func TestAppendResultInACleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := perdure.NewList[string]("list")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "one", func(ctx context.Context) (string, error) { return "one", list.AppendResult(ctx) })
			if err != nil {
				return "", err
			}
			if err := perdure.Cleanup(ctx, "clean", func(ctx context.Context) error { return list.AppendResult(ctx) }); err != nil {
				return "", err
			}
			all, err := list.Get(ctx)
			return fmt.Sprint(all), err
		}))
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Succeeded)
		if got, _ := perdure.Output[string](run); got != "[one]" {
			t.Errorf("the list is %s", got)
		}
		at, err := k.StateAt(t.Context(), "t", 0)
		kit.NoErr(t, err)
		if !json.Valid(at.State["list"]) {
			t.Errorf("StateAt shows %s, which is no JSON", at.State["list"])
		}
	})
}

// TestAppendResultOfWhatFailed retries steps that append their results: only the
// attempt that succeeded appends.
func TestAppendResultOfWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, fails := perdure.NewList[string]("list"), 2
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				for i := range 3 {
					_, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (string, error) {
						if err := list.AppendResult(ctx); err != nil {
							return "", err
						}
						if i == 1 && fails > 0 {
							fails--
							return "", errors.New("not yet")
						}
						return fmt.Sprint("r", i), nil
					})
					if err != nil {
						return "", err
					}
				}
				return "", nil
			})
			if err != nil {
				return "", err
			}
			all, err := list.Get(ctx)
			return fmt.Sprint(all), err
		}))
		k.StartOn("t", "f", "")
		for range 2 {
			run := k.WaitFor("t", perdure.Failed)
			kit.NoErr(t, k.Retry(t.Context(), "t", run.ID, perdure.Note{}))
		}
		run := k.WaitFor("t", perdure.Succeeded)
		if got, _ := perdure.Output[string](run); got != "[r0 r1 r2]" {
			t.Errorf("the list is %s", got)
		}
	})
}

func TestAppendResultKeepsTheResultOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		list := perdure.NewList[string]("list")
		secret := "a result that stands in the journal once"
		_, run := within(t, s, "", func(ctx context.Context, _ string) (string, error) {
			for i := range 3 {
				_, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (string, error) {
					return fmt.Sprint(secret, i), list.AppendResult(ctx)
				})
				if err != nil {
					return "", err
				}
			}
			all, err := list.Get(ctx)
			return strings.Join(all, ","), err
		})
		if got, err := perdure.Output[string](run); err != nil || got != secret+"0,"+secret+"1,"+secret+"2" {
			t.Errorf("the list is %q, %v", got, err)
		}
		n := 0
		for name := range s.Journals(t.Context(), "") {
			entries, _ := store.ReadAll(t.Context(), s, name, 0)
			for _, e := range entries {
				n += strings.Count(string(e.Data), secret+"1")
			}
		}
		if n != 2 { // the step, and the run's output
			t.Errorf("the result stands in the journal %d times, want twice", n)
		}
	})
}
