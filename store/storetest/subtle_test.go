package storetest

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// subtle are further broken stores. Each fails, for another reason than the
// one in breaks, the case that its name begins with, and no other.
var subtle = map[string]func(*broken){
	"append/one-winner: a lock per handle": func(b *broken) {
		var mu sync.Mutex
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			if b.end(journal) == after && after > 0 && len(entries) == 1 {
				time.Sleep(window)
				return b.force(ctx, journal, entries...)
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"append/cancelled-leaves-no-half: writes later, from the caller's slices": func(b *broken) {
		type late struct {
			journal string
			after   uint64
			entries [][]byte
		}
		var mu sync.Mutex
		var queue []late
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if err := ctx.Err(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				queue = append(queue, late{journal, after, entries})
				return 0, err
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range queue {
				_, _ = b.Store.Append(context.Background(), l.journal, l.after, l.entries...)
			}
			queue = nil
			return b.Store.Read(ctx, journal, after)
		}
	},
	"read/from-anywhere: adds one to the largest number": func(b *broken) {
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			if after == math.MaxUint64 {
				after = 0
			}
			return b.Store.Read(ctx, journal, after)
		}
	},
	"read/cancelled-midway-says-so: goes on behind its error": func(b *broken) {
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(context.WithoutCancel(ctx), journal, after) {
					if ctx.Err() != nil && err == nil && !yield(store.Entry{}, ctx.Err()) || !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"drop/for-ever: looks for the end first": func(b *broken) {
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(ctx, journal, after) {
					if errors.Is(err, store.ErrDropped) && after > 1 || !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"drop/not-listed: lists what never was": func(b *broken) {
		var never sync.Map
		b.drop = func(ctx context.Context, journal string) error {
			if journal == "bb" && b.end(journal) == 0 {
				never.Store(journal, true)
			}
			return b.Store.Drop(ctx, journal)
		}
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			return with(b.Store.Journals(ctx, after), after, &never)
		}
	},
	"limits/appends: creates the journal first": func(b *broken) {
		var created sync.Map
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrTooLarge) {
				created.Store(journal, true)
			}
			return last, err
		}
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			return with(b.Store.Journals(ctx, after), after, &created)
		}
	},
	"cell/one-winner: a lock per handle": func(b *broken) {
		var mu sync.Mutex
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			mu.Lock()
			defer mu.Unlock()
			if cell, err := b.Store.Get(ctx, key); err != nil || cell.Version != prev {
				return b.Store.Put(ctx, key, value, prev)
			}
			time.Sleep(window)
			return b.overwrite(ctx, key, value)
		}
	},
	"cell/one-winner: looks, then creates": func(b *broken) {
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			if _, err := b.Store.Get(ctx, key); !errors.Is(err, store.ErrNotFound) || prev != "" || len(value) > store.MaxEntry {
				return b.Store.Put(ctx, key, value, prev)
			}
			time.Sleep(window)
			return b.overwrite(ctx, key, value)
		}
	},
	"cell/one-winner: looks, then deletes": func(b *broken) {
		b.delete = func(ctx context.Context, key string, prev store.Version) error {
			if cell, err := b.Store.Get(ctx, key); err != nil || cell.Version != prev {
				return b.Store.Delete(ctx, key, prev)
			}
			time.Sleep(window)
			if cell, err := b.Store.Get(ctx, key); err == nil {
				_ = b.Store.Delete(ctx, key, cell.Version)
			}
			return nil
		}
	},
	"list/exactly-once: yields what changed again": func(b *broken) {
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			return func(yield func(store.Cell, error) bool) {
				var all []store.Cell
				for cell, err := range b.Store.List(ctx, prefix, after) {
					if all = append(all, cell); !yield(cell, err) {
						return
					}
				}
				for _, cell := range all {
					if now, err := b.Store.Get(ctx, cell.Key); err == nil && now.Version != cell.Version && !yield(now, nil) {
						return
					}
				}
			}
		}
	},
	"list/ordered: takes a bound for a name": func(b *broken) {
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			if len(prefix) > store.MaxName {
				return func(yield func(store.Cell, error) bool) { yield(store.Cell{}, store.CheckName("cell", prefix)) }
			}
			return b.Store.List(ctx, prefix, after)
		}
	},
	"journals/ordered: takes a bound for a name": func(b *broken) {
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			if len(after) > store.MaxName {
				return func(yield func(string, error) bool) { yield("", store.CheckName("journal", after)) }
			}
			return b.Store.Journals(ctx, after)
		}
	},
	"bytes/entries: nil is NULL": func(b *broken) {
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if slices.ContainsFunc(entries, func(e []byte) bool { return e == nil }) {
				return 0, errors.New("NOT NULL constraint failed: entries.data")
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"bytes/cells: nil is NULL": func(b *broken) {
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			if value == nil {
				return "", errors.New("NOT NULL constraint failed: cells.value")
			}
			return b.Store.Put(ctx, key, value, prev)
		}
	},
	"names/journals: drops a folder": func(b *broken) {
		b.drop = func(ctx context.Context, journal string) error {
			for name := range b.Store.Journals(ctx, journal) {
				if strings.HasPrefix(name, journal+"/") {
					_ = b.Store.Drop(ctx, name)
				}
			}
			return b.Store.Drop(ctx, journal)
		}
	},
	"names/cells: deletes a folder": func(b *broken) {
		b.delete = func(ctx context.Context, key string, prev store.Version) error {
			err := b.Store.Delete(ctx, key, prev)
			if err == nil {
				_ = store.DeletePrefix(ctx, b.Store, key+"/")
			}
			return err
		}
	},
	"names/apart: takes cells for journals": func(b *broken) {
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			var cells sync.Map
			for cell := range b.Store.List(ctx, "x/", "") {
				cells.Store(cell.Key, true)
			}
			return with(b.Store.Journals(ctx, after), after, &cells)
		}
	},
	"handles/see-each-other: lists from a cache": func(b *broken) {
		var mu sync.Mutex
		var cache *sync.Map
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			cache = nil
			return b.Store.Append(ctx, journal, after, entries...)
		}
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			mu.Lock()
			defer mu.Unlock()
			if err := endsWith(b.Store.Journals(ctx, after)); err != nil || after != "" {
				return b.Store.Journals(ctx, after)
			}
			if cache == nil {
				cache = &sync.Map{}
				for name := range b.Store.Journals(ctx, "") {
					cache.Store(name, true)
				}
				return b.Store.Journals(ctx, after)
			}
			return with(func(func(string, error) bool) {}, "", cache)
		}
	},
	"handles/reopen: forgets what was dropped": func(b *broken) {
		type life struct {
			sync.Mutex
			keeper        *memstore.Store
			handles, born int
			dropped       map[string]int
		}
		l := shared(b, &life{dropped: map[string]int{}})
		l.Lock()
		if l.keeper == nil {
			l.keeper = memstore.Open(b.dir)
		}
		l.handles++
		l.Unlock()
		b.class = store.Process
		b.close = sync.OnceValue(func() error {
			l.Lock()
			defer l.Unlock()
			if l.handles--; l.handles == 0 {
				l.born++
			}
			return b.Store.Close()
		})
		b.drop = func(ctx context.Context, journal string) error {
			l.Lock()
			defer l.Unlock()
			l.dropped[journal] = l.born
			return b.Store.Drop(ctx, journal)
		}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			l.Lock()
			defer l.Unlock()
			if died, ok := l.dropped[journal]; ok && died < l.born {
				return func(func(store.Entry, error) bool) {}
			}
			return b.Store.Read(ctx, journal, after)
		}
	},
	"watch/wakes-for-each-change: waits for what comes behind the body": func(b *broken) {
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			if prefix != "w/" {
				return b.Store.Watch(ctx, prefix)
			}
			return func(yield func(struct{}) bool) {
				for ctx.Err() == nil && yield(struct{}{}) {
					n := 0
					for range b.Store.Watch(ctx, prefix) {
						if n++; n == 2 { // the first comes at once
							break
						}
					}
				}
			}
		}
	},
	"watch/wakes-each: Close stops all handles": func(b *broken) {
		stopped := shared(b, &atomic.Bool{})
		b.close = func() error {
			stopped.Store(true)
			return b.Store.Close()
		}
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			return func(yield func(struct{}) bool) {
				for range b.Store.Watch(ctx, prefix) {
					if stopped.Load() || !yield(struct{}{}) {
						return
					}
				}
			}
		}
	},
}

// overwrite puts a cell over whatever is there.
func (b *broken) overwrite(ctx context.Context, key string, value []byte) (store.Version, error) {
	cell, err := store.Update(ctx, b.Store, key, func(store.Cell) ([]byte, error) { return value, nil })
	return cell.Version, err
}

// with yields more names among those of a loop, in their order.
func with(loop iter.Seq2[string, error], after string, more *sync.Map) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var names []string
		more.Range(func(name, _ any) bool {
			if name.(string) > after {
				names = append(names, name.(string))
			}
			return true
		})
		slices.Sort(names)
		for name, err := range loop {
			for err == nil && len(names) > 0 && names[0] <= name {
				if names[0] < name && !yield(names[0], nil) {
					return
				}
				names = names[1:]
			}
			if !yield(name, err) || err != nil {
				return
			}
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}
