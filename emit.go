package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine"
)

// Emit records a custom event of the flow, once, however often the run is resumed.
func Emit(ctx context.Context, name string, v any) error {
	return engine.Emit(ctx, name, v)
}

// Plan records the names of the steps to come, so that others can see how far the
// run has got. They are steps of the frame that calls Plan. A frame has one plan; the
// outermost frame's plan is shown as the run's.
func Plan(ctx context.Context, steps ...string) error {
	return engine.Plan(ctx, steps...)
}

// Delta sends live data, such as the tokens of a message that is being written, to
// those who are watching. It is never recorded and may be lost. A delta is void when
// its step's event arrives or a new attempt starts.
func Delta(ctx context.Context, v any) {
	engine.SendDelta(ctx, v)
}

// Key returns the idempotency key of a step: the same on every attempt and after
// every crash, and different in every other step, run and thread. Pass it to the
// services that the step calls, so that they recognise a repeated call. Outside a
// run it is "".
func Key(ctx context.Context) string {
	return engine.Key(ctx)
}

// Now returns a time that is stable in replay: when the newest outcome that the frame
// has passed was recorded or, if there is none, when the run was queued. It never goes
// backwards. Outside a run it is the zero time.
func Now(ctx context.Context) time.Time {
	return engine.Now(ctx)
}

// Spend counts n of a unit (tokens, cents) against the run's budget. It is
// recorded with the outcome of the step, even if the step fails. When the budget is
// exceeded, Spend returns ErrBudget, but what was spent still counts: a run ends with
// the step that exceeds its budget, not before it. A budget for a unit that nothing
// spends has no effect: agents spend tokens and cost, for example, but not token.
func Spend(ctx context.Context, unit string, n int64) error {
	return engine.Spend(ctx, unit, n)
}

// Place says where code runs: on which thread, in which run, at which path.
type Place struct {
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"` // the thread's owner
	Thread string `json:"thread"`
	Run    string `json:"run"`
	Flow   string `json:"flow"` // that the run executes
	Path   string `json:"path"` // of the frame
}

// Here returns the place of a context. It can be called anywhere in a run.
func Here(ctx context.Context) (Place, error) {
	p, err := engine.Here(ctx)
	return Place(p), err
}
