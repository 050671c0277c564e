package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// verbCase is a verb that needs no more than a name.
type verbCase struct {
	name string
	call func(ctx context.Context, name string) error
}

// verbCases are the verbs that have names; ran is called if a function is.
func verbCases(ran func()) []verbCase {
	return []verbCase{
		{"Step", func(ctx context.Context, name string) error {
			_, err := perdure.Step(ctx, name, func(context.Context) (int, error) { ran(); return 1, nil })
			return err
		}},
		{"Scope", func(ctx context.Context, name string) error {
			_, err := perdure.Scope(ctx, name, func(context.Context) (int, error) { ran(); return 1, nil })
			return err
		}},
		{"Ask", func(ctx context.Context, name string) error {
			_, err := perdure.Ask[string](ctx, name, perdure.Question{Expires: time.Second, Default: &perdure.Answer{Value: "d"}})
			return err
		}},
		{"Receive", func(ctx context.Context, name string) error {
			_, err := perdure.Receive[string](ctx, name, "signal", time.Second)
			if errors.Is(err, perdure.ErrTimeout) {
				return nil
			}
			return err
		}},
		{"Sleep", func(ctx context.Context, name string) error { return perdure.Sleep(ctx, name, time.Second) }},
		{"Take", func(ctx context.Context, name string) error {
			_, _, err := perdure.Take[string](ctx, name)
			return err
		}},
		{"Emit", func(ctx context.Context, name string) error { return perdure.Emit(ctx, name, 1) }},
		{"Cleanup", func(ctx context.Context, name string) error {
			return perdure.Cleanup(ctx, name, func(context.Context) error { ran(); return nil })
		}},
		{"Group", func(ctx context.Context, name string) error {
			g := perdure.NewGroup(ctx)
			g.Go(name, func(context.Context) error { ran(); return nil })
			return g.Wait()
		}},
	}
}

func TestVerbsOutsideARunReturnErrNoRun(t *testing.T) {
	ctx := t.Context()
	ran := func() { t.Error("a function ran outside a run") }
	for _, v := range verbCases(ran) {
		if err := v.call(ctx, "x"); !errors.Is(err, perdure.ErrNoRun) {
			t.Errorf("%s: %v", v.name, err)
		}
	}
	dep := perdure.NewDep("d", func(context.Context) (int, error) { ran(); return 1, nil })
	_, depErr := dep.Get(ctx)
	_, stateErr := perdure.NewState[int]("s").Get(ctx)
	_, countErr := perdure.NewCounter("s").Get(ctx)
	_, listErr := perdure.NewList[int]("s").Get(ctx)
	for what, err := range map[string]error{
		"Plan":         perdure.Plan(ctx, "a"),
		"Spend":        perdure.Spend(ctx, "tokens", 1),
		"Dropped":      perdure.Dropped(ctx, "a"),
		"Dep.Get":      depErr,
		"State.Get":    stateErr,
		"State.Set":    perdure.NewState[int]("s").Set(ctx, 1),
		"State.Delete": perdure.NewState[int]("s").Delete(ctx),
		"Counter.Get":  countErr,
		"Counter.Add":  perdure.NewCounter("s").Add(ctx, 1),
		"List.Get":     listErr,
		"List.Append":  perdure.NewList[int]("s").Append(ctx, 1),
	} {
		if !errors.Is(err, perdure.ErrNoRun) {
			t.Errorf("%s: %v", what, err)
		}
	}
	perdure.Delta(ctx, "x") // says nothing, and does nothing
	if key := perdure.Key(ctx); key != "" {
		t.Errorf("Key is %q", key)
	}
	if now := perdure.Now(ctx); !now.IsZero() {
		t.Errorf("Now is %v", now)
	}
}

