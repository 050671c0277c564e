package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/store"
)

// tx is a transaction with rows of the program. It has a connection of its own,
// which user code uses until the function of its step returns: nothing else may
// touch it meanwhile. So the end of its context only cuts it off, and whoever began
// it ends it.
type tx struct {
	s    *Store
	ctx  context.Context
	conn *pgx.Conn
	pgx  pgx.Tx
	q    querier
	seen bool        // it is known to be the one that was begun
	xid  string      // of the program's transaction, if this is a part of it: see join
	stop func() bool // of what waits for the end of ctx

	mu    sync.Mutex // held by whoever uses the connection for the store
	cut   error      // why the connection was cut off, guarded by ends
	ends  sync.Mutex
	ended error    // why nothing can be done any more
	lost  bool     // it ended because the connection was lost
	names []string // that it wrote
}

var _ store.Transactor = (*Store)(nil)

// maxIdle is how many connections are kept for the next transactions.
const maxIdle = 8

// begin resets what an earlier transaction may have left in the session, and begins
// the next one. Through a pooler that may be the session of any client. If the
// savepoint is gone later, the program has ended the transaction.
const begin = "BEGIN; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; COMMIT;" +
	"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SAVEPOINT perdure_step"

// Begin implements store.Transactor. The transaction is READ COMMITTED, on a
// connection of its own, or that of the program if there is one.
func (s *Store) Begin(ctx context.Context, native any) (store.Tx, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if native != nil {
		return s.join(ctx, native)
	}
	bounded, cancel := s.call(ctx)
	defer cancel()
	for fresh := false; ; {
		c := s.takeIdle()
		if c == nil {
			var err error
			fresh = true
			if c, err = s.connect(bounded); err != nil {
				return nil, s.beginFailed(ctx, err)
			}
		}
		native, err := c.BeginTx(bounded, pgx.TxOptions{BeginQuery: begin})
		if err != nil {
			cutOff(c)
			if !fresh && ctx.Err() == nil {
				continue // it was idle for too long
			}
			return nil, s.beginFailed(ctx, err)
		}
		t := &tx{s: s, ctx: ctx, conn: c, pgx: native, q: native}
		over, cancelOver := context.WithCancelCause(ctx)
		stopLife := context.AfterFunc(s.life, func() { cancelOver(store.ErrClosed) })
		stopOver := context.AfterFunc(over, func() { t.expire(context.Cause(over)) })
		t.stop = func() bool {
			stopLife()
			stopped := stopOver()
			cancelOver(nil)
			return stopped
		}
		return t, nil
	}
}

func (s *Store) beginFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.failed("begin a transaction on", err)
}

// connect opens a connection that is as durable as the store.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := s.gate.connect(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := entered(c, s.admit(ctx, c)); err != nil {
		cutOff(c)
		return nil, err
	}
	return c, nil
}

// takeIdle returns a connection that an earlier transaction left, nil if there is
// none.
func (s *Store) takeIdle() *pgx.Conn {
	s.idle.Lock()
	defer s.idle.Unlock()
	n := len(s.idle.conns)
	if n == 0 {
		return nil
	}
	c := s.idle.conns[n-1]
	s.idle.conns = s.idle.conns[:n-1]
	return c
}

// putIdle keeps a connection for the next transaction, if it is good for one.
func (s *Store) putIdle(c *pgx.Conn) {
	s.idle.Lock()
	defer s.idle.Unlock()
	if s.life.Err() != nil || len(s.idle.conns) == maxIdle || c.IsClosed() || c.PgConn().TxStatus() != 'I' {
		cutOff(c)
		return
	}
	s.idle.conns = append(s.idle.conns, c)
}

// cutOff closes a connection without telling the server, which then rolls back its
// transaction. It may be called from any goroutine.
func cutOff(c *pgx.Conn) { c.PgConn().Conn().Close() }

// expire cuts the connection off because the context of the transaction has ended
// or the store was closed. A statement that runs is cancelled: the server would
// otherwise notice the end only after it.
func (t *tx) expire(cause error) {
	t.ends.Lock()
	t.cut = cause
	t.ends.Unlock()
	bounded, cancel := t.s.call(context.Background())
	defer cancel()
	_ = t.conn.PgConn().CancelRequest(bounded) // best effort
	cutOff(t.conn)
}

// Rollback implements store.Tx.
func (t *tx) Rollback() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.end(errors.New("pgstore: the transaction is over"), t.brokenInside())
	}
	if t.lost {
		return t.ended
	}
	return nil
}

// brokenInside returns the error with which the function of the step has lost the
// connection, nil if it has not. One that was closed with a context of the function,
// or because it left the transaction idle for longer than the server allows, was not
// lost: it would be again.
func (t *tx) brokenInside() error {
	if t.xid != "" || !t.conn.IsClosed() {
		return nil
	}
	err := t.conn.Config().Tracer.(*attempt).broke.Load()
	if err == nil || errors.Is(*err, context.Canceled) || errors.Is(*err, context.DeadlineExceeded) || !away(*err) {
		return nil
	}
	return *err
}

