package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// What is recorded in these tests is {"n":1}, which one type takes and the other
// does not.
type (
	takesIt struct {
		N int `json:"n"`
	}
	takesItNot struct {
		N string `json:"n"`
	}
	panicsAtIt struct{ takesItNot }
)

func (p *panicsAtIt) UnmarshalJSON(raw []byte) error { panic("no " + string(raw)) }

// misfitDep is a dep that keeps a T.
type misfitDep[T any] struct{ v json.RawMessage }

func (d *misfitDep[T]) Dump(context.Context) (json.RawMessage, error) { return d.v, nil }

func (d *misfitDep[T]) Load(_ context.Context, raw json.RawMessage) error {
	return json.Unmarshal(raw, new(T))
}

// misfits are the ways in which code reads what is recorded, into a T. Each
// gives the place that the diff names, below the frame that reads.
func misfits[T any]() map[string]func(ctx context.Context) (string, error) {
	recorded := json.RawMessage(`{"n":1}`)
	leaf := func(ctx context.Context, name string, fn func(ctx context.Context) error) error {
		_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) { return true, fn(ctx) })
		return err
	}
	dep := perdure.NewDep("dep", func(context.Context) (*misfitDep[T], error) { return &misfitDep[T]{}, nil })
	return map[string]func(context.Context) (string, error){
		"step": func(ctx context.Context) (string, error) {
			_, err := perdure.Step(ctx, "value", func(context.Context) (T, error) {
				var v T
				return v, json.Unmarshal(recorded, &v)
			})
			return "the result of the step at %s/value", err
		},
		"at-most-once": func(ctx context.Context) (string, error) {
			_, err := perdure.Step(ctx, "value", func(context.Context) (v T, err error) { return v, errors.New("who knows") },
				perdure.AtMostOnce(), perdure.Timeout(time.Second))
			return "the result of the step at %s/value", err
		},
		"ask": func(ctx context.Context) (string, error) {
			_, err := perdure.Ask[T](ctx, "value", perdure.Question{})
			return "the answer of the ask at %s/value", err
		},
		"receive": func(ctx context.Context) (string, error) {
			_, err := perdure.Receive[T](ctx, "value", "go", 0)
			return "the signal that was received at %s/value", err
		},
		"take": func(ctx context.Context) (string, error) {
			err := perdure.Sleep(ctx, "nap", time.Minute) // for the input to come
			if err == nil {
				_, _, err = perdure.Take[T](ctx, "value")
			}
			return "the input that was taken at %s/value", err
		},
		"join": func(ctx context.Context) (string, error) {
			kid, err := perdure.Spawn(ctx, "kid", "kid", "")
			if err == nil {
				_, err = perdure.Join[T](ctx, "value", kid)
			}
			return "the output of the child that is joined at %s/value", err
		},
		"input": func(context.Context) (string, error) { return "the input", nil },
		"state": func(ctx context.Context) (string, error) {
			err := leaf(ctx, "set", func(ctx context.Context) error { return perdure.NewState[json.RawMessage]("k").Set(ctx, recorded) })
			if err == nil {
				_, err = perdure.NewState[T]("k").Get(ctx)
			}
			return `state "k", read at %s/`, err
		},
		"list": func(ctx context.Context) (string, error) {
			err := leaf(ctx, "set", func(ctx context.Context) error { return perdure.NewList[json.RawMessage]("k").Append(ctx, recorded) })
			if err == nil {
				_, err = perdure.NewList[T]("k").Get(ctx)
			}
			return `state "k", read at %s/`, err
		},
		"dep": func(ctx context.Context) (string, error) {
			err := leaf(ctx, "set", func(ctx context.Context) error {
				d, err := dep.Get(ctx)
				if err == nil {
					d.v = recorded
				}
				return err
			})
			if err == nil {
				_, err = dep.Get(ctx)
			}
			return `the state of dep "dep"`, err
		},
	}
}

