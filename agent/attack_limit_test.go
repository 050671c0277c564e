package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestEscalationEndsALoopAfterTheCurrentChild: the child that escalates ends
// what it is doing, and no further child runs.
func TestEscalationEndsALoopAfterTheCurrentChild(t *testing.T) {
	var n tally
	critic := agent.New("critic", &brain{think: func(r *llm.Request) llm.Message {
		if n.add("critic") == 3 {
			return calls(call("exit_loop", "{}"), call("note", `{"id":"1"}`))
		}
		return llm.Assistant("fine")
	}}, agent.Options{Tools: []agent.Tool{agent.ExitLoop, noted(&n, "note")}})
	writer := teller(&n, "writer", false, "text", agent.Options{})
	outer := agent.Loop("outer", 2, agent.Loop("inner", 9, critic, writer), teller(&n, "reader", false, "read", agent.Options{}))
	perduretest.Virtual(t, flows(outer), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
	})
	// The critic says one thing more after its call; the outer loop is not ended
	// by what was for the inner one.
	n.want(t, "critic:13 note:1 reader:2 writer:11")
}

// TestFailedParallelBranchKeepsItsSiblings: a retry runs what failed and
// nothing else.
func TestFailedParallelBranchKeepsItsSiblings(t *testing.T) {
	var n tally
	bad := agent.Func("bad", func(ctx context.Context, _ agent.Content) (string, error) {
		if _, err := perdure.Step(ctx, "first", func(context.Context) (bool, error) { n.add("bad first"); return true, nil }); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "second", func(context.Context) (string, error) {
			if n.add("bad second") == 1 {
				return "", errors.New("broken")
			}
			return "mended", nil
		})
	})
	all := agent.Parallel("all", teller(&n, "a", false, "A", agent.Options{}), bad, teller(&n, "c", false, "C", agent.Options{}))
	perduretest.Virtual(t, flows(agent.Sequential("seq", all, teller(&n, "end", false, "E", agent.Options{}))), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if run := e.Wait("t", perdure.Failed); !strings.Contains(run.Error, "broken") {
			t.Errorf("it failed with %s", run.Error)
		}
		n.want(t, "a:1 bad first:1 bad second:1 c:1")
		e.Restart()
		if err := e.Runtime().Retry(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "a:1 bad first:1 bad second:2 c:1 end:1")
}

// TestParallelThatFailsFast: an agent that fails closes the approval that another
// waits for, and a retry asks for it anew. Only Parallel can do so.
func TestParallelThatFailsFast(t *testing.T) {
	var mended atomic.Bool
	bad := agent.Func("bad", func(ctx context.Context, _ agent.Content) (string, error) {
		return perdure.Step(ctx, "work", func(context.Context) (string, error) {
			time.Sleep(time.Minute)
			if !mended.Load() {
				return "", errors.New("broken")
			}
			return "mended", nil
		})
	})
	pay := agent.NewTool("pay", "Pays.", func(context.Context, order) (string, error) { return "paid", nil }, agent.NeedsApproval())
	clerk := agent.New("clerk", scripted(calls(call("pay", `{"id":"1"}`)), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{pay}})
	both := agent.Parallel("both", clerk, bad)
	perduretest.Virtual(t, flows(agent.FailFast(both)), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		ask := ""
		for ev, err := range e.Runtime().Events(t.Context(), "t", perdure.EventOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == "asked" {
				ask = ev.Ask
			}
			if ev.Kind == "ended" {
				break
			}
		}
		approve := perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask, Answer: approve}); !errors.Is(err, perdure.ErrAskOver) {
			t.Errorf("the ask of the other agent: %v, want ErrAskOver", err)
		}
		if run := e.Wait("t", perdure.Failed); !strings.Contains(run.Error, "broken") {
			t.Errorf("it failed with %s", run.Error)
		}
		mended.Store(true)
		if err := e.Runtime().Retry(t.Context(), "t", "", perdure.Note{}); err != nil {
			t.Fatal(err)
		}
		run := e.Wait("t", perdure.Suspended)
		e.Answer("t", run.Asks[0].Path, approve)
		if run = e.Wait("t", perdure.Succeeded); !strings.Contains(string(run.Output), "mended") {
			t.Errorf("it returned %s", run.Output)
		}
	})
	for name, bad := range map[string]agent.Agent{"nothing": nil, "one": clerk, "in turn": agent.Sequential("seq", clerk)} {
		if err := agent.Check(agent.FailFast(bad)); !errors.Is(err, agent.ErrOption) {
			t.Errorf("%s: %v, want ErrOption", name, err)
		}
	}
}

