package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestListsBackward: a list reads backward as it reads forward, with what it was
// set to, what earlier runs have appended and what this one has.
func TestListsBackward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("list", func(ctx context.Context, n int) (bool, error) {
			for i := range n {
				if _, err := perdure.Step(ctx, fmt.Sprint("add-", i), func(ctx context.Context) (int, error) {
					return i, notes.Append(ctx, fmt.Sprint(n, ".", i), kit.Large)
				}); err != nil {
					return false, err
				}
				all, err := notes.Get(ctx)
				if err != nil {
					return false, err
				}
				slices.Reverse(all)
				var back []string
				for v, err := range notes.Backward(ctx) {
					if err != nil {
						return false, err
					}
					back = append(back, v)
				}
				if !slices.Equal(all, back) {
					return false, fmt.Errorf("backward it is %.100q, forward %.100q", back, all)
				}
				for v, err := range notes.Backward(ctx) {
					if err != nil || v != all[0] {
						return false, errors.Join(err, fmt.Errorf("the newest is %.20q", v))
					}
					break
				}
			}
			for v, err := range perdure.NewList[string]("none").Backward(ctx) {
				return false, errors.Join(err, fmt.Errorf("an empty list has %q", v))
			}
			return perdure.Ask[bool](ctx, "again", perdure.Question{}) // so that it is read in a replay too
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		_, err := k.Create(t.Context(), perdure.CreateRequest{Thread: "t", State: map[string]any{"notes": []string{"first", "second"}}})
		kit.NoErr(t, err)
		for n := range 3 {
			k.StartOn("t", "list", n+1)
			k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/again", perdure.Answer{Value: true})
			k.WaitFor("t", perdure.Succeeded)
		}
		k.StartOn("other", "list", 1)
		k.WaitFor("other", perdure.Suspended)
	})
}
