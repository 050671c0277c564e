package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Child is a thread spawned by a run.
type Child struct{ inner *engine.Child }

// Thread returns the id of the child's thread.
func (c *Child) Thread() string { return c.inner.Id }

// Spawn starts a child: a run of a flow on a thread and journal of its own,
// executed by any worker that has the flow, here or elsewhere. It returns at
// once; [Join] waits for the child's end. The child belongs to the run's owner,
// and its budget is what is left of the run's.
//
// The child is started once, however often the run is resumed. A run that ends
// cancels the children whose end it does not know; when it is retried, or forked
// while they are running, Spawn starts new ones in their place.
func Spawn(ctx context.Context, name, flow string, in any) (*Child, error) {
	c, err := engine.Spawn(ctx, name, flow, in)
	if err != nil {
		return nil, err
	}
	return &Child{c}, nil
}

// Join waits for the end of a child and returns its output. Meanwhile the run is
// suspended, unless another branch is busy. If the child failed, Join returns a
// [*StepError] that matches [ErrChild] and the codes of the child's own failure;
// if it was cancelled, the error matches [ErrChildCancelled].
//
// When a person retries the run because a child failed, the child is retried too.
// A fork spawns a new child in its place: the one that failed belongs to the
// other thread.
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
