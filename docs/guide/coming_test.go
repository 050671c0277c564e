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
	"github.com/perdure/perdure/store/memstore"
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

var sent = perdure.NewCounter("sent")

func digest(ctx context.Context, pages []string) ([]string, error) {
	summaries := make([]string, len(pages))
	g := perdure.NewGroup(ctx)
	for i, page := range pages {
		g.Go(fmt.Sprintf("page-%d", i), func(ctx context.Context) (err error) {
			summaries[i], err = perdure.Step(ctx, "summarize", func(ctx context.Context) (string, error) {
				return write(ctx, page)
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	ok, err := perdure.Ask[bool](ctx, "publish", perdure.Question{Prompt: "Send?", Data: summaries})
	if err != nil || !ok {
		return nil, err
	}
	_, err = perdure.Step(ctx, "count", func(ctx context.Context) (bool, error) {
		return true, sent.Add(ctx, 1)
	})
	return summaries, err
}

func Example_langgraphFunctional() {
	p, run := run("digest", []string{"caches", "proxies"}, perdure.NewFlow("digest", digest))
	defer p.stop()
	check(p.Answer(p.ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}))
	fmt.Println(string(must(p.WaitEnd(p.ctx, run.Thread, run.ID)).Output))
	fmt.Println(string(must(p.StateAt(p.ctx, run.Thread, 0)).State["sent"]))
	// Output:
	// ["about caches","about proxies"]
	// 1
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

func newsletter(model func(agent string) llm.Model) agent.Agent {
	return agent.Sequential("newsletter",
		agent.Parallel("research",
			agent.New("papers", model("papers"), agent.Options{Instruction: "Find new papers.", OutputKey: "papers"}),
			agent.New("tools", model("tools"), agent.Options{Instruction: "Find new tools.", OutputKey: "tools"})),
		agent.New("writer", model("writer"), agent.Options{Instruction: "Write about {papers} and {tools}."}),
		agent.Loop("polish", 3,
			agent.New("editor", model("editor"), agent.Options{
				Instruction: "Improve the text. Call exit_loop when nothing is left to improve.",
				Tools:       []agent.Tool{agent.ExitLoop},
			})))
}

func Example_adkWorkflowAgents() {
	models := map[string]llm.Model{
		"papers": script.New(script.Say("Raft, again.")),
		"tools":  script.New(script.Say("A linter.")),
		"writer": script.New(script.Say("There are raft and a linter.")),
		"editor": script.New(script.Say("Raft is back, and a linter."), script.Call("exit_loop", `{}`), script.Say("Raft is back. So is a linter.")),
	}
	p, run := run("newsletter", "This week", agent.NewFlow("newsletter", newsletter(func(name string) llm.Model { return models[name] })))
	defer p.stop()
	fmt.Println(string(run.Output))
	fmt.Println(string(must(p.StateAt(p.ctx, run.Thread, 0)).State["papers"]))
	// Output:
	// "Raft is back. So is a linter."
	// "Raft, again."
}

func invoiceV1(ctx context.Context, order string) (string, error) {
	if _, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: "Approve " + order + "?"}); err != nil {
		return "", err
	}
	return perdure.Step(ctx, "send", func(ctx context.Context) (string, error) {
		return send(ctx, perdure.Key(ctx), "invoice for "+order)
	})
}

func invoiceV2(ctx context.Context, order string) (string, error) {
	return perdure.Step(ctx, "submit", func(ctx context.Context) (string, error) {
		return send(ctx, perdure.Key(ctx), "e-invoice for "+order)
	})
}

func Example_temporalWorkerVersioning() {
	s := memstore.New()
	blue := begin(s, perdure.NewFlow("invoice", invoiceV1))
	old := must(blue.Start(blue.ctx, perdure.StartRequest{Flow: "invoice", Input: "A-17"}))
	ask := must(blue.Wait(blue.ctx, old.Thread, old.ID)).Asks[0].ID
	blue.stop()

	green := begin(s,
		perdure.NewFlow("invoice", invoiceV1),   // for runs that began with it; remove it when there are none
		perdure.NewFlow("invoice-2", invoiceV2)) // for new ones
	defer green.stop()
	check(green.Answer(green.ctx, perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: true, By: "ann"}}))
	fmt.Println(string(must(green.WaitEnd(green.ctx, old.Thread, old.ID)).Output))
	run := must(green.Start(green.ctx, perdure.StartRequest{Flow: "invoice-2", Input: "A-18"}))
	fmt.Println(string(must(green.WaitEnd(green.ctx, run.Thread, run.ID)).Output))
	// Output:
	// "sent: invoice for A-17"
	// "sent: e-invoice for A-18"
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
