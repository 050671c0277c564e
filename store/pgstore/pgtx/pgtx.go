// Package pgtx runs steps whose effects are rows in the PostgreSQL database of the
// store: the rows and the outcome of the step are committed together, so that the
// effect happens exactly once, whatever crashes when.
//
//	paid, err := pgtx.Step(ctx, "charge", func(ctx context.Context, tx pgx.Tx) (int64, error) {
//		done, err := tx.Exec(ctx, "UPDATE accounts SET cents = cents - $1 WHERE id = $2", 500, id)
//		return done.RowsAffected(), err
//	})
//
// The function runs first, in a READ COMMITTED transaction on a connection of its
// own, with the search_path that the store's URL, user and database have; the
// tables of the store are in a schema that is not on it. Then the outcome is
// appended in the same transaction, and both are committed. If the function returns
// an error or panics, is cut off, or the worker loses the run, the transaction is
// rolled back, and whatever the step then records (a failed attempt, for example)
// is recorded without the rows. A statement that fails ends the transaction, as
// PostgreSQL has it: use a savepoint (tx.Begin) for one that may. The options of
// other steps apply, except for AtMostOnce, which has nothing to add. Effects other
// than these rows, such as a request to a service, are as in any step: they may
// happen again.
//
// The function must not end the transaction, and must not use it after it has
// returned. It calls no verbs, and nothing else of the run is recorded while it
// runs, so give the step a perdure.Timeout if its statements may wait for long.
//
// On other stores a step of this package fails with perdure.ErrOption.
package pgtx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
)

// Step is perdure.Step for a function whose effects are rows: what it does with tx
// and its outcome are committed together.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context, tx pgx.Tx) (T, error), opts ...perdure.StepOption) (T, error) {
	in := []perdure.StepOption{engine.InTransaction(0)}
	return perdure.Step(ctx, name, func(ctx context.Context) (T, error) {
		tx, ok := engine.Native[pgx.Tx](ctx)
		if !ok {
			var zero T
			return zero, fmt.Errorf("%w: step %q of package pgtx runs on a store that is not PostgreSQL; use the package that belongs to it", perdure.ErrOption, name)
		}
		return fn(ctx, tx)
	}, append(in, opts...)...)
}
