package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestWhoMayApproveSaysWhatCameOfTheCall: the answer of an ask about the outcome
// can have the call made again, and that of a pending one is its result.
func TestWhoMayApproveSaysWhatCameOfTheCall(t *testing.T) {
	var n tally
	staff := agent.WithApproval(agent.Approval{Who: []string{"group:staff"}})
	tools := []agent.Tool{
		agent.NewTool("wire", "Wires.", func(context.Context, order) (string, error) {
			if n.add("wire") == 1 {
				return "", errors.New("the line went dead")
			}
			return "wired", nil
		}, agent.AtMostOnce(time.Minute), staff),
		agent.NewTool("job", "Goes on.", func(context.Context, order) (string, error) { return "", agent.Pending("j7") }, staff),
	}
	clerk := agent.New("clerk", scripted(calls(call("wire", `{"id":"1"}`), call("job", `{"id":"1"}`)), llm.Assistant("end")), agent.Options{Tools: tools})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		answer := func(ask perdure.AskInfo, a perdure.Answer) {
			t.Helper()
			reply := perdure.AskAnswer{Ask: ask.ID, Answer: a}
			if err := e.Runtime().Answer(t.Context(), reply); !errors.Is(err, perdure.ErrForbidden) {
				t.Errorf("anyone answers the ask of kind %s: %v", ask.Kind, err)
			}
			reply.Groups = []string{"staff"}
			if err := e.Runtime().Answer(t.Context(), reply); err != nil {
				t.Fatal(err)
			}
		}
		for _, ask := range asked(t, e, "t", 2) {
			answer(ask, perdure.Answer{Decision: agent.DecisionApprove})
		}
		for _, ask := range asked(t, e, "t", 2) {
			a := perdure.Answer{Value: "did it"}
			if ask.Kind == perdure.KindOutcome {
				a = perdure.Answer{Decision: perdure.DecisionNotDone}
				if data := string(ask.Data); !strings.Contains(data, `"tool":"wire"`) || !strings.Contains(data, `"args":{"id":"1"}`) {
					t.Errorf("the ask shows %s", data)
				}
			}
			answer(ask, a)
		}
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "wire:2")
}

// TestAnAlwaysThatMakesNoRuleIsRefusedOrSaid before anyone relies on it.
func TestAnAlwaysThatMakesNoRuleIsRefusedOrSaid(t *testing.T) {
	always := []string{agent.DecisionAlways, agent.DecisionApprove}
	for allows, who := range map[string][]string{
		"nothing but this call: only people whom the approval names": {"group:staff"},
		"until it is revoked; from others than ann, bob nothing but": {"ann", "group:staff", "bob"},
		"without asking, until it is revoked":                        {"ann"},
	} {
		var n tally
		perduretest.Virtual(t, flows(payer(&n, agent.Approval{Who: who, Decisions: always})), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			var data struct{ Always struct{ Allows string } }
			decode(t, ask.Data, &data)
			if !strings.Contains(data.Always.Allows, allows) {
				t.Errorf("of %q the ask says %q", who, data.Always.Allows)
			}
			for _, pattern := range []string{`{"id":"\ufffd"}`, `{"id":1,"id":2}`, `{"id":"a","ID":"b"}`, `{"id":"\ud800"}`} {
				a := perdure.Answer{Decision: agent.DecisionAlways, Value: json.RawMessage(pattern), By: "ann"}
				if err := e.Runtime().Answer(t.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: a, Groups: []string{"staff"}}); !errors.Is(err, perdure.ErrAnswer) {
					t.Errorf("the pattern %s: %v", pattern, err)
				}
			}
		})
	}
}

// TestAnEditThatIsWrongIsToldAsNotMade, also where the arguments had been
// normalised before.
func TestAnEditThatIsWrongIsToldAsNotMade(t *testing.T) {
	var n tally
	norm := agent.Normalize(func(o order) (order, error) {
		if o.ID == "BAD" {
			return o, errors.New("a bad id")
		}
		o.ID = strings.ToLower(o.ID)
		return o, nil
	})
	model := scripted(calls(call("pay", `{"id":"A"}`)), llm.Assistant("end"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval(), norm)}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "BAD"}, By: "ann"})
		e.Wait("t", perdure.Succeeded)
		if got := results(last(&model.requests()[1])); strings.Contains(got, "It was made") || !strings.Contains(got, "The call was not made: ann edited its arguments") {
			t.Errorf("the model reads %q", got)
		}
	})
	n.want(t, "")
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
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		for range forms {
			reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Decision: agent.DecisionReject})
		}
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrRejected) {
			t.Errorf("it failed with %v", run.Err)
		}
	})
}

// TestACredentialIsThereBeforeItsCallRuns, whoever says that it is; and those
// give it who may for every tool that needs it.
func TestACredentialIsThereBeforeItsCallRuns(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	var n tally
	needs := func(name string, who ...string) agent.Tool {
		return noted(&n, name, agent.Needs(agent.Credential{Name: "key", Who: who}))
	}
	tools := []agent.Tool{needs("strict", "ann", "bob"), needs("other", "bob", "eve"), needs("any"), needs("apart", "zoe")}
	use := func(names ...string) agent.Agent {
		var all []llm.Call
		for _, name := range names {
			all = append(all, call(name, `{"id":"1"}`))
		}
		return agent.New("clerk", scripted(calls(all...), llm.Assistant("end")), agent.Options{Tools: tools})
	}
	perduretest.Virtual(t, flows(use("strict", "other", "any")), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		said := perdure.Answer{Decision: agent.DecisionProvided, By: "bob"}
		for range 2 {
			ask := asked(t, e, "t", 1)[0]
			if len(ask.Who) != 1 || ask.Who[0] != "bob" {
				t.Errorf("%v may give it", ask.Who)
			}
			reply(t, e, ask, said)
			n.want(t, "")
		}
		ask := asked(t, e, "t", 1)[0]
		if !strings.Contains(ask.Prompt, "it is not there") {
			t.Errorf("the prompt is %q", ask.Prompt)
		}
		if err := agent.Provide(t.Context(), e.Runtime(), perdure.AskAnswer{Ask: ask.ID, Answer: said}, "a secret"); err != nil {
			t.Fatal(err)
		}
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "any:1 other:1 strict:1")
	perduretest.Virtual(t, flows(use("strict", "apart")), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
	})
	n.want(t, "any:1 other:1 strict:1")
}
