package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestHistoryPolicies: what an agent sees of earlier runs and of others.
func TestHistoryPolicies(t *testing.T) {
	for history, want := range map[agent.History]string{
		agent.HistoryOwn:    "one|eye: 1|two",
		agent.HistoryThread: "one|[poet] a poem|one|eye: 3|two|[poet] a poem|two",
		agent.HistoryNone:   "two",
	} {
		t.Run(string(history), func(t *testing.T) {
			n := 0
			var texts []string
			eye := agent.New("eye", &brain{think: func(r *llm.Request) llm.Message {
				texts = nil
				for _, m := range r.Messages {
					texts = append(texts, m.Text())
				}
				n++
				return llm.Assistant("eye: " + fmt.Sprint(len(r.Messages)))
			}}, agent.Options{History: history})
			poet := agent.New("poet", scripted(llm.Assistant("a poem")), agent.Options{})
			flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (string, error) {
				if _, err := agent.Run(ctx, poet, in); err != nil {
					return "", err
				}
				return agent.Run(ctx, eye, in)
			})
			perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", "one")
				e.Wait("t", perdure.Succeeded)
				e.Restart()
				e.Start("t", "flow", "two")
				e.Wait("t", perdure.Succeeded)
			})
			if got := strings.Join(texts, "|"); got != want {
				t.Errorf("it sees %s, want %s", got, want)
			}
		})
	}
}

// TestModelsThatChangeTheirRequests: what a model does to its request does not reach
// the next run.
func TestModelsThatChangeTheirRequests(t *testing.T) {
	var n tally
	var first []string // what the first request of the newest run says
	eye := agent.New("eye", &brain{think: func(r *llm.Request) llm.Message {
		var said []string
		for i := range r.Messages {
			for j := range r.Messages[i].Parts {
				p := &r.Messages[i].Parts[j]
				switch {
				case p.Call != nil:
					said = append(said, p.Call.Name)
					p.Call.Name = "changed"
				case p.Result != nil:
					said = append(said, p.Result.Name)
					p.Result.Name, p.Result.Text = "changed", "changed"
				default:
					said = append(said, p.Text)
					p.Text = "changed"
				}
			}
		}
		if last(r).Role == llm.RoleUser {
			first = said
			return calls(call("note", `{"id":"1"}`))
		}
		return llm.Assistant("seen")
	}}, agent.Options{Tools: []agent.Tool{noted(&n, "note")}})
	const runs = 12
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{agent.NewFlow("flow", eye)}}, func(t *testing.T, e *perduretest.Env) {
		for range runs {
			e.Start("t", "flow", "look")
			e.Wait("t", perdure.Succeeded)
		}
	})
	if want := strings.Repeat("look note note seen ", runs-1) + "look"; strings.Join(first, " ") != want {
		t.Errorf("the model reads %q", first)
	}
}

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

// TestALongThreadIsRead in a time that a person does not notice: the
// conversation is not made anew in each turn.
func TestALongThreadIsRead(t *testing.T) {
	var n tally
	runs := 5
	if torture {
		runs = 20
	}
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) < 20 {
			return calls(call("note", `{"id":"1"}`), call("note", `{"id":"2"}`), call("note", `{"id":"3"}`), call("note", `{"id":"4"}`))
		}
		return llm.Assistant("end")
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		for i := range runs {
			e.Start("t", "flow", fmt.Sprint("task ", i))
			e.Wait("t", perdure.Succeeded)
		}
		all := said(t, e, "t")
		if len(all) < 100*runs {
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
