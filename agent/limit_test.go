package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestLimitsSurviveResume: what was used before a crash counts.
func TestLimitsSurviveResume(t *testing.T) {
	cases := map[string]struct {
		o    agent.Options
		want string
	}{
		"turns":  {agent.Options{Limits: agent.Limits{Turns: 4}}, "4 of 4 turns"},
		"tokens": {agent.Options{Limits: agent.Limits{Tokens: 20}}, "of 20 tokens"},
		"cost":   {agent.Options{Limits: agent.Limits{Cost: 20_000}, Price: agent.Price{Input: 1_000_000_000, Output: 1_000_000_000}}, "of 20000 millionths"},
		"time":   {agent.Options{Limits: agent.Limits{Time: 4 * time.Minute}}, "4m0s of 4m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var n tally
			work := agent.NewTool("work", "Works.", func(ctx context.Context, _ order) (string, error) {
				n.add("work")
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return "worked", ctx.Err()
			})
			model := scripted(calls(call("work", `{"id":"1"}`)))
			c.o.Tools = []agent.Tool{work, noted(&n, "ok", agent.NeedsApproval())}
			// Each turn ends with a question, which waits for an hour in another process.
			model.think = func(r *llm.Request) llm.Message {
				n.add("model")
				return calls(call("work", `{"id":"1"}`), call("ok", fmt.Sprintf(`{"id":"%d"}`, n.of("model"))))
			}
			play(t, agent.New("clerk", model, c.o), func(t *testing.T, e *perduretest.Env) {
				for range 10 {
					run, err := e.Runtime().Wait(t.Context(), "t", "")
					if err != nil {
						t.Fatal(err)
					}
					if run.Status == perdure.Failed {
						break
					}
					e.Advance(time.Hour)
					e.Restart()
					reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionApprove})
				}
				run := e.Wait("t", perdure.Failed)
				if !errors.Is(run.Err, agent.ErrLimit) || !strings.Contains(run.Error, c.want) {
					t.Errorf("it failed with %s, want %s", run.Error, c.want)
				}
			})
			if n.of("model") > 4 {
				t.Errorf("the model was asked %d times", n.of("model"))
			}
		})
	}
}

// TestRunBudgetStopsTheRunAndKeepsTheReply: it is paid for, and its calls are
// not made.
func TestRunBudgetStopsTheRunAndKeepsTheReply(t *testing.T) {
	var n tally
	model := scripted(calls(call("note", `{"id":"1"}`)), calls(call("note", `{"id":"2"}`)), llm.Assistant("done"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		// 2 and 4 tokens: the second reply is over it.
		if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "go", Budget: map[string]int64{"tokens": 5}}); err != nil {
			t.Fatal(err)
		}
		run := e.Wait("t", perdure.Failed)
		if !errors.Is(run.Err, perdure.ErrBudget) || run.Spent["tokens"] != 6 {
			t.Errorf("it failed with %v and spent %v", run.Err, run.Spent)
		}
		all := said(t, e, "t")
		if l := all[len(all)-1]; l.Message.Role != llm.RoleAssistant || !l.Over || l.Usage.Total() != 4 {
			t.Errorf("the transcript ends with %s", raw(l))
		}
		e.Start("t", "flow", "again") // its own run, and a whole conversation
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "note:3")
}

// TestBudgetEndsAMistakeToo: a reply that uses up the run's budget and does not
// fit the output is not asked for again.
func TestBudgetEndsAMistakeToo(t *testing.T) {
	type out struct {
		N int `json:"n"`
	}
	model := scripted(llm.Assistant("no JSON"))
	clerk := agent.New("clerk", model, agent.Options{Output: agent.OutputOf[out]()})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		_, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "go", Budget: map[string]int64{"tokens": 1}})
		if err != nil {
			t.Fatal(err)
		}
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, perdure.ErrBudget) || len(model.requests()) != 1 {
			t.Errorf("it failed with %v after %d requests", run.Err, len(model.requests()))
		}
	})
}

// TestMistakesHaveALimit: a model that does not learn ends the run, and one that
// does may make mistakes again later.
func TestMistakesHaveALimit(t *testing.T) {
	var n tally
	good, bad, unknown := calls(call("note", `{"id":"1"}`)), calls(call("note", `{}`)), calls(call("nota", `{}`))
	tools := []agent.Tool{noted(&n, "note")}
	play(t, agent.New("clerk", scripted(bad, unknown, good, bad, unknown, good, llm.Assistant("done")), agent.Options{Tools: tools}), func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "note:2")
	for limit, want := range map[int]int{0: 3, 1: 1, 5: 5} {
		model := scripted(bad)
		play(t, agent.New("clerk", model, agent.Options{Tools: tools, Limits: agent.Limits{Mistakes: limit}}), func(t *testing.T, e *perduretest.Env) {
			if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
				t.Errorf("it failed with %v", run.Err)
			}
		})
		if got := len(model.requests()); got != want {
			t.Errorf("with a limit of %d the model was asked %d times, want %d", limit, got, want)
		}
	}
}

// oddUsage is a model whose server cannot count.
type oddUsage llm.Usage

func (u oddUsage) Generate(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		usage := llm.Usage(u)
		if yield(llm.Delta{Text: "hello"}, nil) {
			yield(llm.Delta{Usage: &usage, Stop: llm.StopEnd}, nil)
		}
	}
}

// TestAbsurdUsageDoesNotCostTheReply: it is counted as far as it makes sense.
func TestAbsurdUsageDoesNotCostTheReply(t *testing.T) {
	for u, want := range map[oddUsage]llm.Usage{
		{Input: -5, Output: 3}:                           {Output: 3},
		{Input: math.MaxInt64, Output: math.MaxInt64}:    {Input: math.MaxInt32, Output: math.MaxInt32},
		{Input: 5, CacheRead: 9, CacheWrite: 9}:          {Input: 5, CacheRead: 5},
		{Input: math.MinInt64, CacheRead: 1, Output: -1}: {},
	} {
		clerk := agent.New("clerk", u, agent.Options{Price: agent.Price{Input: 15_000_000, Output: 75_000_000, CacheRead: 1, CacheWrite: 1}})
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			if run := e.Wait("t", perdure.Succeeded); run.Spent["tokens"] != want.Total() || run.Spent["cost"] < 0 {
				t.Errorf("%+v: it spent %v", u, run.Spent)
			}
		})
	}
}
