package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Child is a thread that a run has spawned.
type Child struct{ inner *engine.Child }

// Thread returns the id of the child's thread.
func (c *Child) Thread() string { return c.inner.Id }

// Spawn starts a child: a run of a flow on a thread of its own, with a journal
// of its own, executed by any worker that has the flow, here or elsewhere. It
// returns at once; [Join] waits for the child's end. The child belongs to the
// run's owner, and its budget is what is left of the run's.
//
// The child is started once, however often the run is resumed. A run that ends
// cancels the children whose end it does not know; when it is retried, or
// forked while they run, Spawn starts others in their place.
func Spawn(ctx context.Context, name, flow string, in any) (*Child, error) {
	c, err := engine.Spawn(ctx, name, flow, in)
	if err != nil {
		return nil, err
	}
	return &Child{c}, nil
}

// Join waits for the end of a child and returns its output. The run is
// suspended meanwhile unless another branch is busy. A child that failed gives
// a [*StepError] that matches [ErrChild] and the codes of the child's own
// failure; one that was cancelled [ErrChildCancelled].
//
// When a person retries the run because of a child that failed, the child is
// retried too. In a fork another is spawned in its place: the child that failed
// is the other thread's.
func Join[T any](ctx context.Context, name string, c *Child) (T, error) {
	var zero T
	var inner *engine.Child
	if c != nil {
		inner = c.inner
	}
	raw, err := engine.Join(ctx, name, inner)
	if err != nil {
		return zero, err
	}
	return engine.RecordedAs[T](ctx, "the output of the child that is joined", name, raw)
}