// A context that outlives its frame, such as one that a goroutine kept, is
// outside the run.
func TestVerbsWithTheContextOfAFinishedFrameReturnErrNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step, scope, branch, whole context.Context
		refused := func(at string, ctx context.Context) {
			ran := func() { t.Errorf("%s: a function ran", at) }
			for _, v := range verbCases(ran) {
				if err := v.call(ctx, "late"); !errors.Is(err, perdure.ErrNoRun) {
					t.Errorf("%s: %s: %v", at, v.name, err)
				}
			}
			if err := perdure.NewState[int]("s").Set(ctx, 1); !errors.Is(err, perdure.ErrNoRun) {
				t.Errorf("%s: State.Set: %v", at, err)
			}
			if err := perdure.Spend(ctx, "tokens", 1); !errors.Is(err, perdure.ErrNoRun) {
				t.Errorf("%s: Spend: %v", at, err)
			}
		}
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			whole = ctx
			_, err := perdure.Step(ctx, "step", func(ctx context.Context) (int, error) { step = ctx; return 1, nil })
			_, err2 := perdure.Scope(ctx, "scope", func(ctx context.Context) (int, error) { scope = ctx; return 1, nil })
			g := perdure.NewGroup(ctx)
			g.Go("branch", func(ctx context.Context) error { branch = ctx; return nil })
			err3 := g.Wait()
			refused("in the flow, step", context.WithoutCancel(step))
			refused("in the flow, scope", scope)
			refused("in the flow, branch", context.WithoutCancel(branch))
			return errors.Join(err, err2, err3)
		})
		refused("after the run", context.WithoutCancel(whole))
		k.WantLines("step /step 1")
		if n := k.KindsOf("t")["step"]; n != 1 {
			t.Errorf("%d steps are recorded:\n%s", n, k.Trace("t"))
		}
	})
}

func TestADuplicateNameIsAnErrorWhateverTheVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		k := kit.New(t, nil, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
			verbs := verbCases(func() { ran++ })
			for _, first := range verbs {
				_, err := perdure.Scope(ctx, "first "+first.name, func(ctx context.Context) (int, error) {
					if err := first.call(ctx, "x"); err != nil {
						return 0, err
					}
					before := ran
					for _, second := range verbs {
						err := second.call(ctx, "x")
						if !errors.Is(err, perdure.ErrName) {
							t.Errorf("%s after %s: %v", second.name, first.name, err)
						} else if !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), "/first "+first.name) {
							t.Errorf("%s after %s: the error does not say which name where: %v", second.name, first.name, err)
						}
					}
					if ran != before {
						t.Errorf("after %s a function ran under a duplicate name", first.name)
					}
					return 0, first.call(ctx, "y") // the frame continues
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
		k.StartOn("t", "f", struct{}{})
		k.EndsAs("t", perdure.Succeeded)
		for _, e := range k.EventsOf("t") {
			if e.Error != "" && e.Kind != "fired" {
				t.Errorf("an error is recorded: %+v", e)
			}
		}
	})
}

func TestTheSameNameIsFreeInAnotherFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		flow := func(ctx context.Context) error {
			in := func(ctx context.Context) (int, error) { return 0, c.OK(ctx, "x") }
			_, err1 := in(ctx)
			_, err2 := perdure.Scope(ctx, "scope", in)
			_, err3 := perdure.Step(ctx, "step", in)
			g := perdure.NewGroup(ctx)
			g.Go("a", func(ctx context.Context) error { return c.OK(ctx, "x") })
			g.Go("b", func(ctx context.Context) error { return c.OK(ctx, "x") })
			return errors.Join(err1, err2, err3, g.Wait(), kit.AskYesNo(ctx, "ok"))
		}
		k, run := kit.RunOnce(t, perdure.Suspended, flow)
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		if c.Of("x") != 5 {
			t.Errorf("x ran %d times", c.Of("x"))
		}
		paths := map[string]bool{}
		for _, e := range k.EventsOf("t") {
			if e.Kind == "step" {
				paths[e.Path] = true
			}
		}
		want := map[string]bool{"/x": true, "/scope/x": true, "/step/x": true, "/step": true, "/a/x": true, "/b/x": true}
		kit.NoDiff(t, cmp.Diff(want, paths))
	})
}

func TestAFrameHasOnePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, run := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			if err := perdure.Plan(ctx, "a", "b"); err != nil {
				return err
			}
			kit.WantErr(t, "a second plan", perdure.Plan(ctx, "c"), perdure.ErrName)
			kit.WantErr(t, "a plan with an odd name", perdure.Plan(ctx, "a/b"), perdure.ErrName)
			return nil
		})
		want := []perdure.PlanStep{{Name: "a", Done: true}, {Name: "b", Done: true}}
		kit.NoDiff(t, cmp.Diff(want, run.Plan))
	})
}

