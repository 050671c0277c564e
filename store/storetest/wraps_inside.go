package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

// upgraded is the store that Wraps puts inside: all upgrades, which count
// their calls, over a plain memory. It does as much as a wrapper may need to
// be made and written through; the other cases are for real stores.
type upgraded struct {
	*store.Hub
	durability     atomic.Int64
	watches, casts atomic.Int64
	batches, hasty atomic.Int64
	unbatched      bool // it has no store.Batcher and no store.Transactor after all
	commits        atomic.Int64

	mu       sync.Mutex
	closed   bool
	journals map[string][][]byte
	cells    map[string]store.Cell
	versions int
}

var (
	_ store.Store   = (*upgraded)(nil)
	_ store.Watcher = (*upgraded)(nil)
	_ store.Caster  = (*upgraded)(nil)
	_ store.Durable = (*upgraded)(nil)
	_ store.Batcher = (*upgraded)(nil)

	_ store.Unsynced = (*upgraded)(nil)

	_ store.Transactor = (*upgraded)(nil)
)

func newUpgraded(d store.Durability) *upgraded {
	u := &upgraded{Hub: store.NewHub(), journals: map[string][][]byte{}, cells: map[string]store.Cell{}}
	u.durability.Store(int64(d))
	return u
}

func (u *upgraded) Durability() store.Durability { return store.Durability(u.durability.Load()) }

func (u *upgraded) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	u.watches.Add(1)
	return u.Hub.Watch(ctx, prefix)
}

func (u *upgraded) Cast(ctx context.Context, topic string, message []byte) error {
	u.casts.Add(1)
	return u.Hub.Cast(ctx, topic, message)
}

func (u *upgraded) Close() error {
	u.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	return nil
}

// write does a write under the lock and wakes the watchers of name.
func (u *upgraded) write(name string, do func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return store.ErrClosed
	}
	if err := do(); err != nil {
		return err
	}
	u.Wake(name)
	return nil
}

func (u *upgraded) Append(_ context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error) {
	err = u.write(journal, func() error {
		if end := uint64(len(u.journals[journal])); end != after {
			return store.NotAtEnd(journal, after, end)
		}
		for _, e := range entries {
			u.journals[journal] = append(u.journals[journal], bytes.Clone(e))
		}
		last = after + uint64(len(entries))
		return nil
	})
	return last, err
}

func (u *upgraded) AppendBatch(ctx context.Context, b store.Batch) (last uint64, err error) {
	if u.unbatched {
		return 0, errors.ErrUnsupported
	}
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	u.batches.Add(1)
	for _, w := range b.Cells {
		if cell, _ := u.Get(ctx, w.Key); cell.Version != w.Prev {
			return 0, &store.CellConflict{Key: w.Key, Err: store.NotVersion(w.Key, w.Prev, cell.Version)}
		}
	}
	if last, err = u.Append(ctx, b.Journal, b.After, b.Entries...); err == nil {
		for _, w := range b.Cells {
			_, _ = u.Put(ctx, w.Key, w.Value, w.Prev)
		}
	}
	return last, err
}

func (u *upgraded) Begin(_ context.Context, native any) (store.Tx, error) {
	if u.unbatched {
		return nil, errors.ErrUnsupported
	}
	return &upgradedTx{u: u, native: native}, nil
}

// upgradedTx writes nothing before it is committed.
type upgradedTx struct {
	u      *upgraded
	native any // that was joined
	puts   []store.Write
	over   bool
}

func (t *upgradedTx) Native() any { return t.native }

func (t *upgradedTx) Rollback() error {
	t.over = true
	return nil
}

func (t *upgradedTx) Put(_ context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	t.puts = append(t.puts, store.Write{Key: key, Value: bytes.Clone(value), Prev: prev})
	return "uncommitted", nil
}

func (t *upgradedTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	if t.over {
		return 0, store.RolledBack(errors.New("it is over"))
	}
	t.u.commits.Add(1)
	last, err := t.u.AppendBatch(ctx, b)
	if t.over = !errors.Is(err, store.ErrConflict); err == nil {
		for _, w := range t.puts {
			_, _ = t.u.Put(ctx, w.Key, w.Value, w.Prev)
		}
	}
	return last, err
}

func (u *upgraded) Drop(_ context.Context, journal string) error {
	return u.write(journal, func() error {
		delete(u.journals, journal)
		return nil
	})
}

func (u *upgraded) Put(_ context.Context, key string, value []byte, prev store.Version) (version store.Version, err error) {
	err = u.write(key, func() error {
		if now := u.cells[key].Version; now != prev {
			return store.NotVersion(key, prev, now)
		}
		u.versions++
		version = store.Version(fmt.Sprint(u.versions))
		u.cells[key] = store.Cell{Key: key, Value: bytes.Clone(value), Version: version}
		return nil
	})
	return version, err
}

func (u *upgraded) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (version store.Version, err error) {
	u.hasty.Add(1)
	return u.Put(ctx, key, value, prev)
}

func (u *upgraded) Delete(_ context.Context, key string, prev store.Version) error {
	return u.write(key, func() error {
		if now := u.cells[key].Version; now != prev {
			return store.NotVersion(key, prev, now)
		}
		delete(u.cells, key)
		return nil
	})
}

func (u *upgraded) Get(_ context.Context, key string) (store.Cell, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	cell, ok := u.cells[key]
	if !ok {
		return store.Cell{}, store.NoCell(key)
	}
	return cell, nil
}

func (u *upgraded) Read(_ context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		u.mu.Lock()
		entries := slices.Clone(u.journals[journal])
		u.mu.Unlock()
		for i := after; i < uint64(len(entries)); i++ {
			if !yield(store.Entry{Seq: i + 1, Data: entries[i]}, nil) {
				return
			}
		}
	}
}

func (u *upgraded) Journals(_ context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		u.mu.Lock()
		names := slices.Sorted(maps.Keys(u.journals))
		u.mu.Unlock()
		for _, name := range names {
			if name > after && !yield(name, nil) {
				return
			}
		}
	}
}

func (u *upgraded) List(_ context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		u.mu.Lock()
		cells := maps.Clone(u.cells)
		u.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(cells)) {
			if key > after && strings.HasPrefix(key, prefix) && !yield(cells[key], nil) {
				return
			}
		}
	}
}
