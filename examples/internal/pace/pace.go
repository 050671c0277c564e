// Package pace slows the examples down, so that there is something to watch and
// time to kill it.
package pace

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/perdure/perdure/llm"
)

// Model returns a model that waits for d before each piece of its replies.
func Model(m llm.Model, d time.Duration) llm.Model { return &slow{m, d} }

type slow struct {
	model llm.Model
	pause time.Duration
}

// Generate implements llm.Model.
func (s *slow) Generate(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		for piece, err := range s.model.Generate(ctx, r) {
			if late := Wait(ctx, s.pause); late != nil && err == nil {
				err = late
			}
			if !yield(piece, err) || err != nil {
				return
			}
		}
	}
}

// String returns the name of the model, for traces and metrics.
func (s *slow) String() string { return fmt.Sprint(s.model) }

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
