package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// State belongs to the thread and lives on from run to run. It is written in a
// step, together with the step's result.
func ExampleState() {
	tone := perdure.NewState[string]("tone")
	chat := perdure.NewFlow("chat", func(ctx context.Context, message string) (string, error) {
		if message == "be formal" {
			return perdure.Step(ctx, "set-tone", func(ctx context.Context) (string, error) {
				return "as you wish", tone.Set(ctx, "formal")
			})
		}
		now, known, err := tone.Lookup(ctx)
		if err != nil || !known {
			return "hi!", err
		}
		return "a " + now + " good morning", nil
	})
	s := memstore.New()
	one := startNode(s, chat)
	fmt.Println(string(one.do("ann", "chat", "hello").Output))
	fmt.Println(string(one.do("ann", "chat", "be formal").Output))
	one.stop()

	two := startNode(s, chat)
	defer two.stop()
	fmt.Println(string(two.do("ann", "chat", "hello").Output))
	fmt.Println(string(two.do("bob", "chat", "hello").Output))
	// Output:
	// "hi!"
	// "as you wish"
	// "a formal good morning"
	// "hi!"
}

// A counter is only added to: branches do not lose each other's changes.
func ExampleCounter() {
	votes := perdure.NewCounter("votes")
	election := perdure.NewFlow("election", func(ctx context.Context, districts []int64) (int64, error) {
		g := perdure.NewGroup(ctx)
		for i, n := range districts {
			g.Go(fmt.Sprintf("district-%d", i), func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "count", func(ctx context.Context) (bool, error) {
					return true, votes.Add(ctx, n)
				})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return 0, err
		}
		return votes.Get(ctx)
	})
	node := startNode(memstore.New(), election)
	defer node.stop()
	fmt.Println(string(node.do("", "election", []int64{30, 12, 58}).Output))
	// Output:
	// 100
}

// A list is only appended to, and only what is new is written.
func ExampleList() {
	seen := perdure.NewList[string]("seen")
	visit := perdure.NewFlow("visit", func(ctx context.Context, city string) ([]string, error) {
		if _, err := perdure.Step(ctx, "go", func(ctx context.Context) (string, error) {
			return city, seen.Append(ctx, city)
		}); err != nil {
			return nil, err
		}
		return seen.Get(ctx)
	})
	node := startNode(memstore.New(), visit)
	defer node.stop()
	node.do("ann", "visit", "Rome")
	fmt.Println(string(node.do("ann", "visit", "Oslo").Output))
	// Output:
	// ["Rome","Oslo"]
}

// A fact is state that the thread has learned; it is listed apart.
func ExampleNewFact() {
	diet := perdure.NewFact[string]("diet")
	listen := perdure.NewFlow("listen", func(ctx context.Context, message string) (string, error) {
		return perdure.Step(ctx, "learn", func(ctx context.Context) (string, error) {
			return "noted", diet.Set(ctx, "vegetarian")
		})
	})
	node := startNode(memstore.New(), listen)
	defer node.stop()
	run := node.do("ann", "listen", "No meat, please.")
	now, err := node.StateAt(context.Background(), run.Thread, 0)
	noErr(err)
	for fact, value := range now.Facts {
		fmt.Println(fact, string(value))
	}
	// Output:
	// diet "vegetarian"
}
