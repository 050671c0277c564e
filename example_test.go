package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/store/memstore" // the scheme "memory:"
)

// refund is a flow: ordinary Go whose effects are steps. Whenever the process
// dies it is called again, and goes on behind the last step that is recorded.
func refund(ctx context.Context, order string) (string, error) {
	amount, err := perdure.Step(ctx, "find-amount", func(context.Context) (int, error) {
		return 40, nil // here: ask the shop
	})
	if err != nil {
		return "", err
	}
	ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{
		Prompt: fmt.Sprintf("Refund %d for %s?", amount, order),
	})
	if err != nil {
		return "", err // it waits, perhaps for days: nothing is kept in memory
	}
	if !ok {
		return "refused", nil
	}
	return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
		return fmt.Sprintf("%d paid", amount), nil // here: pay, with perdure.Key(ctx)
	})
}

// A flow that waits for a person: everything by hand.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rt, err := perdure.Open(ctx, "memory:", perdure.NewFlow("refund", refund)) // "sqlite:FILE" outlives the process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	worked := make(chan error)
	go func() { worked <- rt.Work(ctx) }() // any number of processes may do this

	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "order-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err = rt.Wait(ctx, run.Thread, run.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Status, "-", run.Asks[0].Prompt)

	yes := perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true, By: "ann"}}
	if err := rt.Answer(ctx, yes); err != nil {
		fmt.Println(err)
		return
	}
	run, err = rt.Wait(ctx, run.Thread, run.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	paid, err := perdure.Output[string](run)
	fmt.Println(run.Status, "-", paid, err)

	stop()
	fmt.Println("worker:", <-worked)
	// Output:
	// suspended - Refund 40 for order-7?
	// succeeded - 40 paid <nil>
	// worker: <nil>
}
