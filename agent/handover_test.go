package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

func handTo(name string) llm.Message {
	return calls(call("transfer_to_agent", `{"agent":"`+name+`"}`))
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

// TestHandoverOfASubAgentStaysInItsContext: what an agent says that a sub-agent
// handed over to is in that context, and not in its own conversation with the
// user.
func TestHandoverOfASubAgentStaysInItsContext(t *testing.T) {
	expert := agent.New("expert", scripted(llm.Assistant("it is 42")), agent.Options{})
	scout := agent.New("scout", scripted(handTo("expert")), agent.Options{Transfer: []agent.Agent{expert}})
	boss := agent.New("boss", scripted(calls(call("scout", `{"request":"secret of the scout"}`)), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{agent.AsTool(scout)}})
	play(t, boss, func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
		for _, r := range said(t, e, "t") {
			if r.Agent == "expert" && !r.Alone {
				t.Errorf("the expert's %q is not in the sub-agent's context", r.Message.Text())
			}
		}
	})
}

// TestHandoverHidesSubAgents: who takes a conversation over sees what was said
// in it, and not what an agent in it asked sub-agents.
func TestHandoverHidesSubAgents(t *testing.T) {
	for _, outer := range []bool{false, true} {
		last := scripted(llm.Assistant("end"))
		scout := agent.New("scout", scripted(llm.Assistant("seen")), agent.Options{})
		third := agent.New("third", last, agent.Options{})
		second := agent.New("second", scripted(calls(call("scout", `{"request":"whisper"}`)), handTo("third")),
			agent.Options{Tools: []agent.Tool{agent.AsTool(scout)}, Transfer: []agent.Agent{third}})
		top := agent.New("first", scripted(handTo("second")), agent.Options{Transfer: []agent.Agent{second}})
		if outer {
			top = agent.New("boss", scripted(calls(call("first", `{"request":"go"}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{agent.AsTool(top)}})
		}
		play(t, top, func(t *testing.T, e *perduretest.Env) {
			e.Wait("t", perdure.Succeeded)
			got := string(raw(last.requests()[0].Messages))
			if strings.Contains(got, "whisper") || strings.Contains(got, "seen") || !strings.Contains(got, "go") {
				t.Errorf("the third agent reads %s", got)
			}
		})
	}
}

// TestHandoverBackAndForthKeepsTheConversation: the first agent sees its own
// calls and results, and what the other said, when it gets the word again, and
// on the thread's next run.
func TestHandoverBackAndForthKeepsTheConversation(t *testing.T) {
	var n tally
	desk := &brain{}
	clerk := agent.New("clerk", &brain{think: func(r *llm.Request) llm.Message {
		m := handTo("desk")
		m.Parts = append([]llm.Part{llm.Text("looked it up")}, m.Parts...)
		return m
	}}, agent.Options{})
	desk.think = func(r *llm.Request) llm.Message {
		switch n.add("desk") {
		case 1:
			return calls(call("note", `{"id":"1"}`))
		case 2:
			return handTo("clerk")
		}
		return llm.Assistant("done")
	}
	top := agent.New("desk", desk, agent.Options{Tools: []agent.Tool{noted(&n, "note")}, Transfer: []agent.Agent{clerk}})
	play(t, top, func(t *testing.T, e *perduretest.Env) {
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "done" {
			t.Errorf("got %q", got)
		}
		e.Start("t", "flow", "again")
		e.Wait("t", perdure.Succeeded)
		for i, r := range desk.requests()[2:] {
			got := string(raw(r.Messages))
			if !strings.Contains(got, "note 1") || i == 0 && !strings.Contains(got, "[clerk] looked it up") {
				t.Errorf("request %d of the desk is %s", i+3, got)
			}
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

// TestTransferToItselfAndBackAndForthHasALimit has agents that only hand over.
func TestTransferToItselfAndBackAndForthHasALimit(t *testing.T) {
	to := func(name string) llm.Message {
		return calls(call("transfer_to_agent", fmt.Sprintf(`{"agent":%q}`, name)))
	}
	b := agent.New("b", scripted(to("a")), agent.Options{})
	a := agent.New("a", scripted(to("b")), agent.Options{Transfer: []agent.Agent{b}})
	play(t, a, func(t *testing.T, e *perduretest.Env) {
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrLimit) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
	self := agent.New("self", scripted(to("self")), agent.Options{Transfer: []agent.Agent{b}})
	play(t, self, func(t *testing.T, e *perduretest.Env) {
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrMistakes) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
}
