package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/perduretest"
)

// TestAPlanBelowTheTopShowsHowFarItIs plans in a composite step, and again
// inside it.
func TestAPlanBelowTheTopShowsHowFarItIs(t *testing.T) {
	plan := func(ctx context.Context, inner func(context.Context) error) error {
		if err := perdure.Plan(ctx, "one", "two"); err != nil {
			return err
		}
		if _, err := perdure.Step(ctx, "one", func(ctx context.Context) (bool, error) { return true, inner(ctx) }); err != nil {
			return err
		}
		_, err := perdure.Ask[bool](ctx, "go", perdure.Question{})
		return err
	}
	flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (bool, error) {
		return perdure.Step(ctx, "whole", func(ctx context.Context) (bool, error) {
			return true, plan(ctx, func(ctx context.Context) error { return perdure.Plan(ctx, "inner", "more") })
		})
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "")
		want := []perdure.PlanStep{{Name: "one", Done: true}, {Name: "two"}}
		kit.NoDiff(t, cmp.Diff(want, e.Wait("t", perdure.Suspended).Plan))
	})
}
