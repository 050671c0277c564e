package perduretest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// TestCrashEverywhereSmallFlows cuts flows of one verb each, and in a torture
// run each recovery everywhere.
func TestCrashEverywhereSmallFlows(t *testing.T) {
	type flow = func(ctx context.Context, in string) (string, error)
	ask := func(ctx context.Context, in string) (string, error) {
		return perdure.Ask[string](ctx, "name", perdure.Question{Prompt: in})
	}
	flows := map[string]func(fx *Effects) flow{
		"ask": func(*Effects) flow { return ask },
		"sleep": func(*Effects) flow {
			return func(ctx context.Context, in string) (string, error) { return in, perdure.Sleep(ctx, "nap", time.Hour) }
		},
		"receive": func(*Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Receive[string](ctx, "word", "word", time.Hour)
			}
		},
		"retry": func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "flaky", func(ctx context.Context) (string, error) {
					fx.Count(ctx, "flaky")
					if Attempt(ctx) < 3 {
						return "", errors.New("busy")
					}
					return in, nil
				}, perdure.Retry(perdure.RetryPolicy{Wait: time.Second, MaxWait: time.Minute}))
			}
		},
		"group": func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				g := perdure.NewGroup(ctx)
				g.Go("person", func(ctx context.Context) error { _, err := ask(ctx, in); return err })
				g.Go("machine", func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "count", func(ctx context.Context) (int, error) {
						fx.Count(ctx, "count")
						return 1, perdure.NewCounter("n").Add(ctx, 1)
					})
					return err
				})
				return in, g.Wait()
			}
		},
		"once": func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "charge", func(ctx context.Context) (string, error) {
					fx.CountOnce(ctx, "charge")
					return in, nil
				}, perdure.AtMostOnce(), perdure.Timeout(time.Minute), perdure.Reconcile(func(context.Context) (string, perdure.Outcome, error) {
					if fx.Of("charge") == 0 {
						return "", perdure.OutcomeNotDone, nil
					}
					return in, perdure.OutcomeDone, nil
				}))
			}
		},
		"fail": func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				_, err := perdure.Step(ctx, "bad", func(context.Context) (string, error) { return "", errors.New("it does not work") })
				return "", errors.Join(err, perdure.Cleanup(ctx, "tidy", func(ctx context.Context) error {
					fx.Count(ctx, "tidy")
					return nil
				}))
			}
		},
		"composite": func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
					if _, err := step(ctx, "inner", in); err != nil {
						return "", err
					}
					return ask(ctx, in)
				}, perdure.Timeout(time.Minute))
			}
		},
	}
	for name, f := range flows {
		t.Run(name, func(t *testing.T) {
			var fx Effects
			CrashEverywhere(t, Crash{
				Flows:   []perdure.Flow{perdure.NewFlow(name, f(&fx))},
				Start:   []perdure.StartRequest{{Flow: name, Input: "x"}},
				Effects: &fx,
				Pairs:   os.Getenv("PERDURE_TORTURE") != "",
				Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
					if err := answerAll("ann")(ctx, rt, run); err != nil || name != "receive" {
						return err
					}
					return rt.Signal(ctx, run.Thread, "word", "hello", perdure.SignalOptions{Key: "once", By: "bob"})
				},
			})
		})
	}
}
