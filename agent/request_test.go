package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// echo is a model whose reply follows from every byte of the request, so that a
// request which is not the same after a crash changes all that comes.
func echo(fx *perduretest.Effects, seed string, turns int) *brain {
	return &brain{fx: fx, think: func(r *llm.Request) llm.Message {
		body, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(append([]byte(seed), body...))
		id := fmt.Sprintf("%x", sum[:3])
		m := llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Reasoning: &llm.Reasoning{Text: "hm " + id}, Opaque: &llm.Opaque{Provider: "echo", Data: id}}, llm.Text("says " + id)}}
		if len(r.Tools) == 0 || replies(r) >= turns {
			return m
		}
		for i := range 1 + int(sum[4])%3 {
			name := r.Tools[int(sum[5+i])%len(r.Tools)].Name
			args := fmt.Sprintf(`{"id":%q}`, fmt.Sprint(id, i))
			switch {
			case name == "transfer_to_agent":
				args = fmt.Sprintf(`{"agent":%q}`, []string{"first", "second", "nobody"}[sum[10]%3])
			case name == "delegate":
				args = fmt.Sprintf(`{"agent":"sub","task":%q}`, id)
			case sum[11+i]%8 == 0:
				args = `{"id":` // a mistake
			case sum[11+i]%8 == 1:
				args = `{"amount":3,"id":"` + id + `"}`
			}
			c := &llm.Call{ID: fmt.Sprint("c", int(sum[14+i])%2), Name: name, Args: args}
			m.Parts = append(m.Parts, llm.Part{Call: c})
		}
		return m
	}}
}

// TestRequestsAreTheSameAfterACrash: for conversations that follow from their
// own requests, with all kinds of tools, two runs on a thread, summaries,
// handovers and loops, each request after a crash is the one that an
// undisturbed run sends, byte for byte.
func TestRequestsAreTheSameAfterACrash(t *testing.T) {
	start := []perdure.StartRequest{{Thread: "t", Flow: "flow", Input: "go"}, {Thread: "t", Flow: "flow", Input: "and again"}}
	seeds := 4
	if !torture {
		seeds, start = 1, start[:1]
	}
	for i := range seeds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			seed := fmt.Sprint("seed ", i)
			var fx perduretest.Effects
			tool := func(name string, opts ...agent.ToolOption) agent.Tool {
				return agent.NewTool(name, "Does "+name+".", func(ctx context.Context, o order) (string, error) {
					fx.Count(ctx, name)
					if o.Amount == 3 {
						return "", fmt.Errorf("%s does not like %s", name, o.ID)
					}
					return name + " " + o.ID, nil
				}, opts...)
			}
			job := agent.NewTool("job", "Goes on.", func(context.Context, order) (string, error) { return "", agent.Pending("j") })
			sub := agent.New("sub", echo(&fx, seed, 1), agent.Options{Tools: []agent.Tool{tool("deep")}})
			o := agent.Options{
				Limits: agent.Limits{Mistakes: 50},
				Tools: []agent.Tool{tool("plain"), tool("gated", agent.NeedsApproval()), tool("line", agent.Serial()), job,
					agent.NewTool("flow", "Is flow code.", func(ctx context.Context, o order) (string, error) {
						return perdure.Step(ctx, "in", func(context.Context) (string, error) { return o.ID, nil })
					}, agent.UsesVerbs()),
					agent.Delegate(sub)},
			}
			if i%2 == 0 {
				o.Context = agent.Context{Strategy: []agent.Strategy{agent.Trim, agent.Summarise}[i/2], MaxTokens: 150, Keep: 3}
			}
			if i%3 == 0 {
				o.History = agent.HistoryThread
			}
			second := agent.New("second", echo(&fx, seed, 1), o)
			o.Transfer = []agent.Agent{second}
			first := agent.New("first", echo(&fx, seed, 1), o)
			flow := agent.NewFlow("flow", agent.Loop("loop", 1+i%2, first))
			sweep(t, perduretest.Crash{
				Flows: []perdure.Flow{flow}, Effects: &fx,
				Start: start,
				Outside: decide(func(a perdure.AskInfo) *perdure.Answer {
					if a.Kind == agent.KindPending {
						return &perdure.Answer{Value: "came"}
					}
					if len(a.Path)%2 == 0 {
						return &perdure.Answer{Decision: agent.DecisionReject, Message: "no", By: "ann"}
					}
					return &perdure.Answer{Decision: agent.DecisionEdit, Value: order{ID: "edited"}, By: "ann"}
				}),
			})
		})
	}
}
