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

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount,omitempty" schema:"min=0,max=100"`
}

// TestThreeCallsSurviveACrashAnywhere has a message with three calls: one that
// a person approves, one that goes on elsewhere, and a plain one.
func TestThreeCallsSurviveACrashAnywhere(t *testing.T) {
	var fx perduretest.Effects
	tools := []agent.Tool{
		agent.NewTool("refund", "Refunds an order.", func(ctx context.Context, o order) (string, error) {
			fx.Count(ctx, "refund")
			return "refunded " + o.ID, nil
		}, agent.NeedsApproval()),
		agent.NewTool("ship", "Ships an order.", func(ctx context.Context, o order) (string, error) {
			fx.Count(ctx, "ship")
			return "", agent.Pending("parcel-" + o.ID)
		}),
		agent.NewTool("note", "Notes something.", func(ctx context.Context, o order) (string, error) {
			fx.Count(ctx, "note")
			return "noted " + o.ID, nil
		}),
	}
	model := &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("refund", `{"id":"A"}`), call("ship", `{"id":"B"}`), call("note", `{"id":"C"}`))
		}
		return llm.Assistant("done: " + results(last(r)))
	}}
	clerk := agent.New("clerk", model, agent.Options{Instruction: "Help.", Tools: tools})
	sweep(t, perduretest.Crash{
		Flows:   []perdure.Flow{agent.NewFlow("clerk", clerk)},
		Start:   []perdure.StartRequest{{Flow: "clerk", Input: "help me"}},
		Effects: &fx,
		Outside: decide(func(a perdure.AskInfo) *perdure.Answer {
			switch a.Kind {
			case agent.KindApproval:
				return &perdure.Answer{Decision: agent.DecisionApprove, By: "ann"}
			case agent.KindPending:
				return &perdure.Answer{Value: "delivered"}
			}
			return nil
		}),
	})
	for _, r := range model.requests() {
		if m := last(&r); m.Role == llm.RoleTool {
			if got, want := results(m), "refund=refunded A;ship=delivered;note=noted C;"; got != want {
				t.Errorf("the model read %q, want %q", got, want)
			}
		}
		if strings.Contains(m(r), "approve") {
			t.Errorf("a decision is in the model's context: %s", m(r))
		}
	}
}

func m(r llm.Request) string { return string(raw(r.Messages)) }
