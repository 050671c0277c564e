package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Group runs branches concurrently. Each branch is a frame of its own. A branch
// that waits does not hold up the others; the run is suspended when all of them
// wait.
//
// From the first Go to Wait the group is its frame's verb in progress. A branch
// sees the state as of the group's start and its own changes; the changes of its
// siblings become visible after Wait.
type Group struct{ inner *engine.Group }

// GroupOption is an option of NewGroup.
type GroupOption func(*groupOptions)

type groupOptions struct{ failFast bool }

// FailFast makes a group give up when one of its branches returns an error: the
// failure is recorded, and the same entry closes the other branches. Their
// finished steps remain. Their asks are closed, so that an answer returns
// [ErrAskOver], and so are their timers and receives; their children are
// cancelled. Nothing new begins in them: verbs return [ErrFailedFast], except
// [Cleanup], which runs. The context of a step in progress is cancelled; if the
// step finishes nevertheless, its result is recorded. An at-most-once step in
// progress has an unknown outcome, which the run's end lists.
//
// Wait returns the error of the branch that failed or, if several failed, of the
// first one in the journal. If a person then retries the run, the other branches
// continue where they were.
func FailFast() GroupOption { return func(o *groupOptions) { o.failFast = true } }

// NewGroup returns a group in the frame of ctx. The frame has to call Wait; if it
// returns without doing so, the branches are cancelled.
func NewGroup(ctx context.Context, opts ...GroupOption) *Group {
	var o groupOptions
	for _, option := range opts {
		option(&o)
	}
	return &Group{engine.NewGroup(ctx, o.failFast)}
}

// Go starts a branch. Its verbs take the context that fn is given. Wait reports
// an invalid name.
func (g *Group) Go(name string, fn func(context.Context) error) { g.inner.Go(name, fn) }

// Wait waits for all branches and returns their errors, joined in the order of
// the calls of Go. A failed branch does not cancel the others, unless the group
// was made with [FailFast]: then the error is that of the branch that failed
// first.
func (g *Group) Wait() error { return g.inner.Wait() }

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
