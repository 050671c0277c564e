// Package pgtx runs steps whose effects are rows in the PostgreSQL database of the
// store: the rows and the outcome of the step are committed together, so that the
// effect happens exactly once, whatever crashes.
//
//	paid, err := pgtx.Step(ctx, "charge", func(ctx context.Context, tx pgx.Tx) (int64, error) {
//		done, err := tx.Exec(ctx, "UPDATE accounts SET cents = cents - $1 WHERE id = $2", 500, id)
//		return done.RowsAffected(), err
//	})
//
// The function runs first, in a READ COMMITTED transaction on a connection of its
// own, with the search_path that the store's URL, user and database set; the tables of
// the store are in a schema that is not on it, unless the URL sets a schema such as
// public. In that case a table of the program cannot have a name that the store uses:
// format, journals, entries, cells, threads, history, runs, asks. Then the outcome is
// appended in the same transaction, and both are committed. If the function returns
// an error or panics, is cut off, or the worker loses the run, the transaction is
// rolled back, and whatever the step then records (a failed attempt, for example)
// is recorded without the rows. If the connection is lost or the server goes away before
// the commit, nothing has happened, and this does not count as a failure of the step: as
// after any outage of the store, the function is called again, even without Retry. As
// always in PostgreSQL, a failing statement makes the whole transaction fail: put a
// statement that may fail behind a savepoint (tx.Begin). The options of other steps
// apply, except for AtMostOnce, which has nothing to add. Effects other than these rows,
// such as a request to a service, are as in any step: they may happen again.
//
// The function must not end the transaction: if it calls Commit or Rollback, or
// executes a statement that does the same, the step fails. It must not use the
// transaction after it has returned, and calls no verbs. Whatever it sets in its
// session is reset before the next step; through a pooler use SET LOCAL, since the
// session is shared with other programs. Nothing else of the run is recorded while
// the function runs, so give the step a perdure.Timeout if its statements may wait.
//
// On other stores a step of this package fails with perdure.ErrOption.
//
// # Starting runs
//
// [Start] begins a run in a transaction of the program's own pool, together with the
// rows that the program writes there:
//
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO orders (id, cents) VALUES ($1, $2)", id, cents)
//	…
//	run, err := pgtx.Start(ctx, runtime, tx, perdure.StartRequest{Flow: "ship", Thread: "order-" + id, Input: id})
//	…
//	err = tx.Commit(ctx)
//
// If the transaction is rolled back, or the process dies before COMMIT, the run never
// existed, and its thread's id is free. The transaction may be on any connection
// to the same database, with any isolation level and search_path; its user needs the
// rights of the store's user. It is as durable as its own synchronous_commit.
//
// The process that called Start asks the server what became of the transaction and
// wakes the workers, some milliseconds after the commit. If that process is gone,
// workers find the run when they poll, within a second.
//
// Keep the transaction short after Start. Until it ends, others who start the same
// thread wait for it, as for a row with the same key; other writes of their process
// continue. In SERIALIZABLE and REPEATABLE READ, and in a deadlock, Start can fail with
// store.ErrBusy: roll back, and run the transaction again. A migration of the store to
// another one waits for the end of the transaction.
package pgtx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/lifecycle"
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
		mine := &stepTx{Tx: tx}
		out, err := fn(ctx, mine)
		switch {
		case err != nil:
		case tx.Conn().PgConn().TxStatus() == 'I':
			err = errEnded
		case mine.ended:
			err = errEnds
		}
		return out, err
	}, append(in, opts...)...)
}

// stepTx is a transaction that the function of a step cannot end.
type stepTx struct {
	pgx.Tx
	ended bool // it tried
}

// errEnds is of a function that called Commit or Rollback, which did nothing, and
// errEnded of one whose statements have ended the transaction.
var (
	errEnds  = endsError("must not end its transaction")
	errEnded = endsError("has ended its transaction by a statement, and what that committed stays")
)

func endsError(what string) error {
	return perdure.Permanent(fmt.Errorf("pgtx: the function of a step %s: return nil to commit and an error to roll back, and leave out Commit, Rollback and statements that do the same", what))
}

// Commit implements pgx.Tx.
func (t *stepTx) Commit(context.Context) error {
	t.ended = true
	return errEnds
}

// Rollback implements pgx.Tx.
func (t *stepTx) Rollback(context.Context) error {
	t.ended = true
	return errEnds
}

// Start is Runtime.Start in a transaction of the program: the run and its new thread
// exist if and only if tx commits. A thread that already exists is perdure.ErrExists;
// a transaction of another database, or one that has ended or failed, is
// perdure.ErrInvalid; a runtime whose store is not in PostgreSQL is perdure.ErrOption.
// After an error tx is as it was before the call, unless its connection is lost.
//
// If the Key has already started a run, Start returns that run, whether or not tx
// commits.
func Start(ctx context.Context, rt *perdure.Runtime, tx pgx.Tx, q perdure.StartRequest) (*perdure.Run, error) {
	if rt == nil || tx == nil {
		return nil, fmt.Errorf("%w: pgtx.Start without a runtime or a transaction", perdure.ErrInvalid)
	}
	return rt.Start(lifecycle.Within(ctx, tx), q)
}