func TestEmptyAndOddNamesAreRefusedByEveryVerb(t *testing.T) {
	odd := map[string]string{
		"empty": "", "slash": "a/b", "bar": "1|a", "dot": ".", "dots": "..", "lead": " a", "trail": "a ", "hash": "#plan",
		"newline": "a\nb", "nul": "a\x00b", "utf8": "a\xff", "long": strings.Repeat("x", 201), "zero-width": "a\u200bb", "bidi": "a\u202eb",
	}
	synctest.Test(t, func(t *testing.T) {
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			for what, name := range odd {
				for _, v := range verbCases(func() { t.Errorf("%s: a function ran", what) }) {
					if err := v.call(ctx, name); !errors.Is(err, perdure.ErrName) {
						t.Errorf("%s: %s: %v", what, v.name, err)
					}
				}
				if _, err := perdure.Receive[int](ctx, "receive "+what, name, 0); !errors.Is(err, perdure.ErrName) {
					t.Errorf("%s: the signal of a Receive: %v", what, err)
				}
			}
			return nil
		})
		if got, want := k.Trace("t"), "created\nqueued {}\nclaimed\nended {} succeeded\n"; got != want {
			t.Errorf("something is recorded:\n%s", got)
		}
		for what, name := range odd {
			if _, err := perdure.New(t.Context(), memstore.New(), perdure.Options{}, perdure.NewFlow(name, func(context.Context, int) (int, error) { return 0, nil })); !errors.Is(err, perdure.ErrName) {
				t.Errorf("%s: a flow of that name: %v", what, err)
			}
		}
	})
}

// Names that look strange but can be printed are kept as they are, and found
// again on resume.
func TestStrangeNamesSurviveAResume(t *testing.T) {
	names := []string{"ein Schritt", "漢字", "0", "1", "a.b", "~", "%2F", "step #1", "it's", `"`, "\\", "-", "🙂", "plan", "e\u0301", "\u00e9", strings.Repeat("y", 200)}
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			for _, name := range names {
				if err := c.OK(ctx, name); err != nil {
					return err
				}
			}
			return kit.AskYesNo(ctx, "ok")
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
		for _, name := range names {
			if n := c.Of(name); n != 1 {
				t.Errorf("%q ran %d times", name, n)
			}
			k.WantLines("step /" + name + " 1")
		}
	})
}

// TestMisuseHasACode returns what verbs say about a mistake of the flow: the error of the run
// matches it.
func TestMisuseHasACode(t *testing.T) {
	step := func(ctx context.Context) error {
		_, err := perdure.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	for want, flow := range map[error]func(context.Context) error{
		perdure.ErrName:   func(ctx context.Context) error { return errors.Join(step(ctx), step(ctx)) },
		perdure.ErrNoLeaf: func(ctx context.Context) error { return kit.Tone.Set(ctx, "x") },
		perdure.ErrConcurrent: func(outer context.Context) error {
			_, err := perdure.Scope(outer, "scope", func(context.Context) (int, error) { return 0, step(outer) })
			return err
		},
		perdure.ErrNoRun: func(ctx context.Context) error {
			var inner context.Context
			_, err := perdure.Scope(ctx, "scope", func(ctx context.Context) (int, error) {
				inner = ctx
				return 0, nil
			})
			return errors.Join(err, step(inner))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			if _, run := kit.RunOnce(t, perdure.Failed, flow); !errors.Is(run.Err, want) || len(run.Codes) != 1 {
				t.Errorf("%v: the run failed with %v, codes %q", want, run.Err, run.Codes)
			}
		})
	}
}

func TestASecondVerbInAFrameIsErrConcurrentAndNamesGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(at string, ctx context.Context) {
			for _, v := range verbCases(func() { t.Errorf("%s: a function ran", at) }) {
				err := v.call(ctx, "second")
				if !errors.Is(err, perdure.ErrConcurrent) || !strings.Contains(err.Error(), "Group") {
					t.Errorf("%s: %s: %v", at, v.name, err)
				}
			}
		}
		kit.RunOnce(t, perdure.Succeeded, func(outer context.Context) error {
			_, err1 := perdure.Step(outer, "step", func(context.Context) (int, error) {
				refused("the parent's context in a step", outer)
				return 1, nil
			})
			_, err2 := perdure.Scope(outer, "scope", func(context.Context) (int, error) {
				refused("the parent's context in a scope", outer)
				return 1, nil
			})
			g := perdure.NewGroup(outer)
			g.Go("branch", func(context.Context) error {
				refused("the parent's context in a branch", outer)
				return nil
			})
			refused("before Wait", outer)
			err3 := g.Wait()

			stray := make(chan struct{})
			_, err4 := perdure.Step(outer, "long", func(context.Context) (int, error) {
				go func() {
					defer close(stray)
					refused("a stray goroutine", outer)
				}()
				<-stray
				return 1, nil
			})
			return errors.Join(err1, err2, err3, err4, perdure.Emit(outer, "second", 1))
		})
	})
}

