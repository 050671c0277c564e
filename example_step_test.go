package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A step runs once. When another process goes on, its recorded result is
// returned and its function is not called.
func ExampleStep() {
	report := perdure.NewFlow("report", func(ctx context.Context, topic string) (string, error) {
		draft, err := perdure.Step(ctx, "draft", func(context.Context) (string, error) {
			fmt.Println("drafting") // an expensive call of a model
			return "All about " + topic, nil
		})
		if err != nil {
			return "", err
		}
		title, err := perdure.Ask[string](ctx, "title", perdure.Question{Prompt: "Which title?"})
		if err != nil {
			return "", err
		}
		return title + ": " + draft, nil
	})
	s := memstore.New()
	one := startNode(s, report)
	run := one.do("", "report", "owls")
	one.stop()
	fmt.Println("the first process is gone")

	two := startNode(s, report)
	defer two.stop()
	run = two.answer(run, "Night birds")
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// drafting
	// the first process is gone
	// succeeded "Night birds: All about owls"
}

// A step that calls verbs is a composite. It is tried again without repeating
// what succeeded inside it.
func ExampleStep_composite() {
	tries := 0
	trip := perdure.NewFlow("trip", func(ctx context.Context, city string) (string, error) {
		return perdure.Step(ctx, "book", func(ctx context.Context) (string, error) {
			train, err := perdure.Step(ctx, "train", func(context.Context) (string, error) {
				fmt.Println("booking the train")
				return "train", nil
			})
			if err != nil {
				return "", err
			}
			hotel, err := perdure.Step(ctx, "hotel", func(context.Context) (string, error) {
				fmt.Println("booking the hotel")
				if tries++; tries == 1 {
					return "", errors.New("no connection")
				}
				return "hotel", nil
			})
			return train + " and " + hotel + " in " + city, err
		}, perdure.Retry(perdure.RetryPolicy{Wait: time.Millisecond}))
	})
	node := startNode(memstore.New(), trip)
	defer node.stop()
	run := node.do("", "trip", "Oslo")
	fmt.Println(string(run.Output))
	// Output:
	// booking the train
	// booking the hotel
	// booking the hotel
	// "train and hotel in Oslo"
}

// Names are unique within their frame. A scope is a frame of its own, so the
// same code can run in several of them.
func ExampleScope() {
	review := func(ctx context.Context, text string) (int, error) {
		words, err := perdure.Step(ctx, "words", func(context.Context) ([]string, error) {
			return strings.Fields(text), nil
		})
		if err != nil {
			return 0, err
		}
		return perdure.Step(ctx, "score", func(context.Context) (int, error) { return len(words), nil })
	}
	jury := perdure.NewFlow("jury", func(ctx context.Context, texts []string) (int, error) {
		total := 0
		for i, text := range texts {
			score, err := perdure.Scope(ctx, fmt.Sprintf("text-%d", i), func(ctx context.Context) (int, error) {
				return review(ctx, text)
			})
			if err != nil {
				return 0, err
			}
			total += score
		}
		return total, nil
	})
	node := startNode(memstore.New(), jury)
	defer node.stop()
	run := node.do("", "jury", []string{"a b", "c d e"})
	for e, err := range node.Events(context.Background(), run.Thread, perdure.EventOptions{Replay: true}) {
		noErr(err)
		if e.Kind == "step" {
			fmt.Println(e.Path, string(e.Value))
		}
	}
	// Output:
	// /text-0/words ["a","b"]
	// /text-0/score 2
	// /text-1/words ["c","d","e"]
	// /text-1/score 3
}

// Each branch of a group goes on by itself: here one waits for a person while
// the other works, and what it did is not repeated.
func ExampleNewGroup() {
	launch := perdure.NewFlow("launch", func(ctx context.Context, product string) (string, error) {
		var page string
		var price int
		g := perdure.NewGroup(ctx)
		g.Go("web", func(ctx context.Context) (err error) {
			page, err = perdure.Step(ctx, "page", func(context.Context) (string, error) {
				fmt.Println("making the page")
				return product + ".html", nil
			})
			return err
		})
		g.Go("sales", func(ctx context.Context) (err error) {
			price, err = perdure.Ask[int](ctx, "price", perdure.Question{Prompt: "Which price?"})
			return err
		})
		if err := g.Wait(); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s for %d", page, price), nil
	})
	s := memstore.New()
	one := startNode(s, launch)
	run := one.do("", "launch", "lamp")
	fmt.Println(run.Status, "at", run.Asks[0].Path)
	one.stop()

	two := startNode(s, launch)
	defer two.stop()
	fmt.Println(string(two.answer(run, 30).Output))
	// Output:
	// making the page
	// suspended at /sales/price
	// "lamp.html for 30"
}

