package perduretest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// answerAll answers every open ask.
func answerAll(value any) func(context.Context, *perdure.Runtime, *perdure.Run) error {
	return func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
		for _, ask := range run.Asks {
			if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: value, By: "ann"}}); err != nil {
				return err
			}
		}
		return nil
	}
}

// step is a step that does nothing but return a value.
func step[T any](ctx context.Context, name string, v T) (T, error) {
	return perdure.Step(ctx, name, func(context.Context) (T, error) { return v, nil })
}

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
		"fail in a composite": func(*Effects) flow { // failures are compared as well as results
			return func(ctx context.Context, in string) (out string, err error) {
				defer func() {
					if err != nil {
						_ = perdure.Cleanup(ctx, "tidy", func(context.Context) error { return errors.New("nor this") })
					}
				}()
				return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
					if _, err := step(ctx, "good", in); err != nil {
						return "", err
					}
					return perdure.Step(ctx, "bad", func(context.Context) (string, error) { return "", errors.New("this does not work") })
				}, perdure.Retry(perdure.RetryPolicy{Attempts: 2}))
			}
		},
		"large": func(*Effects) flow { // the writes of blobs are cut too
			return func(ctx context.Context, in string) (string, error) {
				out, err := step(ctx, "copy", in+"!")
				if err != nil {
					return "", err
				}
				return out, perdure.Emit(ctx, "done", len(out))
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
			input := "x"
			if name == "large" {
				input = strings.Repeat("x", 100<<10)
			}
			CrashEverywhere(t, Crash{
				Flows:   []perdure.Flow{perdure.NewFlow(name, f(&fx))},
				Start:   []perdure.StartRequest{{Flow: name, Input: input}},
				Effects: &fx,
				Pairs:   os.Getenv("PERDURE_TORTURE") != "" && name != "large" && name != "fail in a composite",
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

// TestCrashEverywherePairs cuts three steps, or one in the short form, and each
// recovery everywhere.
func TestCrashEverywherePairs(t *testing.T) {
	var fx Effects
	steps, cuts := 3, 200
	if testing.Short() {
		steps, cuts = 1, 100
	}
	flow := perdure.NewFlow("straight", func(ctx context.Context, n int) (int, error) {
		for i := range steps {
			var err error
			n, err = perdure.Step(ctx, fmt.Sprintf("add-%d", i), func(ctx context.Context) (int, error) {
				fx.Count(ctx, "add")
				return n + 1, perdure.NewCounter("added").Add(ctx, 1)
			})
			if err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	CrashEverywhere(t, Crash{
		Flows:   []perdure.Flow{flow},
		Start:   []perdure.StartRequest{{Flow: "straight", Input: 3}},
		Effects: &fx,
		Pairs:   true,
		MinCuts: cuts,
	})
}

// TestCrashEverywhereUnknownOutcome lets a person decide what became of an
// at-most-once step without Reconcile.
func TestCrashEverywhereUnknownOutcome(t *testing.T) {
	var fx Effects
	asked := 0
	CrashEverywhere(t, Crash{
		Flows: []perdure.Flow{perdure.NewFlow("pay", func(ctx context.Context, _ string) (int, error) {
			return perdure.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				fx.CountOnce(ctx, "charge")
				return 40, nil
			}, perdure.AtMostOnce(), perdure.Timeout(time.Minute))
		})},
		Start:   []perdure.StartRequest{{Flow: "pay", Input: ""}},
		Effects: &fx,
		Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
			for _, ask := range run.Asks {
				asked++
				a := perdure.Answer{Decision: perdure.DecisionNotDone}
				if fx.Of("charge") > 0 {
					a = perdure.Answer{Decision: perdure.DecisionDone, Value: 40}
				}
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: a}); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if asked == 0 {
		t.Error("no crash has left an unknown outcome")
	}
}

// TestCrashEverywhereStandsStill takes a run that nobody answers as it is, and
// what is queued behind it.
func TestCrashEverywhereStandsStill(t *testing.T) {
	flow := perdure.NewFlow("ask", func(ctx context.Context, _ string) (bool, error) {
		return perdure.Ask[bool](ctx, "ok", perdure.Question{})
	})
	CrashEverywhere(t, Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{
		{Flow: "ask", Thread: "t", Input: "1"}, {Flow: "ask", Thread: "t", Input: "2"}}})
}

// TestCrashEverywhereLongSleep: a flow that sleeps for long is cut no more often
// than one that sleeps for a moment.
func TestCrashEverywhereLongSleep(t *testing.T) {
	flow := perdure.NewFlow("doze", func(ctx context.Context, _ string) (string, error) {
		return "", perdure.Sleep(ctx, "nap", time.Hour)
	})
	CrashEverywhere(t, Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "doze", Input: ""}}, Want: perdure.Succeeded, MaxRuns: 100})
}

// leaseless is a store on which nobody can hold a lease.
type leaseless struct{ store.Store }

func (l leaseless) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, lease.Prefix) {
		return "", store.ErrTooLarge
	}
	return l.Store.Put(ctx, key, value, prev)
}

