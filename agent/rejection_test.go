package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

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

// TestThirdRejectionCountsInTheWholeRun: a loop, a sub-agent that is called
// again and a conversation that is handed back do not begin to count anew.
func TestThirdRejectionCountsInTheWholeRun(t *testing.T) {
	var n tally
	pay := noted(&n, "pay", agent.NeedsApproval())
	stubborn := func(name string, o agent.Options) agent.Agent { // once in each of its calls
		o.Tools = append(o.Tools, pay)
		return agent.New(name, &brain{think: func(r *llm.Request) llm.Message {
			if last(r).Role == llm.RoleTool {
				return llm.Assistant("it was rejected")
			}
			return calls(call("pay", `{"id":"A"}`))
		}}, o)
	}
	asks := func(name string, sub agent.Agent) agent.Agent {
		return agent.New(name, scripted(calls(call(sub.Name(), `{"request":"pay A"}`))), agent.Options{Tools: []agent.Tool{agent.AsTool(sub)}})
	}
	endless := agent.New("payer", scripted(calls(call("pay", `{"id":"A"}`))), agent.Options{Tools: []agent.Tool{pay}})
	for name, a := range map[string]agent.Agent{
		"rounds of a loop":         agent.Loop("loop", 10, stubborn("payer", agent.Options{})),
		"other agents":             agent.Sequential("all", stubborn("a", agent.Options{}), stubborn("b", agent.Options{}), stubborn("c", agent.Options{}), stubborn("d", agent.Options{})),
		"a sub-agent called again": asks("boss", stubborn("payer", agent.Options{})),
		"a sub-agent's own end":    asks("boss", endless),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, a, func(t *testing.T, e *perduretest.Env) {
				for range 3 {
					reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionReject, Message: "no", By: "ann"})
					e.Restart()
				}
				if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrRejected) {
					t.Errorf("it failed with %v", run.Err)
				}
			})
		})
	}
	n.want(t, "")
}

// TestRejectionsOfAnEarlierRunDoNotCount: another task, another decision.
func TestRejectionsOfAnEarlierRunDoNotCount(t *testing.T) {
	var n tally
	clerk := agent.New("clerk", scripted(calls(call("pay", `{"id":"A"}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		for i := range 4 {
			e.Start("t", "flow", fmt.Sprint("go ", i))
			reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionReject})
			e.Wait("t", perdure.Succeeded)
		}
	})
}

// TestOneNumberIsOneCallHoweverItIsWritten when rejections are counted.
func TestOneNumberIsOneCallHoweverItIsWritten(t *testing.T) {
	pay := agent.RawTool("pay", "Pays.", json.RawMessage(`{"type":"object"}`), func(context.Context, json.RawMessage) (agent.Output, error) {
		return agent.Output{}, errors.New("it ran")
	}, agent.NeedsApproval())
	forms := []string{"1", "1.0", "10e-1"}
	clerk := agent.New("clerk", &brain{think: func(r *llm.Request) llm.Message {
		return calls(call("pay", fmt.Sprintf(`{"amount":%s}`, forms[replies(r)])))
	}}, agent.Options{Tools: []agent.Tool{pay}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		for range forms {
			reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionReject})
		}
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrRejected) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
}
