package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// An ask waits for a person as long as it takes, in the journal and not in
// memory. Ask[Answer] also tells who decided.
func ExampleAsk() {
	publish := perdure.NewFlow("publish", func(ctx context.Context, text string) (string, error) {
		a, err := perdure.Ask[perdure.Answer](ctx, "review", perdure.Question{
			Kind:      "approval",
			Prompt:    "Publish this?",
			Data:      text,
			Decisions: []string{"approve", "reject"},
		})
		if err != nil {
			return "", err
		}
		return a.Decision + " by " + a.By, nil
	})
	s := memstore.New()
	one := startNode(s, publish)
	run := one.do("", "publish", "Hello, world")
	one.stop()

	two := startNode(s, publish)
	defer two.stop()
	ask := run.Asks[0]
	fmt.Println(ask.Prompt, string(ask.Data), ask.Decisions)
	noErr(two.Answer(context.Background(), perdure.AskAnswer{
		Ask: ask.ID, Answer: perdure.Answer{Decision: "approve", By: "ann"},
	}))
	fmt.Println(string(two.wait(run).Output))
	// Output:
	// Publish this? "Hello, world" [approve reject]
	// "approve by ann"
}

// An ask may expire, with an answer that holds then.
func ExampleAsk_expires() {
	lunch := perdure.NewFlow("lunch", func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "dish", perdure.Question{
			Prompt:  "What do you eat?",
			Expires: 5 * time.Millisecond,
			Default: &perdure.Answer{Value: "soup"},
		})
	})
	node := startNode(memstore.New(), lunch)
	defer node.stop()
	run := node.do("", "lunch", "") // suspended, with an open ask
	fmt.Println(string(node.end(run).Output))
	// Output:
	// "soup"
}

// A signal reaches its Receive although nobody works at the moment. A Receive
// can give up after a while.
func ExampleReceive() {
	deliver := perdure.NewFlow("deliver", func(ctx context.Context, item string) (string, error) {
		place, err := perdure.Receive[string](ctx, "sent", "parcel", 0)
		if err != nil {
			return "", err
		}
		_, err = perdure.Receive[string](ctx, "thanks", "letter", time.Millisecond)
		if errors.Is(err, perdure.ErrTimeout) {
			return item + " is in " + place + ", no thanks", nil
		}
		return item + " is in " + place, err
	})
	ctx := context.Background()
	s := memstore.New()
	one := startNode(s, deliver)
	run := one.do("", "deliver", "lamp")
	fmt.Println(run.Status, "for", run.Waits[0].Signal)
	one.stop() // nobody works now

	rt, err := perdure.New(ctx, s, perdure.Options{}, deliver)
	noErr(err)
	noErr(rt.Signal(ctx, run.Thread, "parcel", "Bergen", perdure.SignalOptions{}))

	two := startNode(s, deliver)
	defer two.stop()
	fmt.Println(string(two.end(run).Output))
	// Output:
	// suspended for parcel
	// "lamp is in Bergen, no thanks"
}

// The end of a sleep is recorded when it begins: it goes on although no
// process is there.
func ExampleSleep() {
	remind := perdure.NewFlow("remind", func(ctx context.Context, what string) (string, error) {
		if _, err := perdure.Step(ctx, "note", func(context.Context) (string, error) {
			fmt.Println("noted:", what)
			return what, nil
		}); err != nil {
			return "", err
		}
		if err := perdure.Sleep(ctx, "nap", 20*time.Millisecond); err != nil {
			return "", err // in real life perhaps days
		}
		return "remember: " + what, nil
	})
	ctx := context.Background()
	s := memstore.New()
	one := startNode(s, remind)
	run, err := one.Start(ctx, perdure.StartRequest{Flow: "remind", Input: "milk"})
	noErr(err)
	for e, err := range one.Events(ctx, run.Thread, perdure.EventOptions{}) {
		noErr(err)
		if e.Kind == "suspended" {
			break
		}
	}
	one.stop()

	two := startNode(s, remind)
	defer two.stop()
	fmt.Println(string(two.wait(run).Output))
	// Output:
	// noted: milk
	// "remember: milk"
}

// Take lets a run be steered: it gets what was sent while it was busy, and
// gets the same again when it is resumed.
func ExampleTake() {
	cook := perdure.NewFlow("cook", func(ctx context.Context, dish string) (string, error) {
		if _, err := perdure.Ask[bool](ctx, "hungry", perdure.Question{Prompt: "Hungry?"}); err != nil {
			return "", err
		}
		for i := 0; ; i++ {
			more, ok, err := perdure.Take[string](ctx, fmt.Sprintf("more-%d", i))
			if err != nil {
				return "", err
			}
			if !ok {
				return dish, nil
			}
			dish += " with " + more
		}
	})
	node := startNode(memstore.New(), cook)
	defer node.stop()
	run := node.do("kitchen", "cook", "rice")
	for _, more := range []string{"beans", "salt"} {
		_, err := node.Start(context.Background(), perdure.StartRequest{
			Thread: "kitchen", Flow: "cook", Input: more, Policy: perdure.Steer,
		})
		noErr(err)
	}
	fmt.Println(string(node.answer(run, true).Output))
	// Output:
	// "rice with beans with salt"
}
