package guide_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/perduretest"
)

type Payment struct {
	Account string `json:"account"`
	Cents   int    `json:"cents" schema:"min=1"`
}

// bank is a service that honours idempotency keys.
type bank struct {
	mu   sync.Mutex
	paid map[string]Payment
}

func (b *bank) Pay(_ context.Context, key string, p Payment) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paid == nil {
		b.paid = map[string]Payment{}
	}
	b.paid[key] = p
	return fmt.Sprintf("paid %d to %s", p.Cents, p.Account), nil
}

func (b *bank) Find(_ context.Context, key string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.paid[key]
	return fmt.Sprintf("paid %d to %s", p.Cents, p.Account), ok
}

var theBank = &bank{}

var pay = agent.NewTool("pay", "Pay an amount.", func(ctx context.Context, p Payment) (string, error) {
	payments.Count(ctx, "payment")
	return theBank.Pay(ctx, perdure.Key(ctx), p) // the same key if the step runs again
})

var payments perduretest.Effects

// TestPayUnderOneKey crashes the agent at every write; CrashEverywhere fails if a
// payment is repeated although its step was recorded.
func TestPayUnderOneKey(t *testing.T) {
	model := script.New(script.Call("pay", `{"account":"ann","cents":4200}`), script.Say("Done."))
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Flows:   []perdure.Flow{agent.NewFlow("pay", agent.New("payer", model, agent.Options{Tools: []agent.Tool{pay}}))},
		Start:   []perdure.StartRequest{{Flow: "pay", Input: "Pay ann 42 €", Key: "pay ann"}},
		Want:    perdure.Succeeded,
		Effects: &payments,
	})
}

// A service without keys is called at most once; a person is asked if nobody
// knows what became of the call.
func Example_atMostOnce() {
	invite := perdure.NewFlow("invite", func(ctx context.Context, guest string) (string, error) {
		return perdure.Step(ctx, "send-letter", func(context.Context) (string, error) {
			return "", errors.New("the line went dead")
		}, perdure.AtMostOnce(), perdure.Timeout(10*time.Second))
	})
	p, run := run("invite", "ann", invite)
	defer p.stop()
	ask := run.Asks[0]
	fmt.Println(ask.Prompt, ask.Decisions)
	check(p.Answer(p.ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{
		Decision: perdure.DecisionDone, Value: "sent, ann called", By: "bob"}}))
	fmt.Println(string(must(p.WaitEnd(p.ctx, run.Thread, run.ID)).Output))
	// Output:
	// Nobody knows whether step /send-letter happened. Did it? [done not-done fail]
	// "sent, ann called"
}

// Reconcile asks the service instead of a person.
func Example_reconcile() {
	transfer := agent.NewTool("transfer", "Transfer an amount.", func(ctx context.Context, p Payment) (string, error) {
		theBank.Pay(ctx, perdure.Key(ctx), p)
		return "", errors.New("the reply was lost")
	}, agent.AtMostOnce(10*time.Second), agent.Reconcile(func(ctx context.Context, p Payment) (string, perdure.Outcome, error) {
		if receipt, ok := theBank.Find(ctx, perdure.Key(ctx)); ok {
			return receipt, perdure.OutcomeDone, nil
		}
		return "", perdure.OutcomeNotDone, nil
	}))
	model := script.New(script.Call("transfer", `{"account":"bob","cents":100}`), script.Say("Bob has it."))
	p, run := run("t", "Send bob a euro", agent.NewFlow("t", agent.New("t", model, agent.Options{Tools: []agent.Tool{transfer}})))
	defer p.stop()
	for _, r := range must(agent.Transcript(must(p.StateAt(p.ctx, run.Thread, 0)).State)) {
		for _, part := range r.Message.Parts {
			if part.Result != nil {
				fmt.Println(part.Result.Text)
			}
		}
	}
	fmt.Println(run.Status)
	// Output:
	// paid 100 to bob
	// succeeded
}
