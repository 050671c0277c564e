package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestTheModelIsToldThatAPersonChangedItsCall: it reads the call as it made it,
// signature and all, and in the result that a person changed the arguments; in
// the same turn and in a summary. Without a change it is told
// nothing.
func TestTheModelIsToldThatAPersonChangedItsCall(t *testing.T) {
	made := calls(call("pay", `{"id":"A","amount":90}`), call("pay", `{"amount":2,"id":"B"}`))
	made.Parts = append([]llm.Part{{Text: "hm", Opaque: &llm.Opaque{Provider: "p", Data: "signed"}}}, made.Parts...)
	var n tally
	model := &brain{think: func(r *llm.Request) llm.Message {
		if len(r.Tools) == 0 {
			return llm.Assistant("a summary")
		}
		return []llm.Message{made, llm.Assistant("done")}[min(replies(r), 1)]
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())},
		Context: agent.Context{Strategy: agent.Summarise, MaxTokens: 1, Keep: 1}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		asks := asked(t, e, "t", 2)
		reply(t, e, asks[0], perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "A", Amount: 9}, By: "ann"})
		reply(t, e, asks[1], perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "B", Amount: 2}, By: "ann"})
		e.Wait("t", perdure.Succeeded)
		e.Start("t", "flow", "and?")
		e.Wait("t", perdure.Suspended)
		const note = `[A person, ann, changed the arguments before the call was made. It was made with {"amount":9,"id":"A"}. The result:]` + "\npay A"
		told := map[bool]int{} // by whether it is a request for a summary
		for i, r := range model.requests()[1:] {
			for _, m := range r.Messages {
				if m.Role == llm.RoleAssistant && len(m.Calls()) > 0 && string(raw(m)) != string(raw(made)) {
					t.Errorf("request %d has the model's message as %s", i, raw(m))
				}
				if strings.Contains(results(m)+m.Text(), note) {
					told[len(r.Tools) == 0]++
				}
				if strings.Contains(results(m)+m.Text(), `was made with {"amount":2,"id":"B"}`) {
					t.Errorf("the model is told of a change that is none: %s", results(m))
				}
			}
		}
		if told[true] == 0 || told[false] == 0 {
			t.Errorf("requests that say that a person changed the call: %v; %s", told, raw(model.requests()))
		}
		for _, r := range said(t, e, "t") {
			if r.Args != nil && (r.Decision != agent.DecisionEdit || r.Message.Parts[0].Result.Text != "pay A" || string(r.Args) != `{"amount":9,"id":"A"}`) {
				t.Errorf("the record is %s", raw(r))
			}
		}
	})
}

// TestTheModelIsToldWhichCancelledCallsWereNotMade: those that waited for a
// decision, a credential or their turn. Of those that were under way it is told
// that they may have happened. A process that dies in between changes nothing.
func TestTheModelIsToldWhichCancelledCallsWereNotMade(t *testing.T) {
	const not, maybe = "The call was not made: the run was cancelled before it began.", "It may have happened, or not."
	for _, restart := range []bool{false, true} {
		var n tally
		stuck := func(name string, opts ...agent.ToolOption) agent.Tool {
			return agent.NewTool(name, "Hangs.", func(ctx context.Context, _ order) (string, error) {
				n.add(name)
				return "", hang(ctx)
			}, opts...)
		}
		tools := []agent.Tool{
			noted(&n, "gated", agent.NeedsApproval()), noted(&n, "gated_once", agent.NeedsApproval(), agent.AtMostOnce(time.Hour)),
			stuck("plain"), stuck("once", agent.AtMostOnce(time.Hour)),
			stuck("lane", agent.Serial()), noted(&n, "behind", agent.Serial()),
			noted(&n, "secret", agent.Needs(agent.Credential{Name: "key"})),
			agent.NewTool("job", "Goes on.", func(context.Context, order) (string, error) { return "", agent.Pending("j7") }),
			agent.NewTool("unsure", "Has no effect.", func(context.Context, order) (string, error) {
				return "", perdure.NotDone(perdure.After(time.Hour, context.DeadlineExceeded))
			}, agent.AtMostOnce(time.Minute), agent.Retry(perdure.RetryPolicy{Attempts: 9})),
		}
		var all []llm.Call
		for _, tool := range tools {
			all = append(all, call(tool.Name(), `{"id":"1"}`))
		}
		model := &brain{think: func(r *llm.Request) llm.Message {
			if last(r).Text() == "go" {
				return calls(all...)
			}
			return llm.Assistant("end")
		}}
		clerk := agent.New("clerk", model, agent.Options{Tools: tools})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			e.Advance(time.Second)
			if restart {
				e.Restart()
				e.Advance(10 * time.Second)
			}
			if err := e.Runtime().Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			if run, err := e.Runtime().WaitEnd(t.Context(), "t", ""); err != nil || run.Status != perdure.Cancelled {
				t.Fatalf("the run is %v, %v", run, err)
			}
			e.Start("t", "flow", "and now?")
			e.Wait("t", perdure.Succeeded)
			got := map[string]string{}
			for _, p := range model.requests()[len(model.requests())-1].Messages[2].Parts {
				got[p.Result.Name] = p.Result.Text
			}
			for name, want := range map[string]string{"gated": not, "gated_once": not, "behind": not, "secret": not, "unsure": not,
				"plain": maybe, "once": maybe, "lane": maybe, "job": "went on elsewhere as j7. It has begun"} {
				if !strings.Contains(got[name], want) {
					t.Errorf("restart %v: of %s the model reads %q, want %q", restart, name, got[name], want)
				}
			}
		})
		for _, name := range []string{"gated", "gated_once", "behind", "secret"} {
			if n.of(name) != 0 {
				t.Errorf("%s was called", name)
			}
		}
	}
}
