package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A step is tried again as often as its policy says; each failed attempt is
// recorded, and long waits outlive the process.
func ExampleRetry() {
	calls := 0
	weather := perdure.NewFlow("weather", func(ctx context.Context, city string) (string, error) {
		return perdure.Step(ctx, "fetch", func(context.Context) (string, error) {
			if calls++; calls < 3 {
				return "", fmt.Errorf("timeout %d", calls)
			}
			return "sunny in " + city, nil
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 5, Wait: time.Millisecond}))
	})
	node := startNode(memstore.New(), weather)
	defer node.stop()
	run := node.do("", "weather", "Rome")
	for _, e := range run.Errors {
		fmt.Println(e.Path, e.Error)
	}
	fmt.Println(string(run.Output))
	// Output:
	// /fetch timeout 1
	// /fetch timeout 2
	// "sunny in Rome"
}

// An error marked Permanent ends the attempts.
func ExamplePermanent() {
	errUnknown := errors.New("no such city")
	weather := perdure.NewFlow("weather", func(ctx context.Context, city string) (string, error) {
		return perdure.Step(ctx, "fetch", func(context.Context) (string, error) {
			fmt.Println("asking for", city)
			return "", perdure.Permanent(errUnknown)
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 5, Wait: time.Millisecond}))
	})
	node := startNode(memstore.New(), weather)
	defer node.stop()
	run := node.do("", "weather", "Atlantis")
	fmt.Println(run.Status, run.Error)
	// Output:
	// asking for Atlantis
	// failed /fetch: no such city
}

// A step that takes too long fails with ErrTimeout. Its function has to heed
// its context.
func ExampleTimeout() {
	search := perdure.NewFlow("search", func(ctx context.Context, what string) (string, error) {
		found, err := perdure.Step(ctx, "slow-index", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, perdure.Timeout(time.Millisecond))
		if errors.Is(err, perdure.ErrTimeout) {
			return what + " from the cache", nil
		}
		return found, err
	})
	node := startNode(memstore.New(), search)
	defer node.stop()
	fmt.Println(string(node.do("", "search", "owls").Output))
	// Output:
	// "owls from the cache"
}

// Input keeps a result from being taken for other arguments than it was made
// with: here new code offers another price than the one that was checked.
func ExampleInput() {
	sale := func(price int) perdure.Flow {
		return perdure.NewFlow("sale", func(ctx context.Context, item string) (bool, error) {
			if _, err := perdure.Step(ctx, "check-price", func(context.Context) (string, error) {
				return fmt.Sprintf("%d is fair", price), nil
			}, perdure.Input(price)); err != nil {
				return false, err
			}
			return perdure.Ask[bool](ctx, "buy", perdure.Question{Prompt: fmt.Sprintf("Buy %s for %d?", item, price)})
		})
	}
	s := memstore.New()
	one := startNode(s, sale(10))
	run := one.do("", "sale", "lamp")
	one.stop()

	two := startNode(s, sale(99)) // the next version of the program
	defer two.stop()
	run = two.answer(run, true)
	fmt.Println(run.Status)
	fmt.Println(run.Diff)
	// Output:
	// blocked
	// at /check-price:
	// - recorded: input with digest SkTcFTZCBKgP
	// + the code: input with digest jB8QRiGd3SFq
}

// An at-most-once step is never started again unless it is certain that it had
// no effect. Where nobody knows, a person is asked.
func ExampleAtMostOnce() {
	invite := perdure.NewFlow("invite", func(ctx context.Context, guest string) (string, error) {
		return perdure.Step(ctx, "send-letter", func(context.Context) (string, error) {
			fmt.Println("sending a letter to", guest)
			return "", errors.New("the line went dead")
		}, perdure.AtMostOnce(), perdure.Timeout(time.Second))
	})
	node := startNode(memstore.New(), invite)
	defer node.stop()
	run := node.do("", "invite", "ann")
	ask := run.Asks[0]
	fmt.Println(ask.Kind, ask.Decisions)
	fmt.Println(ask.Prompt)
	noErr(node.Answer(context.Background(), perdure.AskAnswer{
		Ask: ask.ID, Answer: perdure.Answer{Decision: perdure.DecisionDone, Value: "sent, ann called", By: "bob"},
	}))
	fmt.Println(string(node.wait(run).Output))
	// Output:
	// sending a letter to ann
	// outcome [done not-done fail]
	// Nobody knows whether step /send-letter happened. Did it?
	// "sent, ann called"
}

// Reconcile finds out by itself what became of an at-most-once step whose
// outcome was lost.
func ExampleReconcile() {
	transfers := map[string]string{} // the bank's
	pay := perdure.NewFlow("pay", func(ctx context.Context, amount int) (string, error) {
		return perdure.Step(ctx, "transfer", func(ctx context.Context) (string, error) {
			fmt.Println("transferring", amount)
			transfers[perdure.Key(ctx)] = "receipt 17"
			return "", errors.New("the reply was lost")
		},
			perdure.AtMostOnce(), perdure.Timeout(time.Second),
			perdure.Reconcile(func(ctx context.Context) (string, perdure.Outcome, error) {
				if receipt, ok := transfers[perdure.Key(ctx)]; ok {
					return receipt, perdure.OutcomeDone, nil
				}
				return "", perdure.OutcomeNotDone, nil
			}))
	})
	node := startNode(memstore.New(), pay)
	defer node.stop()
	run := node.do("", "pay", 100)
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// transferring 100
	// succeeded "receipt 17"
}

// NotDone says that an at-most-once step had no effect for sure, so that it
// may be tried again.
func ExampleNotDone() {
	calls := 0
	post := perdure.NewFlow("post", func(ctx context.Context, text string) (string, error) {
		return perdure.Step(ctx, "publish", func(context.Context) (string, error) {
			if calls++; calls == 1 {
				return "", perdure.NotDone(errors.New("connection refused")) // nothing was sent
			}
			return "published " + text, nil
		}, perdure.AtMostOnce(), perdure.Timeout(time.Second), perdure.Retry(perdure.RetryPolicy{Wait: time.Millisecond}))
	})
	node := startNode(memstore.New(), post)
	defer node.stop()
	run := node.do("", "post", "news")
	fmt.Println(string(run.Output), "with", calls, "calls")
	// Output:
	// "published news" with 2 calls
}

// Errors cross the journal as code and message: a coded one still matches when
// another process reads it back.
func ExampleCoded() {
	errSoldOut := perdure.Coded("sold-out", errors.New("sold out"))
	concert := perdure.NewFlow("concert", func(ctx context.Context, band string) (string, error) {
		_, err := perdure.Step(ctx, "book", func(context.Context) (string, error) {
			fmt.Println("booking", band)
			return "", fmt.Errorf("booking %s: %w", band, errSoldOut)
		})
		if !errors.Is(err, errSoldOut) {
			return "", err
		}
		return perdure.Ask[string](ctx, "else", perdure.Question{Prompt: err.Error() + "; whom else?"})
	})
	s := memstore.New()
	one := startNode(s, concert)
	run := one.do("", "concert", "The Owls")
	one.stop()

	two := startNode(s, concert)
	defer two.stop()
	fmt.Println(run.Asks[0].Prompt)
	fmt.Println(string(two.answer(run, "The Larks").Output))
	// Output:
	// booking The Owls
	// /book: booking The Owls: sold out; whom else?
	// "The Larks"
}
