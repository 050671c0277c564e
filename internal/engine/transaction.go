package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// InTransaction makes a step run in a transaction of the store, which commits its
// outcome too. It is open for limit at most, 0 for as long as its context. The type
// is that of a StepOption without its name, under which go doc would list it among
// the functions of package perdure.
func InTransaction(limit time.Duration) func(*StepOptions) {
	return func(o *StepOptions) { o.InTx, o.TxLimit = true, limit }
}

// Native returns what the store's driver gives to the function of a step that runs
// in a transaction, and ctx is given to. It is false for any other context.
func Native[T any](ctx context.Context) (T, bool) {
	f, err := inside(ctx)
	if err == nil {
		if t := locked(f.pass, func() *transaction { return f.tx }); t != nil {
			v, ok := t.tx.Native().(T)
			return v, ok
		}
	}
	var none T
	return none, false
}

// transaction is that of a step whose effects are rows in the store's database.
// As long as it is open, nothing else of the pass is committed: on SQLite that
// would wait for the transaction, and the transaction for the order.
type transaction struct {
	tx    store.Tx
	cells *threads.TxCells // for the blobs of the outcome
	end   func() error     // rolls it back unless it is committed; the error says that the store has lost it
}

// perform calls the function of a step, in its transaction if it has one. After an
// error that is rolled back. If the store had lost it by then, the error is no outcome
// of the code, whatever the function has made of it, and the pass is lost.
func (s *step) perform(ctx context.Context, inner *frame) (json.RawMessage, error) {
	p := s.frame.pass
	if s.InTx {
		var err error
		if ctx, err = s.transact(ctx, inner); err != nil {
			return nil, err
		}
	}
	raw, err := invoke(inner.with(ctx), s.fn)
	if err != nil {
		if lost := inner.rollback(); lost != nil {
			return nil, p.lose(fmt.Errorf("%w; the function returned: %v", lost, err))
		}
		if cause := context.Cause(ctx); s.InTx && errors.Is(cause, fault.ErrTimeout) && !errors.Is(err, fault.ErrTimeout) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	return raw, err
}

// transact begins the transaction of an attempt, and returns the context that ends
// with it. An error of the store loses the pass: it is no outcome of the code.
func (s *step) transact(ctx context.Context, inner *frame) (context.Context, error) {
	p := s.frame.pass
	select {
	case p.order.tx <- struct{}{}:
	case <-ctx.Done():
		return ctx, context.Cause(ctx)
	}
	open, cancel := context.WithCancelCause(ctx)
	all := p.engine.threads.Store
	tx, err := store.Begin(open, all)
	if err != nil {
		cancel(nil)
		p.order.tx.Unlock()
		switch {
		case err == errors.ErrUnsupported:
			err = fmt.Errorf("%w: step %s runs in a transaction, and this store has none; open one in SQLite (sqlite:…) for sqltx, or in PostgreSQL (postgres://…) for pgtx", fault.ErrOption, inner.path())
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		default:
			err = p.lose(err)
		}
		return ctx, err
	}
	// A lease is renewed through the same store, which may have one writer.
	stop := func() bool { return true }
	if limit := min(s.TxLimit, p.engine.opts.Lease/3); limit > 0 {
		stop = time.AfterFunc(limit, func() {
			cancel(fmt.Errorf("%w: the transaction of step %s was open for %v and was rolled back", fault.ErrTimeout, tree.Names(s.path), limit))
		}).Stop
	}
	t := &transaction{tx: tx, cells: threads.NewTxCells(all, tx)}
	t.end = sync.OnceValue(func() error {
		stop()
		err := tx.Rollback()
		cancel(nil)
		p.order.tx.Unlock()
		if errors.Is(err, store.ErrUnavailable) {
			return err
		}
		return nil
	})
	p.mu.Lock()
	inner.tx = t
	p.mu.Unlock()
	return open, nil
}

// rollback ends the transaction of a frame, if it has one that is not committed,
// so that what is recorded next is not part of it. The error says that the store had
// lost it before.
func (f *frame) rollback() error {
	t := locked(f.pass, func() *transaction { return f.tx })
	if t == nil {
		return nil
	}
	lost := t.end()
	f.pass.mu.Lock()
	f.tx = nil
	f.pass.mu.Unlock()
	return lost
}

// append commits the transaction with entries of the run. A conflict leaves it open.
func (t *transaction) append(p *Pass, data [][]byte) error {
	_, err := store.CommitTx(p.io, p.engine.threads.Store, t.tx, store.Batch{Journal: threads.JournalKey(p.name), After: p.thread.Seq - p.thread.Base, Entries: data})
	return fault.IfDropped(p.name, err)
}

// undone reports whether a transaction was rolled back because of what was done in
// it, which is a failure of its step. That the store is full or unavailable is not.
func undone(err error) bool {
	return errors.Is(err, store.ErrRolledBack) && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnavailable)
}
