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

var pendingTool = agent.NewTool("wait", "Waits.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("it") })

// TestPendingWithoutARefWaitsAllTheSame.
func TestPendingWithoutARefWaitsAllTheSame(t *testing.T) {
	for _, opts := range [][]agent.ToolOption{nil, {agent.UsesVerbs()}} {
		job := agent.NewTool("job", "Starts.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("") }, opts...)
		clerk := agent.New("clerk", scripted(calls(call("job", "{}")), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			if ask.Kind != agent.KindPending || strings.Contains(string(ask.Data), `"ref":""`) {
				t.Errorf("the ask is %s with %s", ask.Kind, ask.Data)
			}
			reply(t, e, ask, perdure.Answer{Value: "done"})
			e.Wait("t", perdure.Succeeded)
			oneEach(t, said(t, e, "t"))
		})
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

// TestLargeNumbersOfAPendingCallAreKept.
func TestLargeNumbersOfAPendingCallAreKept(t *testing.T) {
	type ref struct {
		ID int64 `json:"id"`
	}
	job := agent.NewTool("job", "Starts.", func(context.Context, ref) (string, error) { return "", agent.Pending("j") })
	clerk := agent.New("clerk", scripted(calls(call("job", `{"id":9007199254740993}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if ask := asked(t, e, "t", 1)[0]; !strings.Contains(string(ask.Data), "9007199254740993") {
			t.Errorf("the ask shows %s", ask.Data)
		}
	})
}
