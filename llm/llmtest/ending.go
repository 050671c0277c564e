package llmtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"time"

	"github.com/perdure/perdure/llm"
)

// most bounds at how many deltas a reply is broken off.
const most = 20

// breakOff listens to n deltas and returns whether there were as many.
func breakOff(deltas iter.Seq2[llm.Delta, error], n int) (whole bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the loop was left at delta %d, and the model panics: %v", n, p)
		}
	}()
	for _, err := range deltas {
		if err != nil {
			return false, err
		}
		if n--; n <= 0 {
			return false, nil
		}
	}
	return true, nil
}

func loopMayEnd(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		for n := 1; n <= most; n++ {
			whole, err := breakOff(m.Generate(ctx, r), n)
			if whole || err != nil {
				return err
			}
		}
		return nil
	})
}

func nothingLeaks(ctx context.Context, m llm.Model) error {
	const times = 40
	r := requests()[0]
	if _, err := breakOff(m.Generate(ctx, r), 1); err != nil { // connections and the like that stay
		return err
	}
	before := runtime.NumGoroutine()
	for range times {
		m.Generate(ctx, r) // never begun
		if _, err := breakOff(m.Generate(ctx, r), 1); err != nil {
			return err
		}
		next, stop := iter.Pull2(m.Generate(ctx, r))
		next()
		stop()
	}
	// Connections end a little later than the loop does.
	now := runtime.NumGoroutine()
	for i := 0; i < 2000 && now >= before+times/2; i++ {
		time.Sleep(time.Millisecond)
		now = runtime.NumGoroutine()
	}
	if now >= before+times/2 {
		return fmt.Errorf("%d replies that were broken off leave %d goroutines", 2*times, now-before)
	}
	return nil
}

// ended checks that a context's error, and nothing else, ends a reply.
func ended(ctx context.Context, m llm.Model, r *llm.Request) error {
	want := ctx.Err()
	var got error
	for d, err := range m.Generate(ctx, r) {
		if got != nil {
			return fmt.Errorf("after the error comes %+v, %v", d, err)
		}
		got = err
	}
	if !errors.Is(got, want) {
		return fmt.Errorf("the reply ends with the error %v, want %v", got, want)
	}
	return nil
}

func cancelledBefore(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
		defer cancel()
		return errors.Join(ended(cancelled, m, r), ended(late, m, r))
	})
}

func cancelledBetween(ctx context.Context, m llm.Model) error {
	return each(func(r *llm.Request) error {
		for n := range most {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			seen, stopped := 0, false
			var got error
			for d, err := range m.Generate(ctx, r) {
				if got != nil {
					return fmt.Errorf("after the error comes %+v, %v", d, err)
				}
				got, stopped = err, d.Stop != ""
				if seen++; seen == n+1 {
					cancel()
				}
			}
			if ctx.Err() == nil && got == nil {
				return nil // it has no more deltas
			}
			if !stopped && !errors.Is(got, context.Canceled) {
				return fmt.Errorf("cancelled after delta %d, the reply ends with the error %v", n+1, got)
			}
		}
		return nil
	})
}
