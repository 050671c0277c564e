package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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

// TestTransferChainSurvives hands a conversation from one agent to the next and
// back.
func TestTransferChainSurvives(t *testing.T) {
	var fx perduretest.Effects
	to := func(name string) llm.Message {
		return calls(call("transfer_to_agent", fmt.Sprintf(`{"agent":%q}`, name)))
	}
	said := func(r *llm.Request, who string) bool { return strings.Contains(m(*r), who) }
	billing := agent.New("billing", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if !said(r, "first the desk") {
			return llm.Message{Role: llm.RoleAssistant, Parts: append([]llm.Part{llm.Text("first the desk ")}, to("desk").Parts...)}
		}
		return llm.Assistant("paid, says billing, to: " + r.Messages[0].Text())
	}}, agent.Options{Description: "Bills."})
	desk := agent.New("desk", &brain{fx: &fx, think: func(r *llm.Request) llm.Message { return to("billing") }}, agent.Options{Transfer: []agent.Agent{billing}})
	sweep(t, perduretest.Crash{
		Flows:   []perdure.Flow{agent.NewFlow("desk", desk)},
		Start:   []perdure.StartRequest{{Flow: "desk", Input: "my bill"}},
		Effects: &fx,
		Outside: decide(func(perdure.AskInfo) *perdure.Answer { return nil }),
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("desk", desk)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "desk", "my bill")
		run := e.Wait("t", perdure.Succeeded)
		if got, err := perdure.Output[string](run); err != nil || got != "paid, says billing, to: my bill" {
			t.Errorf("got %q, %v", got, err)
		}
	})
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

// TestEditAndRejectSurvive edits the arguments of one call and rejects another.
func TestEditAndRejectSurvive(t *testing.T) {
	var fx perduretest.Effects
	pay := agent.NewTool("pay", "Pays.", func(ctx context.Context, o order) (string, error) {
		fx.Count(ctx, "pay "+o.ID)
		return fmt.Sprintf("paid %d for %s", o.Amount, o.ID), nil
	}, agent.NeedsApproval())
	clerk := agent.New("clerk", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("pay", `{"id":"A","amount":90}`), call("pay", `{"id":"B","amount":1}`))
		}
		return llm.Assistant(results(last(r)))
	}}, agent.Options{Tools: []agent.Tool{pay}})
	flow := agent.NewFlow("clerk", clerk)
	answer := func(a perdure.AskInfo) *perdure.Answer {
		if strings.Contains(string(a.Data), `"A"`) {
			return &perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "A", Amount: 9}, By: "ann"}
		}
		return &perdure.Answer{Decision: agent.DecisionReject, Message: "too small", By: "bob"}
	}
	sweep(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "clerk", Input: "go"}}, Effects: &fx, Outside: decide(answer)})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "clerk", "go")
		run := e.Wait("t", perdure.Suspended)
		bad := perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "A", Amount: 900}}}
		if err := e.Runtime().Answer(t.Context(), bad); !errors.Is(err, perdure.ErrAnswer) {
			t.Errorf("edited arguments that do not fit the schema: %v", err)
		}
		if len(run.Asks) != 2 {
			t.Fatalf("there are %d asks, want one for each call", len(run.Asks))
		}
		var both []perdure.AskAnswer // in one request, in the other order
		for i := range run.Asks {
			a := run.Asks[len(run.Asks)-1-i]
			both = append(both, perdure.AskAnswer{Ask: a.ID, Answer: *answer(a)})
		}
		if err := e.Runtime().Answer(t.Context(), both...); err != nil {
			t.Fatal(err)
		}
		got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded))
		if want := "pay=[A person, ann, changed the arguments before the call was made. It was made with {\"amount\":9,\"id\":\"A\"}. The result:]\npaid 9 for A;pay=The call was rejected by bob and was not made: too small\nDo not make the same call again.;"; err != nil || got != want {
			t.Errorf("got %q, %v", got, err)
		}
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		all, err := agent.Transcript(at.State)
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, r := range all {
			if r.Decision != "" {
				seen = append(seen, fmt.Sprintf("%s by %s %s", r.Decision, r.By, r.Args))
			}
		}
		if got := strings.Join(seen, ", "); !strings.Contains(got, `edit by ann {"amount":9,"id":"A"}`) || !strings.Contains(got, "reject by bob") {
			t.Errorf("the transcript says %s", got)
		}
	})
}

// TestThirdRejectionEndsTheRun has a model that does not give up.
func TestThirdRejectionEndsTheRun(t *testing.T) {
	pay := agent.NewTool("pay", "Pays.", func(context.Context, order) (string, error) { return "paid", nil }, agent.NeedsApproval())
	clerk := agent.New("clerk", &brain{think: func(r *llm.Request) llm.Message {
		return calls(call("pay", fmt.Sprintf(`{"amount": 5, %q: "A"}`, "id")))
	}}, agent.Options{Tools: []agent.Tool{pay}})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("clerk", clerk)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "clerk", "go")
		for range 3 {
			run := e.Wait("t", perdure.Suspended)
			if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Decision: agent.DecisionReject, Message: "no"}}); err != nil {
				t.Fatal(err)
			}
		}
		run := e.Wait("t", perdure.Failed)
		if !errors.Is(run.Err, agent.ErrRejected) || !strings.Contains(run.Error, "3 times") {
			t.Errorf("the run failed with %v", run.Err)
		}
	})
}

// TestSteeringSurvives has a message arrive in the middle of a turn.
func TestSteeringSurvives(t *testing.T) {
	var fx perduretest.Effects
	wait := agent.NewTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		return "", agent.Pending("it")
	})
	clerk := agent.New("clerk", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 && last(r).Text() == "go" {
			return calls(call("wait", "{}"))
		}
		return llm.Assistant("heard: " + last(r).Text())
	}}, agent.Options{Tools: []agent.Tool{wait}})
	flow := agent.NewFlow("clerk", clerk)
	steered := func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
		if len(run.Asks) == 0 {
			return nil
		}
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: run.Thread, Flow: "clerk", Input: "and hurry", Policy: perdure.Steer, Key: "hurry"}); err != nil {
			return err
		}
		return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "waited"}})
	}
	sweep(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Thread: "t", Flow: "clerk", Input: "go"}}, Effects: &fx, Outside: steered})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "clerk", "go")
		if err := steered(t.Context(), e.Runtime(), e.Wait("t", perdure.Suspended)); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || got != "heard: and hurry" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
