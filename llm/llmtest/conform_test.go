package llmtest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/llm"
)

// whole is a reply as it should be.
var whole = []llm.Delta{
	{Text: "a", Model: "m"}, {Text: "b"},
	{Part: 1, Call: &llm.Call{ID: "1", Name: "t"}}, {Part: 1, Call: &llm.Call{Args: "{}"}},
	{Usage: &llm.Usage{Input: 3, Output: 2, Reasoning: 1}, Stop: llm.StopCalls},
}

// say is a model that yields deltas, and an error at the end if there is one.
func say(end error, deltas ...llm.Delta) llm.ModelFunc {
	return func(ctx context.Context, _ *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			for _, d := range deltas {
				if ctx.Err() != nil {
					yield(llm.Delta{}, ctx.Err())
					return
				}
				if !yield(d, nil) {
					return
				}
			}
			if end != nil {
				yield(llm.Delta{}, end)
			}
		}
	}
}

func with(i int, d llm.Delta) []llm.Delta {
	list := slices.Clone(whole)
	list[i] = d
	return list
}

func TestRunAcceptsAModelAsItShouldBe(t *testing.T) {
	Run(t, func(*testing.T) llm.Model { return say(nil, whole...) })
}

// TestRunCatches runs each check over models that do not hold it.
func TestRunCatches(t *testing.T) {
	good := say(nil, whole...)
	var over chan struct{}
	var first sync.Once
	for name, c := range map[string]struct {
		check string
		model llm.ModelFunc
	}{
		"a part that is left out":  {"DeltasFold", say(nil, with(1, llm.Delta{Part: 5, Text: "b"})...)},
		"no stop":                  {"DeltasFold", say(nil, whole[:3]...)},
		"a stop of its own":        {"DeltasFold", say(nil, with(4, llm.Delta{Stop: "tired"})...)},
		"a call without a name":    {"DeltasFold", say(nil, with(2, llm.Delta{Part: 1, Call: &llm.Call{ID: "1"}})...)},
		"calls that are not there": {"DeltasFold", say(nil, llm.Delta{Stop: llm.StopCalls})},
		"more thought than all":    {"DeltasFold", say(nil, with(4, llm.Delta{Stop: llm.StopCalls, Usage: &llm.Usage{Reasoning: 5}})...)},
		"usage after the stop":     {"StopIsLast", say(nil, append(slices.Clone(whole), llm.Delta{Usage: &llm.Usage{}})...)},
		"an error after the stop":  {"StopIsLast", say(errors.New("late"), whole...)},
		"no stop at the end":       {"StopIsLast", say(nil, whole[:2]...)},
		"no replies later": {"ReplyGoesBack", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			if len(r.Messages) > 3 {
				return say(llm.ErrInvalid)(ctx, r)
			}
			return good(ctx, r)
		}},
		"goes on after the loop": {"LoopMayEnd", func(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
			return func(yield func(llm.Delta, error) bool) {
				for _, d := range whole {
					yield(d, nil)
				}
			}
		}},
		"starts a goroutine": {"NothingLeaks", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			until := over
			go func() { <-until }()
			return good(ctx, r)
		}},
		"does not look at the context": {"CancelledBefore", func(_ context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			return good(context.Background(), r)
		}},
		"has an error of its own": {"CancelledBefore", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			return say(llm.ErrInterrupted)(context.Background(), r)
		}},
		"hides the context's error": {"CancelledBetween", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			return func(yield func(llm.Delta, error) bool) {
				for d, err := range good(ctx, r) {
					if err != nil {
						err = llm.ErrInterrupted
					}
					if !yield(d, err) {
						return
					}
				}
			}
		}},
		"writes to the request": {"RequestStays", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			r.Messages[0].Parts[0].Text = "mine"
			return good(ctx, r)
		}},
		"fails once": {"Concurrent", func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
			model := good
			first.Do(func() { model = say(llm.ErrOverloaded) })
			return model(ctx, r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range checks {
				if check.name != c.check {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					over = make(chan struct{})
					defer close(over)
					if err := check.run(t.Context(), good); err != nil {
						t.Errorf("%s refuses a good model: %v", c.check, err)
					}
					if check.run(t.Context(), c.model) == nil {
						t.Errorf("%s does not notice", c.check)
					}
				})
				return
			}
			t.Fatalf("there is no check %s", c.check)
		})
	}
}
