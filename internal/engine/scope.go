package engine

import (
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/tree"
)

// Scope calls fn in a frame of its own and returns its error, or why the frame
// has to stop.
func Scope(ctx context.Context, name string, fn func(context.Context) error) (stop, err error) {
	f, v, err := enter(ctx, tree.Scope, name, tree.Options{})
	if err != nil {
		return err, nil
	}
	defer f.finish()
	inner := f.child(f.memo.EnterScope(v))
	clean := false
	defer func() {
		if !clean { // fn panics or exits: the frame is over all the same
			_ = inner.left(fault.ErrPanic)
		}
	}()
	err = fn(inner.with(ctx))
	clean = true
	if stop := inner.left(err); stop != nil {
		return stop, nil
	}
	f.pass.mu.Lock()
	f.now = max(f.now, inner.now)
	f.pass.mu.Unlock()
	return nil, err
}
