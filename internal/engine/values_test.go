package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

type innerValue struct{ S string }

type embed struct{ innerValue }

type embedPtr struct{ *innerValue }

func TestBadTextInAnEmbeddedStructIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			v, err := perdure.Step(ctx, "a", func(ctx context.Context) (embed, error) {
				return embed{innerValue{"a\xff"}}, nil
			})
			if !errors.Is(err, perdure.ErrNotJSON) {
				t.Errorf("invalid UTF-8 in an embedded struct: %q, %v", v.S, err)
			}
			var calls int
			w, err := perdure.Step(ctx, "b", func(ctx context.Context) (embedPtr, error) {
				calls++
				return embedPtr{&innerValue{"a"}}, nil
			})
			if !errors.Is(err, perdure.ErrNotJSON) {
				t.Errorf("embedded pointer: %+v, %v", w, err)
			}
			return "", nil
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}

type nestedValue []nestedValue

func deepValue(n int) nestedValue {
	v := nestedValue{}
	for range n - 1 {
		v = nestedValue{v}
	}
	return v
}

func TestDeepValuesAreRefused(t *testing.T) {
	for _, depth := range []int{9998, 10001} {
		synctest.Test(t, func(t *testing.T) {
			state := perdure.NewState[nestedValue]("deep")
			k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				_, err := perdure.Step(ctx, "set", func(ctx context.Context) (string, error) {
					return "", state.Set(ctx, deepValue(depth))
				})
				if !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("state nested %d deep: %v", depth, err)
				}
				_, err = perdure.Step(ctx, "a", func(ctx context.Context) (nestedValue, error) {
					return deepValue(depth), nil
				})
				if !errors.Is(err, perdure.ErrNotJSON) {
					t.Errorf("a result nested %d deep: %v", depth, err)
				}
				return "", nil
			}))
			k.StartOn("t", "f", "")
			k.WaitFor("t", perdure.Succeeded)
			if _, err := k.StateAt(t.Context(), "t", 0); err != nil {
				t.Errorf("nested %d deep: %v", depth, err)
			}
		})
	}
}

type deepDep struct{ depth int }

func (d *deepDep) Dump(context.Context) (json.RawMessage, error) {
	return json.RawMessage(`{"a":` + strings.Repeat("[", d.depth) + strings.Repeat("]", d.depth) + "}"), nil
}

func (d *deepDep) Load(context.Context, json.RawMessage) error { return nil }

func TestDeepDumpsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("deep", func(context.Context) (*deepDep, error) { return &deepDep{9998}, nil })
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := dep.Get(ctx)
			return "ok", err
		}))
		k.StartOn("t", "f", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		run, err := k.Wait(ctx, "t", "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Errorf("%v %+v\n%.3000s", err, run, k.Trace("t"))
		}
	})
}

type nilErr struct{ msg string }

func (e *nilErr) Error() string { return e.msg }

func TestATypedNilErrorOfAStepFailsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "a", func(ctx context.Context) (string, error) {
				var e *nilErr
				return "", e
			})
			var s *perdure.StepError
			if !errors.As(err, &s) {
				t.Errorf("%v", err)
			}
			_, _ = perdure.Step(ctx, "b", func(ctx context.Context) (string, error) {
				return "", perdure.Permanent(nil)
			})
			return "", nil
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestATypedNilErrorOfAFlowFailsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			var e *nilErr
			return "", e
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Failed)
	})
}

func TestBadStateKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := perdure.NewState[string]("a\xff")
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, _ = perdure.Step(ctx, "a", func(ctx context.Context) (string, error) {
				kit.WantErr(t, "set", state.Set(ctx, "x"), perdure.ErrName)
				return "", perdure.Spend(ctx, "b\xff", 5)
			})
			_, err := perdure.Step(ctx, "b", func(ctx context.Context) (string, error) {
				return "", perdure.Spend(ctx, "b\xff", 6)
			})
			if err == nil {
				t.Errorf("spend 11 of 10: %v", err)
			}
			v, _ := state.Get(ctx)
			return v, nil
		}))
		_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: "", Budget: map[string]int64{"b\xff": 10}})
		if err != nil {
			return // refused: fine
		}
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestAFactoryThatFailedIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		dep := perdure.NewDep("db", func(ctx context.Context) (int, error) {
			if calls.Add(1) == 1 {
				time.Sleep(5 * time.Second) // a slow dial, which then fails
				return 0, errors.New("unreachable")
			}
			return 7, nil
		})
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			_, _ = perdure.Step(ctx, "probe", dep.Get, perdure.Timeout(time.Second))
			return perdure.Step(ctx, "work", dep.Get, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestTheContextOfAFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("db", func(ctx context.Context) (context.Context, error) { return ctx, nil })
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "one", func(ctx context.Context) (string, error) {
				_, err := dep.Get(ctx)
				return "", err
			}, perdure.Timeout(time.Minute))
			if err != nil {
				return "", err
			}
			return perdure.Step(ctx, "two", func(ctx context.Context) (string, error) {
				d, err := dep.Get(ctx)
				if err != nil {
					return "", err
				}
				return "", d.Err()
			})
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
	})
}

