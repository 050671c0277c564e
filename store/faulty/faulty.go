package faulty

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// Store is a store whose calls fail as its plan says.
type Store struct {
	inner   store.Store
	batcher store.Batcher // the store inside; nil if it cannot batch
	plan    Plan

	mu      sync.Mutex
	calls   int
	writes  int
	frozen  int
	thaw    chan struct{} // closed and replaced by Thaw
	crashed *Error        // the failure after which all calls fail
	onCrash []func()
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Wrapper = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)

	_ store.Unsynced = (*Store)(nil)

	_ store.Transactor = (*Store)(nil)
)

// New wraps a store. A nil plan lets all calls through and only counts them.
func New(inner store.Store, plan Plan) *Store {
	if plan == nil {
		plan = func(Call) Fault { return None }
	}
	return &Store{inner: inner, batcher: store.BatcherOf(inner), plan: plan, thaw: make(chan struct{})}
}

// Calls returns how many calls have started, up to a crash.
func (s *Store) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Writes returns how many of the calls were writes.
func (s *Store) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Frozen returns how many calls are currently frozen.
func (s *Store) Frozen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}

// Thaw lets the currently frozen calls continue.
func (s *Store) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.thaw)
	s.thaw = make(chan struct{})
}

// OnCrash arranges for f to be called when the store crashes, before the call that
// crashes it returns, or at once if it has already crashed. A test passes the cancel
// function of the code under test, so that nothing outlives the crash.
func (s *Store) OnCrash(f func()) {
	s.mu.Lock()
	late := s.crashed != nil
	if !late {
		s.onCrash = append(s.onCrash, f)
	}
	s.mu.Unlock()
	if late {
		f()
	}
}

// Crashed reports whether a crash fault has happened.
func (s *Store) Crashed() bool { return s.dead() != nil }

// dead returns the error of all calls after a crash, or nil before one.
func (s *Store) dead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed == nil {
		return nil
	}
	return s.crashed
}

// start counts a call, asks the plan, and does what happens before the store
// inside is called. After an error the store inside must not be called.
func (s *Store) start(ctx context.Context, op store.Op, name string) (Call, Fault, error) {
	s.mu.Lock()
	if s.crashed != nil {
		s.mu.Unlock()
		return Call{}, None, s.crashed
	}
	s.calls++
	c := Call{Op: op, Name: name, N: s.calls}
	if op.Writes() {
		s.writes++
		c.W = s.writes
	}
	f := s.plan(c)
	s.mu.Unlock()

	switch f.kind {
	case failBefore:
		return c, f, s.fail(c, f)
	case failAmid:
		if op == store.OpRead || op == store.OpJournals || op == store.OpList {
			return c, f, nil
		}
		return c, f, s.fail(c, f)
	case conflict:
		if op == store.OpAppend || op == store.OpPut || op == store.OpDelete {
			return c, f, store.Conflictf("injected at %s; read again and decide", c)
		}
	case delay:
		if err := wait(ctx, time.After(f.delay)); err != nil {
			return c, f, err
		}
	case freeze:
		if err := s.freeze(ctx); err != nil {
			return c, f, err
		}
	}
	return c, f, s.dead()
}

func (s *Store) freeze(ctx context.Context) error {
	s.mu.Lock()
	s.frozen++
	thaw := s.thaw
	s.mu.Unlock()
	err := wait(ctx, thaw)
	s.mu.Lock()
	s.frozen--
	s.mu.Unlock()
	return err
}

func wait[T any](ctx context.Context, done <-chan T) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// fail returns the error of fault f at call c, and crashes the store if the fault
// says so.
func (s *Store) fail(c Call, f Fault) error {
	failure := &Error{Call: c, Fault: f}
	if !f.crash {
		return failure
	}
	s.mu.Lock()
	var tell []func()
	if s.crashed == nil {
		s.crashed = failure
		tell, s.onCrash = s.onCrash, nil
	}
	failure = s.crashed
	s.mu.Unlock()
	for _, f := range tell {
		f()
	}
	return failure
}

