package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestAfterOfEveryKind marks errors in odd ways, and looks at when the next
// attempt comes.
func TestAfterOfEveryKind(t *testing.T) {
	base := errors.New("busy")
	once := []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(time.Minute)}
	for name, c := range map[string]struct {
		err      error
		opts     []perdure.StepOption
		low, top time.Duration // of the wait; 0, 0: there is no second attempt
	}{
		"plain":                  {err: perdure.After(time.Hour, base), low: time.Hour, top: time.Hour + time.Minute},
		"short":                  {err: perdure.After(1500*time.Millisecond, base), low: 1500 * time.Millisecond, top: time.Minute},
		"negative":               {err: perdure.After(-time.Hour, base), low: 1, top: time.Minute},
		"the least there is":     {err: perdure.After(math.MinInt64, base), low: 1, top: time.Minute},
		"the most there is":      {err: perdure.After(math.MaxInt64, base), low: 24 * time.Hour, top: 25 * time.Hour},
		"nothing":                {err: perdure.After(time.Hour, nil), low: time.Hour, top: time.Hour + time.Minute},
		"joined":                 {err: errors.Join(base, perdure.After(time.Hour, base), perdure.After(2*time.Hour, base)), low: 2 * time.Hour, top: 2*time.Hour + time.Minute},
		"in each other":          {err: perdure.After(time.Minute, fmt.Errorf("x: %w", perdure.After(time.Hour, base))), low: time.Hour, top: time.Hour + time.Minute},
		"coded":                  {err: perdure.Coded("busy", perdure.After(time.Hour, base)), low: time.Hour, top: time.Hour + time.Minute},
		"permanent around it":    {err: perdure.Permanent(perdure.After(time.Hour, base))},
		"permanent inside":       {err: perdure.After(time.Hour, perdure.Permanent(base))},
		"not done around it":     {err: perdure.NotDone(perdure.After(time.Hour, base)), opts: once, low: time.Hour, top: time.Hour + time.Minute},
		"not done inside":        {err: perdure.After(time.Hour, perdure.NotDone(base)), opts: once, low: time.Hour, top: time.Hour + time.Minute},
		"of a step with a limit": {err: perdure.After(time.Hour, base), opts: once[1:], low: time.Hour, top: time.Hour + time.Minute},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var at []time.Time
			k := kit.New(t, nil, perdure.Options{Lease: time.Minute}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return perdure.Step(ctx, "call", func(context.Context) (string, error) {
					if at = append(at, time.Now()); len(at) == 1 {
						return "", c.err
					}
					return "done", nil
				}, append(c.opts, perdure.Retry(perdure.RetryPolicy{Attempts: 3, Wait: time.Second}))...)
			}))
			k.StartOn("t", "f", "")
			run, err := k.WaitEnd(t.Context(), "t", "")
			kit.NoErr(t, err)
			if c.top == 0 {
				if run.Status != perdure.Failed || len(at) != 1 {
					t.Errorf("the run is %s after %d attempts", run.Status, len(at))
				}
				return
			}
			if run.Status != perdure.Succeeded || len(at) != 2 {
				t.Fatalf("the run is %s after %d attempts: %v", run.Status, len(at), run.Error)
			}
			if d := at[1].Sub(at[0]); d < c.low || d > c.top {
				t.Errorf("the next attempt came after %v of virtual time, want %v to %v", d, c.low, c.top)
			}
		})
	}
}

// TestAfterIsCancelled cancels a run that waits for the time an error named.
func TestAfterIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
			return perdure.Step(ctx, "call", func(context.Context) (string, error) {
				return "", perdure.After(time.Hour, errors.New("busy"))
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 3}))
		}))
		run := k.StartOn("t", "f", "")
		time.Sleep(time.Minute)
		kit.NoErr(t, k.Cancel(t.Context(), "t", run.ID, perdure.Note{}))
		begun := time.Now()
		if end, err := k.WaitEnd(t.Context(), "t", ""); err != nil || end.Status != perdure.Cancelled || time.Since(begun) > time.Minute {
			t.Errorf("the run is %s after %v of virtual time, %v", end.Status, time.Since(begun), err)
		}
	})
}