// misfitFlow reads what is recorded, waits at /hold, and then has an effect. It
// heeds no error. Inside says where that is done.
func misfitFlow[T any](kind, inside string, effects *int) perdure.Flow {
	body := func(ctx context.Context) error {
		_, _ = misfits[T]()[kind](ctx)
		_, _ = perdure.Ask[bool](ctx, "hold", perdure.Question{})
		_, _ = perdure.Step(ctx, "effect", func(context.Context) (bool, error) {
			*effects++
			return true, nil
		})
		return nil
	}
	run := func(ctx context.Context) (string, error) {
		switch inside {
		case "flow":
			_ = body(ctx)
		case "scope":
			_, _ = perdure.Scope(ctx, "in", func(ctx context.Context) (bool, error) { return true, body(ctx) })
		case "step":
			_, _ = perdure.Step(ctx, "in", func(ctx context.Context) (bool, error) { return true, body(ctx) })
		case "branch":
			g := perdure.NewGroup(ctx)
			g.Go("in", body)
			_ = g.Wait()
		case "cleanup":
			_ = perdure.Cleanup(ctx, "in", body)
		}
		return "done", nil
	}
	if kind == "input" {
		return perdure.NewFlow("f", func(ctx context.Context, _ T) (string, error) { return run(ctx) })
	}
	return perdure.NewFlow("f", func(ctx context.Context, _ json.RawMessage) (string, error) { return run(ctx) })
}

// TestWhatNoLongerFitsItsTypeBlocks changes the type into which code reads what
// a run has recorded. The run is blocked, and nothing runs, although the code
// ignores the error. With code that fits, and a retry, it continues.
func TestWhatNoLongerFitsItsTypeBlocks(t *testing.T) {
	for kind := range misfits[takesIt]() {
		for _, inside := range []string{"flow", "scope", "step", "branch", "cleanup"} {
			if kind == "input" && inside != "flow" {
				continue
			}
			kit.Bubble(t, kind+" in "+inside, func(t *testing.T) {
				effects := 0
				good := misfitFlow[takesIt](kind, inside, &effects)
				k := kit.New(t, nil, perdure.Options{}, good, perdure.NewFlow("kid", func(context.Context, string) (takesIt, error) { return takesIt{1}, nil }))
				playMisfit(k, kind)
				k.Stop()

				bad := misfitFlow[takesItNot](kind, inside, &effects)
				want := []string{"- recorded: ", `{"n":1}`, "+ the code: ", "engine_test.", "takesItNot", "cannot unmarshal number into Go struct field "}
				where, _ := misfits[takesIt]()[kind](t.Context())
				want = append(want, strings.ReplaceAll(where, "%s", strings.TrimSuffix(holdAt(inside), "/hold"))+":\n")

				if r := replayed(k, t, bad); r.OK() || !containsAll(r.Runs[0].Problem, want) {
					t.Errorf("a replay says:\n%s\nwant %q", r.Runs[0].Problem, want)
				}
				if r := replayed(k, t, good); !r.OK() {
					t.Errorf("the code that recorded it does not fit: %s", r.Runs[0].Problem)
				}
				k = kit.New(t, k.Store, perdure.Options{}, bad)
				k.AnswerAt(k.WaitFor("t", perdure.Suspended), holdAt(inside), perdure.Answer{Value: true})
				run := k.WaitFor("t", perdure.Blocked)
				if effects != 0 || !containsAll(run.Diff, want) {
					t.Errorf("%d effects, and the diff is:\n%s\nwant %q", effects, run.Diff, want)
				}
				k.Stop()
				k = kit.New(t, k.Store, perdure.Options{}, good)
				kit.NoErr(t, k.Retry(t.Context(), "t", run.ID, perdure.Note{}))
				if k.WaitFor("t", perdure.Succeeded); effects != 1 {
					t.Errorf("%d effects", effects)
				}
			})
		}
	}
}

