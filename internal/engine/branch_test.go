package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// besides is a flow whose branch "waits" waits for something while a leaf of
// another branch is busy for a minute.
func besides(wait func(context.Context) (string, error)) perdure.Flow {
	return perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		begun := perdure.Now(ctx)
		var out string
		g := perdure.NewGroup(ctx)
		g.Go("busy", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "leaf", func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				case <-time.After(time.Minute):
				}
				return 1, nil
			})
			return err
		})
		g.Go("waits", func(ctx context.Context) error {
			v, err := wait(ctx)
			if err != nil {
				return err
			}
			out = fmt.Sprint(v, " after ", perdure.Now(ctx).Sub(begun).Round(time.Second))
			return perdure.Emit(ctx, "went on", v)
		})
		err := g.Wait()
		return out, err
	})
}

// TestBranchGoesOnWhileAnotherIsBusy: what a branch waits for happens in the
// middle of a pass, and the branch continues there and then, without a new
// claim.
func TestBranchGoesOnWhileAnotherIsBusy(t *testing.T) {
	ask := func(q perdure.Question) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return perdure.Ask[string](ctx, "w", q) }
	}
	for name, c := range map[string]struct {
		wait func(context.Context) (string, error)
		do   func(k *kit.Kit, run *perdure.Run)
		want string
	}{
		"an answer": {ask(perdure.Question{}), func(k *kit.Kit, run *perdure.Run) {
			k.AnswerAt(run, "/waits/w", perdure.Answer{Value: "x"})
		}, "x after 10s"},
		"an expiry": {ask(perdure.Question{Expires: 20 * time.Second, Default: &perdure.Answer{Value: "nobody"}}), nil, "nobody after 20s"},
		"a signal": {func(ctx context.Context) (string, error) { return perdure.Receive[string](ctx, "w", "go", 0) },
			func(k *kit.Kit, _ *perdure.Run) { k.MustSignal("t", "go", "s", "") }, "s after 10s"},
		"a timeout": {func(ctx context.Context) (string, error) {
			_, err := perdure.Receive[string](ctx, "w", "go", 20*time.Second)
			if !errors.Is(err, perdure.ErrTimeout) {
				return "", err
			}
			return "none", nil
		}, nil, "none after 20s"},
		"a timer": {func(ctx context.Context) (string, error) { return "slept", perdure.Sleep(ctx, "w", 20*time.Second) }, nil, "slept after 20s"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			k := kit.New(t, nil, perdure.Options{}, besides(c.wait))
			k.StartOn("t", "f", "")
			time.Sleep(10 * time.Second)
			run, err := k.GetRun(t.Context(), "t", "")
			if err != nil || run.Status != perdure.Running || len(run.Waits) != 1 {
				t.Fatalf("meanwhile: %+v, %v", run, err)
			}
			if c.do != nil {
				c.do(k, run)
			}
			run = k.WaitFor("t", perdure.Succeeded)
			got, err := perdure.Output[string](run)
			at := map[string]uint64{}
			for _, e := range k.EventsOf("t") {
				at[e.Kind] = e.Seq
			}
			if at["emitted"] > at["step"] {
				t.Errorf("the branch went on behind the end of the other:\n%s", k.Trace("t"))
			}
			if got != c.want || err != nil || run.Resumes != 0 {
				t.Errorf("it got %q, %v, and was claimed %d times more", got, err, run.Resumes)
			}
		})
	}
}

// TestAskOfAFrameThatLeftIsOver lets a step end while an ask inside it is open.
func TestAskOfAFrameThatLeftIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				g := perdure.NewGroup(ctx)
				g.Go("waits", func(ctx context.Context) error {
					_, err := perdure.Ask[string](ctx, "ask", perdure.Question{})
					return err
				})
				// It leaves without Wait, when the branch has asked.
				time.Sleep(time.Second)
				return 1, nil
			})
			if err != nil {
				return "", err
			}
			return perdure.Receive[string](ctx, "r", "go", 0)
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		run := k.WaitFor("t", perdure.Suspended)
		id := ""
		for _, e := range k.EventsOf("t") {
			if e.Kind == "asked" {
				id = e.Ask
			}
		}
		if id == "" || len(run.Asks) != 0 || len(run.Waits) != 1 {
			t.Fatalf("ask %q, open: %+v, waits: %+v", id, run.Asks, run.Waits)
		}
		kit.WantErr(t, "an answer", k.AnswerAsk(id, perdure.Answer{Value: ""}), perdure.ErrAskOver)
		k.MustSignal("t", "go", "end", "")
		kit.WantOutput(t, k.WaitForRun("t", "", perdure.Succeeded), "end")
	})
}

func TestInterruptStopsARunningStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		var order []string
		flow := perdure.NewFlow("f", func(ctx context.Context, in string) (out string, err error) {
			defer func() {
				if errors.Is(err, perdure.ErrCancelled) {
					_ = perdure.Cleanup(ctx, "undo", func(ctx context.Context) error {
						order = append(order, "undo "+in)
						return ctx.Err()
					})
				}
			}()
			return perdure.Step(ctx, "s", func(ctx context.Context) (string, error) {
				order = append(order, "do "+in)
				select {
				case <-ctx.Done():
					cause = context.Cause(ctx)
					return "", cause
				case <-time.After(time.Minute):
					return in, nil
				}
			})
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		old := k.StartOn("t", "f", "old")
		time.Sleep(time.Second)
		queued := k.StartOn("t", "f", "queued")
		next := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: "new", Policy: perdure.Interrupt})
		begun := time.Now()
		k.WaitForRun("t", old.ID, perdure.Cancelled)
		if d := time.Since(begun); d > time.Second || !errors.Is(cause, perdure.ErrCancelled) {
			t.Errorf("the step was stopped after %v by %v", d, cause)
		}
		for _, run := range []*perdure.Run{queued, next} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if got, err := k.Wait(ctx, "t", run.ID); err != nil || got.Status != perdure.Succeeded {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if got := fmt.Sprint(order); got != "[do old undo old do queued do new]" {
			t.Errorf("it happened in the order %s", got)
		}
	})
}

// TestNumbersAreNeverChangedSilently checks that a number that JSON readers round reaches the run
// as it is, or is refused, but is never changed silently.
func TestNumbersAreNeverChangedSilently(t *testing.T) {
	const big = int64(1)<<53 + 1
	exact := func(v any) bool {
		switch v := v.(type) {
		case int64:
			return v == big
		case float64:
			return false
		default:
			return fmt.Sprint(v) == fmt.Sprint(big)
		}
	}
	kinds := map[string]func(context.Context, any) (any, error){
		"input of an any":    func(_ context.Context, in any) (any, error) { return in, nil },
		"answer to an any":   func(ctx context.Context, _ any) (any, error) { return perdure.Ask[any](ctx, "v", perdure.Question{}) },
		"answer to an int64": func(ctx context.Context, _ any) (any, error) { return perdure.Ask[int64](ctx, "v", perdure.Question{}) },
		"signal to an any":   func(ctx context.Context, _ any) (any, error) { return perdure.Receive[any](ctx, "v", "go", 0) },
		"signal to an int64": func(ctx context.Context, _ any) (any, error) { return perdure.Receive[int64](ctx, "v", "go", 0) },
		"a step's any": func(ctx context.Context, _ any) (any, error) {
			return perdure.Step(ctx, "v", func(context.Context) (any, error) { return big, nil })
		},
		"a step's int64": func(ctx context.Context, _ any) (any, error) {
			return perdure.Step(ctx, "v", func(context.Context) (int64, error) { return big, nil })
		},
		"a state's any": func(ctx context.Context, _ any) (any, error) {
			key := perdure.NewState[any]("v")
			if _, err := perdure.Step(ctx, "v", func(ctx context.Context) (bool, error) { return true, key.Set(ctx, big) }); err != nil {
				return nil, err
			}
			return key.Get(ctx)
		},
	}
	kit.Bubble(t, "an int64 through it all", func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, in int64) (int64, error) {
			return in, perdure.Sleep(ctx, "nap", time.Second)
		}))
		k.StartOn("t", "f", big)
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), big)
	})
	for name, get := range kinds {
		kit.Bubble(t, name, func(t *testing.T) {
			var mu sync.Mutex
			var got any
			var loud error
			reached := false
			flow := perdure.NewFlow("f", func(ctx context.Context, in any) (bool, error) {
				v, err := get(ctx, in)
				if errors.Is(err, perdure.ErrSuspended) {
					return false, err
				}
				mu.Lock()
				defer mu.Unlock()
				got, loud, reached = v, err, true
				return true, nil
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			_, err := k.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: big})
			switch {
			case name == "input of an any" && err != nil:
				return // refused loudly
			case err != nil:
				// Not what this case is about: start it with something else.
				k.StartOn("t", "f", "x")
			}
			time.Sleep(time.Second)
			run, err := k.GetRun(t.Context(), "t", "")
			kit.NoErr(t, err)
			if len(run.Asks) > 0 {
				err = k.AnswerAsk(run.Asks[0].ID, perdure.Answer{Value: big})
			} else if len(run.Waits) > 0 {
				err = k.Signal(t.Context(), "t", "go", big, perdure.SignalOptions{})
			}
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !reached {
				t.Fatalf("nothing came:\n%s", k.Trace("t"))
			}
			if err == nil && loud == nil && !exact(got) {
				t.Errorf("%d became %v (%T)", big, got, got)
			}
		})
	}
}
