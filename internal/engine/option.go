package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// StepOption changes how a step is run.
type StepOption func(*StepOptions)

// StepOptions controls how a step is run.
type StepOptions struct {
	Retry     *RetryPolicy
	Timeout   time.Duration
	Input     string
	InputErr  error
	Once      bool
	Asks      *Question
	Reconcile func(context.Context) (json.RawMessage, Outcome, error)
	Renamed   string
	Allows    []string
	Added     bool
	InTx      bool          // see InTransaction
	TxLimit   time.Duration // of the transaction
	Attrs     []slog.Attr   // for the observer
}

// RetryPolicy says how often and how soon a failed step is retried: see
// perdure.RetryPolicy.
type RetryPolicy struct {
	Attempts int
	Wait     time.Duration
	MaxWait  time.Duration
}

func (r RetryPolicy) delay(attempt int, key string) time.Duration {
	wait, limit := r.Wait, r.MaxWait
	if wait <= 0 {
		wait = 100 * time.Millisecond
	}
	if limit <= 0 {
		limit = time.Minute
	}
	for range attempt - 1 {
		if wait >= limit {
			break
		}
		wait *= 2
	}
	wait = min(wait, limit)
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", key, attempt)
	return wait - time.Duration(float64(wait)*0.2*float64(h.Sum32()%1000)/1000)
}

// Outcome is what a Reconcile function found out: see perdure.Outcome.
type Outcome int

// The outcomes.
const (
	OutcomeUnknown Outcome = iota
	OutcomeDone
	OutcomeNotDone
)

func (o *StepOptions) check() error {
	switch {
	case o.Once && o.Timeout <= 0:
		return fmt.Errorf("%w: AtMostOnce needs a Timeout, after which a lost start cannot still be running", fault.ErrOption)
	case o.Once && o.InTx:
		return fmt.Errorf("%w: AtMostOnce for a step that runs in a transaction: leave it out, its effect and its outcome are committed together", fault.ErrOption)
	case o.Reconcile != nil && !o.Once:
		return fmt.Errorf("%w: Reconcile belongs to AtMostOnce", fault.ErrOption)
	case o.Asks != nil && !o.Once:
		return fmt.Errorf("%w: AskOutcome belongs to AtMostOnce", fault.ErrOption)
	case o.Asks != nil && !reflect.DeepEqual(*o.Asks, Question{Prompt: o.Asks.Prompt, Data: o.Asks.Data, Who: o.Asks.Who}):
		return fmt.Errorf("%w: AskOutcome takes a question's Prompt, Data and Who, and nothing else", fault.ErrOption)
	case o.Timeout < 0:
		return fmt.Errorf("%w: a negative Timeout", fault.ErrOption)
	case o.Retry != nil && (o.Retry.Attempts < 0 || o.Retry.Wait < 0 || o.Retry.MaxWait < 0):
		return fmt.Errorf("%w: a negative number in the RetryPolicy", fault.ErrOption)
	case o.InputErr != nil:
		return fmt.Errorf("%w: Input: %w", fault.ErrOption, o.InputErr)
	}
	return nil
}

// policy returns the step's retry policy, by default one with the given
// attempts.
func (o *StepOptions) policy(attempts int) RetryPolicy {
	if o.Retry == nil {
		return RetryPolicy{Attempts: attempts}
	}
	return *o.Retry
}

// Dropped declares that steps with these names were removed from the frame.
func Dropped(ctx context.Context, names ...string) error {
	f, err := inside(ctx)
	if err != nil {
		return err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	for _, name := range names {
		f.memo.Drop(name)
	}
	return nil
}
