package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestReplyOfACallbackIsAModelsMessage, also if it does not say so: its calls
// have their results in the next request, now and after a resume.
func TestReplyOfACallbackIsAModelsMessage(t *testing.T) {
	for _, restart := range []bool{false, true} {
		var n tally
		model := scripted(llm.Assistant("end"))
		clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note"), noted(&n, "gate", agent.NeedsApproval())}, Callbacks: agent.Callbacks{
			BeforeModel: func(_ context.Context, r *llm.Request) (*llm.Reply, error) {
				if last(r).Role == llm.RoleTool {
					return nil, nil
				}
				m := calls(call("note", `{"id":"1"}`), call("gate", `{"id":"1"}`))
				m.Role = ""
				return &llm.Reply{Message: m}, nil
			}}})
		perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
			e.Start("t", "flow", "go")
			ask := asked(t, e, "t", 1)[0]
			if restart {
				e.Restart()
			}
			reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
			e.Wait("t", perdure.Succeeded)
			got := model.requests()[0].Messages
			if len(got) != 3 || got[1].Role != llm.RoleAssistant || results(got[2]) != "note=note 1;gate=gate 1;" {
				t.Errorf("restarted %v: the model reads %s", restart, raw(got))
			}
		})
	}
}

// TestAfterModelTakesAwayAndAddsCalls.
func TestAfterModelTakesAwayAndAddsCalls(t *testing.T) {
	var n tally
	model := scripted(calls(call("bad", `{"id":"1"}`)), llm.Assistant("end"))
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "good"), noted(&n, "bad")}, Callbacks: agent.Callbacks{
		AfterModel: func(_ context.Context, r *llm.Reply) error {
			if len(r.Message.Calls()) > 0 {
				r.Message = llm.Message{Parts: []llm.Part{{Call: &llm.Call{Name: "good", Args: `{"id":"2"}`}}, {Call: &llm.Call{Name: "good", Args: `{"id":"3"}`}}}}
			}
			return nil
		}}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		n.want(t, "good:2")
		oneEach(t, said(t, e, "t"))
	})
}

// TestProgressFromSeveralGoroutines of one tool.
func TestProgressFromSeveralGoroutines(t *testing.T) {
	work := agent.NewTool("work", "Works.", func(ctx context.Context, _ struct{}) (string, error) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { agent.Progress(ctx, i); agent.Escalate(ctx) })
		}
		wg.Wait()
		return "done", nil
	})
	clerk := agent.New("clerk", scripted(calls(call("work", `{}`)), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{work}})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		e.Wait("t", perdure.Succeeded)
		for _, r := range said(t, e, "t") {
			if r.Message.Role == llm.RoleTool && len(r.Progress) != 8 {
				t.Errorf("of 8 messages %d are kept", len(r.Progress))
			}
		}
	})
}

// TestInputWithABlobThatIsNotThereIsRefused, and does not stay in the
// conversation, where every later run would fail with it.
func TestInputWithABlobThatIsNotThereIsRefused(t *testing.T) {
	clerk := agent.New("clerk", scripted(llm.Assistant("end")), agent.Options{})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", []llm.Part{{Media: &llm.Media{MIME: "image/png", Blob: "gone"}}})
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, agent.ErrOption) || !strings.Contains(run.Error, "gone") {
			t.Errorf("it failed with %v", run.Err)
		}
		e.Start("t", "flow", []llm.Part{{Media: &llm.Media{MIME: "image/png", Blob: "gone", Data: []byte("png")}}})
		e.Wait("t", perdure.Succeeded)
	})
}

// TestBudgetEndsAMistakeToo: a reply that uses up the run's budget and does not
// fit the output is not asked for again.
func TestBudgetEndsAMistakeToo(t *testing.T) {
	type out struct {
		N int `json:"n"`
	}
	model := scripted(llm.Assistant("no JSON"))
	clerk := agent.New("clerk", model, agent.Options{Output: agent.OutputOf[out]()})
	perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
		_, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: "go", Budget: map[string]int64{"tokens": 1}})
		if err != nil {
			t.Fatal(err)
		}
		if run := e.Wait("t", perdure.Failed); !errors.Is(run.Err, perdure.ErrBudget) || len(model.requests()) != 1 {
			t.Errorf("it failed with %v after %d requests", run.Err, len(model.requests()))
		}
	})
}