// A leaf that changes state with its parent's context would change it outside
// itself.
func TestAChangeWithTheParentsContextIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := perdure.NewState[int]("s")
		kit.RunOnce(t, perdure.Succeeded, func(flow context.Context) error {
			_, err := perdure.Step(flow, "outer", func(composite context.Context) (int, error) {
				return perdure.Step(composite, "inner", func(context.Context) (int, error) {
					kit.WantErr(t, "with the flow's context", s.Set(flow, 1), perdure.ErrNoLeaf)
					kit.WantErr(t, "with the composite's context", s.Set(composite, 1), perdure.ErrComposite)
					return 1, nil
				})
			})
			if v, there, err2 := s.Lookup(flow); there || err2 != nil {
				t.Errorf("the state is %d, %v", v, err2)
			}
			return err
		})
	})
}

func TestAFrameThatReturnsCancelsAndAwaitsItsBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, started := map[string]bool{}, make(chan bool)
		branch := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "waits", func(ctx context.Context) (int, error) {
					started <- true
					<-ctx.Done()
					time.Sleep(time.Minute) // it takes its time
					over[name] = true
					return 1, nil
				})
				return err
			}
		}
		leave := func(name string) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				g := perdure.NewGroup(ctx)
				g.Go("branch", branch(name))
				<-started
				return 7, nil
			}
		}
		k, _ := kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			if _, err := perdure.Step(ctx, "step", leave("step")); err != nil || !over["step"] {
				t.Errorf("the step returned %v with its branch over %v", err, over["step"])
			}
			if _, err := perdure.Scope(ctx, "scope", leave("scope")); err != nil || !over["scope"] {
				t.Errorf("the scope returned %v with its branch over %v", err, over["scope"])
			}
			_, err := leave("flow")(ctx)
			return err
		})
		if !over["flow"] {
			t.Error("the run ended before its branch")
		}
		k.WantLines("step /step/branch/waits 1", "step /scope/branch/waits 1", "step /branch/waits 1", "step /step 7")
	})
}

func TestWaitWaitsForAllBranchesAndCancelsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom, bang := errors.New("boom"), errors.New("bang")
		var c kit.Tally
		_, run := kit.RunOnce(t, perdure.Failed, func(ctx context.Context) error {
			g := perdure.NewGroup(ctx)
			g.Go("fails", func(context.Context) error { return boom })
			g.Go("slow", func(ctx context.Context) error {
				if err := perdure.Sleep(ctx, "nap", time.Minute); err != nil {
					return err
				}
				return c.OK(ctx, "after")
			})
			g.Go("panics", func(context.Context) error { panic(bang) })
			err := g.Wait()
			if errors.Is(err, perdure.ErrSuspended) {
				return err
			}
			if c.Of("after") != 1 {
				t.Error("Wait returned before the slow branch was done")
			}
			for _, want := range []error{boom, bang} {
				if !errors.Is(err, want) {
					t.Errorf("Wait returned %v, without %v", err, want)
				}
			}
			kit.WantErr(t, "a second Wait", g.Wait(), perdure.ErrConcurrent)
			return err
		})
		if i, j := strings.Index(run.Error, "boom"), strings.Index(run.Error, "bang"); i < 0 || j < i {
			t.Errorf("the errors are not in the order of Go: %s", run.Error)
		}
	})
}

func TestAGroupReportsBadBranchesAndRunsTheGoodOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Tally
		kit.RunOnce(t, perdure.Succeeded, func(ctx context.Context) error {
			kit.WantErr(t, "an empty group", perdure.NewGroup(ctx).Wait(), nil)
			g := perdure.NewGroup(ctx)
			g.Go("a", func(ctx context.Context) error { return c.OK(ctx, "good") })
			g.Go("a", func(context.Context) error { t.Error("a duplicate ran"); return nil })
			kit.WantErr(t, "a duplicate branch", g.Wait(), perdure.ErrName)
			late := perdure.NewGroup(ctx)
			late.Go("b", func(context.Context) error { return nil })
			if err := late.Wait(); err != nil {
				t.Error(err)
			}
			late.Go("c", func(context.Context) error { t.Error("a branch ran after Wait"); return nil })
			return c.OK(ctx, "after")
		})
		if c.Of("good") != 1 || c.Of("after") != 1 {
			t.Errorf("ran: %v", c.All())
		}
	})
}

