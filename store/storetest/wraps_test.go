package storetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
)

// clearWrap forwards everything by Unwrap.
type clearWrap struct{ store.Store }

func (w clearWrap) Unwrap() store.Store { return w.Store }

// opaque hides the upgrades.
type opaque struct{ store.Store }

// lost has an Unwrap that leads nowhere.
type lost struct{ store.Store }

func (lost) Unwrap() store.Store { return nil }

// boastful claims a durability of its own.
type boastful struct{ clearWrap }

func (boastful) Durability() store.Durability { return store.Power }

// blind watches without looking inside.
type blind struct{ clearWrap }

func (blind) Watch(ctx context.Context, _ string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		if yield(struct{}{}) {
			<-ctx.Done()
		}
	}
}

// mute casts to no one but itself.
type mute struct {
	clearWrap
	hub *store.Hub
}

func (m mute) Cast(ctx context.Context, topic string, message []byte) error {
	return m.hub.Cast(ctx, topic, message)
}

func (m mute) Hear(ctx context.Context, topic string, hear func([]byte)) {
	m.hub.Hear(ctx, topic, hear)
}

func (m mute) Close() error {
	m.hub.Stop()
	return m.clearWrap.Close()
}

// garbled changes messages on their way out only.
type garbled struct{ clearWrap }

func (g garbled) Cast(ctx context.Context, topic string, message []byte) error {
	return store.Cast(ctx, g.Store, topic, append([]byte("sealed "), message...))
}

func (g garbled) Hear(ctx context.Context, topic string, hear func([]byte)) {
	store.Hear(ctx, g.Store, topic, hear)
}

// coded changes what it stores, in single writes.
type coded struct{ clearWrap }

func flip(data []byte) []byte {
	flipped := bytes.Clone(data)
	for i := range flipped {
		flipped[i] ^= 1
	}
	return flipped
}

func (c coded) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	var changed [][]byte
	for _, e := range entries {
		changed = append(changed, flip(e))
	}
	return c.Store.Append(ctx, journal, after, changed...)
}

func (c coded) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range c.Store.Read(ctx, journal, after) {
			if !yield(store.Entry{Seq: e.Seq, Data: flip(e.Data)}, err) {
				return
			}
		}
	}
}

func (c coded) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return c.Store.Put(ctx, key, flip(value), prev)
}

func (c coded) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := c.Store.Get(ctx, key)
	cell.Value = flip(cell.Value)
	return cell, err
}

// batchWrap has a Batcher as a function.
type batchWrap struct {
	coded
	batch func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error)
}

func (w batchWrap) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	return w.batch(w.Store.(store.Batcher), ctx, b)
}

// hastyWrap has an Unsynced that goes past it, or is none.
type hastyWrap struct {
	coded
	past bool
}

func (w hastyWrap) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if w.past {
		return store.PutUnsynced(ctx, w.Store, key, value, prev)
	}
	return w.Put(ctx, key, value, prev)
}

// flipBatch returns a batch with its entries, and its cells if that is true, changed.
func flipBatch(b store.Batch, cells bool) store.Batch {
	b.Entries, b.Cells = slices.Clone(b.Entries), slices.Clone(b.Cells)
	for i := range b.Entries {
		b.Entries[i] = flip(b.Entries[i])
	}
	for i := range b.Cells {
		if cells {
			b.Cells[i].Value = flip(b.Cells[i].Value)
		}
	}
	return b
}

func wrapsBatches(batch func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error)) func(store.Store) store.Store {
	return func(s store.Store) store.Store { return batchWrap{coded{clearWrap{s}}, batch} }
}

func TestWraps(t *testing.T) {
	t.Run("coded", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return coded{clearWrap{s}} })
	})
	t.Run("coded batches", func(t *testing.T) {
		Wraps(t, wrapsBatches(func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error) {
			return inside.AppendBatch(ctx, flipBatch(b, true))
		}))
	})
	t.Run("one", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return clearWrap{s} })
	})
	t.Run("two", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return clearWrap{clearWrap{s}} })
	})
	t.Run("none", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return s })
	})
}

func TestWrapsCatches(t *testing.T) {
	for _, test := range []struct {
		name string
		wrap func(s store.Store) store.Store
		want map[string]string // what the cases that fail say
	}{
		{"opaque", func(s store.Store) store.Store { return opaque{s} }, map[string]string{
			"unwrap": "has no Unwrap", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"opaque inside", func(s store.Store) store.Store { return clearWrap{opaque{s}} }, map[string]string{
			"unwrap": "has no Unwrap", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"lost", func(s store.Store) store.Store { return lost{s} }, map[string]string{
			"unwrap": "returned nil", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"boastful", func(s store.Store) store.Store { return boastful{clearWrap{s}} }, map[string]string{"durability": "of class process"}},
		{"blind", func(s store.Store) store.Store { return blind{clearWrap{s}} }, map[string]string{"watch": "does not reach"}},
		{"mute", func(s store.Store) store.Store { return mute{clearWrap{s}, store.NewHub()} }, map[string]string{"cast": "does not reach"}},
		{"garbled", func(s store.Store) store.Store { return garbled{clearWrap{s}} }, map[string]string{"cast": "cast was"}},
		{"unsynced puts go past it", func(s store.Store) store.Store { return hastyWrap{coded{clearWrap{s}}, true} }, map[string]string{"unsynced": "want \"value\""}},
		{"unsynced puts are synced", func(s store.Store) store.Store { return hastyWrap{coded{clearWrap{s}}, false} }, map[string]string{"unsynced": "and 0 such puts"}},
		{"batches go past it", wrapsBatches(func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error) {
			return inside.AppendBatch(ctx, b)
		}), map[string]string{"batch": "want 1 × [\"entry\"]"}},
		{"cells of batches go past it", wrapsBatches(func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error) {
			return inside.AppendBatch(ctx, flipBatch(b, false))
		}), map[string]string{"batch": "one in a batch: true"}},
		{"batches fall apart", wrapsBatches(func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error) {
			if err := store.CheckBatch(b); err != nil {
				return 0, err
			}
			return store.AppendWith(ctx, struct{ store.Store }{inside.(store.Store)}, flipBatch(b, true))
		}), map[string]string{"batch": "and 0 batches reached"}},
		{"insists on batches", wrapsBatches(func(inside store.Batcher, ctx context.Context, b store.Batch) (uint64, error) {
			if _, err := inside.AppendBatch(ctx, flipBatch(b, true)); err != nil && !errors.Is(err, store.ErrConflict) {
				return 0, store.ErrInvalid
			} else if err != nil {
				return 0, err
			}
			return b.After + uint64(len(b.Entries)), nil
		}), map[string]string{"no batch": "want 1 and success"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range wrapCases {
				failed, log := record(t, func(tb testing.TB) { c.check(tb, test.wrap) })
				want, fails := test.want[c.name]
				if failed != fails || !strings.Contains(log, want) {
					t.Errorf("%s failed: %v, want %v and %q; it said:\n%s", c.name, failed, fails, want, log)
				}
			}
		})
	}
}
