// Package sqltx runs steps whose effects are rows in the SQLite file of the store:
// the rows and the outcome of the step are committed together, so that the effect
// happens exactly once, whatever crashes.
//
//	paid, err := sqltx.Step(ctx, "charge", func(ctx context.Context, tx *sqltx.Tx) (int64, error) {
//		return tx.Exec(ctx, "UPDATE accounts SET cents = cents - ? WHERE id = ?", 500, id)
//	})
//
// The function runs in a transaction on the store's file, which has the program's
// tables beside the store's own. If it returns an error or panics, is cut off, or
// the worker loses the run, the transaction is rolled back, and whatever the step
// then records (a failed attempt, for example) is recorded without the rows. The
// options of other steps apply, except for AtMostOnce, which has nothing to add.
// Effects other than these rows, such as a request to a service, are as in any
// step: they may happen again.
//
// The transaction holds the only write lock of the file. All other writes, of this
// process and of others, wait for it, so it has to be short: after a second, see
// [Limit], a running statement is interrupted, the transaction is rolled back, and the
// attempt fails with perdure.ErrTimeout. The function calls no verbs. It must not
// write through the runtime either: such a write waits for the transaction to end.
//
// Statements cannot reach the tables and views of the store, change the connection
// (PRAGMA, ATTACH, temporary or virtual tables) or end the transaction. They run
// one by one, with values bound to parameters. A program creates its tables in
// such a step too:
//
//	tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
//
// On other stores a step of this package fails with perdure.ErrOption.
package sqltx

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/store/sqlitestore"
)

// Tx runs statements in the transaction of a step. It is valid until the function
// of the step returns.
type Tx = sqlitestore.SQL

// DefaultLimit is how long the transaction of a step may be open.
const DefaultLimit = time.Second

// Step is perdure.Step for a function whose effects are rows: what it does with tx
// and its outcome are committed together.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context, tx *Tx) (T, error), opts ...perdure.StepOption) (T, error) {
	in := []perdure.StepOption{engine.InTransaction(DefaultLimit)}
	return perdure.Step(ctx, name, func(ctx context.Context) (T, error) {
		tx, ok := engine.Native[*Tx](ctx)
		if !ok {
			var zero T
			return zero, fmt.Errorf("%w: step %q of package sqltx runs on a store that is not SQLite; use the package that belongs to it", perdure.ErrOption, name)
		}
		return fn(ctx, tx)
	}, append(in, opts...)...)
}

// Limit sets how long the transaction may be open, instead of DefaultLimit. It is
// capped at a third of the worker's lease: leases are in the same file and have to be
// renewed.
func Limit(d time.Duration) perdure.StepOption { return engine.InTransaction(d) }
