package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// say is a model that says what a function makes of the last message.
func say(fx *perduretest.Effects, fn func(last string) string) *brain {
	return &brain{fx: fx, think: func(r *llm.Request) llm.Message { return llm.Assistant(fn(last(r).Text())) }}
}

// TestSequentialParallelLoopSurvive is Sequential(LLM, Parallel, Loop), cut at
// every write, those in the loop's second round among them.
func TestSequentialParallelLoopSurvive(t *testing.T) {
	var fx perduretest.Effects
	plan := agent.New("plan", say(&fx, func(s string) string { return "plan for " + s }), agent.Options{OutputKey: "plan"})
	left := agent.New("left", say(&fx, func(s string) string { return "L(" + s + ")" }), agent.Options{})
	right := agent.New("right", say(&fx, func(s string) string { return "R(" + s + ")" }), agent.Options{Instruction: "The plan: {plan}"})
	critic := agent.New("critic", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		switch {
		case last(r).Role == llm.RoleTool:
			return llm.Assistant("good")
		case strings.Count(last(r).Text(), "better") >= 2:
			return calls(call("exit_loop", "{}"))
		}
		return llm.Assistant("not yet: " + last(r).Text())
	}}, agent.Options{Tools: []agent.Tool{agent.ExitLoop}})
	author := agent.New("author", say(&fx, func(s string) string { return s + " better" }), agent.Options{OutputKey: "story"})
	flow := agent.NewFlow("story", agent.Sequential("all", plan, agent.Parallel("both", left, right), agent.Loop("improve", 5, critic, author)))
	sweep(t, perduretest.Crash{
		Flows:   []perdure.Flow{flow},
		Start:   []perdure.StartRequest{{Flow: "story", Input: "a cat"}},
		Effects: &fx,
	})
}

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
	play(t, outer, func(t *testing.T, e *perduretest.Env) {
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
	play(t, agent.Sequential("seq", all, teller(&n, "end", false, "E", agent.Options{})), func(t *testing.T, e *perduretest.Env) {
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
	play(t, agent.FailFast(both), func(t *testing.T, e *perduretest.Env) {
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

// TestSubAgentThatAsksSurvives has a sub-agent with a context of its own that
// asks a person, beside another that does not.
func TestSubAgentThatAsksSurvives(t *testing.T) {
	var fx perduretest.Effects
	scout := agent.New("scout", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if len(r.Messages) != 1 && last(r).Role != llm.RoleTool {
			return llm.Assistant("I see more than my request")
		}
		if last(r).Role == llm.RoleTool {
			return llm.Assistant("the person said " + last(r).Parts[0].Result.Text)
		}
		if strings.Contains(last(r).Text(), "ask") {
			return calls(call("ask_person", `{"question":"which one?","choices":["red","blue"]}`))
		}
		return llm.Assistant("looked")
	}}, agent.Options{Tools: []agent.Tool{agent.AskPerson("ann")}})
	boss := agent.New("boss", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("scout", `{"request":"ask somebody"}`), call("scout", `{"request":"look"}`))
		}
		return llm.Assistant(results(last(r)))
	}}, agent.Options{Tools: []agent.Tool{agent.AsTool(scout)}})
	flow := agent.NewFlow("boss", boss)
	sweep(t, perduretest.Crash{
		Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "boss", Input: "go"}}, Effects: &fx,
		Outside: decide(func(a perdure.AskInfo) *perdure.Answer {
			if a.Kind != agent.KindQuestion {
				return nil
			}
			return &perdure.Answer{Value: "blue", By: "ann"}
		}),
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "boss", "go")
		run := e.Wait("t", perdure.Suspended)
		err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "green", By: "ann"}})
		if !errors.Is(err, perdure.ErrAnswer) {
			t.Errorf("an answer that is not among the choices: %v", err)
		}
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "red", By: "ann"}}); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || got != "scout=the person said red;scout=looked;" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestDelegateToNobodyIsAMistake has a model that makes an agent up.
func TestDelegateToNobodyIsAMistake(t *testing.T) {
	helper := agent.New("helper", say(nil, func(string) string { return "helped" }), agent.Options{})
	model := scripted(calls(call("delegate", `{"agent":"ghost","task":"haunt"}`)), calls(call("delegate", `{"agent":"helper","task":"help"}`)), llm.Assistant("done"))
	flow := agent.NewFlow("f", agent.New("boss", model, agent.Options{Tools: []agent.Tool{agent.Delegate(helper)}}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "go")
		e.Wait("t", perdure.Succeeded)
	})
	seen := model.requests()
	if got := results(last(&seen[1])); !strings.Contains(got, "helper") {
		t.Errorf("the model is not told who there is: %q", got)
	}
	if got := results(last(&seen[2])); got != "delegate=helped;" {
		t.Errorf("the model read %q", got)
	}
}
