package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

type withinKey struct{}

// Within returns a context in which Start begins a new thread in a transaction of
// the program, as store.Join takes it.
func Within(ctx context.Context, native any) context.Context {
	return context.WithValue(ctx, withinKey{}, native)
}

// startWithin queues a run on a new thread if the program commits its transaction.
// It leaves that usable after an error. If known is false, nobody can know the
// thread's id.
func (r *Control) startWithin(ctx context.Context, native any, known bool, runID string, q StartRequest, in json.RawMessage) (*threads.Opened, string, error) {
	if len(q.Attach) > 0 {
		return nil, "", fmt.Errorf("%w: a run that starts in a transaction cannot have files", fault.ErrInvalid)
	}
	exists := fmt.Errorf("%w: %q; in a transaction only a new thread can be started", fault.ErrExists, q.Thread)
	for range 10 {
		name, cells, err := r.prepare(ctx, threads.Summary{ID: q.Thread, User: q.User, Title: q.Title, Flow: q.Flow}, known)
		if err != nil {
			return nil, "", err
		}
		if cells != nil {
			o, run, err := r.beginWithin(ctx, native, name, runID, q, in, cells)
			if !errors.Is(err, store.ErrConflict) {
				return o, run, err
			}
			known = true
			continue // another has made the thread, or this transaction has
		}
		if err := r.abandon(ctx, q.Thread, name); err == nil {
			continue // nothing of it was written, or it was erased
		} else if !errors.Is(err, errBegun) {
			return nil, "", err
		}
		o, err := r.threads.Read(ctx, name)
		if err != nil || q.Key == "" {
			return nil, "", errors.Join(err, exists)
		}
		old := r.runOf(o.Thread, q)
		if o.Thread.RunByID(old) == nil {
			return nil, "", exists
		}
		_, _, err = r.queue(ctx, o.Thread, &q, journal.Body{ID: old, Key: runKey(q, in)})
		if errors.Is(err, threads.ErrNothing) {
			err = nil // the key has started it before
		}
		return o, old, err
	}
	return nil, "", exists
}

// beginWithin begins a thread in a transaction of the program.
func (r *Control) beginWithin(ctx context.Context, native any, name, runID string, q StartRequest, in json.RawMessage, cells []store.Write) (*threads.Opened, string, error) {
	tx, err := store.Join(ctx, r.threads.Store, native)
	switch {
	case err == errors.ErrUnsupported:
		return nil, "", fmt.Errorf("%w: the run is to start in a transaction of PostgreSQL, and the runtime's store is not there; open that as postgres://…", fault.ErrOption)
	case errors.Is(err, store.ErrInvalid):
		return nil, "", fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	case err != nil:
		return nil, "", err
	}
	defer tx.Rollback() // nothing after Commit
	b, err := r.newRun(ctx, threads.NewTxCells(r.threads.Store, tx), name, runID, q, in)
	if err != nil {
		return nil, "", err
	}
	o, err := r.threads.BeginIn(ctx, tx, name, cells, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if q.Key != "" {
			b.ID = r.runOf(t, q)
		}
		return r.queue(ctx, t, &q, b)
	})
	return o, b.ID, err
}
