package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// largest returns the size of the largest entry of all threads.
func largest(t *testing.T, s store.Store) int {
	t.Helper()
	most := 0
	for _, name := range kit.Journals(t, s) {
		lines, err := store.ReadAll(context.Background(), s, name, 0)
		kit.NoErr(t, err)
		for _, l := range lines {
			most = max(most, len(l.Data))
		}
	}
	return most
}

// TestLargeValuesSurviveEverywhere sends a value of each size through every
// place that keeps one.
func TestLargeValuesSurviveEverywhere(t *testing.T) {
	for _, size := range []int{50 << 10, 64 << 10, 270 << 10} {
		kit.Bubble(t, fmt.Sprint(size), func(t *testing.T) {
			filler := strings.Repeat("x", size-20) + "ä<&>\""
			big := func(tag string) string { return tag + filler }
			on := &logs{}
			dep := newLog(on, "log")
			state, list := perdure.NewState[string]("big"), perdure.NewList[string]("bigs")
			expect := func(what, got string) {
				if got != big(what) {
					t.Errorf("the %s has %d bytes, want %d", what, len(got), len(big(what)))
				}
			}
			flow := perdure.NewFlow("f", func(ctx context.Context, in string) (string, error) {
				expect("input", in)
				r, err := perdure.Step(ctx, "result", func(ctx context.Context) (string, error) {
					l, err := dep.Get(ctx)
					if err != nil {
						return "", err
					}
					if len(l.Lines) == 0 {
						l.add(big("dep"))
					}
					return big("result"), errors.Join(state.Set(ctx, big("state")), list.Append(ctx, big("list"), big("list")))
				})
				if err != nil {
					return "", err
				}
				expect("result", r)
				s, err := state.Get(ctx)
				if err != nil {
					return "", err
				}
				expect("state", s)
				l, err := list.Get(ctx)
				if err != nil || len(l) != 2 {
					return "", fmt.Errorf("%d values: %w", len(l), err)
				}
				expect("list", l[1])
				if err := perdure.Emit(ctx, "emitted", big("emitted")); err != nil {
					return "", err
				}
				a, err := perdure.Ask[string](ctx, "ask", perdure.Question{Data: big("data")})
				if err != nil {
					return "", err
				}
				expect("answer", a)
				d, err := dep.Get(ctx)
				if err != nil {
					return "", err
				}
				expect("dep", d.text())
				sig, err := perdure.Receive[string](ctx, "r", "go", 0)
				if err != nil {
					return "", err
				}
				expect("signal", sig)
				st, ok, err := perdure.Take[string](ctx, "take")
				if err != nil || !ok {
					return "", fmt.Errorf("took %v: %w", ok, err)
				}
				expect("steer", st)
				return big("output"), nil
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "f", big("input"))
			run := k.WaitFor("t", perdure.Suspended)
			var data string
			kit.NoErr(t, json.Unmarshal(k.AskAt(run, "/ask").Data, &data))
			expect("data", data)
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "f", Input: big("steer"), Policy: perdure.Steer})
			kit.WantErr(t, "progress", k.Progress(t.Context(), run.Asks[0].ID, big("progress"), perdure.Note{}), nil)
			k.AnswerAt(run, "/ask", perdure.Answer{Value: big("answer")})
			k.WaitForRun("t", "", perdure.Suspended)
			k.MustSignal("t", "go", big("signal"), "")
			run = k.WaitForRun("t", "", perdure.Succeeded)
			kit.WantOutput(t, run, big("output"))
			if n := largest(t, k.Store); n > store.MaxEntry {
				t.Errorf("the largest entry has %d bytes", n)
			}
			found := map[string]bool{}
			for _, e := range k.EventsOf("t") {
				var s string
				if json.Unmarshal(e.Value, &s) == nil && len(s) > size/2 {
					found[e.Kind] = true
				}
			}
			for _, kind := range []string{"queued", "step", "emitted", "asked", "answered", "signal", "progress", "took", "ended"} {
				if !found[kind] {
					t.Errorf("the event %q has no value", kind)
				}
			}
			c, err := k.StateAt(t.Context(), "t", 0)
			if err != nil || len(c.State["big"]) < len(filler) || len(c.Deps["log"]) < len(filler) || len(c.State["bigs"]) < 2*len(filler) {
				t.Errorf("StateAt: state %d, list %d, dep %d bytes, %v", len(c.State["big"]), len(c.State["bigs"]), len(c.Deps["log"]), err)
			}
		})
	}
}

// TestResultThatIsPassedOnIsNotLost returns the result of a step through steps
// and flow: it is written once, and read everywhere.
func TestResultThatIsPassedOnIsNotLost(t *testing.T) {
	for _, size := range []int{10, 100, 10_000, 100_000} {
		kit.Bubble(t, fmt.Sprint(size), func(t *testing.T) {
			want := strings.Repeat("r", size)
			var nest func(ctx context.Context, depth int) (string, error)
			nest = func(ctx context.Context, depth int) (string, error) {
				return perdure.Step(ctx, fmt.Sprint("s", depth), func(ctx context.Context) (string, error) {
					if depth == 0 {
						return want, nil
					}
					return nest(ctx, depth-1)
				})
			}
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				out, err := nest(ctx, 4)
				if err != nil {
					return "", err
				}
				if out != want {
					t.Errorf("inside the run it has %d bytes", len(out))
				}
				if err := perdure.Sleep(ctx, "nap", time.Second); err != nil {
					return "", err
				}
				return out, nil
			})
			k := kit.New(t, nil, perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), want)
			thread, err := k.Get(t.Context(), "t")
			if err != nil || len(thread.Runs[0].Output) != size+2 {
				t.Errorf("Get shows %d bytes, %v", len(thread.Runs[0].Output), err)
			}
			bySeq := map[uint64]perdure.Event{}
			for _, e := range k.EventsOf("t") {
				bySeq[e.Seq] = e
				if e.ValueOf != 0 && len(bySeq[e.ValueOf].Value) != size+2 {
					t.Errorf("event %d points at event %d, which has no value", e.Seq, e.ValueOf)
				}
			}
		})
	}
}

// TestLargeValueOfManySmallOnes has changes that are small each and too large
// for an entry together.
func TestLargeValueOfManySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (int, error) {
			if _, err := perdure.Step(ctx, "s", func(ctx context.Context) (int, error) {
				var errs []error
				for i := range n {
					errs = append(errs, perdure.NewState[string](fmt.Sprint("k", i)).Set(ctx, strings.Repeat("v", 3000)))
				}
				return n, errors.Join(errs...)
			}); err != nil {
				return 0, err
			}
			if err := perdure.Sleep(ctx, "nap", time.Second); err != nil {
				return 0, err
			}
			found := 0
			for i := range n {
				if v, err := perdure.NewState[string](fmt.Sprint("k", i)).Get(ctx); err == nil && len(v) == 3000 {
					found++
				}
			}
			return found, nil
		})
		k := kit.New(t, nil, perdure.Options{}, flow)
		k.StartOn("t", "f", "")
		kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), n)
		if size := largest(t, k.Store); size > store.MaxEntry {
			t.Errorf("the largest entry has %d bytes", size)
		}
	})
}
