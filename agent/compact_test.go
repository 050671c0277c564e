package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// narrow is a model that takes conversations of a few messages only.
func narrow(max int, b *brain) llm.Model {
	return llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		if len(r.Messages) > max {
			return func(yield func(llm.Delta, error) bool) {
				yield(llm.Delta{}, &llm.Error{Kind: llm.ErrTooLong, Provider: "p"})
			}
		}
		return b.Generate(ctx, r)
	})
}

// TestTooLongIsMadeShorter: by what the provider says, without cutting a call
// from its results (which brain checks), with all messages still in the
// transcript, and for the next run too.
func TestTooLongIsMadeShorter(t *testing.T) {
	for _, strategy := range []agent.Strategy{agent.Trim, agent.Summarise} {
		t.Run(string(strategy), func(t *testing.T) {
			var n tally
			b := &brain{think: func(r *llm.Request) llm.Message {
				if n.add("model") <= 12 && r.Messages[len(r.Messages)-1].Text() != "and?" {
					return calls(call("note", fmt.Sprintf(`{"id":"%d"}`, n.of("model"))), call("note", fmt.Sprintf(`{"id":"%d"}`, n.of("model"))))
				}
				return llm.Assistant("I see: " + r.Messages[0].Text())
			}}
			sum := say(nil, func(string) string { n.add("summary"); return "so far so good" })
			clerk := agent.New("clerk", narrow(9, b), agent.Options{Tools: []agent.Tool{noted(&n, "note")},
				Context: agent.Context{Strategy: strategy, Keep: 5, Model: sum}})
			perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "the task")
				got := text(t, e.Wait("t", perdure.Succeeded))
				want := map[agent.Strategy]string{agent.Trim: "the task", agent.Summarise: "so far so good"}[strategy]
				if !strings.Contains(got, want) {
					t.Errorf("in the end the model sees %q, want %q in it", got, want)
				}
				if strategy == agent.Summarise && n.of("summary") == 0 {
					t.Error("nobody wrote a summary")
				}
				calls, answers, summaries := 0, 0, 0
				for _, r := range said(t, e, "t") {
					calls += len(r.Message.Calls())
					for _, p := range r.Message.Parts {
						if p.Result != nil {
							answers++
						}
					}
					if r.Summary != nil {
						summaries++
					}
				}
				if calls != 24 || answers != 24 || summaries == 0 {
					t.Errorf("the transcript has %d calls, %d results and %d summaries, want 24, 24 and some", calls, answers, summaries)
				}
				e.Restart()
				e.Start("t", "flow", "and?")
				if got := text(t, e.Wait("t", perdure.Succeeded)); !strings.Contains(got, want) {
					t.Errorf("the next run sees %q", got)
				}
			})
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.n["note"] != 24 {
				t.Errorf("the tool was called %d times, want 24", n.n["note"])
			}
		})
	}
}

// TestTooLongBeforeKeepIsMadeShorterToo: a few long messages are too long as
// well, and the agent does not give up on them.
func TestTooLongBeforeKeepIsMadeShorterToo(t *testing.T) {
	var n tally
	b := &brain{think: func(r *llm.Request) llm.Message {
		if n.add("model") <= 6 {
			return calls(call("note", `{"id":"1"}`))
		}
		return llm.Assistant("done")
	}}
	clerk := agent.New("clerk", narrow(5, b), agent.Options{Tools: []agent.Tool{noted(&n, "note")}, Context: agent.Context{Strategy: agent.Trim}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "the task")
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "model:7 note:6")
}

// TestTooLongWithoutAStrategyEndsTheRun and so does one message that is too
// long by itself.
func TestTooLongWithoutAStrategyEndsTheRun(t *testing.T) {
	for name, c := range map[string]agent.Context{"no strategy": {}, "nothing to leave out": {Strategy: agent.Trim}} {
		t.Run(name, func(t *testing.T) {
			play(t, agent.New("clerk", narrow(0, scripted(llm.Assistant("x"))), agent.Options{Context: c}), func(t *testing.T, e *perduretest.Env) {
				if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrTooLong) {
					t.Errorf("it failed with %v", run.Err)
				}
			})
		})
	}
}

