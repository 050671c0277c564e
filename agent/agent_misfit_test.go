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

// TestAnOutputThatDoesNotFitBlocks reads the output of an agent into a type that
// cannot take it, and ignores the error.
func TestAnOutputThatDoesNotFitBlocks(t *testing.T) {
	type old struct {
		Grade string `json:"grade"`
	}
	type now struct {
		Grade int `json:"grade"`
	}
	model := &brain{think: func(*llm.Request) llm.Message { return llm.Assistant(`{"grade":"a"}`) }}
	judge := agent.New("judge", model, agent.Options{Output: agent.OutputOf[old]()})
	flow := perdure.NewFlow("flow", func(ctx context.Context, in string) (string, error) {
		_, _ = agent.RunTo[now](ctx, judge, in)
		return "done", nil
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "judge")
		if run := e.Wait("t", perdure.Blocked); !strings.Contains(run.Diff, "the output of agent \"judge\":\n- recorded: {\"grade\":\"a\"}\n+ the code: agent_test.now, which cannot read it: json: ") {
			t.Error(run.Diff)
		}
	})
}
