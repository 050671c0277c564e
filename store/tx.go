package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Transactor is the upgrade of stores in a database in which the program can have
// tables of its own: a transaction writes rows there and appends to a journal, all or
// nothing. Like [Batcher] it is asserted on the outermost store only, and a wrapper
// implements it on top of the store inside; if that store is not a Transactor, Begin
// returns errors.ErrUnsupported.
type Transactor interface {
	// Begin starts a transaction. If ctx ends before Commit has begun to make the
	// transaction durable, it is rolled back, even while a statement runs. Writes
	// through the same handle may wait for it to end, so keep it short.
	//
	// If native is not nil, it is a transaction that the program has begun on the
	// same database and will end itself, and Begin joins it: see [Join]. A driver
	// that cannot do so returns errors.ErrUnsupported.
	Begin(ctx context.Context, native any) (Tx, error)
}

// Tx is a transaction of a Transactor. It is over when Commit has returned nil or
// an error other than ErrConflict, after Rollback, and when the context of Begin
// has ended. Its methods may be called from any goroutine, one at a time, except
// for Rollback.
type Tx interface {
	// Native returns the value with which user code writes rows in the transaction;
	// its type depends on the driver. These writes do not pass through wrappers.
	Native() any

	// Put writes a cell in the transaction, with the conditions of Store.Put.
	// ErrConflict leaves the transaction as it was. Any other error says nothing
	// about the cell, because the transaction is over.
	Put(ctx context.Context, key string, value []byte, prev Version) (Version, error)

	// Commit appends the entries, makes the writes of a batch and commits, with
	// the conditions of Batcher.AppendBatch. After ErrConflict, including a
	// *CellConflict, the transaction is unchanged, and Commit may be called again.
	//
	// ErrRolledBack and the definite errors of Append mean that nothing was
	// written. ErrRolledBack that also matches ErrUnavailable means that the engine
	// was lost, not that something in the transaction failed. After any other error
	// all of the transaction is durable or none of it: [CommitTx] finds out.
	Commit(ctx context.Context, b Batch) (last uint64, err error)

	// Rollback ends the transaction without effect, unless it is over. If it had
	// already ended because the engine was lost, the error is that of Commit.
	Rollback() error
}

// Begin starts a transaction if s is a Transactor; otherwise it returns
// errors.ErrUnsupported.
func Begin(ctx context.Context, s Store) (Tx, error) {
	return Join(ctx, s, nil)
}

// Join returns a Tx that writes in a transaction of the program, a value of the type
// that Native returns for the driver's own transactions. It never commits: Commit only
// appends, and the program's commit decides whether anything is kept. Rollback, and any
// error except ErrConflict, undoes what was written through the Tx and leaves the rest
// of the transaction as it is, unless the connection is lost and everything with it. A
// transaction of another database is ErrInvalid. If s is not a Transactor or its driver
// cannot join, Join returns errors.ErrUnsupported.
//
// Until the program ends its transaction, others that write the same cells wait for
// it. Soon after the commit, watchers are woken as by any other write.
func Join(ctx context.Context, s Store, native any) (Tx, error) {
	if t, ok := s.(Transactor); ok {
		return t.Begin(ctx, native)
	}
	return nil, errors.ErrUnsupported
}

// RolledBack returns the ErrRolledBack of a transaction that ended because of
// cause. It is for authors of drivers.
func RolledBack(cause error) error { return fmt.Errorf("%w: %w", ErrRolledBack, cause) }

// CommitTx commits a transaction of s and finds out what became of it, as
// [AppendOnce] does for an append. It returns nil if the entries are in the
// journal, exactly once, so that everything written in the transaction is durable.
// After ErrConflict the transaction is unchanged; after any other error it is over.
// ErrUnknown means that the outcome is open: later readers will find both the entries
// and the rows, or neither.
func CommitTx(ctx context.Context, s Store, tx Tx, b Batch) (uint64, error) {
	last, err := tx.Commit(ctx, b)
	switch {
	case err == nil, errors.Is(err, ErrConflict), errors.Is(err, ErrRolledBack), errors.Is(err, ErrDropped), wroteNothing(err):
		return last, err
	}
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		at, found, readErr := entryBehind(ctx, s, b.Journal, b.After)
		switch {
		case found && bytes.Equal(at, b.Entries[0]):
			return b.After + uint64(len(b.Entries)), nil
		case found:
			return 0, RolledBack(fmt.Errorf("journal %q has another entry at %d", b.Journal, b.After+1))
		case readErr == nil, wroteNothing(readErr), errors.Is(readErr, ErrDropped), OutOfPatience(ctx, began):
			return 0, verdict(b.Journal, b.After, err, readErr)
		}
		select {
		case <-ctx.Done():
			return 0, verdict(b.Journal, b.After, err, ctx.Err())
		case <-time.After(pause):
		}
	}
}
