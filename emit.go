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

// Plan records the names of the steps that will come, so that others can tell
// how far the run is. They are steps of the frame that plans. A frame has one
// plan; that of the outermost frame is shown as the run's.
func Plan(ctx context.Context, steps ...string) error {
	return engine.Plan(ctx, steps...)
}

// Delta sends live data, such as the tokens of a message that is being
// written, to those who watch. It is never recorded and may be lost. A delta
// is void when its step's event arrives or a new attempt starts.
func Delta(ctx context.Context, v any) {
	engine.SendDelta(ctx, v)
}

// Key returns the idempotency key of a step: the same on every attempt and
// after every crash, and another one in every other step, run and thread. Give
// it to what the step calls, so that a repeated call is recognised. Outside a
// run it is "".
func Key(ctx context.Context) string {
	return engine.Key(ctx)
}

// Now returns the time, stable in replay: that of the newest outcome behind
// the frame, which is when the run was queued if there is none. It never goes
// backwards. Outside a run it is the zero time.
func Now(ctx context.Context) time.Time {
	return engine.Now(ctx)
}

// Spend counts n of a unit (tokens, cents) against the run's budget. It is
// recorded with the outcome of the step, also of one that fails. Over budget
// it returns ErrBudget; what was spent counts all the same. A run so ends with
// the step that exceeds its budget, not before it. A unit that nothing spends,
// such as token where agents spend tokens and cost, limits nothing.
func Spend(ctx context.Context, unit string, n int64) error {
	return engine.Spend(ctx, unit, n)
}

// Place says where in the world of threads code runs.
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