// A scope and a branch are recorded by what is inside them. Nothing is inside
// these, so they can neither be missed nor come as news.
func TestAnEmptyScopeOrBranchDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
			nothing := func(ctx context.Context) (int, error) {
				return perdure.Scope(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
			}
			_, err := perdure.Scope(ctx, "scope", nothing)
			g := perdure.NewGroup(ctx)
			g.Go("branch", func(ctx context.Context) error {
				_, err := nothing(ctx)
				return err
			})
			return errors.Join(err, g.Wait(), kit.AskYesNo(ctx, "ok"))
		})
		k.AnswerYes(run, "/ok")
		k.WaitFor("t", perdure.Succeeded)
	})
}

// A verb that is refused for its arguments is refused again on resume; it is
// not taken for a new one before what was recorded after it.
func TestARefusedVerbDoesNotBlockTheResume(t *testing.T) {
	nan := math.NaN()
	refused := map[string]func(context.Context, string) error{
		"schema": func(ctx context.Context, n string) error {
			return outcomeQuestion(ctx, n, perdure.Question{Schema: []byte(`{}`)})
		},
		"expires": func(ctx context.Context, n string) error {
			return outcomeQuestion(ctx, n, perdure.Question{Expires: -1})
		},
		"default": func(ctx context.Context, n string) error {
			return outcomeQuestion(ctx, n, perdure.Question{Default: &perdure.Answer{Value: true}})
		},
		"wrong": func(ctx context.Context, n string) error {
			return outcomeQuestion(ctx, n, perdure.Question{Expires: 1, Default: &perdure.Answer{Value: "x"}})
		},
		"data": func(ctx context.Context, n string) error { return outcomeQuestion(ctx, n, perdure.Question{Data: nan}) },
		"huge": func(ctx context.Context, n string) error {
			return outcomeQuestion(ctx, n, perdure.Question{Prompt: strings.Repeat("x", 400<<10)})
		},
		"outcome": func(ctx context.Context, n string) error {
			_, err := perdure.Step(ctx, n, func(context.Context) (int, error) { return 1, nil }, perdure.AtMostOnce(), perdure.Timeout(time.Second),
				perdure.AskOutcome(perdure.Question{Expires: time.Hour}))
			return err
		},
		"outcome of": func(ctx context.Context, n string) error {
			_, err := perdure.Step(ctx, n, func(context.Context) (int, error) { return 1, nil }, perdure.AskOutcome(perdure.Question{}))
			return err
		},
		"outcome data": func(ctx context.Context, n string) error {
			_, err := perdure.Step(ctx, n, func(context.Context) (int, error) { return 1, nil }, perdure.AtMostOnce(), perdure.Timeout(time.Second),
				perdure.AskOutcome(perdure.Question{Data: nan}))
			return err
		},
		"emit": func(ctx context.Context, n string) error { return perdure.Emit(ctx, n, nan) },
		"receive": func(ctx context.Context, n string) error {
			_, err := perdure.Receive[int](ctx, n, "a/b", 0)
			return err
		},
		"plan":   func(ctx context.Context, n string) error { return perdure.Plan(ctx, "") },
		"option": func(ctx context.Context, n string) error { return new(kit.Tally).OK(ctx, n, perdure.AtMostOnce()) },
		"retry": func(ctx context.Context, n string) error {
			return new(kit.Tally).OK(ctx, n, perdure.Retry(perdure.RetryPolicy{Attempts: -1}))
		},
		"timeout": func(ctx context.Context, n string) error { return new(kit.Tally).OK(ctx, n, perdure.Timeout(-1)) },
		"reconciled": func(ctx context.Context, n string) error {
			return new(kit.Tally).OK(ctx, n, perdure.Reconcile(func(context.Context) (int, perdure.Outcome, error) { return 0, 0, nil }))
		},
	}
	refused["huge plan"] = func(ctx context.Context, _ string) error {
		return perdure.Plan(ctx, slices.Repeat([]string{strings.Repeat("x", 200)}, 5000)...)
	}
	for what, call := range refused {
		kit.Bubble(t, what, func(t *testing.T) {
			k, run := kit.RunOnce(t, perdure.Suspended, func(ctx context.Context) error {
				if err := call(ctx, "x"); err == nil || errors.Is(err, perdure.ErrSuspended) || errors.Is(err, perdure.ErrBlocked) {
					t.Errorf("it was not refused: %v", err)
				}
				return kit.AskYesNo(ctx, "ok")
			})
			if k.KindsOf("t")["asked"] != 1 {
				t.Errorf("the journal is\n%s", k.Trace("t"))
			}
			k.AnswerYes(run, "/ok")
			k.WaitFor("t", perdure.Succeeded)
		})
	}
}

func outcomeQuestion(ctx context.Context, name string, q perdure.Question) error {
	_, err := perdure.Ask[bool](ctx, name, q)
	return err
}