// A flow has a typed input and output; both are kept as JSON.
func ExampleNewFlow() {
	type Order struct {
		Item  string
		Count int
	}
	type Bill struct{ Total int }
	bill := perdure.NewFlow("bill", func(ctx context.Context, o Order) (Bill, error) {
		price, err := perdure.Step(ctx, "price", func(context.Context) (int, error) { return 3, nil })
		return Bill{Total: o.Count * price}, err
	})
	node := startNode(memstore.New(), bill)
	defer node.stop()
	run := node.do("", "bill", Order{Item: "pen", Count: 4})
	out, err := perdure.Output[Bill](run)
	fmt.Println(out.Total, err)

	// What does not fit the flow is refused before anything is stored.
	_, err = node.Start(context.Background(), perdure.StartRequest{Flow: "bill", Input: "four pens"})
	fmt.Println(errors.Is(err, perdure.ErrInvalid))
	// Output:
	// 12 <nil>
	// true
}

// An event of one's own is recorded once, however often the flow is called.
func ExampleEmit() {
	travel := perdure.NewFlow("travel", func(ctx context.Context, city string) (string, error) {
		if err := perdure.Emit(ctx, "found", map[string]string{"city": city}); err != nil {
			return "", err
		}
		return perdure.Ask[string](ctx, "when", perdure.Question{Prompt: "When?"})
	})
	s := memstore.New()
	one := startNode(s, travel)
	run := one.do("", "travel", "Rome")
	one.stop()

	two := startNode(s, travel)
	defer two.stop()
	run = two.answer(run, "in May")
	for e, err := range two.Events(context.Background(), run.Thread, perdure.EventOptions{Replay: true}) {
		noErr(err)
		if e.Kind == "emitted" {
			fmt.Println(e.Path, string(e.Value))
		}
	}
	// Output:
	// /found {"city":"Rome"}
}

// Deltas reach those who watch at the moment; what counts is the step's result.
func ExampleDelta() {
	watched := make(chan bool)
	story := perdure.NewFlow("story", func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "write", func(ctx context.Context) (string, error) {
			for {
				perdure.Delta(ctx, "Once upon")
				select {
				case <-watched:
					return "Once upon a time", nil
				case <-time.After(time.Millisecond): // nobody has come yet
				}
			}
		})
	})
	ctx := context.Background()
	node := startNode(memstore.New(), story)
	defer node.stop()
	run, err := node.Start(ctx, perdure.StartRequest{Flow: "story", Input: ""})
	noErr(err)
	for d, err := range node.Deltas(ctx, run.Thread) {
		noErr(err)
		fmt.Println("live:", d.Path, string(d.Data))
		break
	}
	close(watched)
	fmt.Println("recorded:", string(node.wait(run).Output))
	// Output:
	// live: /write "Once upon"
	// recorded: "Once upon a time"
}

// Key is the same on every attempt, so that the service called can recognise
// a repeated call.
func ExampleKey() {
	charged := map[string]bool{} // the bank's
	pay := perdure.NewFlow("pay", func(ctx context.Context, amount int) (string, error) {
		return perdure.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			key := perdure.Key(ctx)
			if charged[key] {
				return "the bank knows this call", nil
			}
			charged[key] = true
			return "", errors.New("the bank's reply was lost")
		}, perdure.Retry(perdure.RetryPolicy{Wait: time.Millisecond}))
	})
	node := startNode(memstore.New(), pay)
	defer node.stop()
	run := node.do("", "pay", 100)
	fmt.Println(run.Errors[0].Error)
	fmt.Println(string(run.Output))
	fmt.Println(len(charged), "charge")
	// Output:
	// the bank's reply was lost
	// "the bank knows this call"
	// 1 charge
}

