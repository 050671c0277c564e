package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Group runs branches at the same time. Each branch is a frame of its own. A
// branch that waits does not hold up the others; the run is suspended when all
// of them wait.
//
// From the first Go to Wait the group is the verb in progress of its frame. A
// branch sees the state as it was at the group's start and its own changes,
// and what its siblings changed is seen after Wait.
type Group struct{ inner *engine.Group }

// GroupOption is an option of NewGroup.
type GroupOption func(*groupOptions)

type groupOptions struct{ failFast bool }

// FailFast makes a group give up when one of its branches returns an error: the
// failure is recorded, and with that entry the other branches are closed. Their
// finished steps stay. Their asks are closed, which makes an answer [ErrAskOver],
// and so are their timers and receives; their children are cancelled. Nothing
// new begins in them: verbs return [ErrFailedFast], except [Cleanup], which runs.
// A step under way has its context cancelled; if it finishes all the same, its
// result is recorded. An at-most-once step under way is an unknown outcome, which
// the run's end lists.
//
// Wait returns the error of the branch that failed, of several the one that
// failed first in the journal. When a person retries the run because of it, the
// other branches go on where they were.
func FailFast() GroupOption { return func(o *groupOptions) { o.failFast = true } }

// NewGroup returns a group in the frame of ctx. Its Wait has to be called; a
// frame that returns without it cancels the branches.
func NewGroup(ctx context.Context, opts ...GroupOption) *Group {
	var o groupOptions
	for _, option := range opts {
		option(&o)
	}
	return &Group{engine.NewGroup(ctx, o.failFast)}
}

// Go starts a branch. Its verbs take the context that fn is given. What is wrong
// with its name is reported by Wait.
func (g *Group) Go(name string, fn func(context.Context) error) { g.inner.Go(name, fn) }

// Wait waits for all branches and returns their errors, joined in the order
// of Go. A failed branch does not cancel the others, unless the group was made
// with [FailFast]: then the error is that of the branch that failed first.
func (g *Group) Wait() error { return g.inner.Wait() }
