package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/perduretest"
)

// brain is a model that is a function of the conversation. It counts how often
// it was asked for the same reply.
type brain struct {
	think func(r *llm.Request) llm.Message
	fx    *perduretest.Effects

	mu   sync.Mutex
	seen []llm.Request
}

func (b *brain) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		b.mu.Lock()
		b.seen = append(b.seen, *r)
		b.mu.Unlock()
		if b.fx != nil {
			b.fx.Count(ctx, "model")
		}
		if err := wellFormed(r.Messages); err != nil {
			yield(llm.Delta{}, &llm.Error{Kind: llm.ErrInvalid, Provider: "brain", Message: err.Error()})
			return
		}
		m := b.think(r)
		stop := llm.StopEnd
		for i, p := range m.Parts {
			if p.Call != nil {
				stop = llm.StopCalls
			}
			if !yield(llm.Delta{Part: i, Text: p.Text, Call: p.Call, Opaque: p.Opaque}, nil) {
				return
			}
		}
		yield(llm.Delta{Stop: stop, Usage: &llm.Usage{Input: int64(len(r.Messages)), Output: 1}, Model: "brain"}, nil)
	}
}

func (b *brain) requests() []llm.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// wellFormed is what providers demand: each call of a message has exactly one
// result in the message behind it, and there are no others.
func wellFormed(messages []llm.Message) error {
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role != llm.RoleTool && len(open) > 0 {
			return fmt.Errorf("message %d comes before the results of %v", i, open)
		}
		for _, p := range m.Parts {
			if p.Result != nil {
				if !open[p.Result.Call] {
					return fmt.Errorf("message %d has a result for %q, which is not called", i, p.Result.Call)
				}
				delete(open, p.Result.Call)
			}
		}
		for _, c := range m.Calls() {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v have no results", open)
	}
	return nil
}

func calls(cs ...llm.Call) llm.Message {
	m := llm.Message{Role: llm.RoleAssistant}
	for i, c := range cs {
		if c.ID == "" {
			c.ID = fmt.Sprintf("c%d", i)
		}
		m.Parts = append(m.Parts, llm.Part{Call: &c})
	}
	return m
}

func call(name, args string) llm.Call { return llm.Call{Name: name, Args: args} }

// last returns the last message of a request.
func last(r *llm.Request) llm.Message { return r.Messages[len(r.Messages)-1] }

// replies counts the model's replies to the newest user message.
func replies(r *llm.Request) int {
	n := 0
	for _, m := range r.Messages {
		switch m.Role {
		case llm.RoleAssistant:
			n++
		case llm.RoleUser:
			n = 0
		}
	}
	return n
}

func results(m llm.Message) string {
	s := ""
	for _, p := range m.Parts {
		if p.Result != nil {
			s += fmt.Sprintf("%s=%s;", p.Result.Name, p.Result.Text)
		}
	}
	return s
}

// decide answers all open asks.
func decide(answer func(a perdure.AskInfo) *perdure.Answer) func(context.Context, *perdure.Runtime, *perdure.Run) error {
	return func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
		for _, a := range run.Asks {
			if ans := answer(a); ans != nil {
				if err := rt.Answer(ctx, perdure.AskAnswer{Ask: a.ID, Answer: *ans}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func sweep(t *testing.T, c perduretest.Crash) {
	t.Helper()
	if c.Want == "" {
		c.Want = perdure.Succeeded
	}
	perduretest.CrashEverywhere(t, c)
}

var _ = agent.Options{}
