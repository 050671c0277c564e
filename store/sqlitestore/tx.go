package sqlitestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// tx is a transaction with rows of the program. It has the writer's lead, and so
// the connection that writes, until it is over.
type tx struct {
	s    *Store
	ctx  context.Context // its end rolls the transaction back
	over chan struct{}   // closed when the transaction is over

	mu    sync.Mutex // held by whoever uses the connection
	ended error      // why nothing can be done any more
	cells []string   // that Put wrote

	defined bool // a statement of the program has defined something
}

// Begin implements store.Transactor. The transaction holds the only write lock of the
// database: all other writes, even through this handle, wait for it. A transaction of
// another connection cannot be joined.
func (s *Store) Begin(ctx context.Context, native any) (store.Tx, error) {
	if native != nil {
		return nil, errors.ErrUnsupported
	}
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	w, since := s.writer, time.Now()
	select {
	case w.lead <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, store.ErrClosed
	}
	w.giveWay(ctx)
	w.unsynced = false
	err := w.begin(ctx, since)
	if err == nil {
		if err = w.conn.guard(); err != nil {
			w.conn.rollback()
		}
	}
	if err != nil {
		<-w.lead
		return nil, err
	}
	t := &tx{s: s, ctx: ctx, over: make(chan struct{})}
	go t.expire()
	return t, nil
}

// expire rolls the transaction back when its context ends or the store closes.
func (t *tx) expire() {
	select {
	case <-t.over:
		return
	case <-t.ctx.Done():
	case <-t.s.closing:
	}
	_ = t.Rollback()
}

// Rollback implements store.Tx.
func (t *tx) Rollback() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.end(t.why())
	}
	return nil
}

// why returns why a transaction ends for which nobody gave a reason.
func (t *tx) why() error {
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	if t.s.closed.Load() {
		return store.ErrClosed
	}
	return errors.New("sqlitestore: the transaction is over")
}

// end rolls back what is not committed, and lets others write. mu is held.
func (t *tx) end(why error) {
	w := t.s.writer
	defer func() {
		if p := recover(); p != nil { // again, see use
			w.poisoned("roll back", fmt.Errorf("SQLite's driver panicked: %v", p))
		}
		t.ended = store.RolledBack(why)
		close(t.over)
		<-w.lead
	}()
	w.conn.rollback()
}

// use calls do with the connection, unless the transaction is over. A panic of
// the driver, as without memory, ends it and poisons the handle.
func (t *tx) use(do func(w *writer, c *conn) error) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return t.ended
	}
	w := t.s.writer
	defer func() {
		if p := recover(); p != nil {
			w.poisoned("write to", fmt.Errorf("SQLite's driver panicked: %v", p))
			err = *w.poison.Load()
			t.end(err)
		}
	}()
	return do(w, w.conn)
}

// settle ends the transaction because of an error of our own statements, unless
// it is a conflict, and returns what the caller is told.
func (t *tx) settle(w *writer, r *request, err error) error {
	if late, ok := err.(undo); ok {
		err = late.error
	}
	switch {
	case err == nil, errors.Is(err, store.ErrConflict):
		return err
	case refused(err), errors.Is(err, store.ErrInvalid):
	case isDamage(err), code(err) == sqlite3.CONSTRAINT:
		err = t.s.damaged(r, err)
	default:
		w.poisoned("write to", err)
		err = *w.poison.Load()
	}
	t.end(err)
	return err
}

// Native implements store.Tx: it returns an [*SQL].
func (t *tx) Native() any { return &SQL{tx: t} }

// Put implements store.Tx.
func (t *tx) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	var version [versionSize]byte
	rand.Read(version[:])
	err := t.use(func(w *writer, c *conn) error {
		err := store.CheckPut(key, value)
		if err == nil {
			err = t.s.put(c, key, value, prev, version[:])
		}
		if err == nil {
			t.cells = append(t.cells, key)
		}
		return t.settle(w, &request{name: key, cell: true}, err)
	})
	if err != nil {
		return "", err
	}
	return toVersion(version[:]), nil
}

// Commit implements store.Tx.
func (t *tx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	err := t.use(func(w *writer, c *conn) error {
		for _, ended := range []error{context.Cause(t.ctx), ctx.Err()} {
			if ended != nil {
				t.end(ended)
				return t.ended
			}
		}
		r := &request{name: b.Journal, done: make(chan struct{})}
		if err := t.settle(w, r, t.append(c, r, b)); err != nil {
			return err
		}
		err := t.checkKeys(c)
		if err == nil {
			err = c.commit()
		}
		if code(err) == sqlite3.CONSTRAINT || errors.Is(err, store.ErrInvalid) { // of the program's rows
			t.end(err)
			return t.ended
		}
		if err := t.settle(w, r, err); err != nil {
			return err
		}
		r.cells = append(r.cells, t.cells...)
		w.tell([]*request{r})
		if r.erases {
			w.eraseLater()
		}
		w.checkpoint()
		t.end(errors.New("sqlitestore: the transaction was committed"))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return b.After + uint64(len(b.Entries)), nil
}

// checkKeys refuses tables of the program with foreign keys that refer to those of
// the store, whose writes they would fail.
func (t *tx) checkKeys(c *conn) error {
	if !t.defined {
		return nil
	}
	name, err := c.value("SELECT s.name FROM sqlite_schema s, pragma_foreign_key_list(s.name) k WHERE s.type = 'table' AND lower(k.\"table\") IN ('journals', 'entries', 'cells')")
	if err == nil && name != "" {
		err = fmt.Errorf("%w: sqltx: table %s has a foreign key that refers to a table of the store", store.ErrInvalid, name)
	}
	return err
}

// append adds a batch to the transaction. If it is refused, the transaction is as
// it was before.
func (t *tx) append(c *conn, r *request, b store.Batch) error {
	if err := store.CheckBatch(b); err != nil {
		return err
	}
	optional := len(b.Cells)
	for {
		if err := c.exec("SAVEPOINT batch"); err != nil {
			return err
		}
		err := t.s.appendBatch(c, r, b, &optional)
		if err == nil {
			return nil
		}
		if undone := errors.Join(c.exec("ROLLBACK TO batch"), c.exec("RELEASE batch")); undone != nil {
			return undone
		}
		if err != errAgain {
			return err
		}
	}
}
