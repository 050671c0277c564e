package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
)

// Append implements Store.
func (r *reopener) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	return reopenCall(ctx, r, true, func(s Store) (uint64, error) { return s.Append(ctx, journal, after, entries...) })
}

// AppendBatch implements Batcher where the engine does.
func (r *reopener) AppendBatch(ctx context.Context, b Batch) (uint64, error) {
	return reopenCall(ctx, r, true, func(s Store) (uint64, error) { return appendBatch(ctx, s, b) })
}

// Read implements Store.
func (r *reopener) Read(ctx context.Context, journal string, after uint64) iter.Seq2[Entry, error] {
	return reopenLoop(ctx, r, func(s Store) iter.Seq2[Entry, error] { return s.Read(ctx, journal, after) })
}

// Journals implements Store.
func (r *reopener) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return reopenLoop(ctx, r, func(s Store) iter.Seq2[string, error] { return s.Journals(ctx, after) })
}

// Drop implements Store.
func (r *reopener) Drop(ctx context.Context, journal string) error {
	_, err := reopenCall(ctx, r, true, func(s Store) (struct{}, error) { return struct{}{}, s.Drop(ctx, journal) })
	return err
}

// Get implements Store.
func (r *reopener) Get(ctx context.Context, key string) (Cell, error) {
	return reopenCall(ctx, r, false, func(s Store) (Cell, error) { return s.Get(ctx, key) })
}

// Put implements Store.
func (r *reopener) Put(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	return reopenCall(ctx, r, true, func(s Store) (Version, error) { return s.Put(ctx, key, value, prev) })
}

// PutUnsynced implements Unsynced.
func (r *reopener) PutUnsynced(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	return reopenCall(ctx, r, true, func(s Store) (Version, error) { return PutUnsynced(ctx, s, key, value, prev) })
}

// Delete implements Store.
func (r *reopener) Delete(ctx context.Context, key string, prev Version) error {
	_, err := reopenCall(ctx, r, true, func(s Store) (struct{}, error) { return struct{}{}, s.Delete(ctx, key, prev) })
	return err
}

// List implements Store.
func (r *reopener) List(ctx context.Context, prefix, after string) iter.Seq2[Cell, error] {
	return reopenLoop(ctx, r, func(s Store) iter.Seq2[Cell, error] { return s.List(ctx, prefix, after) })
}

// Begin implements Transactor where the engine does. The transaction is of the
// handle that is current now, which stays open until it is over.
func (r *reopener) Begin(ctx context.Context, native any) (Tx, error) {
	h, err := r.take(ctx, true)
	if err != nil {
		return nil, err
	}
	tx, err := Join(ctx, h.Store, native)
	if err != nil {
		r.leave(h)
		return nil, r.met(h, false, err)
	}
	return &reopenedTx{Tx: tx, r: r, h: h, leave: sync.OnceFunc(func() { r.leave(h) })}, nil
}

// reopenedTx is a transaction of a handle.
type reopenedTx struct {
	Tx
	r     *reopener
	h     *handle
	leave func()
}

// Put implements Tx.
func (t *reopenedTx) Put(ctx context.Context, key string, value []byte, prev Version) (Version, error) {
	version, err := t.Tx.Put(ctx, key, value, prev)
	return version, t.r.met(t.h, false, err)
}

// Commit implements Tx.
func (t *reopenedTx) Commit(ctx context.Context, b Batch) (uint64, error) {
	last, err := t.Tx.Commit(ctx, b)
	if !errors.Is(err, ErrConflict) {
		defer t.leave()
	}
	return last, t.r.met(t.h, true, err)
}

// Rollback implements Tx.
func (t *reopenedTx) Rollback() error {
	defer t.leave()
	return t.Tx.Rollback()
}

// Close implements Store. It cancels an opening in progress and waits for it.
func (r *reopener) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.stop()
	now, opening := r.now, r.opening
	old := make([]*handle, 0, len(r.old))
	for h := range r.old {
		old = append(old, h)
	}
	r.mu.Unlock()
	if opening != nil {
		<-opening
	}
	for _, h := range old {
		_ = h.close() // see discard
	}
	now.end()
	return now.close()
}

// Unwrap implements Wrapper.
func (r *reopener) Unwrap() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Store
}

// Durability implements Durable.
func (r *reopener) Durability() Durability { return DurabilityOf(r.Unwrap()) }

// Watch implements Watcher, by polling if the engine does not.
func (r *reopener) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		r.follow(ctx, func(ctx context.Context, s Store) bool {
			for range Watch(ctx, s, prefix) {
				if !yield(struct{}{}) {
					return false
				}
			}
			return true
		})
	}
}

// castReopener is a reopener whose engine carries messages.
type castReopener struct{ *reopener }

// Cast implements Caster.
func (r castReopener) Cast(ctx context.Context, topic string, message []byte) error {
	_, err := reopenCall(ctx, r.reopener, false, func(s Store) (struct{}, error) {
		return struct{}{}, Cast(ctx, s, topic, message)
	})
	return err
}

// Hear implements Caster.
func (r castReopener) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	r.follow(ctx, func(ctx context.Context, s Store) bool {
		Hear(ctx, s, topic, hear)
		return true
	})
}

// Warnings implements Warner: those of the engine, and that it refuses writes for lack of
// space.
func (r *reopener) Warnings(ctx context.Context) ([]Warning, error) {
	found, err := Warnings(ctx, r.Unwrap())
	r.mu.Lock()
	down := r.down
	r.mu.Unlock()
	if errors.Is(down, ErrFull) {
		found = append(found, Warning{WarnSpace, fmt.Sprintf("writes are refused, and wait: %v", down), "make space where the store is, or raise its limits; then everything goes on"})
	}
	return found, err
}