// TestCancelledRunLeavesACallThatTheNextOneRepairs: the model gets a
// conversation that a provider takes, which brain checks.
func TestCancelledRunLeavesACallThatTheNextOneRepairs(t *testing.T) {
	var n tally
	stuck := agent.NewTool("stuck", "Never ends.", func(ctx context.Context, _ order) (string, error) { return "", hang(ctx) })
	model := &brain{think: func(r *llm.Request) llm.Message {
		if last(r).Text() == "go" {
			return calls(call("note", `{"id":"1"}`), call("stuck", `{"id":"1"}`), call("pay", `{"id":"1"}`))
		}
		return llm.Assistant("I see " + results(r.Messages[2]))
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note"), stuck, noted(&n, "pay", agent.NeedsApproval())}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Advance(time.Second)
		if err := e.Runtime().Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		run, err := e.Runtime().WaitEnd(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Cancelled {
			t.Fatalf("the run is %s, %v", run.Status, err)
		}
		e.Start("t", "flow", "and now?")
		got := text(t, e.Wait("t", perdure.Succeeded))
		for _, want := range []string{"note=note 1;", "stuck=There is no result", "pay=The call was not made"} {
			if !strings.Contains(got, want) {
				t.Errorf("the model says %q, want %s in it", got, want)
			}
		}
	})
	n.want(t, "note:1")
}

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
			// Each turn ends with a question, which waits for days in another process.
			model.think = func(r *llm.Request) llm.Message {
				n.add("model")
				return calls(call("work", `{"id":"1"}`), call("ok", fmt.Sprintf(`{"id":"%d"}`, n.of("model"))))
			}
			perduretest.Virtual(t, flows(agent.New("clerk", model, c.o)), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				for range 10 {
					run, err := e.Runtime().Wait(t.Context(), "t", "")
					if err != nil {
						t.Fatal(err)
					}
					if run.Status == perdure.Failed {
						break
					}
					e.Advance(24 * time.Hour)
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

// TestRateLimitOfAnHourWaitsAsATimer: the run is suspended, nothing of it is in
// memory, and another process goes on.
func TestRateLimitOfAnHourWaitsAsATimer(t *testing.T) {
	var n tally
	ok := scripted(llm.Assistant("at last"))
	model := llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		if n.add("model") == 1 {
			return func(yield func(llm.Delta, error) bool) {
				if yield(llm.Delta{Text: "at "}, nil) {
					yield(llm.Delta{}, &llm.Error{Kind: llm.ErrRateLimited, Provider: "p", Status: 429, RetryAfter: time.Hour})
				}
			}
		}
		return ok.Generate(ctx, r)
	})
	perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{})), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		begin := time.Now()
		e.Advance(time.Minute)
		run, err := e.Runtime().GetRun(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Suspended || len(run.Waits) != 1 || run.Waits[0].Kind != "retry" {
			t.Fatalf("the run is %s and waits for %v (%v), want a suspended one", run.Status, run.Waits, err)
		}
		e.Restart()
		e.Advance(50 * time.Minute)
		n.want(t, "model:1")
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "at last" {
			t.Errorf("got %q", got)
		}
		if d := time.Since(begin); d < time.Hour {
			t.Errorf("it came back after %s", d)
		}
	})
	n.want(t, "model:2")
}

// TestModelErrorsEndTheRunOrAreTriedAgain goes through the kinds of errors.
func TestModelErrorsEndTheRunOrAreTriedAgain(t *testing.T) {
	for kind, want := range map[error]struct {
		is    error
		asked int
	}{
		llm.ErrOverloaded:  {agent.ErrModel, 8},
		llm.ErrInterrupted: {agent.ErrModel, 8},
		llm.ErrRateLimited: {agent.ErrModel, 8},
		llm.ErrAuth:        {agent.ErrModel, 1},
		llm.ErrInvalid:     {agent.ErrModel, 1},
		llm.ErrRefused:     {agent.ErrRefused, 1},
		llm.ErrTooLong:     {agent.ErrTooLong, 1},
	} {
		t.Run(kind.Error(), func(t *testing.T) {
			var n tally
			model := llm.ModelFunc(func(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
				n.add("model")
				return func(yield func(llm.Delta, error) bool) { yield(llm.Delta{}, &llm.Error{Kind: kind, Provider: "p"}) }
			})
			perduretest.Virtual(t, flows(agent.New("clerk", model, agent.Options{})), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "go")
				if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, want.is) {
					t.Errorf("it failed with %v, want %v", run.Err, want.is)
				}
			})
			if got := n.of("model"); got != want.asked {
				t.Errorf("the model was asked %d times, want %d", got, want.asked)
			}
		})
	}
}
