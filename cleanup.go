package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
)

// Cleanup is a step on the way out: flow code calls it when it leaves with an
// error, usually in a defer, which gives the order. It also runs when the run
// was cancelled, with a context that is not, and it does nothing in a run that
// is suspended. Its failure is recorded and stops nothing; the error is for
// information.
//
//	defer func() {
//		if err != nil {
//			perdure.Cleanup(ctx, "release-seat", releaseSeat)
//		}
//	}()
//
// Once a cleanup has run, what failed is not retried any more.
func Cleanup(ctx context.Context, name string, fn func(context.Context) error) error {
	return engine.Cleanup(ctx, name, fn)
}
