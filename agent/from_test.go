package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestAnInputOfAnotherAgentStandsInASharedHistoryOnce has a third agent that
// sees what the first two said to each other.
func TestAnInputOfAnotherAgentStandsInASharedHistoryOnce(t *testing.T) {
	third := &brain{think: func(r *llm.Request) llm.Message { return llm.Assistant("three") }}
	all := agent.Sequential("all",
		agent.New("first", say(nil, func(string) string { return "said by the first" }), agent.Options{}),
		agent.New("second", say(nil, func(string) string { return "said by the second" }), agent.Options{}),
		agent.New("third", third, agent.Options{History: agent.HistoryThread}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("f", all)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "said by the user")
		e.Wait("t", perdure.Succeeded)
	})
	text := m(third.requests()[0])
	for _, once := range []string{"said by the user", "said by the first", "said by the second"} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q stands there %d times: %s", once, n, text)
		}
	}
	if !strings.Contains(text, "[first] said by the first") {
		t.Errorf("the first agent's words are the user's: %s", text)
	}
}

func TestAPendingCallCanFail(t *testing.T) {
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("wait", "{}"))
		}
		res := last(r).Parts[0].Result
		if !res.Error {
			return llm.Assistant("it is not told as an error")
		}
		return llm.Assistant(res.Text)
	}}
	flow := agent.NewFlow("f", agent.New("a", model, agent.Options{Tools: []agent.Tool{pendingTool}}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "go")
		run := e.Wait("t", perdure.Suspended)
		if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Message: "out of paper"}}); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || got != "wait failed: out of paper" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestTheFirstOfTwoHandoversCounts has a message that hands over twice.
func TestTheFirstOfTwoHandoversCounts(t *testing.T) {
	var results []llm.Part
	one := agent.New("one", say(nil, func(string) string { return "one" }), agent.Options{})
	two := agent.New("two", say(nil, func(string) string { return "two" }), agent.Options{})
	desk := agent.New("desk", &brain{think: func(r *llm.Request) llm.Message {
		return calls(call("transfer_to_agent", `{"agent":"one"}`), call("transfer_to_agent", `{"agent":"two"}`))
	}}, agent.Options{Transfer: []agent.Agent{one, two}})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("f", desk)}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "go")
		if got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || got != "one" {
			t.Errorf("got %q, %v", got, err)
		}
		at, err := e.Runtime().StateAt(t.Context(), "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		records, err := agent.Transcript(at.State)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Message.Role == llm.RoleTool {
				results = append(results, r.Message.Parts...)
			}
		}
	})
	failed := 0
	for _, p := range results {
		if p.Result.Error {
			failed++
		}
	}
	if len(results) != 2 || failed != 1 {
		t.Errorf("of the two handovers %d failed: %s", failed, raw(results))
	}
}

func TestNoInputIsNoEmptyMessage(t *testing.T) {
	model := say(nil, func(s string) string { return "begun" })
	flow := agent.NewFlow("f", agent.New("a", model, agent.Options{Instruction: "Do it."}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "")
		e.Wait("t", perdure.Succeeded)
	})
	for _, msg := range model.requests()[0].Messages {
		if len(msg.Parts) == 0 || msg.Text() == "" {
			t.Errorf("an empty message: %s", raw(msg))
		}
	}
}

var pendingTool = agent.NewTool("wait", "Waits.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("it") })

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
