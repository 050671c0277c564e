package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/perduretest"
)

// TestGoldenJournals holds the journals of typical runs, entry by entry.
func TestGoldenJournals(t *testing.T) {
	question := perdure.Question{Kind: "approval", Prompt: "Go on?"}
	yes := perdure.Answer{Value: true, By: "ann"}
	cases := []struct {
		name string
		flow func(context.Context) error
		play func(e *perduretest.Env)
	}{
		{"straight", func(ctx context.Context) error {
			return errors.Join(perdure.Plan(ctx, "one", "two"), kit.NamedStep(ctx, "one", 0), kit.NamedStep(ctx, "two", 0),
				perdure.Emit(ctx, "news", map[string]int{"steps": 2}))
		}, func(e *perduretest.Env) { e.Wait("t", perdure.Succeeded) }},

		{"nested-scopes", func(ctx context.Context) error {
			for i := range 2 {
				if _, err := perdure.Scope(ctx, fmt.Sprintf("turn-%d", i), func(ctx context.Context) (bool, error) {
					return perdure.Scope(ctx, "inner", func(ctx context.Context) (bool, error) {
						return true, errors.Join(kit.NamedStep(ctx, "one", 0), kit.NamedStep(ctx, "two", 0))
					})
				}); err != nil {
					return err
				}
			}
			return nil
		}, func(e *perduretest.Env) { e.Wait("t", perdure.Succeeded) }},

		{"group-with-a-parked-branch", func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("person", func(ctx context.Context) error {
				if err := kit.NamedStep(ctx, "prepare", time.Second); err != nil {
					return err
				}
				_, err := perdure.Ask[bool](ctx, "ok", question)
				return err
			})
			g.Go("machine", func(ctx context.Context) error {
				return errors.Join(kit.NamedStep(ctx, "work", 2*time.Second), kit.NamedStep(ctx, "more", 3*time.Second))
			})
			return g.Wait()
		}, func(e *perduretest.Env) {
			e.Wait("t", perdure.Suspended)
			e.Answer("t", "/person/ok", yes)
			e.Wait("t", perdure.Succeeded)
		}},

		{"group-that-fails-fast", func(ctx context.Context) error {
			g := perdure.NewGroup(ctx, perdure.FailFast())
			g.Go("person", func(ctx context.Context) (err error) {
				defer func() {
					if err != nil {
						_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { return ctx.Err() })
					}
				}()
				if err := kit.NamedStep(ctx, "prepare", time.Second); err != nil {
					return err
				}
				_, err = perdure.Ask[bool](ctx, "ok", question)
				return err
			})
			g.Go("machine", func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "work", func(context.Context) (string, error) {
					time.Sleep(2 * time.Second)
					return "", errors.New("out of order")
				})
				return err
			})
			return g.Wait()
		}, func(e *perduretest.Env) { e.Wait("t", perdure.Failed) }},

		{"retries-of-a-composite", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (bool, error) {
				if err := kit.NamedStep(ctx, "kept", 0); err != nil {
					return false, err
				}
				_, handled := perdure.Step(ctx, "handled", func(context.Context) (bool, error) {
					return false, errors.New("stays")
				})
				if handled == nil {
					return false, errors.New("a handled failure was repeated")
				}
				return perdure.Step(ctx, "flaky", func(ctx context.Context) (bool, error) {
					if time.Since(kit.VirtualStart(ctx)) < 10*time.Second {
						return false, errors.New("not yet")
					}
					return true, nil
				})
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 5, Wait: 20 * time.Second}))
			return err
		}, func(e *perduretest.Env) { e.Wait("t", perdure.Succeeded) }},

		{"unknown-outcome", func(ctx context.Context) error {
			return kit.NamedStep(ctx, "pay", time.Hour, perdure.AtMostOnce(), perdure.Timeout(2*time.Hour))
		}, func(e *perduretest.Env) {
			e.Advance(time.Minute)
			e.Restart() // in the middle of the payment
			e.Wait("t", perdure.Suspended)
			e.Answer("t", "/pay", perdure.Answer{Decision: perdure.DecisionDone, Value: "pay", By: "ann"})
			e.Wait("t", perdure.Succeeded)
		}},

		{"two-asks-out-of-order", func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for i, name := range []string{"first", "second"} {
				g.Go(name, func(ctx context.Context) error {
					if err := kit.NamedStep(ctx, "prepare", time.Duration(i)*time.Second); err != nil {
						return err
					}
					_, err := perdure.Ask[bool](ctx, "ok", question)
					return err
				})
			}
			return g.Wait()
		}, func(e *perduretest.Env) {
			e.Wait("t", perdure.Suspended)
			e.Answer("t", "/second/ok", yes)
			e.Advance(time.Minute)
			e.Answer("t", "/first/ok", yes)
			e.Wait("t", perdure.Succeeded)
		}},

		{"answer-before-expiry", goldenExpiring, func(e *perduretest.Env) {
			e.Wait("t", perdure.Suspended)
			e.Advance(59 * time.Minute)
			e.Answer("t", "/ok", perdure.Answer{Decision: "approve", By: "ann"})
			e.Wait("t", perdure.Succeeded)
		}},

		{"expiry-before-answer", goldenExpiring, func(e *perduretest.Env) {
			run := e.Wait("t", perdure.Suspended)
			e.Advance(time.Hour)
			err := e.Runtime().Answer(context.Background(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Decision: "approve"}})
			if !errors.Is(err, perdure.ErrAskOver) {
				t.Errorf("an answer after the expiry is %v", err)
			}
			e.Wait("t", perdure.Succeeded)
		}},

		{"cancel", func(ctx context.Context) (err error) {
			defer func() {
				if err != nil {
					_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { return ctx.Err() })
				}
			}()
			if err := kit.NamedStep(ctx, "reserve", 0); err != nil {
				return err
			}
			_, err = perdure.Ask[bool](ctx, "ok", question)
			return err
		}, func(e *perduretest.Env) {
			e.Wait("t", perdure.Suspended)
			if err := e.Runtime().Cancel(context.Background(), "t", "", perdure.Note{By: "ann", Reason: "too late"}); err != nil {
				t.Error(err)
			}
			e.Wait("t", perdure.Cancelled)
		}},

		{"steering", func(ctx context.Context) error {
			for i := 0; ; i++ {
				if err := kit.NamedStep(ctx, fmt.Sprintf("turn-%d", i), time.Minute); err != nil {
					return err
				}
				text, ok, err := perdure.Take[string](ctx, fmt.Sprintf("steer-%d", i))
				if err != nil || !ok {
					return err
				}
				if err := perdure.Emit(ctx, fmt.Sprintf("heard-%d", i), text); err != nil {
					return err
				}
			}
		}, func(e *perduretest.Env) {
			e.Advance(time.Second)
			if _, err := e.Runtime().Start(context.Background(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "faster", Policy: perdure.Steer}); err != nil {
				t.Error(err)
			}
			e.Wait("t", perdure.Succeeded)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{kit.NamedFlow("flow", c.flow)}}, func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				c.play(e)
				e.Golden("t", "testdata/golden/"+c.name+".txt")
			})
		})
	}
}

