package observed

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/perdure/perdure/store"
)

// Call describes a call when it starts.
type Call struct {
	Op   store.Op
	Name string // the journal, cell or prefix; for Journals the name it starts after
}

// Result describes a call when it has ended.
type Result struct {
	Items    int           // entries appended or read, cells put or got, names listed; for a batch entries and cells
	Bytes    int           // of those entries and values
	Duration time.Duration // spent in the store, excluding the caller's loop body in a read
	Err      error         // the error of the call; nil if it succeeded or its loop was left early
}

// Observer sees each call of a store. It is called from many goroutines
// concurrently, and the call waits for it.
type Observer interface {
	// Observe is called before the call. It returns the context for the call,
	// which is ctx or derived from it, and a function to be called once when
	// the call has ended, or nil.
	Observe(ctx context.Context, c Call) (context.Context, func(Result))
}

// Func is an [Observer] made of a function.
type Func func(ctx context.Context, c Call) (context.Context, func(Result))

// Observe implements Observer.
func (f Func) Observe(ctx context.Context, c Call) (context.Context, func(Result)) { return f(ctx, c) }

// Store is an observed store.
type Store struct {
	inner    store.Store
	batcher  store.Batcher // the store inside; nil if it cannot batch
	observer Observer
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Wrapper = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)

	_ store.Unsynced = (*Store)(nil)

	_ store.Transactor = (*Store)(nil)
)

// New wraps a store.
func New(inner store.Store, o Observer) *Store {
	return &Store{inner: inner, batcher: store.BatcherOf(inner), observer: o}
}

// call observes one call, which adds what it carries to the result.
func (s *Store) call(ctx context.Context, op store.Op, name string, call func(context.Context, *Result) error) error {
	ctx, done := s.observer.Observe(ctx, Call{Op: op, Name: name})
	if done == nil {
		done = func(Result) {}
	}
	var r Result
	start := time.Now()
	// Deferred, so that a span ends even if the caller's loop panics.
	defer func() {
		r.Duration += time.Since(start)
		done(r)
	}()
	r.Err = call(ctx, &r)
	return r.Err
}

// each observes a read from start to end. Size returns the bytes of an item.
func each[T any](s *Store, ctx context.Context, op store.Op, name string, items func(context.Context) iter.Seq2[T, error], size func(T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		_ = s.call(ctx, op, name, func(ctx context.Context, r *Result) error {
			for v, err := range items(ctx) {
				if err == nil {
					r.Items++
					r.Bytes += size(v)
				}
				body := time.Now()
				more := yield(v, err)
				r.Duration -= time.Since(body)
				if err != nil || !more {
					return err
				}
			}
			return nil
		})
	}
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error) {
	err = s.call(ctx, store.OpAppend, journal, func(ctx context.Context, r *Result) (err error) {
		r.Items = len(entries)
		for _, e := range entries {
			r.Bytes += len(e)
		}
		last, err = s.inner.Append(ctx, journal, after, entries...)
		return err
	})
	return last, err
}

// AppendBatch implements store.Batcher if the store inside does. A valid batch is
// observed as one append that also carries the cells.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (last uint64, err error) {
	if s.batcher == nil {
		return 0, errors.ErrUnsupported
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	return s.batch(ctx, b, s.batcher.AppendBatch)
}

func (s *Store) batch(ctx context.Context, b store.Batch, write func(context.Context, store.Batch) (uint64, error)) (last uint64, err error) {
	err = s.call(ctx, store.OpAppend, b.Journal, func(ctx context.Context, r *Result) (err error) {
		r.Items = len(b.Entries) + len(b.Cells)
		for _, e := range b.Entries {
			r.Bytes += len(e)
		}
		for _, w := range b.Cells {
			r.Bytes += len(w.Value)
		}
		last, err = write(ctx, b)
		return err
	})
	return last, err
}

// Begin implements store.Transactor if the store inside does. A commit is observed
// as one append that also carries the cells, and Put as Put.
func (s *Store) Begin(ctx context.Context, native any) (store.Tx, error) {
	t, err := store.Join(ctx, s.inner, native)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: t, s: s}, nil
}

type tx struct {
	store.Tx
	s *Store
}

// Put implements store.Tx.
func (t *tx) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return t.s.put(ctx, key, value, func(ctx context.Context) (store.Version, error) { return t.Tx.Put(ctx, key, value, prev) })
}

// Commit implements store.Tx.
func (t *tx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	return t.s.batch(ctx, b, t.Tx.Commit)
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return each(s, ctx, store.OpRead, journal, func(ctx context.Context) iter.Seq2[store.Entry, error] {
		return s.inner.Read(ctx, journal, after)
	}, func(e store.Entry) int { return len(e.Data) })
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return each(s, ctx, store.OpJournals, after, func(ctx context.Context) iter.Seq2[string, error] {
		return s.inner.Journals(ctx, after)
	}, func(string) int { return 0 })
}

// Drop implements store.Store.
func (s *Store) Drop(ctx context.Context, journal string) error {
	return s.call(ctx, store.OpDrop, journal, func(ctx context.Context, _ *Result) error {
		return s.inner.Drop(ctx, journal)
	})
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (cell store.Cell, err error) {
	err = s.call(ctx, store.OpGet, key, func(ctx context.Context, r *Result) (err error) {
		if cell, err = s.inner.Get(ctx, key); err == nil {
			r.Items, r.Bytes = 1, len(cell.Value)
		}
		return err
	})
	return cell, err
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.put(ctx, key, value, func(ctx context.Context) (store.Version, error) { return s.inner.Put(ctx, key, value, prev) })
}

// PutUnsynced implements store.Unsynced. It is observed as a Put.
func (s *Store) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return s.put(ctx, key, value, func(ctx context.Context) (store.Version, error) {
		return store.PutUnsynced(ctx, s.inner, key, value, prev)
	})
}

func (s *Store) put(ctx context.Context, key string, value []byte, put func(context.Context) (store.Version, error)) (version store.Version, err error) {
	err = s.call(ctx, store.OpPut, key, func(ctx context.Context, r *Result) (err error) {
		r.Items, r.Bytes = 1, len(value)
		version, err = put(ctx)
		return err
	})
	return version, err
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	return s.call(ctx, store.OpDelete, key, func(ctx context.Context, _ *Result) error {
		return s.inner.Delete(ctx, key, prev)
	})
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return each(s, ctx, store.OpList, prefix, func(ctx context.Context) iter.Seq2[store.Cell, error] {
		return s.inner.List(ctx, prefix, after)
	}, func(c store.Cell) int { return len(c.Value) })
}

// Close implements store.Store.
func (s *Store) Close() error { return s.inner.Close() }

// Unwrap implements store.Wrapper.
func (s *Store) Unwrap() store.Store { return s.inner }
