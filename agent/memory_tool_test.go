package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// memorist is an agent whose model makes one call and says its result.
func memorist(name, tool string, args func(r *llm.Request) string) perdure.Flow {
	model := &brain{think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call(tool, args(r)))
		}
		return llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Text: results(last(r))}}}
	}}
	return agent.NewFlow(name, agent.New(name, model, agent.Options{Tools: agent.MemoryTools(agent.MemoryToolOptions{})}))
}

func lastText(r *llm.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == llm.RoleUser {
			return m.Parts[0].Text
		}
	}
	return ""
}

func TestWhatIsRememberedIsRecalledOnOtherThreadsAndListed(t *testing.T) {
	learn, ask := memorist("learn", "remember", lastText), memorist("ask", "recall", lastText)
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{learn, ask}}, func(t *testing.T, e *perduretest.Env) {
		say := func(user, thread, flow, text string) string {
			t.Helper()
			if _, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: flow, Input: text, User: user}); err != nil {
				t.Fatal(err)
			}
			return string(e.Wait(thread, perdure.Succeeded).Output)
		}
		say("ann", "a1", "learn", `{"key":"diet","text":"Ann eats no meat."}`)
		say("ann", "a1", "learn", `{"text":"Ann lives in Rome."}`)
		say("ann", "a1", "learn", `{"text":"Ann lives in Rome."}`) // once is enough
		if got := say("ann", "a2", "ask", `{"query":"what meat?"}`); !strings.Contains(got, "eats no meat") || strings.Contains(got, "Rome") {
			t.Errorf("recalled: %s", got)
		}
		if got := say("ann", "a2", "ask", `{}`); !strings.Contains(got, "eats no meat") || strings.Count(got, "Rome") != 1 {
			t.Errorf("recalled: %s", got)
		}
		// Whatever the model says, another's memory is not reached.
		for i, args := range []string{`{}`, `{"query":"ann"}`, `{"query":"meat","user":"ann"}`, `{"query":"user/ann"}`} {
			if got := say("eve", fmt.Sprint("e", i), "ask", args); strings.Contains(got, "no meat") || strings.Contains(got, "Rome") {
				t.Errorf("eve recalls %s", got)
			}
		}
		for i, args := range []string{`{"key":"../ann/diet","text":"Ann eats meat."}`, `{"key":"diet","text":"Ann eats meat.","namespace":["user","ann"]}`} {
			say("eve", fmt.Sprint("w", i), "learn", args)
		}
		at, err := e.Runtime().StateAt(t.Context(), "a1", 0)
		if err != nil {
			t.Fatal(err)
		}
		var facts []string
		for _, fact := range at.Facts {
			facts = append(facts, string(fact))
		}
		slices.Sort(facts)
		if diff := cmp.Diff(facts, []string{`"Ann eats no meat."`, `"Ann lives in Rome."`}); diff != "" {
			t.Error(diff)
		}
		item, err := memory.Of(e.Runtime()).Get(t.Context(), memory.User("ann"), "diet")
		var memo agent.Memo
		if err != nil || item.Decode(&memo) != nil || memo != (agent.Memo{Text: "Ann eats no meat.", Thread: "a1"}) {
			t.Errorf("%+v, %v", memo, err)
		}
	})
}
