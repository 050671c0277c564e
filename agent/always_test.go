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

// TestAlwaysAllowsWhatTheAskSays: without a pattern exactly these arguments, in
// this flow, by this agent, with this tool. Whatever differs is asked about.
func TestAlwaysAllowsWhatTheAskSays(t *testing.T) {
	type more struct {
		order
		Note string `json:"note,omitempty"`
	}
	always := agent.WithApproval(agent.Approval{Decisions: []string{agent.DecisionApprove, agent.DecisionAlways}})
	var n tally
	pay := noted(&n, "pay", always)
	wider := agent.NewTool("pay", "Does pay.", func(_ context.Context, m more) (string, error) { n.add("wider"); return "", nil }, always)
	flow := func(name, who string, tool agent.Tool) perdure.Flow {
		return agent.NewFlow(name, agent.New(who, &brain{think: func(r *llm.Request) llm.Message {
			if replies(r) == 0 {
				return calls(call("pay", last(r).Text()))
			}
			return llm.Assistant("end")
		}}, agent.Options{Tools: []agent.Tool{tool}, History: agent.HistoryNone}))
	}
	flows := []perdure.Flow{flow("desk", "clerk", pay), flow("desk2", "clerk", pay), flow("desk3", "clerk", wider)}
	perduretest.Virtual(t, perduretest.Setup{Flows: flows}, func(t *testing.T, e *perduretest.Env) {
		threads := 0
		run := func(flow, user, args string) *perdure.Run {
			threads++
			run, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: fmt.Sprint("t", threads), Flow: flow, User: user, Input: args})
			if err == nil {
				run, err = e.Runtime().Wait(t.Context(), run.Thread, run.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			return run
		}
		decide := func(args string, value any) agent.Rule {
			t.Helper()
			first := run("desk", "eve", args)
			var data struct {
				Always struct{ Agent, Allows, Flow, Schema, Tool, User string }
			}
			if err := json.Unmarshal(first.Asks[0].Data, &data); err != nil {
				t.Fatal(err)
			}
			want := `agent "clerk" in flow "desk" calls the tool "pay", with its schema as it is now, on threads of user "eve" with exactly these arguments, without asking, until it is revoked`
			if a := data.Always; a.Allows != want || a.Schema != pay.Digest() || a.Agent+a.Flow+a.Tool+a.User != "clerkdeskpayeve" {
				t.Errorf("the ask says %+v", a)
			}
			reply(t, e, first.Asks[0], perdure.Answer{Decision: agent.DecisionAlways, Value: value, By: "ann"})
			e.Wait(first.Thread, perdure.Succeeded)
			rules, err := agent.RulesOf(e.Runtime()).List(t.Context(), "eve")
			if err != nil || len(rules) == 0 {
				t.Fatal(rules, err)
			}
			return rules[len(rules)-1]
		}
		expect := func(flow, user, args string, want perdure.Status) {
			t.Helper()
			if got := run(flow, user, args); got.Status != want {
				t.Errorf("%s on %s's thread in flow %s is %s, want %s", args, user, flow, got.Status, want)
			}
		}
		rule := decide(`{"id":"A*","amount":5}`, nil)
		if !rule.Exact || !strings.Contains(rule.Allows, `with exactly the arguments {"amount":5,"id":"A*"}`) {
			t.Errorf("the rule is %+v", rule)
		}
		expect("desk", "eve", `{"amount":5, "id":"A*"}`, perdure.Succeeded)
		for _, other := range []string{`{"id":"A*","amount":6}`, `{"id":"A*"}`, `{"id":"AB","amount":5}`} {
			expect("desk", "eve", other, perdure.Suspended)
		}
		expect("desk", "bob", `{"amount":5,"id":"A*"}`, perdure.Suspended)  // another user
		expect("desk2", "eve", `{"amount":5,"id":"A*"}`, perdure.Suspended) // another flow
		expect("desk3", "eve", `{"amount":5,"id":"A*"}`, perdure.Suspended) // and another tool of that name
		if err := agent.RulesOf(e.Runtime()).Revoke(t.Context(), rule.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		expect("desk", "eve", `{"amount":5,"id":"A*"}`, perdure.Suspended)

		rule = decide(`{"id":"A1"}`, map[string]string{"id": "A*"}) // a wider one, if the person says so
		if rule.Exact || !strings.Contains(rule.Allows, `fit {"id":"A*"}, where * is any text and members that are not named are free`) {
			t.Errorf("the rule is %+v", rule)
		}
		expect("desk", "eve", `{"id":"A2","amount":9}`, perdure.Succeeded)
		expect("desk", "eve", `{"id":"B"}`, perdure.Suspended)
		decide(`{"id":"C"}`, json.RawMessage("null")) // a value that is none is no pattern
		expect("desk", "eve", `{"id":"C","amount":1}`, perdure.Suspended)
	})
	if n.of("wider") != 0 {
		t.Error("a tool of the same name in another flow ran")
	}
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
