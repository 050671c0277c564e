package guide_test

import (
	"cmp"
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

func refund(ctx context.Context, order string) (string, error) {
	amount, err := perdure.Step(ctx, "look-up", func(ctx context.Context) (int, error) {
		fmt.Println("looking up order", order)
		return 42, nil
	})
	if err != nil {
		return "", err
	}
	ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: fmt.Sprintf("Refund %d €?", amount)})
	if err != nil || !ok {
		return "not refunded", err
	}
	return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
		fmt.Println("paying")
		return fmt.Sprintf("refunded %d €", amount), nil
	})
}

// Two processes execute one run; its journal has it all.
func Example_concepts() {
	s := memstore.New() // what both processes share; usually a file or a database
	one := begin(s, perdure.NewFlow("refund", refund))
	ctx := context.Background()

	run := must(one.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-17", Thread: "order-A-17"}))
	run = must(one.Wait(ctx, run.Thread, run.ID)) // until it ends or needs someone
	fmt.Println(run.Status, "-", run.Asks[0].Prompt)
	one.stop() // the process ends

	two := begin(s, perdure.NewFlow("refund", refund)) // days later, perhaps elsewhere
	defer two.stop()
	check(two.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}))
	run = must(two.WaitEnd(ctx, run.Thread, run.ID))
	fmt.Println(run.Status, "-", must(perdure.Output[string](run)))

	for e, err := range two.Events(ctx, "order-A-17", perdure.EventOptions{Replay: true}) {
		check(err)
		fmt.Println(e.Seq, e.Kind, cmp.Or(e.Path, "-"))
	}
	// Output:
	// looking up order A-17
	// suspended - Refund 42 €?
	// paying
	// succeeded - refunded 42 €
	// 1 created -
	// 2 queued -
	// 3 claimed -
	// 4 step /look-up
	// 5 asked /approve
	// 6 suspended -
	// 7 answered /approve
	// 8 claimed -
	// 9 step /pay
	// 10 ended -
}

// A group runs branches at the same time.
func Example_group() {
	opinions := func(ctx context.Context, topics []string) ([]string, error) {
		found := make([]string, len(topics))
		g := perdure.NewGroup(ctx)
		for i, topic := range topics {
			g.Go(topic, func(ctx context.Context) error {
				var err error
				found[i], err = perdure.Step(ctx, "search", func(context.Context) (string, error) {
					return "all about " + topic, nil
				})
				return err
			})
		}
		return found, g.Wait()
	}
	p, run := run("opinions", []string{"cost", "risk"}, perdure.NewFlow("opinions", opinions))
	defer p.stop()
	fmt.Println(string(run.Output))
	// Output:
	// ["all about cost","all about risk"]
}
