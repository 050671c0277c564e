// Approval is a program that asks before it refunds an order:
//
//	go run ./examples/approval
//
// Kill it whenever you like, also with kill -9, and start it again: it goes on
// where it was. A step that is done is not done again, and a question that is
// open is still open. After a kill in the middle of a step it first waits until
// the lease of the dead process is over, 3 seconds. All that it knows is in
// approval.db, in the folder where it is started; remove approval.db* to begin
// anew.
//
// It is the first program of the documentation of package perdure, slowed down
// so that there is time to kill it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

func refund(ctx context.Context, order string) (string, error) {
	amount, err := perdure.Step(ctx, "look-up", func(ctx context.Context) (int, error) {
		fmt.Println("looking up order", order)
		time.Sleep(time.Second)
		return 42, nil
	})
	if err != nil {
		return "", err
	}
	ok, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: fmt.Sprintf("Refund %d € for order %s?", amount, order)})
	if err != nil || !ok {
		return "not refunded", err
	}
	return perdure.Step(ctx, "pay", func(ctx context.Context) (string, error) {
		fmt.Println("paying under the key", perdure.Key(ctx)) // the same key if the step runs again
		time.Sleep(time.Second)
		return fmt.Sprintf("refunded %d €", amount), nil
	})
}

func main() {
	ctx := context.Background()
	rt := must(perdure.Open(ctx, "sqlite:approval.db", perdure.NewFlow("refund", refund)))
	go func() { log.Fatal(rt.Work(ctx)) }() // executes runs
	run := must(rt.Start(ctx, perdure.StartRequest{Flow: "refund", Input: "A-17", Key: "refund A-17"}))
	run = must(rt.Wait(ctx, run.Thread, run.ID)) // until it asks or ends
	typed := bufio.NewReader(os.Stdin)
	for len(run.Asks) > 0 {
		fmt.Print(run.Asks[0].Prompt, " (yes/no) ")
		yes := strings.TrimSpace(must(typed.ReadString('\n'))) == "yes"
		if err := rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: yes}}); err != nil {
			log.Fatal(err)
		}
		run = must(rt.Wait(ctx, run.Thread, run.ID))
	}
	fmt.Println(must(perdure.Output[string](run)))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
