package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Scope calls fn in a frame of its own, named but not recorded: it only
// lengthens the path, so that the same names can be used again inside it.
func Scope[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	var zero, result T
	stop, err := engine.Scope(ctx, name, func(ctx context.Context) (err error) {
		result, err = fn(ctx)
		return err
	})
	if stop != nil {
		return zero, stop
	}
	return result, err
}
