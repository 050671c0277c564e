package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestCallbacksOfFinishedStepsAreNotCalledAgain dies behind each of the six.
func TestCallbacksOfFinishedStepsAreNotCalledAgain(t *testing.T) {
	var n tally
	c := agent.Callbacks{
		BeforeAgent: func(context.Context, agent.Content) (*agent.Result, error) { n.add("1 before agent"); return nil, nil },
		BeforeModel: func(_ context.Context, r *llm.Request) (*llm.Reply, error) {
			n.add("2 before model")
			r.System += " Be brief."
			return nil, nil
		},
		AfterModel: func(_ context.Context, r *llm.Reply) error {
			n.add("3 after model")
			for i := range r.Message.Parts {
				r.Message.Parts[i].Text += "!"
			}
			return nil
		},
		BeforeTool: func(context.Context, agent.ToolCall) (*agent.Output, error) { n.add("4 before tool"); return nil, nil },
		AfterTool: func(_ context.Context, c agent.ToolCall, out *agent.Output) error {
			n.add("5 after tool")
			out.Text += " (checked " + c.Tool + string(c.Args) + ")"
			return nil
		},
		AfterAgent: func(_ context.Context, r *agent.Result) error {
			n.add("6 after agent")
			r.Text += " [seen]"
			return nil
		},
	}
	model := &brain{think: func(r *llm.Request) llm.Message {
		if r.System != "Help. Be brief." {
			return llm.Assistant("the system prompt is " + r.System)
		}
		if replies(r) == 0 {
			return calls(call("note", `{"id":"1"}`))
		}
		return llm.Assistant(results(last(r)))
	}}
	clerk := agent.New("clerk", model, agent.Options{Instruction: "Help.", Tools: []agent.Tool{noted(&n, "note")}, Callbacks: c})
	wait := agent.Func("wait", func(ctx context.Context, in agent.Content) (string, error) {
		_, err := perdure.Ask[bool](ctx, "ok", perdure.Question{})
		return in.Text(), err
	})
	play(t, agent.Sequential("all", clerk, wait), func(t *testing.T, e *perduretest.Env) {
		asked(t, e, "t", 1)
		e.Restart()
		e.Answer("t", "/all/wait/ok", perdure.Answer{Value: true})
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != `note=note 1 (checked note{"id":"1"});! [seen]` {
			t.Errorf("got %q", got)
		}
	})
	n.want(t, "1 before agent:1 2 before model:2 3 after model:2 4 before tool:1 5 after tool:1 6 after agent:1 note:1")
}

// TestCallbacksSurviveACrashAnywhere counts them as effects, of tools that use
// verbs too.
func TestCallbacksSurviveACrashAnywhere(t *testing.T) {
	var fx perduretest.Effects
	c := agent.Callbacks{
		BeforeAgent: func(ctx context.Context, _ agent.Content) (*agent.Result, error) {
			fx.Count(ctx, "before agent")
			return nil, nil
		},
		BeforeModel: func(ctx context.Context, _ *llm.Request) (*llm.Reply, error) {
			fx.Count(ctx, "before model")
			return nil, nil
		},
		AfterModel: func(ctx context.Context, _ *llm.Reply) error { fx.Count(ctx, "after model"); return nil },
		BeforeTool: func(ctx context.Context, c agent.ToolCall) (*agent.Output, error) {
			fx.Count(ctx, "before "+c.Tool)
			return nil, nil
		},
		AfterTool: func(ctx context.Context, c agent.ToolCall, out *agent.Output) error {
			fx.Count(ctx, "after "+c.Tool)
			out.Text += "!"
			return nil
		},
		AfterAgent: func(ctx context.Context, _ *agent.Result) error { fx.Count(ctx, "after agent"); return nil },
	}
	model := &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 {
			return calls(call("verbs", `{"id":"1"}`))
		}
		return llm.Assistant(results(last(r)))
	}}
	verbs := agent.NewTool("verbs", "Has steps.", func(ctx context.Context, o order) (string, error) {
		return perdure.Step(ctx, "inside", func(ctx context.Context) (string, error) { fx.Count(ctx, "inside"); return o.ID, nil })
	}, agent.UsesVerbs())
	flow := agent.NewFlow("flow", agent.New("clerk", model, agent.Options{Tools: []agent.Tool{verbs}, Callbacks: c}))
	sweep(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Flow: "flow", Input: "go"}}, Effects: &fx})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "flow", "go")
		if got := text(t, e.Wait("t", perdure.Succeeded)); got != "verbs=1!;" {
			t.Errorf("got %q", got)
		}
	})
}