func TestAPermanentErrorOfABranch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "both", func(ctx context.Context) (string, error) {
				g := perdure.NewGroup(ctx)
				g.Go("flaky", func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "s", func(ctx context.Context) (string, error) { return "", errors.New("flaky") })
					return err
				})
				g.Go("never", func(ctx context.Context) error {
					_, err := perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
						tries.Add(1)
						return "", perdure.Permanent(errors.New("no such account"))
					})
					return err
				})
				return "", g.Wait()
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Failed)
		if n := tries.Load(); n != 1 {
			t.Errorf("what is permanent was tried %d times", n)
		}
	})
}

func TestDepsInACircleFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b *perdure.Dep[int]
		a = perdure.NewDep("a", func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			return b.Get(ctx)
		}, perdure.Shared())
		b = perdure.NewDep("b", func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			return a.Get(ctx)
		}, perdure.Shared())
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			g := perdure.NewGroup(ctx)
			g.Go("a", func(ctx context.Context) error { _, err := a.Get(ctx); return err })
			g.Go("b", func(ctx context.Context) error { _, err := b.Get(ctx); return err })
			return "", g.Wait()
		}))
		k.StartOn("t", "f", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		run, err := k.Wait(ctx, "t", "")
		if err != nil || run.Status != perdure.Failed {
			t.Errorf("it hangs: %v", err)
			_ = k.Cancel(t.Context(), "t", "", perdure.Note{})
			return
		}
	})
}

func TestHugeErrorCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return "", perdure.Coded(strings.Repeat("x", 400<<10), errors.New("no"))
		}))
		k.StartOn("t", "f", "")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		run, err := k.Wait(ctx, "t", "")
		if err != nil || run.Status != perdure.Failed {
			t.Errorf("it does not end: %v", err)
		}
	})
}

func TestCancelInDevelopment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type counter = stateCounter
		dep := perdure.NewDep("d", func(ctx context.Context) (*counter, error) { return &counter{}, nil })
		k := kit.New(t, nil, perdure.Options{Development: true}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			defer perdure.Cleanup(ctx, "undo", func(ctx context.Context) error { _, err := dep.Get(ctx); return err })
			return perdure.Step(ctx, "a", func(ctx context.Context) (string, error) {
				d, err := dep.Get(ctx)
				if err != nil {
					return "", err
				}
				d.n.Add(1)
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
		}))
		k.StartOn("t", "f", "")
		time.Sleep(time.Second)
		kit.NoErr(t, k.Cancel(t.Context(), "t", "", perdure.Note{}))
		run := k.WaitFor("t", perdure.Cancelled)
		for _, e := range run.Errors {
			t.Errorf("%s", e.Error)
		}
	})
}

type stateCounter struct{ n atomic.Int64 }

func (d *stateCounter) Dump(context.Context) (json.RawMessage, error) {
	return json.Marshal(map[string]int64{"n": d.n.Load()})
}

func (d *stateCounter) Load(_ context.Context, raw json.RawMessage) error {
	var v map[string]int64
	err := json.Unmarshal(raw, &v)
	d.n.Store(v["n"])
	return err
}

func TestLongDiffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps = 3000
		long := strings.Repeat("n", 100)
		flow := func(first string) perdure.Flow {
			return perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				for i := range steps {
					name := fmt.Sprint(long, i)
					if i == 0 {
						name = first
					}
					if _, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) { return "", nil }); err != nil {
						return "", err
					}
				}
				return "", perdure.Sleep(ctx, "nap", time.Hour)
			})
		}
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, flow("old"))
		k.StartOn("t", "f", "")
		time.Sleep(time.Hour - time.Second)
		k.Stop()
		k = kit.New(t, s, perdure.Options{}, flow("new"))
		time.Sleep(2 * time.Second)
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Blocked {
			t.Errorf("%v %s %.300s", err, run.Status, run.Error)
		}
	})
}

type loudValue struct {
	stateCounter
	k int
}

func (d *loudValue) Dump(context.Context) (json.RawMessage, error) {
	return nil, fmt.Errorf("%d %s", d.n.Load(), strings.Repeat("\x01", 16<<10))
}

// Problems together with a step are more than one append takes.
func TestManyProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deps []*perdure.Dep[*loudValue]
		for i := range 4 {
			deps = append(deps, perdure.NewDep(fmt.Sprint("d", i), func(ctx context.Context) (*loudValue, error) { return &loudValue{k: i}, nil }))
		}
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "a", func(ctx context.Context) (string, error) {
				for _, d := range deps {
					if _, err := d.Get(ctx); err != nil {
						return "", err
					}
				}
				return strings.Repeat("x", 50000), nil
			})
		}))
		k.StartOn("t", "f", "")
		time.Sleep(5 * time.Second)
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Errorf("%v %s %.500s, resumed %d times", err, run.Status, run.Error, run.Resumes)
		}
	})
}

