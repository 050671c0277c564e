package guide_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

// What the pages for people who come from other systems show of Perdure.

func research(ctx context.Context, topic string) (string, error) {
	draft, err := perdure.Step(ctx, "draft", func(ctx context.Context) (string, error) {
		return write(ctx, topic)
	})
	if err != nil {
		return "", err
	}
	ok, err := perdure.Ask[bool](ctx, "publish", perdure.Question{Prompt: "Publish?", Data: draft})
	if err != nil || !ok {
		return "dropped", err
	}
	return perdure.Step(ctx, "send", func(ctx context.Context) (string, error) {
		return send(ctx, perdure.Key(ctx), draft)
	})
}

func write(_ context.Context, topic string) (string, error)       { return "about " + topic, nil }
func send(_ context.Context, _, draft string) (string, error)     { return "sent: " + draft, nil }
func charge(_ context.Context, _ string, cents int) (int, error)  { return cents, nil }
func remindByMail(_ context.Context, _, who string) (bool, error) { return who != "", nil }

func Example_langgraph() {
	p, run := run("research", "caches", perdure.NewFlow("research", research))
	defer p.stop()
	ctx := p.ctx
	fmt.Println(run.Asks[0].Prompt, string(run.Asks[0].Data))
	check(p.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}))
	fmt.Println(string(must(p.WaitEnd(ctx, run.Thread, run.ID)).Output))

	past := must(p.Get(ctx, run.Thread)) // every sequence up to past.Seq is a checkpoint
	fork := must(p.Fork(ctx, perdure.ForkRequest{Thread: run.Thread, At: 2, Input: "proxies"}))
	check(p.Resume(ctx, fork.Thread, run.ID, perdure.Note{}))
	again := must(p.Wait(ctx, fork.Thread, run.ID))
	fmt.Println(past.Seq, string(again.Asks[0].Data))
	// Output:
	// Publish? "about caches"
	// "sent: about caches"
	// 10 "about proxies"
}

type RefundArgs struct {
	Order string `json:"order"`
}

func clerkOf(model llm.Model) agent.Agent {
	refund := agent.NewTool("refund", "Refund an order.", func(ctx context.Context, a RefundArgs) (string, error) {
		return "refunded " + a.Order, nil
	}, agent.NeedsApproval())
	return agent.New("clerk", model, agent.Options{
		Instruction: "Resolve the ticket.",
		Tools:       []agent.Tool{refund},
	})
}

func Example_adk() {
	model := script.New(script.Call("refund", `{"order":"A-17"}`), script.Say("Done."))
	p, run := run("clerk", "Refund A-17", agent.NewFlow("clerk", clerkOf(model)))
	defer p.stop()
	check(p.Answer(p.ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{
		Decision: agent.DecisionApprove, By: "ann"}}))
	fmt.Println(string(must(p.WaitEnd(p.ctx, run.Thread, run.ID)).Output))
	// Output:
	// "Done."
}

func subscribe(ctx context.Context, customer string) (int, error) {
	paid, err := perdure.Step(ctx, "charge", func(ctx context.Context) (int, error) {
		return charge(ctx, perdure.Key(ctx), 900)
	}, perdure.Timeout(time.Minute), perdure.Retry(perdure.RetryPolicy{Attempts: 5}))
	if err != nil {
		return 0, err
	}
	if err := perdure.Sleep(ctx, "trial", 30*24*time.Hour); err != nil {
		return 0, err
	}
	stay, err := perdure.Receive[bool](ctx, "decision", "decision", 7*24*time.Hour)
	if errors.Is(err, perdure.ErrTimeout) || err == nil && !stay {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, err = perdure.Step(ctx, "remind", func(ctx context.Context) (bool, error) {
		return remindByMail(ctx, perdure.Key(ctx), customer)
	})
	return paid, err
}

var subscription = perdure.NewFlow("subscribe", subscribe)
