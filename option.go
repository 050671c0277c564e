package perdure

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/exact"
)

// A StepOption changes how a step runs.
type StepOption = engine.StepOption

// RetryPolicy says how often and how soon a failed step is retried. The n-th
// wait is Wait doubled n-1 times, at most MaxWait, and then shortened by up to a
// fifth, depending on the step's key, so that steps that failed together are not
// retried together.
type RetryPolicy struct {
	Attempts int           // in all; 0 means 3
	Wait     time.Duration // before the second attempt; 0 means 100 ms
	MaxWait  time.Duration // 0 means 1 minute
}

// Retry retries a failed step. An error marked [Permanent], or one that a retry
// cannot cure (ErrNotJSON, ErrComposite, ErrOption, ErrBudget), ends the retries.
// Waits of more than 2 seconds are durable timers: the run is suspended.
//
// A new attempt of a composite step voids only its failed tail: what succeeded
// inside it is not done again. Once a Cleanup has run inside it, it is no longer
// retried.
func Retry(p RetryPolicy) StepOption {
	return func(o *engine.StepOptions) { o.Retry = (*engine.RetryPolicy)(&p) }
}

// Timeout cancels the context of a step's function after d, with the cause
// ErrTimeout. The function has to heed it. For a composite step, only time in which
// something inside it is active counts, and each pass counts anew.
func Timeout(d time.Duration) StepOption {
	return func(o *engine.StepOptions) { o.Timeout = d }
}

// Input records a digest of a step's arguments. If the same step is later reached
// with different arguments, the run is blocked instead of receiving a result for
// other arguments.
func Input(v any) StepOption {
	return func(o *engine.StepOptions) {
		raw, err := exact.Encode(v, reflect.TypeOf(v))
		sum := sha256.Sum256(raw)
		o.Input, o.InputErr = base64.RawURLEncoding.EncodeToString(sum[:9]), err
	}
}

// AtMostOnce makes sure that a step's function is never started twice unless
// it is certain that the first start had no effect. The intent is recorded
// before the function starts, with an append of its own, and [Timeout] is required.
//
// A crash, a timeout, or an error not marked [NotDone] leaves an unknown
// outcome. The step's [Reconcile] decides it if there is one; otherwise the run
// is suspended with an ask of kind "outcome" whose decisions are "done" (the
// value is the result), "not-done" (the step runs again) and "fail".
// [AskOutcome] says who may answer it.
//
// An effect that consists of rows in the store's own database needs none of this: see
// packages [github.com/perdure/perdure/store/sqlitestore/sqltx] and
// [github.com/perdure/perdure/store/pgstore/pgtx].
func AtMostOnce() StepOption {
	return func(o *engine.StepOptions) { o.Once = true }
}

// AskOutcome says how a person is asked about an unknown outcome of an
// at-most-once step. Only the Prompt, Data and Who of q may be set. The person who
// answers can have the step run again; to restrict who may do so, set Who. Without
// AskOutcome anyone may answer.
func AskOutcome(q Question) StepOption {
	return func(o *engine.StepOptions) {
		inner := q.inner()
		o.Asks = &inner
	}
}

// Outcome is what a Reconcile function has found out.
type Outcome int

// The outcomes.
const (
	OutcomeUnknown Outcome = iota // the function cannot tell: a person is asked
	OutcomeDone                   // the step happened, with this result
	OutcomeNotDone                // it did not happen and will not: it runs again
)

// Reconcile gives an at-most-once step a function that finds out what became
// of an earlier start, for example by asking the service with [Key]. It is
// called no earlier than the step's Timeout after the worker took over the run,
// and may be called several times. If it returns an error, the outcome remains
// unknown. If a failed attempt turns out to have had no effect, the step is retried as
// [Retry] says, or, without Retry, up to ten attempts in all.
func Reconcile[T any](fn func(context.Context) (T, Outcome, error)) StepOption {
	return func(o *engine.StepOptions) {
		o.Reconcile = func(ctx context.Context) (json.RawMessage, engine.Outcome, error) {
			v, found, err := fn(ctx)
			if err != nil || found != OutcomeDone {
				return nil, engine.Outcome(found), err
			}
			raw, err := exact.Encode(v, reflect.TypeFor[T]())
			return raw, engine.OutcomeDone, err
		}
	}
}

// Allows says that the result of the step decides about the steps with these
// names in the same frame, as an answer does: in a fork the result counts only if
// one of them has an outcome, and otherwise the step runs again. See
// [Runtime.Fork].
func Allows(names ...string) StepOption {
	return func(o *engine.StepOptions) { o.Allows = names }
}

// Renamed says under which name older code recorded the step.
func Renamed(old string) StepOption {
	return func(o *engine.StepOptions) { o.Renamed = old }
}

// Added says that the step was inserted before others, so that a run that has
// already recorded those performs it on reaching it instead of being blocked.
func Added() StepOption {
	return func(o *engine.StepOptions) { o.Added = true }
}

// Dropped says that the steps with these names were removed from the frame, so
// that a run that has recorded them is not blocked. Call it where they used to
// be, before the next verb. Dropped itself is not a verb.
func Dropped(ctx context.Context, names ...string) error {
	return engine.Dropped(ctx, names...)
}

// The decisions of an ask about an unknown outcome.
const (
	DecisionDone    = engine.DecisionDone    // the step happened; the answer's value is its result
	DecisionNotDone = engine.DecisionNotDone // it did not happen; run it
	DecisionFail    = engine.DecisionFail    // let the step fail
)

// KindOutcome is the kind of an ask about an unknown outcome.
const KindOutcome = engine.KindOutcome