// TestCallbackBeforeReplaces has each before-callback stand for what it guards,
// which is then not done.
func TestCallbackBeforeReplaces(t *testing.T) {
	cases := []struct {
		name string
		c    agent.Callbacks
		want string
		runs string
	}{
		{"agent", agent.Callbacks{BeforeAgent: func(context.Context, agent.Content) (*agent.Result, error) {
			return &agent.Result{Text: "cached"}, nil
		}}, "cached", ""},
		{"model", agent.Callbacks{BeforeModel: func(context.Context, *llm.Request) (*llm.Reply, error) {
			return &llm.Reply{Message: llm.Assistant("cached"), Stop: llm.StopEnd}, nil
		}}, "cached", ""},
		{"tool", agent.Callbacks{BeforeTool: func(context.Context, agent.ToolCall) (*agent.Output, error) {
			return &agent.Output{Text: "not today", Error: true}, nil
		}}, "note=not today;verbs=not today;sub=not today;", "model:2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var n tally
			model := &brain{think: func(r *llm.Request) llm.Message {
				n.add("model")
				if replies(r) == 0 {
					return calls(call("note", `{"id":"1"}`), call("verbs", `{"id":"1"}`), call("sub", `{"request":"1"}`))
				}
				return llm.Assistant(results(last(r)))
			}}
			sub := agent.New("sub", say(nil, func(string) string { n.add("sub"); return "sub" }), agent.Options{})
			tools := []agent.Tool{noted(&n, "note"), noted(&n, "verbs", agent.UsesVerbs()), agent.AsTool(sub)}
			play(t, agent.New("clerk", model, agent.Options{Tools: tools, Callbacks: c.c}), func(t *testing.T, e *perduretest.Env) {
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
			n.want(t, c.runs)
		})
	}
}

// TestCallbackBeforeModelChangesOneRequestOnly: what it writes into a message is
// in that request and in no later one, as it would not be after a resume.
func TestCallbackBeforeModelChangesOneRequestOnly(t *testing.T) {
	var n tally
	model := scripted(calls(call("note", `{"id":"1"}`)), calls(call("note", `{"id":"2"}`)), llm.Assistant("done"))
	c := agent.Callbacks{BeforeModel: func(ctx context.Context, r *llm.Request) (*llm.Reply, error) {
		r.Messages[0].Parts[0].Text += "+"
		for _, m := range r.Messages {
			for _, p := range m.Parts {
				if p.Call != nil {
					p.Call.Args = "{}"
				}
				if p.Result != nil {
					p.Result.Text += "+"
				}
			}
		}
		if perduretest.Attempt(ctx) == 1 {
			return nil, perdure.After(time.Second, fmt.Errorf("try again"))
		}
		return nil, nil
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "note")}, Callbacks: c})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
		for _, r := range model.requests() {
			if got := r.Messages[0].Text(); got != "go+" {
				t.Errorf("a request begins with %q, want what was said and one +", got)
			}
		}
		for _, r := range said(t, e, "t") {
			for _, p := range r.Message.Parts {
				if p.Call != nil && p.Call.Args == "{}" || p.Result != nil && contains(p.Result.Text, "+") {
					t.Errorf("the callback changed the transcript: %s", raw(r))
				}
			}
		}
		seen := model.requests()
		if got := results(seen[2].Messages[2]); got != "note=note 1+;" {
			t.Errorf("the third request has %q", got)
		}
	})
}

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
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
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
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		e.Wait("t", perdure.Succeeded)
		n.want(t, "good:2")
		oneEach(t, said(t, e, "t"))
	})
}

// TestAfterToolSeesTheResultOfAPendingCall: what takes secrets out of outputs
// sees those that come later too.
func TestAfterToolSeesTheResultOfAPendingCall(t *testing.T) {
	for _, opts := range [][]agent.ToolOption{nil, {agent.UsesVerbs()}} {
		var n tally
		job := agent.NewTool("job", "Starts.", func(context.Context, struct{}) (string, error) { return "", agent.Pending("j") }, opts...)
		clerk := agent.New("clerk", scripted(calls(call("job", "{}")), llm.Assistant("end")), agent.Options{Tools: []agent.Tool{job},
			Callbacks: agent.Callbacks{AfterTool: func(_ context.Context, _ agent.ToolCall, out *agent.Output) error {
				n.add("after " + out.Text)
				out.Text = "[hidden]"
				return nil
			}}})
		play(t, clerk, func(t *testing.T, e *perduretest.Env) {
			reply(t, e, asked(t, e, "t", 1)[0], perdure.Answer{Value: "secret"})
			e.Wait("t", perdure.Succeeded)
			if got := string(raw(said(t, e, "t"))); strings.Contains(got, "secret") || !strings.Contains(got, "[hidden]") {
				t.Errorf("the transcript is %s", got)
			}
			n.want(t, "after secret:1")
		})
	}
}
