package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestRunGoesOn walks a run through a timer, a group with a branch that waits
// for a person, and its end.
func TestRunGoesOn(t *testing.T) {
	greet := perdure.NewFlow("greet", func(ctx context.Context, name string) (string, error) {
		hello, err := perdure.Step(ctx, "hello", func(context.Context) (string, error) { return "hello " + name, nil })
		if err != nil {
			return "", err
		}
		if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		g := perdure.NewGroup(ctx)
		g.Go("person", func(ctx context.Context) error {
			_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{Prompt: "ok?"})
			return err
		})
		g.Go("machine", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "count", func(ctx context.Context) (int, error) {
				return 7, perdure.NewCounter("n").Add(ctx, 3)
			})
			return err
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		if n, err := perdure.NewCounter("n").Get(ctx); n != 3 || err != nil {
			t.Errorf("after Wait the count is %d, %v", n, err)
		}
		return hello, nil
	})
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, greet)
		k.StartOn("t", "greet", "ann")
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, "/person/ok", perdure.Answer{Value: true})
		run = k.WaitFor("t", perdure.Succeeded)
		if out, err := perdure.Output[string](run); out != "hello ann" || err != nil {
			t.Errorf("output %q, %v", out, err)
		}
		want := `created
queued "ann"
claimed
step /hello "hello ann"
timer /nap
suspended
claimed
fired /nap
asked /person/ok
step /machine/count 7
suspended
answered /person/ok true
claimed
ended "hello ann" succeeded
`
		// The branches commit in any order.
		sorted := func(s string) []string { return slices.Sorted(strings.Lines(s)) }
		if d := cmp.Diff(sorted(want), sorted(k.Trace("t"))); d != "" {
			t.Error(d)
		}
	})
}