// TestCrashEverywhereTellsWhyTheWorkerFails: without a worker nothing is waited
// for, and why there is none is what is wrong.
func TestCrashEverywhereTellsWhyTheWorkerFails(t *testing.T) {
	flow := perdure.NewFlow("broken", func(_ context.Context, in string) (string, error) { return in, nil })
	said := caught(t, Crash{Flows: []perdure.Flow{flow}, Store: func() store.Store { return leaseless{memstore.New()} }})
	if want := "undisturbed: the worker: perdure: starting a worker: "; !strings.Contains(said, want) {
		t.Errorf("it says:\n%s\nwant %q", said, want)
	}
	if said := caught(t, Crash{Flows: []perdure.Flow{flow}, Options: perdure.Options{Lease: time.Hour}}); !strings.Contains(said, "Options.Lease is 1h0m0s") {
		t.Errorf("of a lease that is too long it says:\n%s", said)
	}
}

// caught runs a sweep that has to fail and returns what it says.
func caught(t *testing.T, c Crash) string {
	t.Helper()
	if c.Start == nil {
		c.Start = []perdure.StartRequest{{Flow: "broken", Input: "x"}}
	}
	s := sweep{Crash: c, t: t}
	s.run()
	if len(s.failures) == 0 {
		t.Fatalf("nothing was found in %d crashes", s.crashes)
	}
	return strings.Join(s.failures, "\n")
}

