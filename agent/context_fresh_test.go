package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestContextNeverLeavesOutWhatTheModelHasNotSeen: the results of its last calls
// and what users said since are there, however short the conversation has to be.
// A model that does not see its result makes the same call again.
func TestContextNeverLeavesOutWhatTheModelHasNotSeen(t *testing.T) {
	for _, strategy := range []agent.Strategy{agent.Trim, agent.Summarise} {
		for _, keep := range []int{1, 2, 20} {
			t.Run(fmt.Sprintf("%s-%d", strategy, keep), func(t *testing.T) {
				read := agent.NewTool("read", "Reads.", func(_ context.Context, o order) (string, error) {
					return "content of " + o.ID + strings.Repeat(" word", 2000), nil
				})
				turn := 0
				model := &brain{}
				model.think = func(r *llm.Request) llm.Message {
					if len(r.Tools) == 0 {
						return llm.Assistant("a summary")
					}
					if turn > 0 && !strings.Contains(results(last(r)), fmt.Sprint("content of f", turn)) {
						t.Errorf("turn %d: the model does not see the result of its last call, but %.300s", turn, raw(r.Messages))
					}
					if turn++; turn > 5 {
						return llm.Assistant("end")
					}
					return calls(call("read", fmt.Sprintf(`{"id":"f%d"}`, turn)))
				}
				clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{read}, Context: agent.Context{Strategy: strategy, MaxTokens: 2000, Keep: keep}})
				perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
					e.Start("t", "flow", "the task")
					e.Wait("t", perdure.Succeeded)
					short := 0
					for _, r := range said(t, e, "t") {
						if r.Summary != nil {
							short++
						}
					}
					if short == 0 {
						t.Error("the conversation was never made shorter")
					}
				})
			})
		}
	}
}

// TestContextKeepsAllOfTheNewInput, when it is the history that is too long.
func TestContextKeepsAllOfTheNewInput(t *testing.T) {
	model := &brain{think: func(r *llm.Request) llm.Message { return llm.Assistant(strings.Repeat("word ", 1000)) }}
	clerk := agent.New("clerk", model, agent.Options{Context: agent.Context{Strategy: agent.Trim, MaxTokens: 1000, Keep: 1}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "old task")
		e.Wait("t", perdure.Succeeded)
		e.Start("t", "flow", []llm.Message{llm.User("first half " + strings.Repeat("a", 2000)), llm.User("second half " + strings.Repeat("b", 2000))})
		e.Wait("t", perdure.Succeeded)
		if got := string(raw(model.requests()[1].Messages)); !strings.Contains(got, "first half") || !strings.Contains(got, "second half") {
			t.Errorf("the model reads %.300s", got)
		}
	})
}