func holdAt(inside string) string {
	if inside == "flow" {
		return "/hold"
	}
	return "/in/hold"
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// playMisfit starts the run of a kind and lets it come to /hold.
func playMisfit(k *kit.Kit, kind string) {
	k.T.Helper()
	value := json.RawMessage(`{"n":1}`)
	k.StartOn("t", "f", value)
	switch kind {
	case "at-most-once":
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, run.Asks[0].Path, perdure.Answer{Decision: perdure.DecisionDone, Value: value})
	case "ask":
		run := k.WaitFor("t", perdure.Suspended)
		k.AnswerAt(run, run.Asks[0].Path, perdure.Answer{Value: value})
	case "receive":
		k.WaitFor("t", perdure.Suspended)
		kit.NoErr(k.T, k.Signal(k.T.Context(), "t", "go", value, perdure.SignalOptions{}))
	case "take":
		time.Sleep(time.Second)
		if _, err := k.Start(k.T.Context(), perdure.StartRequest{Thread: "t", Flow: "f", Input: value, Policy: perdure.Steer}); err != nil {
			k.T.Fatal(err)
		}
	}
	time.Sleep(2 * time.Minute)
	if run := k.WaitFor("t", perdure.Suspended); len(run.Asks) != 1 || !strings.HasSuffix(run.Asks[0].Path, "/hold") {
		k.T.Fatalf("it does not wait at /hold:\n%s", k.Trace("t"))
	}
}

// replayed replays the thread "t" with a flow.
func replayed(k *kit.Kit, t *testing.T, flow perdure.Flow) *perdure.Replayed {
	t.Helper()
	r, err := perdure.Replay(t.Context(), bytes.NewReader(k.MustExport("t", perdure.ExportOptions{})), flow)
	kit.NoErr(t, err)
	return r
}

// TestAMisfitInACancelledRunEndsIt: no code of a cancelled run has to continue,
// and a type that panics on the recorded value does not fit either.
func TestAMisfitInACancelledRunEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		effects := 0
		k := kit.New(t, nil, perdure.Options{}, misfitFlow[takesIt]("ask", "flow", &effects))
		playMisfit(k, "ask")
		k.Stop()
		k = kit.New(t, k.Store, perdure.Options{}, misfitFlow[panicsAtIt]("ask", "flow", &effects))
		kit.NoErr(t, k.Control("cancel", "t", ""))
		run := k.WaitFor("t", perdure.Cancelled)
		if trace := k.Trace("t"); effects != 0 || !strings.Contains(trace, "blocked") {
			t.Errorf("%d effects, %+v\n%s", effects, run, trace)
		}
	})
}

// TestAMisfitInsideALeafBlocks: what a leaf did in vain is not recorded.
func TestAMisfitInsideALeafBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read func(context.Context) error
		flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			_, err := perdure.Step(ctx, "set", func(ctx context.Context) (bool, error) {
				return true, perdure.NewState[takesIt]("k").Set(ctx, takesIt{1})
			})
			if err == nil {
				_, err = perdure.Step(ctx, "get", func(ctx context.Context) (bool, error) {
					_ = read(ctx)
					return true, nil
				})
			}
			return "done", err
		})
		text := perdure.NewText("k")
		k := kit.New(t, nil, perdure.Options{}, flow)
		for name, fn := range map[string]func(context.Context) error{
			"state":   func(ctx context.Context) error { _, err := perdure.NewState[takesItNot]("k").Get(ctx); return err },
			"counter": func(ctx context.Context) error { _, err := perdure.NewCounter("k").Get(ctx); return err },
			"get":     func(ctx context.Context) error { _, err := text.Get(ctx); return err },
			"set":     func(ctx context.Context) error { return text.Set(ctx, "x") },
			"replace": func(ctx context.Context) error { _, err := text.Replace(ctx, "x", "y"); return err },
		} {
			read = fn
			k.StartOn(name, "f", "")
			if run := k.WaitFor(name, perdure.Blocked); !strings.Contains(run.Diff, `state "k", read at /get/:`) || strings.Contains(k.Trace(name), "/get") {
				t.Errorf("%s: %s\n%s", name, run.Diff, k.Trace(name))
			}
		}
	})
}