func goldenExpiring(ctx context.Context) error {
	a, err := perdure.Ask[perdure.Answer](ctx, "ok", perdure.Question{Prompt: "Go on?", Decisions: []string{"approve", "reject"},
		Expires: time.Hour, Default: &perdure.Answer{Decision: "reject"}})
	if err != nil {
		return err
	}
	return perdure.Emit(ctx, "decided", a.Decision)
}

// TestGoldenDivergence holds what a run says when the code no longer fits, for
// each kind of change. The old code runs up to its ask, the new code resumes.
func TestGoldenDivergence(t *testing.T) {
	wait := func(ctx context.Context) error {
		_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{})
		return err
	}
	inGroup := func(names ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			for i, name := range names {
				g.Go(name, func(ctx context.Context) error { return kit.NamedStep(ctx, "work", time.Duration(i)*time.Second) })
			}
			return errors.Join(g.Wait(), wait(ctx))
		}
	}
	steps := func(names ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, name := range names {
				if err := kit.NamedStep(ctx, name, 0); err != nil {
					return err
				}
			}
			return wait(ctx)
		}
	}
	cases := []struct {
		name     string
		old, new func(context.Context) error
	}{
		{"step-inserted", steps("one", "two"), steps("one", "between", "two")},
		{"step-removed", steps("one", "two", "three"), func(ctx context.Context) error {
			return errors.Join(kit.NamedStep(ctx, "one", 0), kit.NamedStep(ctx, "three", 0), wait(ctx), kit.NamedStep(ctx, "four", 0))
		}},
		{"returned-early", steps("one", "two"), func(ctx context.Context) error { return kit.NamedStep(ctx, "one", 0) }},
		{"kind-changed", steps("one", "two"), func(ctx context.Context) error {
			return errors.Join(kit.NamedStep(ctx, "one", 0), perdure.Emit(ctx, "two", 2))
		}},
		{"input-changed", func(ctx context.Context) error {
			return errors.Join(kit.NamedStep(ctx, "one", 0, perdure.Input("a")), wait(ctx))
		}, func(ctx context.Context) error {
			return errors.Join(kit.NamedStep(ctx, "one", 0, perdure.Input("b")), wait(ctx))
		}},
		{"type-changed", steps("one"), func(ctx context.Context) error {
			_, _ = perdure.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil }) // the error changes nothing
			return wait(ctx)
		}},
		{"branch-removed", inGroup("a", "b"), inGroup("a")},
		{"branch-added", inGroup("a"), inGroup("a", "new")},
		{"branch-became-step", inGroup("a"), func(ctx context.Context) error { return errors.Join(kit.NamedStep(ctx, "a", 0), wait(ctx)) }},
		{"step-became-branch", steps("a"), inGroup("a")},
		{"inside-a-scope", func(ctx context.Context) error {
			_, err := perdure.Scope(ctx, "turn", func(ctx context.Context) (bool, error) { return true, steps("one", "two")(ctx) })
			return err
		}, func(ctx context.Context) error {
			_, err := perdure.Scope(ctx, "turn", func(ctx context.Context) (bool, error) { return true, steps("one", "2")(ctx) })
			return err
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			perduretest.Virtual(t, perduretest.Setup{Options: perdure.Options{Version: "old"}, Flows: []perdure.Flow{kit.NamedFlow("flow", c.old)}},
				func(t *testing.T, e *perduretest.Env) {
					e.Start("t", "flow", "go")
					e.Wait("t", perdure.Suspended)
					e.Stop()
					path := "/ok"
					if c.name == "inside-a-scope" {
						path = "/turn/ok"
					}
					e.Answer("t", path, perdure.Answer{Value: true})
					k := kit.New(t, e.Store, perdure.Options{Version: "new"}, kit.NamedFlow("flow", c.new))
					defer k.Stop()
					if run := k.WaitFor("t", perdure.Blocked); run.Diff == "" {
						t.Error("a blocked run says nothing")
					}
					e.Golden("t", "testdata/golden/divergence-"+c.name+".txt")
				})
		})
	}
}