func TestNumbersInState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, in any) (any, error) { return in, nil }))
		for _, n := range []string{"999999999999999.99", "0.12345678901234567890123", "9007199254740993", "1e400", "1e-400"} {
			if _, err := k.Start(t.Context(), perdure.StartRequest{Flow: "f", Input: json.RawMessage(n)}); err == nil {
				t.Errorf("%s is taken, though a float64 does not hold it", n)
			}
		}
	})
}

func TestGetInACancelledStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dep := perdure.NewDep("d", func(ctx context.Context) (int, error) { return 1, nil })
		fails := 0
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "a", func(ctx context.Context) (string, error) {
				if _, err := dep.Get(ctx); err != nil {
					return "", err
				}
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				for range 100 {
					if _, err := dep.Get(ctx); err != nil {
						fails++
					}
				}
				return "", nil
			})
		}))
		k.StartOn("t", "f", "")
		k.WaitFor("t", perdure.Succeeded)
		if fails != 0 && fails != 100 {
			t.Errorf("%d of 100 Gets of a dep that is there fail", fails)
		}
	})
}

func TestDefaultsOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			g := perdure.NewGroup(ctx)
			for i := range 6 {
				g.Go(fmt.Sprint(i), func(ctx context.Context) error {
					_, err := perdure.Ask[string](ctx, "q", perdure.Question{Expires: time.Hour, Default: &perdure.Answer{Value: strings.Repeat(fmt.Sprint(i), 60000)}})
					return err
				})
			}
			return 1, g.Wait()
		}))
		k.StartOn("t", "f", "")
		time.Sleep(time.Hour + 2*time.Second)
		run, err := k.GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Succeeded {
			t.Errorf("%v %s %.500s, resumed %d times", err, run.Status, run.Error, run.Resumes)
		}
	})
}

// What a flow reads is the same however often it is resumed.
func TestViewsOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := perdure.NewList[string]("log")
		count := perdure.NewCounter("count")
		seen := map[string]string{}
		var mu sync.Mutex
		look := func(ctx context.Context, at string) {
			l, err := log.Get(ctx)
			n, err2 := count.Get(ctx)
			text := fmt.Sprint(l, n, err, err2)
			mu.Lock()
			defer mu.Unlock()
			if was, ok := seen[at]; ok && was != text {
				t.Errorf("at %s: %s, then %s", at, was, text)
			}
			seen[at] = text
		}
		add := func(ctx context.Context, name string) error {
			_, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
				if err := count.Add(ctx, 1); err != nil {
					return "", err
				}
				return "", log.Append(ctx, name)
			})
			return err
		}
		ask := func(ctx context.Context, name string) error {
			_, err := perdure.Ask[bool](ctx, name, perdure.Question{})
			return err
		}
		tries := 0
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			look(ctx, "start")
			_ = add(ctx, "a")
			look(ctx, "after a")
			_, err := perdure.Step(ctx, "comp", func(ctx context.Context) (string, error) {
				look(ctx, "in comp")
				if err := add(ctx, "c1"); err != nil {
					return "", err
				}
				look(ctx, "c1")
				if err := ask(ctx, "ok"); err != nil {
					return "", err
				}
				look(ctx, "asked")
				_, err := perdure.Step(ctx, "inner", func(ctx context.Context) (string, error) {
					_ = add(ctx, "i1")
					look(ctx, "i1")
					_, err := perdure.Step(ctx, "flaky", func(ctx context.Context) (string, error) {
						if tries++; tries < 3 {
							return "", errors.New("no")
						}
						return "", count.Add(ctx, 10)
					})
					return "", err
				})
				look(ctx, "inner")
				return "", err
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 2}))
			if errors.Is(err, perdure.ErrSuspended) {
				return "", err
			}
			look(ctx, "failed comp")
			if err == nil {
				t.Error("comp succeeds")
			}
			g := perdure.NewGroup(ctx)
			for i := range 2 {
				g.Go(fmt.Sprint("b", i), func(ctx context.Context) error {
					look(ctx, fmt.Sprint("b", i))
					_ = add(ctx, "x")
					g := perdure.NewGroup(ctx)
					for j := range 2 {
						g.Go(fmt.Sprint("n", j), func(ctx context.Context) error {
							look(ctx, fmt.Sprint("n", i, j))
							_ = add(ctx, "y")
							look(ctx, fmt.Sprint("ny", i, j))
							if err := ask(ctx, "q"); err != nil {
								return err
							}
							_ = add(ctx, "z")
							look(ctx, fmt.Sprint("nz", i, j))
							return nil
						})
					}
					if err := g.Wait(); err != nil {
						return err
					}
					n, err := count.Get(ctx)
					if err != nil || n != 3+5 {
						t.Errorf("a branch counts %d, %v", n, err)
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				return "", err
			}
			look(ctx, "end")
			return "", ask(ctx, "last")
		}))
		k.StartOn("t", "f", "")
		for range 10 {
			run, err := k.Wait(t.Context(), "t", "")
			kit.NoErr(t, err)
			if run.Status != perdure.Suspended {
				break
			}
			ask := run.Asks[len(run.Asks)-1]
			kit.NoErr(t, k.Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: true}}))
		}
		k.WaitFor("t", perdure.Succeeded)
	})
}
