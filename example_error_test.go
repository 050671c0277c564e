package perdure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A panic is a failed attempt with its stack, not the end of the process.
func ExampleStack() {
	parse := perdure.NewFlow("parse", func(ctx context.Context, lines []string) (string, error) {
		return perdure.Step(ctx, "third", func(context.Context) (string, error) { return lines[2], nil })
	})
	node := startNode(memstore.New(), parse)
	defer node.stop()
	run := node.do("", "parse", []string{"one"})
	fmt.Println(run.Status, run.Error)
	fmt.Println("has a stack:", strings.Contains(perdure.Stack(run.Err), "example_error_test.go"))
	// Output:
	// failed /third: panic: runtime error: index out of range [2] with length 1
	// has a stack: true
}

// A failed step says where it stands and how often it was tried.
func ExampleStepError() {
	flow := perdure.NewFlow("try", func(ctx context.Context, page string) (string, error) {
		_, err := perdure.Step(ctx, "get", func(context.Context) (string, error) { return "", errors.New("404") },
			perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
		var failed *perdure.StepError
		if !errors.As(err, &failed) {
			return "", err
		}
		return fmt.Sprintf("%s failed at attempt %d: %v", failed.Path, failed.Attempt, failed.Err), nil
	})
	node := startNode(memstore.New(), flow)
	defer node.stop()
	fmt.Println(string(node.do("", "try", "index").Output))
	// Output:
	// "/get failed at attempt 2: 404"
}

// Output returns what a run returned, or why it did not.
func ExampleOutput() {
	divide := perdure.NewFlow("divide", func(_ context.Context, n [2]int) (int, error) {
		if n[1] == 0 {
			return 0, errors.New("division by zero")
		}
		return n[0] / n[1], nil
	})
	node := startNode(memstore.New(), divide)
	defer node.stop()
	for _, n := range [][2]int{{6, 3}, {1, 0}} {
		run := node.do("", "divide", n)
		out, err := perdure.Output[int](run)
		fmt.Println(run.Status, out, err != nil)
	}
	// Output:
	// succeeded 2 false
	// failed 0 true
}

// counted is an Observer that counts.
type counted struct{ steps, entries atomic.Int64 }

func (c *counted) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) { c.steps.Add(1) }
}

func (c *counted) Committed(perdure.Event) { c.entries.Add(1) }

// An observer sees each attempt of a step, and each entry that is written.
func ExampleObserver() {
	flow := perdure.NewFlow("two", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "one", say("one")); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "two", say("two"))
	})
	var seen counted
	node := startNodeWith(memstore.New(), perdure.Options{Observer: &seen}, flow)
	node.do("", "two", "")
	node.stop()
	fmt.Println(seen.steps.Load(), "steps,", seen.entries.Load(), "entries")
	// Output:
	// step: one
	// step: two
	// 2 steps, 4 entries
}

// minimum is a Validator that knows one keyword of JSON Schema; in real life
// a library does this.
type minimum struct{}

func (minimum) Validate(schema, value json.RawMessage) error {
	var rule struct{ Minimum float64 }
	var n float64
	if err := errors.Join(json.Unmarshal(schema, &rule), json.Unmarshal(value, &n)); err != nil {
		return err
	}
	if n < rule.Minimum {
		return fmt.Errorf("%v is less than %v", n, rule.Minimum)
	}
	return nil
}

// An answer is checked before it is stored: a wrong one leaves the run as it is.
func ExampleValidator() {
	hotel := perdure.NewFlow("hotel", func(ctx context.Context, _ string) (int, error) {
		return perdure.Ask[int](ctx, "nights", perdure.Question{
			Prompt: "How many nights?", Schema: json.RawMessage(`{"minimum":1}`),
		})
	})
	node := startNodeWith(memstore.New(), perdure.Options{Validator: minimum{}}, hotel)
	defer node.stop()
	run := node.do("", "hotel", "")
	err := node.Answer(context.Background(), perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: 0}})
	fmt.Println("refused:", errors.Is(err, perdure.ErrAnswer))
	fmt.Println(string(node.answer(run, 2).Output), "nights")
	// Output:
	// refused: true
	// 2 nights
}
