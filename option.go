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

// A StepOption changes how a step is run.
type StepOption = engine.StepOption

// RetryPolicy says how often and how soon a failed step is tried again. The
// n-th wait is Wait doubled n-1 times, at most MaxWait, and then up to a fifth
// shorter, by the step's key, so that steps that failed together do not come
// back together.
type RetryPolicy struct {
	Attempts int           // in all; 0 is 3
	Wait     time.Duration // before the second attempt; 0 is 100 ms
	MaxWait  time.Duration // 0 is 1 minute
}

// Retry tries a failed step again. Errors marked [Permanent], and those that
// cannot get better (ErrNotJSON, ErrComposite, ErrOption, ErrBudget), end it.
// Waits over 2 seconds are durable timers: the run is suspended.
//
// A new attempt of a composite step voids only its failed tail: what succeeded
// inside it is not done again. Once a Cleanup has run inside it, it is not
// tried again.
func Retry(p RetryPolicy) StepOption {
	return func(o *engine.StepOptions) { o.Retry = (*engine.RetryPolicy)(&p) }
}

// Timeout ends the context of a step's function after d, with the cause
// ErrTimeout. The function has to heed it. In a composite step only the time
// counts in which something inside it is active, within one pass.
func Timeout(d time.Duration) StepOption {
	return func(o *engine.StepOptions) { o.Timeout = d }
}

// Input records a digest of a step's arguments. If the same step is reached
// with other arguments, the run is blocked instead of getting a result that
// belongs to something else.
func Input(v any) StepOption {
	return func(o *engine.StepOptions) {
		raw, err := exact.Encode(v, reflect.TypeOf(v))
		sum := sha256.Sum256(raw)
		o.Input, o.InputErr = base64.RawURLEncoding.EncodeToString(sum[:9]), err
	}
}

// AtMostOnce makes sure that a step's function is never started twice unless
// it is certain that the first start had no effect. The intent is recorded
// before the function starts, with a second append, and [Timeout] is required.
//
// A crash, a timeout, or an error not marked [NotDone] leaves an unknown
// outcome. The step's [Reconcile] decides it if there is one; else the run
// suspends with an ask of kind "outcome" whose decisions are "done" (the value
// is the result), "not-done" (it is run again) and "fail". [AskOutcome] says who
// may answer it.
func AtMostOnce() StepOption {
	return func(o *engine.StepOptions) { o.Once = true }
}

// AskOutcome says how a person is asked about an unknown outcome of an
// at-most-once step. The Prompt, Data and Who of q count, and nothing else may be
// set. Whoever answers can have the step run again: if only some people may
// allow it, they are the Who here too. Without it anyone may answer.
func AskOutcome(q Question) StepOption {
	return func(o *engine.StepOptions) {
		inner := q.inner()
		o.Asks = &inner
	}
}

// Outcome is what a Reconcile function found out.
type Outcome int

// The outcomes.
const (
	OutcomeUnknown Outcome = iota // it cannot tell: a person is asked
	OutcomeDone                   // it happened, with this result
	OutcomeNotDone                // it did not happen and will not: the step runs again
)

// Reconcile gives an at-most-once step a function that finds out what became
// of an earlier start, for example by asking the service with [Key]. It is
// called no earlier than the step's Timeout after the worker took the run
// over, and may be called several times. Its error leaves the outcome unknown.
// A function that failed and had no effect is tried again as [Retry] says, ten
// times without one.
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
// names in the same frame, as an answer does: in a fork it counts once one of
// them has its outcome, and until then the step runs again. See [Runtime.Fork].
func Allows(names ...string) StepOption {
	return func(o *engine.StepOptions) { o.Allows = names }
}

// Renamed says under which name the step was recorded by older code.
func Renamed(old string) StepOption {
	return func(o *engine.StepOptions) { o.Renamed = old }
}

// Added says that the step was inserted before others, so that a run that has
// recorded those does it when it gets here instead of being blocked.
func Added() StepOption {
	return func(o *engine.StepOptions) { o.Added = true }
}

// Dropped says that the steps with these names were removed from the frame, so
// that a run that has recorded them is not blocked. Call it where they stood,
// before the next verb. It is no verb itself.
func Dropped(ctx context.Context, names ...string) error {
	return engine.Dropped(ctx, names...)
}

// The decisions of an ask about an unknown outcome.
const (
	DecisionDone    = engine.DecisionDone    // it happened; the answer's value is its result
	DecisionNotDone = engine.DecisionNotDone // it did not; run it
	DecisionFail    = engine.DecisionFail    // let the step fail
)

// KindOutcome is the kind of an ask about an unknown outcome.
const KindOutcome = engine.KindOutcome
