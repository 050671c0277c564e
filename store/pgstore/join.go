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
	switch c := code(err); {
	case errors.Is(err, pgx.ErrTxClosed), c == "25P01", c == "25P02": // there is none, or it has failed
		return nil, fmt.Errorf("%w: pgstore: the program's transaction has ended, or a statement in it has failed; begin another: %w", store.ErrInvalid, err)
	case err != nil:
		return nil, s.joinFailed(err)
	}
	t := &tx{s: s, ctx: ctx, conn: program.Conn(), pgx: nested, q: unprepared{nested}}
	if t.xid, err = s.identify(ctx, t); err != nil {
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
// must have among those in progress: names and addresses of servers say less. It takes
// the lock of a write ahead of that, so that OpenWrites finds the transaction from
// here on.
func (s *Store) identify(ctx context.Context, t *tx) (xid string, err error) {
	results, err := t.conn.PgConn().Exec(ctx, "SELECT pg_current_xact_id()::text, current_database()::text").ReadAll()
	if err != nil {
		return "", s.joinFailed(err)
	}
	xid, database := string(results[0].Rows[0][0]), string(results[0].Rows[0][1])
	same := false
	err = s.query(ctx, "SELECT current_database() = $1 AND coalesce(pg_xact_status($2::text::xid8) = 'in progress', false)",
		func(scan func(...any) error) error { return scan(&same) }, database, xid)
	if err != nil && code(err) != "22023" { // this server has not come so far
		return "", err
	}
	if !same {
		return "", fmt.Errorf("%w: pgstore: the transaction is one of another server or database, %s; begin it on the one that has the store", store.ErrInvalid, database)
	}
	if err := t.exec(ctx, s.sql("LOCK TABLE SCHEMA.journals IN ROW EXCLUSIVE MODE")); err != nil {
		return "", s.joinFailed(err)
	}
	return xid, nil
}

// OpenWrites returns the open transactions that have written to the store or are about
// to, as a map from their ids to descriptions of their owners. A transaction that is not
// in the map has ended, and its writes can be read. Each savepoint adds an id to its
// transaction, and a prepared transaction keeps its ids.
func (s *Store) OpenWrites(ctx context.Context) (map[string]string, error) {
	open := map[string]string{}
	err := s.query(ctx, s.sql(`WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
		SELECT x.transactionid::text, coalesce('process ' || l.pid, (SELECT 'prepared transaction ' || p.gid FROM pg_prepared_xacts p, locks y
			WHERE y.transactionid = p.transaction AND y.virtualtransaction = l.virtualtransaction AND y.pid IS NULL LIMIT 1), 'a prepared transaction')
		FROM locks l JOIN locks x ON x.virtualtransaction = l.virtualtransaction AND x.pid IS NOT DISTINCT FROM l.pid
		WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
			AND l.relation = 'SCHEMA.journals'::regclass AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`),
		func(scan func(...any) error) error {
			var id, who string
			err := scan(&id, &who)
			open[id] = who
			return err
		})
	return open, err
}

// joinFailed returns the error of a statement in the program's transaction.
func (s *Store) joinFailed(err error) error {
	switch code(err) {
	case "40001", "40P01", "55P03":
		return fmt.Errorf("%w: pgstore: another transaction is in the way; roll this one back and run it again: %w", store.ErrBusy, err)
	case "42501":
		return s.denied(err)
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
