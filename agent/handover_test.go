package agent_test

import (
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

// TestHandoverOfASubAgentStaysInItsContext: what an agent says that a sub-agent
// handed over to is in that context, and not in its own conversation with the
// user.
func TestHandoverOfASubAgentStaysInItsContext(t *testing.T) {
	expert := agent.New("expert", scripted(llm.Assistant("it is 42")), agent.Options{})
	scout := agent.New("scout", scripted(handTo("expert")), agent.Options{Transfer: []agent.Agent{expert}})
	boss := agent.New("boss", scripted(calls(call("scout", `{"request":"secret of the scout"}`)), llm.Assistant("done")), agent.Options{Tools: []agent.Tool{agent.AsTool(scout)}})
	perduretest.Virtual(t, flows(boss), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
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
		perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
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
	perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
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
