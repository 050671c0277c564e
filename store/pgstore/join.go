package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/store"
)

// join returns a transaction that is a part of the program's, behind a savepoint.
// The connection is the program's: it is not cut off and has no time-outs but the
// program's own, and settings of its session stay as they are.
func (s *Store) join(ctx context.Context, native any) (store.Tx, error) {
	program, ok := native.(pgx.Tx)
	if !ok {
		return nil, fmt.Errorf("%w: pgstore: a %T is no transaction of PostgreSQL; use a pgx.Tx", store.ErrInvalid, native)
	}
	nested, err := program.Begin(ctx)
	if err != nil {
		return nil, s.joinFailed(err)
	}
	t := &tx{s: s, ctx: ctx, conn: program.Conn(), pgx: nested, q: unprepared{nested}}
	if t.xid, err = s.identify(ctx, t.q); err != nil {
		t.undo(err)
		return nil, err
	}
	return t, nil
}

// unprepared makes queries without preparing them on a connection whose settings
// are the program's.
type unprepared struct{ pgx.Tx }

func (u unprepared) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return u.Tx.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (u unprepared) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return u.Tx.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// identify returns the id of the program's transaction, which the store's database
// must have among those in progress: names and addresses of servers say less.
func (s *Store) identify(ctx context.Context, q querier) (xid string, err error) {
	var database string
	if err := q.QueryRow(ctx, "SELECT pg_current_xact_id()::text, current_database()::text").Scan(&xid, &database); err != nil {
		return "", s.joinFailed(err)
	}
	same := false
	err = s.query(ctx, "SELECT current_database() = $1 AND coalesce(pg_xact_status($2::text::xid8) = 'in progress', false)",
		func(scan func(...any) error) error { return scan(&same) }, database, xid)
	if err != nil && code(err) != "22023" { // this server has not come so far
		return "", err
	}
	if !same {
		return "", fmt.Errorf("%w: pgstore: the transaction is one of another server or database, %s; begin it on the one that has the store", store.ErrInvalid, database)
	}
	return xid, nil
}

// joinFailed returns the error of a statement in the program's transaction.
func (s *Store) joinFailed(err error) error {
	switch code(err) {
	case "40001", "40P01", "55P03":
		return fmt.Errorf("%w: pgstore: another transaction is in the way; roll this one back and run it again: %w", store.ErrBusy, err)
	case "42501":
		return s.failed("write to", err)
	}
	return fmt.Errorf("pgstore: cannot write in the program's transaction: %w", err)
}

// undo takes back what was written in the program's transaction. If that fails, so
// does all of it.
func (t *tx) undo(why error) {
	t.ended = store.RolledBack(why)
	bounded, cancel := t.s.call(context.Background())
	defer cancel()
	_ = t.pgx.Rollback(bounded)
}

// leave leaves what was written to the program's own commit.
func (t *tx) leave(ctx context.Context) error {
	if err := t.pgx.Commit(ctx); err != nil { // releases the savepoint
		t.undo(err)
		return t.s.joinFailed(err)
	}
	t.ended = store.RolledBack(errors.New("pgstore: the rest is left to the program"))
	t.s.news.await(t.xid, t.names)
	return nil
}
