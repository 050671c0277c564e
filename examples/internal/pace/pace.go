// Package pace slows the examples down, so that there is something to watch and
// time to kill it.
package pace

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/llm"
)

// Model returns a model that waits for d before each piece of its replies.
func Model(m llm.Model, d time.Duration) llm.Model {
	return llm.ModelFunc(func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			for piece, err := range m.Generate(ctx, r) {
				if late := Wait(ctx, d); late != nil && err == nil {
					err = late
				}
				if !yield(piece, err) || err != nil {
					return
				}
			}
		}
	})
}

// Wait waits for d, or until the context ends.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