// Now is the same when the flow is called again, unlike time.Now.
func ExampleNow() {
	var deadlines []time.Time
	offer := perdure.NewFlow("offer", func(ctx context.Context, _ string) (bool, error) {
		deadline := perdure.Now(ctx).Add(24 * time.Hour)
		deadlines = append(deadlines, deadline)
		if _, err := perdure.Ask[bool](ctx, "accept", perdure.Question{Prompt: "Do you accept?"}); err != nil {
			return false, err
		}
		return perdure.Now(ctx).Before(deadline), nil // now it is the time of the answer
	})
	s := memstore.New()
	one := startNode(s, offer)
	run := one.do("", "offer", "")
	one.stop()

	two := startNode(s, offer)
	defer two.stop()
	run = two.answer(run, true)
	fmt.Println("in time:", string(run.Output))
	fmt.Println("called", len(deadlines), "times, same deadline:", deadlines[0].Equal(deadlines[1]))
	// Output:
	// in time: true
	// called 2 times, same deadline: true
}

// What a run spends is folded from its journal: a crash forgets none of it.
func ExampleSpend() {
	research := perdure.NewFlow("research", func(ctx context.Context, topic string) (int, error) {
		for i := 0; ; i++ {
			_, err := perdure.Step(ctx, fmt.Sprintf("search-%d", i), func(ctx context.Context) (string, error) {
				return topic, perdure.Spend(ctx, "tokens", 400)
			})
			if errors.Is(err, perdure.ErrBudget) {
				return i, nil // searches that could be paid
			}
			if err != nil {
				return 0, err
			}
		}
	})
	node := startNode(memstore.New(), research)
	defer node.stop()
	run, err := node.Start(context.Background(), perdure.StartRequest{
		Flow: "research", Input: "owls", Budget: map[string]int64{"tokens": 1000},
	})
	noErr(err)
	run = node.wait(run)
	fmt.Println(string(run.Output), "searches,", run.Spent["tokens"], "tokens")
	// Output:
	// 2 searches, 1200 tokens
}

// Plan tells others what will come, and the journal how much of it is done.
func ExamplePlan() {
	essay := perdure.NewFlow("essay", func(ctx context.Context, topic string) (string, error) {
		if err := perdure.Plan(ctx, "outline", "approve", "write"); err != nil {
			return "", err
		}
		outline, err := perdure.Step(ctx, "outline", func(context.Context) (string, error) { return topic + ": 1, 2, 3", nil })
		if err != nil {
			return "", err
		}
		if _, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: outline}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "write", func(context.Context) (string, error) { return "text", nil })
	})
	node := startNode(memstore.New(), essay)
	defer node.stop()
	run := node.do("", "essay", "owls")
	for i, step := range run.Plan {
		fmt.Printf("%d of %d: %s, done: %t\n", i+1, len(run.Plan), step.Name, step.Done)
	}
	// Output:
	// 1 of 3: outline, done: true
	// 2 of 3: approve, done: false
	// 3 of 3: write, done: false
}

// A cleanup runs on the way out, also when the run is cancelled. While the run
// is only suspended the deferred call does nothing.
func ExampleCleanup() {
	journey := perdure.NewFlow("journey", func(ctx context.Context, seat string) (_ string, err error) {
		if _, err := perdure.Step(ctx, "reserve", func(context.Context) (string, error) {
			fmt.Println("reserved", seat)
			return seat, nil
		}); err != nil {
			return "", err
		}
		defer func() {
			if err != nil {
				_ = perdure.Cleanup(ctx, "release", func(context.Context) error {
					fmt.Println("released", seat)
					return nil
				})
			}
		}()
		return perdure.Ask[string](ctx, "pay", perdure.Question{Prompt: "How do you pay?"})
	})
	s := memstore.New()
	one := startNode(s, journey)
	run := one.do("", "journey", "12A")
	fmt.Println(run.Status)
	one.stop()

	two := startNode(s, journey)
	defer two.stop()
	noErr(two.Cancel(context.Background(), run.Thread, run.ID, perdure.Note{By: "ann"}))
	fmt.Println(two.wait(run).Status)
	// Output:
	// reserved 12A
	// suspended
	// released 12A
	// cancelled
}
