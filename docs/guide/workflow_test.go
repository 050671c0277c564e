package guide_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

type Order struct {
	ID    string
	Items []string
}

func fulfil(ctx context.Context, o Order) (string, error) {
	if err := perdure.Plan(ctx, "pack", "pay", "ship"); err != nil {
		return "", err
	}
	var parcels []*perdure.Child
	for i, item := range o.Items {
		c, err := perdure.Spawn(ctx, fmt.Sprintf("pack-%d", i), "pack", item)
		if err != nil {
			return "", err
		}
		parcels = append(parcels, c)
	}
	for i, c := range parcels {
		if _, err := perdure.Join[string](ctx, fmt.Sprintf("packed-%d", i), c); err != nil {
			return "", err
		}
	}
	paid, err := perdure.Receive[bool](ctx, "pay", "payment", 72*time.Hour)
	if errors.Is(err, perdure.ErrTimeout) {
		return "cancelled, since nobody paid", nil
	}
	if err != nil || !paid {
		return "not paid", err
	}
	if err := perdure.Sleep(ctx, "cooling-off", 24*time.Hour); err != nil {
		return "", err
	}
	return perdure.Step(ctx, "ship", func(ctx context.Context) (string, error) {
		return "shipped " + o.ID, nil // call the carrier here, with perdure.Key(ctx)
	})
}

func pack(ctx context.Context, item string) (string, error) {
	return perdure.Step(ctx, "pack", func(ctx context.Context) (string, error) {
		return "a box with " + item, nil
	}, perdure.Retry(perdure.RetryPolicy{Attempts: 5}), perdure.Timeout(time.Minute))
}

var order = []perdure.Flow{perdure.NewFlow("fulfil", fulfil), perdure.NewFlow("pack", pack)}

func TestFulfilTakesDays(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: order}, func(t *testing.T, e *perduretest.Env) {
		e.Start("A-17", "fulfil", Order{ID: "A-17", Items: []string{"lamp", "book"}})
		e.Wait("A-17", perdure.Suspended)
		e.Restart() // the process is killed while it waits for the payment
		e.Signal("A-17", "payment", true)
		e.Advance(time.Minute)
		e.Stop() // and while it sleeps, nobody works
		e.Advance(25 * time.Hour)
		e.Restart()
		out, err := perdure.Output[string](e.Wait("A-17", perdure.Succeeded))
		if err != nil || out != "shipped A-17" {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestNobodyPays(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: order}, func(t *testing.T, e *perduretest.Env) {
		e.Start("A-18", "fulfil", Order{ID: "A-18"})
		e.Wait("A-18", perdure.Suspended)
		e.Stop() // for three days, nobody works at all
		e.Advance(73 * time.Hour)
		e.Restart()
		out, err := perdure.Output[string](e.Wait("A-18", perdure.Succeeded))
		if err != nil || out != "cancelled, since nobody paid" {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

// A run that fails or is cancelled undoes what it did.
func Example_cleanup() {
	book := perdure.NewFlow("book", func(ctx context.Context, trip string) (_ string, err error) {
		if _, err := perdure.Step(ctx, "reserve", func(context.Context) (string, error) { return "seat 4", nil }); err != nil {
			return "", err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, perdure.Cleanup(ctx, "release", func(context.Context) error {
					fmt.Println("released the seat")
					return nil
				}))
			}
		}()
		return perdure.Step(ctx, "pay", func(context.Context) (string, error) { return "", errors.New("card refused") })
	})
	p, run := run("book", "Bergen", book)
	defer p.stop()
	fmt.Println(run.Status, run.Error)
	// Output:
	// released the seat
	// failed /pay: card refused
}

func TestSubscriptionWithoutADecisionEnds(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{subscription}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("ann", "subscribe", "ann")
		e.Advance(38 * 24 * time.Hour)
		if out, err := perdure.Output[int](e.Wait("ann", perdure.Succeeded)); err != nil || out != 0 {
			t.Errorf("got %d, %v", out, err)
		}
	})
}

func TestSubscriptionTakesAMonth(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{subscription}}, func(t *testing.T, e *perduretest.Env) {
		e.Start("ann", "subscribe", "ann")
		e.Signal("ann", "decision", true)
		e.Advance(time.Minute)
		e.Stop()
		e.Advance(31 * 24 * time.Hour)
		e.Restart()
		if out, err := perdure.Output[int](e.Wait("ann", perdure.Succeeded)); err != nil || out != 900 {
			t.Errorf("got %d, %v", out, err)
		}
	})
}
