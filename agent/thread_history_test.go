package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestThreadHistoryOfManyAgentsIsWellFormed: with branches, rounds, handovers,
// sub-agents and a run that was cancelled in the middle of a call, each model is
// given a conversation that providers accept, and no sub-agent's words.
func TestThreadHistoryOfManyAgentsIsWellFormed(t *testing.T) {
	var n tally
	var models []*brain
	talker := func(name string, o agent.Options) agent.Agent {
		o.History = agent.HistoryThread
		o.Context = agent.Context{Strategy: agent.Trim, MaxTokens: 200, Keep: 2}
		o.Tools = append(o.Tools, noted(&n, "note"))
		m := &brain{think: func(r *llm.Request) llm.Message {
			if replies(r) == 0 {
				return calls(call("note", `{"id":"`+name+`"}`))
			}
			return llm.Assistant(name + " is done")
		}}
		models = append(models, m)
		return agent.New(name, m, o)
	}
	whisper := agent.New("whisper", scripted(llm.Assistant("psst")), agent.Options{})
	asker := scripted(calls(call("whisper", `{"request":"whisper it"}`), call("gate", `{"id":"1"}`)), llm.Assistant("asked"))
	models = append(models, asker)
	top := agent.Sequential("all",
		agent.New("asker", asker, agent.Options{History: agent.HistoryThread, Tools: []agent.Tool{agent.AsTool(whisper), noted(&n, "gate", agent.NeedsApproval())}}),
		agent.Parallel("both", talker("left", agent.Options{}), talker("right", agent.Options{})),
		agent.Loop("again", 2, talker("poet", agent.Options{})))
	perduretest.Virtual(t, flows(top), func(t *testing.T, e *perduretest.Env) {
		for i := range 4 {
			run := e.Start("t", "flow", fmt.Sprint("task ", i))
			ask := asked(t, e, "t", 1)[0]
			if i%2 == 0 { // the call stays open
				if err := e.Runtime().Cancel(t.Context(), "t", run.ID, perdure.Note{By: "ann"}); err != nil {
					t.Fatal(err)
				}
				e.Wait("t", perdure.Cancelled)
				continue
			}
			reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
			e.Wait("t", perdure.Succeeded) // the models refuse what is not well formed
		}
		for _, m := range models {
			for _, r := range m.requests() {
				all := string(raw(r.Messages))
				if strings.Contains(all, "psst") && !strings.Contains(all, `"name":"whisper","text":"psst"`) {
					t.Errorf("a sub-agent's words are in %s", all)
				}
				for _, one := range r.Messages {
					if len(one.Parts) == 0 {
						t.Errorf("an empty message in %s", all)
					}
				}
			}
		}
	})
}

// TestTwoThousandRecordsAreRead in a time that a person does not notice: the
// conversation is not made anew in each turn.
func TestTwoThousandRecordsAreRead(t *testing.T) {
	var n tally
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) < 20 {
			return calls(call("note", `{"id":"1"}`), call("note", `{"id":"2"}`), call("note", `{"id":"3"}`), call("note", `{"id":"4"}`))
		}
		return llm.Assistant("end")
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		for i := range 20 {
			e.Start("t", "flow", fmt.Sprint("task ", i))
			e.Wait("t", perdure.Succeeded)
		}
		all := said(t, e, "t")
		if len(all) < 2000 {
			t.Errorf("there are %d records", len(all))
		}
		asManyResults(t, all)
		// Nothing that was sent changes later: a provider finds it in its cache.
		var before []json.RawMessage
		for i, r := range model.requests() {
			var now []json.RawMessage
			for _, m := range r.Messages {
				now = append(now, raw(m))
			}
			for j := range before {
				if string(before[j]) != string(now[j]) {
					t.Fatalf("request %d has another message %d than the one before it", i, j)
				}
			}
			before = now
		}
	})
}

// asManyResults fails if there are not as many results as calls.
func asManyResults(t *testing.T, all []agent.Record) {
	t.Helper()
	calls, results := 0, 0
	for _, r := range all {
		calls += len(r.Message.Calls())
		if r.Message.Role == llm.RoleTool {
			results++
		}
	}
	if calls != results {
		t.Errorf("%d calls have %d results", calls, results)
	}
}