// TestCrashEverywhereFinds shows that flows that break the rules are found.
func TestCrashEverywhereFinds(t *testing.T) {
	type flow = func(ctx context.Context, in string) (string, error)
	progress := perdure.NewDep("progress", func(context.Context) (*progressLog, error) { return new(progressLog), nil })
	tests := map[string]struct {
		flow func(fx *Effects) flow
		want []string
	}{
		"an effect outside a step": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				fx.Count(ctx, "mail")
				return step(ctx, "one", in)
			}
		}, []string{"the effect mail outside any step happened 2 times, undisturbed 1 times", "put it into a step"}},

		"an effect in a composite": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "outer", func(ctx context.Context) (string, error) {
					fx.Count(ctx, "mail")
					if _, err := step(ctx, "one", in); err != nil {
						return "", err
					}
					return step(ctx, "two", in)
				})
			}
		}, []string{"the effect mail at /outer", "composite"}},

		"an effect that must not repeat in a plain step": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "charge", func(ctx context.Context) (string, error) {
					fx.CountOnce(ctx, "charge")
					return in, nil
				})
			}
		}, []string{"crash before append", "the effect charge at /charge", "may happen once at most and happened 2 times"}},

		"an effect that is lost": {func(fx *Effects) flow {
			var begun atomic.Bool // in memory, set before the effect
			return func(ctx context.Context, in string) (string, error) {
				if fx.Of("began") == 0 {
					begun.Store(false)
				}
				return perdure.Step(ctx, "one", func(ctx context.Context) (string, error) {
					if begun.Load() {
						return in, nil
					}
					begun.Store(true)
					fx.Count(ctx, "began")
					if _, err := perdure.Step(ctx, "intent", func(context.Context) (int, error) { return 1, nil }); err != nil {
						return "", err
					}
					fx.Count(ctx, "mail")
					return in, nil
				})
			}
		}, []string{"the effect mail at /one", "it was lost"}},

		"a step named by chance": {func(*Effects) flow {
			return func(ctx context.Context, in string) (string, error) { return step(ctx, rand.Text(), in) }
		}, []string{"two runs without a crash differ", "the events differ"}},

		"a step named by the process": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				if _, err := step(ctx, fmt.Sprintf("one-%d", fx.Of("passed")), in); err != nil {
					return "", err
				}
				fx.Count(ctx, "passed")
				return step(ctx, "two", in)
			}
		}, []string{"blocked", `- step "one-0"`}},

		"a random output": {func(*Effects) flow {
			return func(ctx context.Context, in string) (string, error) { return rand.Text(), nil }
		}, []string{"two runs without a crash differ", "the outcome differs"}},

		"an output by the process": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				if _, err := step(ctx, "one", in); err != nil {
					return "", err
				}
				fx.mu.Lock()
				defer fx.mu.Unlock()
				return fmt.Sprint(fx.life), nil
			}
		}, []string{"the outcome differs", `- `, `succeeded "0"`, `succeeded "1"`}},

		"a dep that is changed by flow code": {func(*Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				log, err := progress.Get(ctx)
				if err != nil {
					return "", err
				}
				if _, err := step(ctx, "one", in); err != nil {
					return "", err
				}
				log.record("outside")
				return step(ctx, "two", in)
			}
		}, []string{"outside a leaf step"}},

		"a run that hangs after a crash": {func(fx *Effects) flow {
			return func(ctx context.Context, in string) (string, error) {
				return perdure.Step(ctx, "one", func(ctx context.Context) (string, error) {
					fx.mu.Lock()
					life := fx.life
					fx.mu.Unlock()
					if life > 0 {
						<-ctx.Done()
					}
					return in, nil
				})
			}
		}, []string{"does not end within"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var fx Effects
			said := caught(t, Crash{Flows: []perdure.Flow{perdure.NewFlow("broken", test.flow(&fx))}, Effects: &fx})
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
		})
	}
}

// TestCrashEverywhereIsNotVacuous shows the bounds of a sweep.
func TestCrashEverywhereIsNotVacuous(t *testing.T) {
	good := perdure.NewFlow("broken", func(ctx context.Context, in string) (string, error) { return step(ctx, "one", in) })
	for name, test := range map[string]struct {
		c    Crash
		want string
	}{
		"too few cuts":     {Crash{MinCuts: 10_000}, "want at least 10000"},
		"too many runs":    {Crash{Pairs: true, MaxRuns: 30}, "raise MaxRuns"},
		"another status":   {Crash{Want: perdure.Failed}, "is succeeded, want failed"},
		"nothing started":  {Crash{Start: []perdure.StartRequest{}}, "nothing is started"},
		"an unknown flow":  {Crash{Start: []perdure.StartRequest{{Flow: "other"}}}, "start of flow other"},
		"outside goes off": {Crash{Start: []perdure.StartRequest{{Flow: "ask", Input: 1}}, Outside: func(context.Context, *perdure.Runtime, *perdure.Run) error { return errors.New("no idea") }}, "the outside: no idea"},
	} {
		t.Run(name, func(t *testing.T) {
			ask := perdure.NewFlow("ask", func(ctx context.Context, _ int) (int, error) {
				return perdure.Ask[int](ctx, "n", perdure.Question{})
			})
			test.c.Flows = []perdure.Flow{good, ask}
			if said := caught(t, test.c); !strings.Contains(said, test.want) {
				t.Errorf("it says\n%s", said)
			}
		})
	}
}

// TestCrashEverywhereSame leaves out what may differ.
func TestCrashEverywhereSame(t *testing.T) {
	c := Crash{
		Flows: []perdure.Flow{perdure.NewFlow("broken", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "one", func(context.Context) (string, error) { return "id " + rand.Text(), nil })
		})},
		Start: []perdure.StartRequest{{Flow: "broken", Input: "x"}},
	}
	caught(t, c)
	c.Same = func(text string) string {
		var words []string
		for _, w := range strings.Fields(text) {
			if !strings.HasSuffix(w, `"`) || len(w) < 27 {
				words = append(words, w)
			}
		}
		return strings.Join(words, " ")
	}
	CrashEverywhere(t, c)
}
