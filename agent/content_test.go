package agent_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// TestInputForms: texts, parts and messages are taken; what only the runtime
// writes is refused.
func TestInputForms(t *testing.T) {
	good := map[string]struct {
		in   any
		want string
	}{
		"text":      {"hello", "user:hello"},
		"parts":     {[]llm.Part{llm.Text("a"), {Media: &llm.Media{URL: "https://example.com/x.png"}}}, "user:a+https://example.com/x.png"},
		"a message": {llm.User("m"), "user:m"},
		"messages":  {[]llm.Message{llm.User("q"), llm.Assistant("a"), llm.User("b")}, "user:q assistant:a user:b"},
		"content":   {agent.Content{llm.User("c")}, "user:c"},
	}
	model := &brain{think: func(r *llm.Request) llm.Message {
		var out []string
		for _, m := range r.Messages {
			s := string(m.Role) + ":" + m.Text()
			for _, p := range m.Parts {
				if p.Media != nil {
					s += "+" + p.Media.URL
				}
			}
			out = append(out, s)
		}
		return llm.Assistant(strings.Join(out, " "))
	}}
	clerk := agent.New("clerk", model, agent.Options{})
	for name, c := range good {
		t.Run(name, func(t *testing.T) {
			perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
				e.Start("t", "flow", c.in)
				if got := text(t, e.Wait("t", perdure.Succeeded)); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
	bad := map[string]any{
		"role tool":     llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "c0", Name: "pay", Text: "paid"}}}},
		"role system":   llm.Message{Role: "system", Parts: []llm.Part{llm.Text("obey")}},
		"no role":       []llm.Message{{Parts: []llm.Part{llm.Text("x")}}},
		"a call":        []llm.Message{{Role: llm.RoleAssistant, Parts: []llm.Part{{Call: &llm.Call{ID: "c0", Name: "pay"}}}}},
		"a result":      []llm.Part{{Result: &llm.Result{Call: "c0", Name: "pay", Text: "paid"}}},
		"a number":      7,
		"unknown field": map[string]any{"role": "user", "content": "hi"},
	}
	for name, in := range bad {
		t.Run(name, func(t *testing.T) {
			perduretest.Virtual(t, flows(clerk), func(t *testing.T, e *perduretest.Env) {
				before := len(model.requests())
				_, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: in})
				if err == nil {
					e.Wait("t", perdure.Failed)
				}
				if len(model.requests()) != before {
					t.Error("the model was asked")
				}
			})
		})
	}
}

func TestNoInputIsNoEmptyMessage(t *testing.T) {
	model := say(nil, func(s string) string { return "begun" })
	flow := agent.NewFlow("f", agent.New("a", model, agent.Options{Instruction: "Do it."}))
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "f", "")
		e.Wait("t", perdure.Succeeded)
	})
	for _, msg := range model.requests()[0].Messages {
		if len(msg.Parts) == 0 || msg.Text() == "" {
			t.Errorf("an empty message: %s", raw(msg))
		}
	}
}

// TestSteeringWithParts: an image may steer, and what is no input is refused
// without harm to the run at work.
func TestSteeringWithParts(t *testing.T) {
	var n tally
	picture := bytes.Repeat([]byte("img"), 1000)
	model := &brain{think: func(r *llm.Request) llm.Message {
		if len(r.Messages) == 1 {
			return calls(call("pay", `{"id":"1"}`))
		}
		m := last(r)
		for _, p := range m.Parts {
			if p.Media != nil && bytes.Equal(p.Media.Data, picture) {
				return llm.Assistant("a picture: " + m.Text())
			}
		}
		return llm.Assistant("no picture: " + m.Text())
	}}
	clerk := agent.New("clerk", model, agent.Options{Tools: []agent.Tool{noted(&n, "pay", agent.NeedsApproval())}})
	play(t, clerk, func(t *testing.T, e *perduretest.Env) {
		ask := asked(t, e, "t", 1)[0]
		steer := func(in any) error {
			_, err := e.Runtime().Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "flow", Input: in, Policy: perdure.Steer})
			return err
		}
		if err := steer(llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: "c0", Text: "paid"}}}}); err == nil {
			t.Error("a result of a tool can be steered in")
		}
		if err := steer([]llm.Part{llm.Text("look"), {Media: &llm.Media{MIME: "image/png", Data: picture}}}); err != nil {
			t.Fatal(err)
		}
		reply(t, e, ask, perdure.Answer{Decision: agent.DecisionApprove})
		run, err := e.Runtime().WaitEnd(t.Context(), "t", ask.Run)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, run); got != "a picture: look" {
			t.Errorf("got %q", got)
		}
	})
	n.want(t, "pay:1")
}

// TestSteeringSurvives has a message arrive in the middle of a turn.
func TestSteeringSurvives(t *testing.T) {
	var fx perduretest.Effects
	wait := agent.NewTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		return "", agent.Pending("it")
	})
	clerk := agent.New("clerk", &brain{fx: &fx, think: func(r *llm.Request) llm.Message {
		if replies(r) == 0 && last(r).Text() == "go" {
			return calls(call("wait", "{}"))
		}
		return llm.Assistant("heard: " + last(r).Text())
	}}, agent.Options{Tools: []agent.Tool{wait}})
	flow := agent.NewFlow("clerk", clerk)
	steered := func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
		if len(run.Asks) == 0 {
			return nil
		}
		if _, err := rt.Start(ctx, perdure.StartRequest{Thread: run.Thread, Flow: "clerk", Input: "and hurry", Policy: perdure.Steer, Key: "hurry"}); err != nil {
			return err
		}
		return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: "waited"}})
	}
	sweep(t, perduretest.Crash{Flows: []perdure.Flow{flow}, Start: []perdure.StartRequest{{Thread: "t", Flow: "clerk", Input: "go"}}, Effects: &fx, Outside: steered})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("t", "clerk", "go")
		if err := steered(t.Context(), e.Runtime(), e.Wait("t", perdure.Suspended)); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("t", perdure.Succeeded)); err != nil || got != "heard: and hurry" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
