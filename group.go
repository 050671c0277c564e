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
// returns without that, the branches are cancelled.
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
