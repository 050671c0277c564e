package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/tree"
)

// Scope calls fn in a frame of its own, named but not recorded: it only
// lengthens the path, so that the same names can be used again inside it.
func Scope[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	f, v, err := enter(ctx, tree.Scope, name, tree.Options{})
	if err != nil {
		return zero, err
	}
	defer f.finish()
	inner := f.child(f.memo.EnterScope(v))
	clean := false
	defer func() {
		if !clean { // fn panics or exits: the frame is over all the same
			_ = inner.left(fault.ErrPanic)
		}
	}()
	result, err := fn(inner.with(ctx))
	clean = true
	if stop := inner.left(err); stop != nil {
		return zero, stop
	}
	f.pass.mu.Lock()
	f.now = max(f.now, inner.now)
	f.pass.mu.Unlock()
	return result, err
}