// end returns the error of a completed call if its result is lost.
func (s *Store) end(c Call, f Fault) error {
	if f.kind == failAfter || f.kind == failAmid {
		return s.fail(c, f)
	}
	return s.dead()
}

func do[T any](s *Store, ctx context.Context, op store.Op, name string, call func() (T, error)) (T, error) {
	var zero T
	c, f, err := s.start(ctx, op, name)
	if err != nil {
		return zero, err
	}
	v, err := call()
	if lost := s.end(c, f); lost != nil {
		return zero, lost
	}
	return v, err
}

func each[T any](s *Store, ctx context.Context, op store.Op, name string, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		c, f, err := s.start(ctx, op, name)
		if err != nil {
			yield(zero, err)
			return
		}
		n := 0
		var failed error
		for v, err := range items {
			if dead := s.dead(); dead != nil {
				yield(zero, dead)
				return
			}
			if failed = err; err != nil || f.kind == failAmid && n == f.items {
				break
			}
			n++
			if !yield(v, nil) {
				_ = s.end(c, f) // a loop that is left early does not see the failure, but a crash happens
				return
			}
		}
		if lost := s.end(c, f); lost != nil {
			failed = lost
		}
		if failed != nil {
			yield(zero, failed)
		}
	}
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	return do(s, ctx, store.OpAppend, journal, func() (uint64, error) {
		return s.inner.Append(ctx, journal, after, entries...)
	})
}

// AppendBatch implements store.Batcher if the store inside does. A valid batch is
// one call, an append.
func (s *Store) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if s.batcher == nil {
		return 0, errors.ErrUnsupported
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	return do(s, ctx, store.OpAppend, b.Journal, func() (uint64, error) { return s.batcher.AppendBatch(ctx, b) })
}

// Begin implements store.Transactor if the store inside does. The plan does not see
// it; it sees the Puts of the transaction, and Commit as an append. If one of these
// fails before it has happened, the transaction is rolled back.
func (s *Store) Begin(ctx context.Context, native any) (store.Tx, error) {
	if err := s.dead(); err != nil {
		return nil, err
	}
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
	return inTx(t, ctx, store.OpPut, key, func() (store.Version, error) { return t.Tx.Put(ctx, key, value, prev) })
}

// Commit implements store.Tx.
func (t *tx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	return inTx(t, ctx, store.OpAppend, b.Journal, func() (uint64, error) { return t.Tx.Commit(ctx, b) })
}

func inTx[T any](t *tx, ctx context.Context, op store.Op, name string, call func() (T, error)) (T, error) {
	v, err := do(t.s, ctx, op, name, call)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		_ = t.Tx.Rollback() // unless it is committed, which only the caller does not know
	}
	return v, err
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return each(s, ctx, store.OpRead, journal, s.inner.Read(ctx, journal, after))
}

// Journals implements store.Store.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return each(s, ctx, store.OpJournals, after, s.inner.Journals(ctx, after))
}

// Drop implements store.Store.
func (s *Store) Drop(ctx context.Context, journal string) error {
	_, err := do(s, ctx, store.OpDrop, journal, func() (struct{}, error) {
		return struct{}{}, s.inner.Drop(ctx, journal)
	})
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Cell, error) {
	return do(s, ctx, store.OpGet, key, func() (store.Cell, error) { return s.inner.Get(ctx, key) })
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return do(s, ctx, store.OpPut, key, func() (store.Version, error) {
		return s.inner.Put(ctx, key, value, prev)
	})
}

// PutUnsynced implements store.Unsynced. It is a call like Put.
func (s *Store) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return do(s, ctx, store.OpPut, key, func() (store.Version, error) {
		return store.PutUnsynced(ctx, s.inner, key, value, prev)
	})
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, prev store.Version) error {
	_, err := do(s, ctx, store.OpDelete, key, func() (struct{}, error) {
		return struct{}{}, s.inner.Delete(ctx, key, prev)
	})
	return err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return each(s, ctx, store.OpList, prefix, s.inner.List(ctx, prefix, after))
}

// Close implements store.Store. It always closes the store inside.
func (s *Store) Close() error { return s.inner.Close() }

// Unwrap implements store.Wrapper.
func (s *Store) Unwrap() store.Store { return s.inner }
