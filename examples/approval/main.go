// Approval is a program that asks before it refunds an order:
//
//	go run ./examples/approval
//
// Kill it whenever you like, also with kill -9, and start it again: it goes on
// where it was. What is done is not done again, and a question that is open is
// still open. All that it knows is in approval.db.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// refund is the flow: an order comes in, a receipt goes out. Whatever it does
// to the world, it does in steps.
func refund(ctx context.Context, order string) (string, error) {
	price, err := perdure.Step(ctx, "look-up", func(ctx context.Context) (int, error) {
		fmt.Println("looking up order", order)
		time.Sleep(time.Second) // so that there is time to kill it
		return 42, nil
	})
	if err != nil {
		return "", err
	}
	yes, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: fmt.Sprintf("Refund %d € for order %s?", price, order)})
	if err != nil || !yes {
		return "no refund", err
	}
	return perdure.Step(ctx, "refund", func(ctx context.Context) (string, error) {
		fmt.Println("refunding under the key", perdure.Key(ctx)) // by which the bank knows a repetition
		time.Sleep(time.Second)
		return fmt.Sprintf("refunded %d €", price), nil
	})
}

func main() {
	ctx := context.Background()
	rt, err := perdure.Open(ctx, "sqlite:approval.db", perdure.NewFlow("refund", refund))
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(rt.Work(ctx)) }()
	receipt, err := attend(ctx, rt)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
}

// attend starts the run and answers what it asks until it ends. The key makes
// it the same run however often the program is started.
func attend(ctx context.Context, rt *perdure.Runtime) (string, error) {
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-7", Key: "order A-7"})
	for err == nil {
		if run, err = rt.Wait(ctx, run.Thread, run.ID); err != nil {
			break
		}
		if run.Status != perdure.Suspended {
			return perdure.Output[string](run)
		}
		var reply string
		fmt.Print(run.Asks[0].Prompt, " [y/n] ")
		if _, err = fmt.Scanln(&reply); err == nil {
			err = rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: reply == "y"}})
		}
	}
	return "", err
}
