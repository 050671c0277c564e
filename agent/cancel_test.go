package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestCancelledRunLeavesACallThatTheNextOneRepairs: the model gets a
// conversation that a provider takes, which brain checks.
func TestCancelledRunLeavesACallThatTheNextOneRepairs(t *testing.T) {
	var n tally
	stuck := agent.NewTool("stuck", "Never ends.", func(ctx context.Context, _ order) (string, error) { return "", hang(ctx) })
	model := &brain{think: func(r *llm.Request) llm.Message {
		if last(r).Text() == "go" {
			return calls(call("note", `{"id":"1"}`), call("stuck", `{"id":"1"}`), call("pay", `{"id":"1"}`))
		}
		return llm.Assistant("I see " + results(r.Messages[2]))
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note"), stuck, noted(&n, "pay", agent.NeedsApproval())}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		e.Advance(time.Second)
		if err := e.Runtime().Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		run, err := e.Runtime().WaitEnd(t.Context(), "t", "")
		if err != nil || run.Status != perdure.Cancelled {
			t.Fatalf("the run is %s, %v", run.Status, err)
		}
		e.Start("t", "flow", "and now?")
		got := text(t, e.Wait("t", perdure.Succeeded))
		for _, want := range []string{"note=note 1;", "stuck=There is no result", "pay=The call was not made"} {
			if !strings.Contains(got, want) {
				t.Errorf("the model says %q, want %s in it", got, want)
			}
		}
	})
	n.want(t, "note:1")
}

// TestTheModelIsToldWhichCancelledCallsWereNotMade: those that waited for a
// decision, a credential or their turn. Of those that were under way it is told
// that they may have happened. A process that dies in between changes nothing.
func TestTheModelIsToldWhichCancelledCallsWereNotMade(t *testing.T) {
	const not, maybe = "The call was not made: the run was cancelled before it began.", "It may have happened, or not."
	for _, restart := range []bool{false, true} {
		var n tally
		stuck := func(name string, opts ...agent.ToolOption) agent.Tool {
			return agent.NewTool(name, "Hangs.", func(ctx context.Context, _ order) (string, error) {
				n.add(name)
				return "", hang(ctx)
			}, opts...)
		}
		tools := []agent.Tool{
			noted(&n, "gated", agent.NeedsApproval()), noted(&n, "gated_once", agent.NeedsApproval(), agent.AtMostOnce(time.Hour)),
			stuck("plain"), stuck("once", agent.AtMostOnce(time.Hour)),
			stuck("lane", agent.Serial()), noted(&n, "behind", agent.Serial()),
			noted(&n, "secret", agent.Needs(agent.Credential{Name: "key"})),
			agent.NewTool("job", "Goes on.", func(context.Context, order) (string, error) { return "", agent.Pending("j7") }),
			agent.NewTool("unsure", "Has no effect.", func(context.Context, order) (string, error) {
				return "", perdure.NotDone(perdure.After(time.Hour, context.DeadlineExceeded))
			}, agent.AtMostOnce(time.Minute), agent.Retry(perdure.RetryPolicy{Attempts: 9})),
		}
		var all []llm.Call
		for _, tool := range tools {
			all = append(all, call(tool.Name(), `{"id":"1"}`))
		}
		model := &brain{think: func(r *llm.Request) llm.Message {
			if last(r).Text() == "go" {
				return calls(all...)
			}
			return llm.Assistant("end")
		}}
		clerk := agent.New("clerk", model, agent.Options{Tools: tools})
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			e.Advance(time.Second)
			if restart {
				e.Restart()
				e.Advance(10 * time.Second)
			}
			if err := e.Runtime().Cancel(t.Context(), "t", "", perdure.Note{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			if run, err := e.Runtime().WaitEnd(t.Context(), "t", ""); err != nil || run.Status != perdure.Cancelled {
				t.Fatalf("the run is %v, %v", run, err)
			}
			e.Start("t", "flow", "and now?")
			e.Wait("t", perdure.Succeeded)
			got := map[string]string{}
			for _, p := range model.requests()[len(model.requests())-1].Messages[2].Parts {
				got[p.Result.Name] = p.Result.Text
			}
			for name, want := range map[string]string{"gated": not, "gated_once": not, "behind": not, "secret": not, "unsure": not,
				"plain": maybe, "once": maybe, "lane": maybe, "job": "went on elsewhere as j7. It has begun"} {
				if !strings.Contains(got[name], want) {
					t.Errorf("restart %v: of %s the model reads %q, want %q", restart, name, got[name], want)
				}
			}
		})
		for _, name := range []string{"gated", "gated_once", "behind", "secret"} {
			if n.of(name) != 0 {
				t.Errorf("%s was called", name)
			}
		}
	}
}