// TestCompactionSurvives a crash at every write.
func TestCompactionSurvives(t *testing.T) {
	var fx perduretest.Effects
	b := &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if strings.Contains(r.Messages[0].Text(), "summed up") {
			return llm.Assistant("done: " + r.Messages[0].Text())
		}
		return calls(call("note", `{"id":"1"}`))
	}}
	note := agent.NewTool("note", "Notes.", func(ctx context.Context, _ order) (string, error) { fx.Count(ctx, "note"); return "noted", nil })
	clerk := agent.New("clerk", narrow(5, b), agent.Options{Tools: []agent.Tool{note},
		Context: agent.Context{Strategy: agent.Summarise, Keep: 2, Model: say(&fx, func(string) string { return "summed up" })}})
	sweep(t, perduretest.Crash{Flows: []perdure.Flow{agent.NewFlow("flow", clerk)}, Start: []perdure.StartRequest{{Flow: "flow", Input: "go"}}, Effects: &fx})
}

// TestContextNeverLeavesOutWhatTheModelHasNotSeen: the results of its last calls
// and what users said since are there, however short the conversation has to be.
// A model that does not see its result makes the same call again.
func TestContextNeverLeavesOutWhatTheModelHasNotSeen(t *testing.T) {
	for _, strategy := range []agent.Strategy{agent.Trim, agent.Summarise} {
		for _, keep := range []int{1, 2, 20} {
			t.Run(fmt.Sprintf("%s-%d", strategy, keep), func(t *testing.T) {
				read := agent.NewTool("read", "Reads.", func(_ context.Context, o order) (string, error) {
					return "content of " + o.ID + strings.Repeat(" word", 2000), nil
				})
				turn := 0
				model := &brain{}
				model.think = func(r *llm.Request) llm.Message {
					if len(r.Tools) == 0 {
						return llm.Assistant("a summary")
					}
					if turn > 0 && !strings.Contains(results(last(r)), fmt.Sprint("content of f", turn)) {
						t.Errorf("turn %d: the model does not see the result of its last call, but %.300s", turn, raw(r.Messages))
					}
					if turn++; turn > 5 {
						return llm.Assistant("end")
					}
					return calls(call("read", fmt.Sprintf(`{"id":"f%d"}`, turn)))
				}
				clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{read}, Context: agent.Context{Strategy: strategy, MaxTokens: 2000, Keep: keep}})
				perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
					e.Start("t", "flow", "the task")
					e.Wait("t", perdure.Succeeded)
					short := 0
					for _, r := range said(t, e, "t") {
						if r.Summary != nil {
							short++
						}
					}
					if short == 0 {
						t.Error("the conversation was never made shorter")
					}
				})
			})
		}
	}
}

// TestContextKeepsAllOfTheNewInput, when it is the history that is too long.
func TestContextKeepsAllOfTheNewInput(t *testing.T) {
	model := &brain{think: func(r *llm.Request) llm.Message { return llm.Assistant(strings.Repeat("word ", 1000)) }}
	clerk := agent.New("clerk", model, agent.Options{Context: agent.Context{Strategy: agent.Trim, MaxTokens: 1000, Keep: 1}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "old task")
		e.Wait("t", perdure.Succeeded)
		e.Start("t", "flow", []llm.Message{llm.User("first half " + strings.Repeat("a", 2000)), llm.User("second half " + strings.Repeat("b", 2000))})
		e.Wait("t", perdure.Succeeded)
		if got := string(raw(model.requests()[1].Messages)); !strings.Contains(got, "first half") || !strings.Contains(got, "second half") {
			t.Errorf("the model reads %.300s", got)
		}
	})
}