// end rolls back what is not committed. Lost is the error with which the connection
// was lost, if it was. mu is held.
func (t *tx) end(why, lost error) {
	if t.xid != "" {
		t.undo(why)
		return
	}
	stopped := t.stop()
	if cause := t.wasCut(); cause != nil {
		why = cause
	} else if cause := context.Cause(t.ctx); cause != nil {
		why = cause
	} else if lost != nil {
		t.lost = true
		why = fmt.Errorf("%w: pgstore: the connection was lost before the commit: %w", store.ErrUnavailable, lost)
	}
	t.ended = store.RolledBack(why)
	if !stopped { // it has been, or is being, cut off
		return
	}
	bounded, cancel := t.s.call(context.Background())
	defer cancel()
	if err := t.pgx.Rollback(bounded); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		cutOff(t.conn)
		return
	}
	t.s.putIdle(t.conn)
}

func (t *tx) wasCut() error {
	t.ends.Lock()
	defer t.ends.Unlock()
	return t.cut
}

// Native implements store.Tx: it returns a [pgx.Tx].
func (t *tx) Native() any { return t.pgx }

// Put implements store.Tx.
func (t *tx) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	r := newRequest(store.Batch{Cells: []store.Write{{Key: key, Value: value, Prev: prev}}})
	if err := t.write(ctx, r, store.CheckPut(key, value)); err != nil {
		return "", err
	}
	return r.versions[0], nil
}

// Commit implements store.Tx.
func (t *tx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	if err := t.write(ctx, newRequest(b), store.CheckBatch(b)); err != nil {
		return 0, err
	}
	return b.After + uint64(len(b.Entries)), nil
}

// write makes a request in the transaction, and commits it if it is an append.
func (t *tx) write(ctx context.Context, r *request, invalid error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return t.ended
	}
	var closed error // what Close cuts off may not have been yet
	if t.xid == "" && t.s.life.Err() != nil {
		closed = store.ErrClosed
	}
	for _, ended := range []error{t.wasCut(), closed, context.Cause(t.ctx), ctx.Err()} {
		if ended != nil {
			t.end(ended, nil)
			return t.ended
		}
	}
	if invalid != nil {
		t.end(invalid, nil)
		return invalid
	}
	if t.xid == "" && t.conn.IsClosed() {
		t.end(errors.New("pgstore: the function of the step has closed the connection of its transaction, or let a context of its own close it"), t.brokenInside())
		return t.ended
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if t.xid == "" { // otherwise the end would cost the program its connection
		bounded, cancel = t.s.call(ctx)
	}
	defer cancel()
	switch err := t.apply(bounded, r); {
	case errors.Is(err, store.ErrConflict):
		return err
	case errors.Is(err, store.ErrDropped):
		t.end(err, nil)
		return err
	case err != nil && t.xid != "":
		t.end(err, nil)
		return t.s.joinFailed(err)
	case err != nil:
		if t.conn.IsClosed() || code(err) == "53100" {
			err = t.s.failed("write to", err) // it is not the program's doing
		}
		t.end(err, nil)
		return t.ended
	}
	for name := range r.names {
		t.names = append(t.names, name[1:])
	}
	if r.Journal == "" {
		return nil
	}
	if t.xid != "" {
		return t.leave(bounded)
	}
	return t.commit(bounded)
}

// apply makes a request after a savepoint. If it is refused, the transaction is as
// it was.
func (t *tx) apply(ctx context.Context, r *request) error {
	for {
		savepoint := "SAVEPOINT perdure"
		if t.xid == "" { // the step may have set it for its own statements
			savepoint = "RESET synchronous_commit; " + savepoint
		}
		if t.xid == "" && !t.seen {
			savepoint = "RELEASE perdure_step; " + savepoint
		}
		switch err := t.exec(ctx, savepoint); code(err) {
		case "3B001", "25P01": // there is no such savepoint, or no transaction
			return errors.New("pgstore: the program has ended the transaction of the step itself, and what it committed stays; leave that to the store")
		default:
			if err != nil {
				return err
			}
		}
		t.seen = true
		made, err := t.s.send(ctx, t.q, []*request{r}, 0)
		if err == nil && made[0] {
			return nil
		}
		if err != nil && code(err) != "PD001" && (code(err) != "40P01" || t.xid != "") {
			return err
		}
		if err := t.exec(ctx, "ROLLBACK TO perdure"); err != nil {
			return err
		}
		why, err := t.s.examine(ctx, t.q, []*request{r})
		if err != nil {
			return err
		}
		if why[0] != nil {
			return why[0]
		}
	}
}

// exec executes statements of the store.
func (t *tx) exec(ctx context.Context, sql string) error {
	_, err := t.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// commit makes the transaction durable. mu is held.
func (t *tx) commit(ctx context.Context) error {
	if !t.stop() { // it is being cut off
		t.ended = store.RolledBack(context.Cause(t.ctx))
		if cause := t.wasCut(); cause != nil {
			t.ended = store.RolledBack(cause)
		}
		return t.ended
	}
	err := t.pgx.Commit(ctx)
	t.ended = store.RolledBack(errors.New("pgstore: the transaction was committed"))
	switch {
	case err == nil:
		t.s.putIdle(t.conn)
		for _, name := range t.names {
			t.s.Wake(name)
		}
		t.s.news.wrote(t.names...)
		return nil
	case refusedCommit(err):
		t.ended = store.RolledBack(err)
		t.s.putIdle(t.conn)
		return t.ended
	}
	cutOff(t.conn)
	return fmt.Errorf("%w: pgstore: the answer to a commit was lost: %w", store.ErrUnavailable, err)
}

// refusedCommit reports whether a commit has certainly not happened. An error with
// which the server ends the session or stops does not say so.
func refusedCommit(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) ||
		errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" && pg.Code[:2] != "57" && pg.Code[:2] != "08"
}
