package storetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// broken is a memory store with one thing wrong with it.
type broken struct {
	*memstore.Store
	append   func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error)
	batch    func(ctx context.Context, b store.Batch) (uint64, error) // nil if it cannot
	read     func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error]
	journals func(ctx context.Context, after string) iter.Seq2[string, error]
	drop     func(ctx context.Context, journal string) error
	get      func(ctx context.Context, key string) (store.Cell, error)
	put      func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error)
	unsynced func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) // nil if it cannot
	delete   func(ctx context.Context, key string, prev store.Version) error
	list     func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error]
	watch    func(ctx context.Context, prefix string) iter.Seq[struct{}]
	hear     func(ctx context.Context, topic string, hear func([]byte))
	close    func() error
	tx       *txFlaw // nil if it has no transactions
	class    store.Durability
	dir      string
}

// perDir holds what the handles on one broken store share.
var perDir sync.Map

func shared[T any](b *broken, fresh T) T {
	v, _ := perDir.LoadOrStore(b.dir, fresh)
	return v.(T)
}

func breakStore(how func(*broken)) Opener {
	return func(_ context.Context, dir string) (store.Store, error) {
		m := memstore.Open(dir)
		b := &broken{
			Store: m, dir: dir, read: m.Read, journals: m.Journals, drop: m.Drop, get: m.Get, put: m.Put,
			delete: m.Delete, list: m.List, watch: m.Watch, hear: m.Hear, close: m.Close,
			append: func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
				return m.Append(ctx, journal, after, entries...)
			},
		}
		how(b)
		if b.tx != nil {
			return transacting{b}, nil
		}
		if b.unsynced != nil {
			return hasty{b}, nil
		}
		return b, nil
	}
}

// hasty is a broken store with a store.Unsynced.
type hasty struct{ *broken }

func (h hasty) PutUnsynced(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return h.unsynced(ctx, key, value, prev)
}

func (b *broken) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	return b.append(ctx, journal, after, entries)
}
func (b *broken) AppendBatch(ctx context.Context, made store.Batch) (uint64, error) {
	if b.batch == nil {
		return 0, errors.ErrUnsupported
	}
	return b.batch(ctx, made)
}
func (b *broken) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return b.read(ctx, journal, after)
}
func (b *broken) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return b.journals(ctx, after)
}
func (b *broken) Drop(ctx context.Context, journal string) error { return b.drop(ctx, journal) }
func (b *broken) Get(ctx context.Context, key string) (store.Cell, error) {
	return b.get(ctx, key)
}
func (b *broken) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return b.put(ctx, key, value, prev)
}
func (b *broken) Delete(ctx context.Context, key string, prev store.Version) error {
	return b.delete(ctx, key, prev)
}
func (b *broken) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return b.list(ctx, prefix, after)
}
func (b *broken) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return b.watch(ctx, prefix)
}
func (b *broken) Hear(ctx context.Context, topic string, hear func([]byte)) {
	b.hear(ctx, topic, hear)
}
func (b *broken) Close() error                 { return b.close() }
func (b *broken) Durability() store.Durability { return b.class }

// end returns the last sequence of a journal.
func (b *broken) end(journal string) uint64 {
	entries, _ := store.ReadAll(context.Background(), b.Store, journal, 0)
	return uint64(len(entries))
}

// force appends behind whatever the end is.
func (b *broken) force(ctx context.Context, journal string, entries ...[]byte) (uint64, error) {
	for {
		last, err := b.Store.Append(ctx, journal, b.end(journal), entries...)
		if !errors.Is(err, store.ErrConflict) {
			return last, err
		}
	}
}

// breaks has, for each case, a store that fails it and no other.
var breaks = map[string]func(*broken){
	"append/dense": func(b *broken) { // forgets to add up a long batch
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if err == nil && len(entries) == 13 {
				last = after + 1
			}
			return last, err
		}
	},
	"append/stale-conflicts": func(b *broken) { // takes after 0 for "do not compare"
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if after == 0 && len(entries) == 1 && b.end(journal) == 2 {
				return b.force(ctx, journal, entries...)
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"append/future-conflicts": func(b *broken) { // compares with < only
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if len(entries) == 1 && after > b.end(journal) {
				return b.force(ctx, journal, entries...)
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"append/inside-batch-conflicts": func(b *broken) { // knows where batches start, not where they end
		type known struct {
			sync.Mutex
			starts map[string]map[uint64]bool
		}
		batches := shared(b, &known{starts: map[string]map[uint64]bool{}})
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			batches.Lock()
			defer batches.Unlock()
			starts := batches.starts
			if starts[journal] == nil {
				starts[journal] = map[uint64]bool{}
			}
			if after > 0 && after < b.end(journal) && !starts[journal][after+1] {
				return b.force(ctx, journal, entries...)
			}
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if err == nil {
				starts[journal][after+1] = true
			}
			return last, err
		}
	},
	"append/one-winner": func(b *broken) { // checks, then acts
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if end := b.end(journal); end == after && after > 0 && len(entries) == 1 {
				time.Sleep(window)
				return b.force(ctx, journal, entries...)
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"append/conflict-writes-nothing": func(b *broken) { // writes the head of a batch before it compares
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrConflict) && len(entries) == 3 {
				_, _ = b.force(ctx, journal, entries[0])
			}
			return last, err
		}
	},
	"append/whole-batches": func(b *broken) { // one entry at a time
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (last uint64, err error) {
			if len(entries) != 8 {
				return b.Store.Append(ctx, journal, after, entries...)
			}
			for i, e := range entries {
				if last, err = b.Store.Append(ctx, journal, after+uint64(i), e); err != nil {
					return
				}
				time.Sleep(50 * time.Microsecond)
			}
			return
		}
	},
	"append/keeps-its-own-bytes": func(b *broken) { // shows the caller's slices for a while
		var mu sync.Mutex
		kept := map[string]map[uint64][]byte{}
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if err == nil && len(entries) == 1 {
				mu.Lock()
				defer mu.Unlock()
				if kept[journal] == nil {
					kept[journal] = map[uint64][]byte{}
				}
				for i, e := range entries {
					kept[journal][after+uint64(i)+1] = e
				}
			}
			return last, err
		}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(ctx, journal, after) {
					mu.Lock()
					if own, ok := kept[journal][e.Seq]; ok {
						e.Data = bytes.Clone(own)
					}
					mu.Unlock()
					if !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"append/journals-are-independent": func(b *broken) { // one buffer for all
		var mu sync.Mutex
		var buffer [][]byte
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			mu.Lock()
			buffer = entries
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			return b.Store.Append(ctx, journal, after, buffer...)
		}
	},
	"append/cancelled-leaves-no-half": func(b *broken) { // stops in the middle
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if err := ctx.Err(); err != nil && len(entries) > 1 {
				_, _ = b.Store.Append(context.WithoutCancel(ctx), journal, after, entries[:len(entries)/2]...)
				return 0, err
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"read/from-anywhere": func(b *broken) { // finds nothing beyond the end, and complains
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			if after > b.end(journal) && endsWith(b.Store.Read(ctx, journal, 0)) == nil {
				return func(yield func(store.Entry, error) bool) { yield(store.Entry{}, store.ErrNotFound) }
			}
			return b.Store.Read(ctx, journal, after)
		}
	},
	"read/growing-prefixes": func(b *broken) { // every other read of many goes to a replica that lags
		var mu sync.Mutex
		var reads int
		replica := map[string]uint64{}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			mu.Lock()
			defer mu.Unlock()
			reads++
			until := ^uint64(0)
			if reads > 110 && reads%2 == 0 {
				until = replica[journal] / 8 * 8
			} else if reads <= 110 {
				replica[journal] = b.end(journal)
			}
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(ctx, journal, after) {
					if journal == "j" && e.Seq > until || !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"read/begins-with-the-loop": func(b *broken) { // asks the engine when it is called
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			entries, err := store.ReadAll(ctx, b.Store, journal, after)
			return func(yield func(store.Entry, error) bool) {
				for _, e := range entries {
					if !yield(store.Entry{Seq: e.Seq, Data: bytes.Clone(e.Data)}, nil) {
						return
					}
				}
				if err != nil {
					yield(store.Entry{}, err)
				}
			}
		}
	},
	"read/loop-may-use-the-store": func(b *broken) { // holds the database while it yields
		var reading atomic.Int64
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(ctx, journal, after) {
					reading.Add(1)
					more := yield(e, err)
					reading.Add(-1)
					if !more {
						return
					}
				}
			}
		}
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if journal == "copy" && reading.Load() > 0 {
				return 0, errors.New("database is locked")
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"read/caller-owns-the-bytes": func(b *broken) { // yields from a cache
		var mu sync.Mutex
		cache := map[string][]byte{}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.Read(ctx, journal, after) {
					if err == nil {
						id := journal + "/" + strconv.FormatUint(e.Seq, 10)
						mu.Lock()
						if cache[id] == nil {
							cache[id] = e.Data
						}
						e.Data = cache[id]
						mu.Unlock()
					}
					if !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"read/cancelled-says-so": func(b *broken) { // ends without a word
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				n := 0
				for e, err := range b.Store.Read(ctx, journal, after) {
					if n++; n == 1 && errors.Is(err, context.Canceled) || !yield(e, err) {
						return
					}
				}
			}
		}
	},
	"read/cancelled-midway-says-so": func(b *broken) { // does not ask why there are no more rows
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			return unlessBegun(b.Store.List(ctx, prefix, after), context.Canceled)
		}
	},
	"read/closed-midway-says-so": func(b *broken) { // the same, of a connection that was closed
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return unlessBegun(b.Store.Read(ctx, journal, after), store.ErrClosed)
		}
	},
	"drop/beats-appends": func(b *broken) { // looks for a tombstone, then writes
		back := shared(b, &sync.Map{})
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if err := endsWith(b.Store.Read(ctx, journal, after)); err != nil {
				return b.Store.Append(ctx, journal, after, entries...)
			}
			time.Sleep(50 * time.Microsecond)
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrDropped) {
				back.Store(journal, true)
				return after + uint64(len(entries)), nil
			}
			return last, err
		}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			if _, ok := back.Load(journal); ok {
				return func(func(store.Entry, error) bool) {}
			}
			return b.Store.Read(ctx, journal, after)
		}
	},
	"drop/for-ever": func(b *broken) { // forgets when another handle asks
		var mine sync.Map
		b.drop = func(ctx context.Context, journal string) error {
			mine.Store(journal, true)
			return b.Store.Drop(ctx, journal)
		}
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if _, known := mine.Load(journal); errors.Is(err, store.ErrDropped) && !known && after == 0 && journal == "gone" {
				return 1, nil
			}
			return last, err
		}
	},
	"drop/repeatable": func(b *broken) {
		b.drop = func(ctx context.Context, journal string) error {
			if err := endsWith(b.Store.Read(ctx, journal, 0)); err != nil {
				return err
			}
			return b.Store.Drop(ctx, journal)
		}
	},
	"drop/not-listed": func(b *broken) { // lists tombstones
		var mu sync.Mutex
		dropped := map[string]bool{}
		b.drop = func(ctx context.Context, journal string) error {
			mu.Lock()
			defer mu.Unlock()
			dropped[journal] = true
			return b.Store.Drop(ctx, journal)
		}
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			mu.Lock()
			defer mu.Unlock()
			if !dropped["b"] {
				return b.Store.Journals(ctx, after)
			}
			return func(yield func(string, error) bool) {
				for name, err := range b.Store.Journals(ctx, after) {
					if name == "c" && !yield("b", nil) || !yield(name, err) {
						return
					}
				}
			}
		}
	},
	"cell/missing": func(b *broken) { // takes a cell that never was for an empty one
		var known sync.Map
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			known.Store(key, true)
			return b.Store.Put(ctx, key, value, prev)
		}
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			cell, err := b.Store.Get(ctx, key)
			if _, ok := known.Load(key); errors.Is(err, store.ErrNotFound) && !ok && key == "never" {
				return store.Cell{Key: key}, nil
			}
			return cell, err
		}
	},
	"cell/get-tells-the-version": func(b *broken) { // forgets it
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			cell, err := b.Store.Get(ctx, key)
			cell.Version = ""
			return cell, err
		}
	},
	"cell/create-once": func(b *broken) { // overwrites
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			if cell, err := b.Store.Get(ctx, key); err == nil && prev == "" && string(cell.Value) == "first" {
				prev = cell.Version
			}
			return b.Store.Put(ctx, key, value, prev)
		}
	},
	"cell/stale-conflicts": func(b *broken) { // forgets a version once it was replaced twice
		var mu sync.Mutex
		replaced := map[store.Version]int{}
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			mu.Lock()
			defer mu.Unlock()
			cell, err := b.Store.Get(ctx, key)
			if err == nil && replaced[prev] > 1 {
				prev = cell.Version
			}
			v, err := b.Store.Put(ctx, key, value, prev)
			if err == nil {
				for old := range replaced {
					replaced[old]++
				}
				replaced[prev] = 1
				delete(replaced, "")
			}
			return v, err
		}
		b.delete = func(ctx context.Context, key string, prev store.Version) error {
			mu.Lock()
			defer mu.Unlock()
			clear(replaced)
			return b.Store.Delete(ctx, key, prev)
		}
	},
	"cell/delete": func(b *broken) { // does not look at the version
		b.delete = func(ctx context.Context, key string, prev store.Version) error {
			if cell, err := b.Store.Get(ctx, key); err == nil && prev != "" && string(cell.Value) == "2" {
				prev = cell.Version
			}
			return b.Store.Delete(ctx, key, prev)
		}
	},
	"cell/versions-never-repeat": func(b *broken) { // counts from 1, again after a Delete
		breakVersions(b, func(now int) int { return now + 1 })
	},
	"cell/one-winner": func(b *broken) { // checks, then acts
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			cell, err := b.Store.Get(ctx, key)
			if err != nil || cell.Version != prev {
				return b.Store.Put(ctx, key, value, prev)
			}
			time.Sleep(window)
			for {
				if cell, err = b.Store.Get(ctx, key); err != nil {
					return "", err
				}
				if v, err := b.Store.Put(ctx, key, value, cell.Version); err == nil {
					return v, nil
				}
			}
		}
	},
	"cell/bytes-change-hands": func(b *broken) { // caches what it gave
		var cache sync.Map
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			cell, err := b.Store.Get(ctx, key)
			if err != nil {
				return cell, err
			}
			kept, _ := cache.LoadOrStore(string(cell.Version)+key, cell)
			return kept.(store.Cell), nil
		}
	},
	"list/ordered": func(b *broken) { // LIKE: _ stands for any character
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			if !strings.Contains(prefix, "_") {
				return b.Store.List(ctx, prefix, after)
			}
			like := regexp.MustCompile("^(?s)" + strings.ReplaceAll(regexp.QuoteMeta(prefix), "_", "."))
			return func(yield func(store.Cell, error) bool) {
				for cell, err := range b.Store.List(ctx, "", after) {
					if like.MatchString(cell.Key) && !yield(cell, err) {
						return
					}
				}
			}
		}
	},
	"list/exactly-once": func(b *broken) { // pages by offset
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
			return byOffset(func() iter.Seq2[store.Cell, error] { return b.Store.List(ctx, prefix, after) })
		}
	},
	"journals/ordered": func(b *broken) { // a collation that ignores case
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				names := map[string]error{}
				for name, err := range b.Store.Journals(ctx, after) {
					names[name] = err
				}
				sorted := slices.Sorted(maps.Keys(names))
				if len(sorted) < 20 {
					slices.SortStableFunc(sorted, func(x, y string) int { return strings.Compare(strings.ToLower(x), strings.ToLower(y)) })
				}
				for _, name := range sorted {
					if !yield(name, names[name]) {
						return
					}
				}
			}
		}
	},
	"journals/exactly-once": func(b *broken) { // pages by offset
		b.journals = func(ctx context.Context, after string) iter.Seq2[string, error] {
			return byOffset(func() iter.Seq2[string, error] { return b.Store.Journals(ctx, after) })
		}
	},
	"bytes/entries": func(b *broken) { // passes entries through text
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			text := make([][]byte, len(entries))
			for i, e := range entries {
				text[i] = bytes.ToValidUTF8(e, []byte("\ufffd"))
			}
			return b.Store.Append(ctx, journal, after, text...)
		}
	},
	"bytes/cells": func(b *broken) { // C strings
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			return b.Store.Put(ctx, key, bytes.TrimRight(value, "\x00"), prev)
		}
	},
	"limits/appends": func(b *broken) { // answers success and writes nothing
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrTooLarge) {
				return after + uint64(len(entries)), nil
			}
			return last, err
		}
	},
	"limits/values": func(b *broken) { // cuts what is too long
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			return b.Store.Put(ctx, key, value[:min(len(value), store.MaxEntry)], prev)
		}
	},
	"names/journals": func(b *broken) { // a file system that trims
		trim := func(name string) string {
			if t := strings.TrimRight(name, ". "); t != "" {
				return t
			}
			return name
		}
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			return b.Store.Append(ctx, trim(journal), after, entries...)
		}
		b.read = func(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
			return b.Store.Read(ctx, trim(journal), after)
		}
	},
	"names/cells": func(b *broken) { // paths
		clean := func(key string) string {
			if strings.Contains(key, "/.") || strings.Contains(key, "//") {
				return path.Clean(key)
			}
			return key
		}
		b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
			return b.Store.Put(ctx, clean(key), value, prev)
		}
		b.get = func(ctx context.Context, key string) (store.Cell, error) { return b.Store.Get(ctx, clean(key)) }
	},
	"names/apart": func(b *broken) { // drops all that has the name
		b.drop = func(ctx context.Context, journal string) error {
			if cell, err := b.Store.Get(ctx, journal); err == nil {
				_ = b.Store.Delete(ctx, journal, cell.Version)
			}
			return b.Store.Drop(ctx, journal)
		}
	},
	"names/refused": func(b *broken) { // gives the nameless a name
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if journal == "" {
				journal = "default"
			}
			return b.Store.Append(ctx, journal, after, entries...)
		}
	},
	"handles/see-each-other": func(b *broken) { // caches cells for ever
		var cache sync.Map
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			if kept, ok := cache.Load(key); ok && key == "c" && string(kept.(store.Cell).Value) == "1" {
				cell := kept.(store.Cell)
				cell.Value = bytes.Clone(cell.Value)
				return cell, nil
			}
			cell, err := b.Store.Get(ctx, key)
			if err == nil {
				kept := cell
				kept.Value = bytes.Clone(cell.Value)
				cache.Store(key, kept)
			}
			return cell, err
		}
	},
	"handles/versions-never-repeat": func(b *broken) { // each handle counts for itself
		count := 0
		breakVersions(b, func(now int) int {
			if count++; count == now {
				count++
			}
			return count
		})
	},
	"handles/closed-amid-calls": func(b *broken) { // Close answers the queue, and does not write it
		b.append = func(ctx context.Context, journal string, after uint64, entries [][]byte) (uint64, error) {
			if _, err := b.Store.Get(ctx, "open?"); errors.Is(err, store.ErrClosed) {
				return 0, err
			}
			runtime.Gosched()
			last, err := b.Store.Append(ctx, journal, after, entries...)
			if errors.Is(err, store.ErrClosed) {
				return after + uint64(len(entries)), nil
			}
			return last, err
		}
	},
	"handles/reopen": func(b *broken) { b.class = store.Process }, // claims what memory cannot
	"handles/closed": func(b *broken) { // goes on reading
		b.get = func(ctx context.Context, key string) (store.Cell, error) {
			cell, err := b.Store.Get(ctx, key)
			if errors.Is(err, store.ErrClosed) {
				return store.Cell{Key: key}, nil
			}
			return cell, err
		}
	},
	"watch/wakes": func(b *broken) { // tires after a few
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			return func(yield func(struct{}) bool) {
				n := 0
				for range b.Store.Watch(ctx, prefix) {
					if n++; n > 10 || !yield(struct{}{}) {
						return
					}
				}
			}
		}
	},
	"watch/wakes-for-cells": func(b *broken) { // watches journals only
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			if !strings.HasPrefix(prefix, "due/") {
				return b.Store.Watch(ctx, prefix)
			}
			return func(yield func(struct{}) bool) { yield(struct{}{}) }
		}
	},
	"watch/wakes-for-each-change": func(b *broken) { // sees what is added only
		size := func(prefix string) (n int) {
			ctx := context.Background()
			for name := range b.Store.Journals(ctx, "") {
				if strings.HasPrefix(name, prefix) {
					n += int(b.end(name))
				}
			}
			for range b.Store.List(ctx, prefix, "") {
				n++
			}
			return n
		}
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			return func(yield func(struct{}) bool) {
				before := -1
				for range b.Store.Watch(ctx, prefix) {
					now := size(prefix)
					if now > before && !yield(struct{}{}) {
						return
					}
					before = max(before, now)
				}
			}
		}
	},
	"watch/wakes-each": func(b *broken) { // one channel for all loops of a handle
		var loops atomic.Int64
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			return func(yield func(struct{}) bool) {
				mine, first := loops.Add(1), true
				for range b.Store.Watch(ctx, prefix) {
					if (first || loops.Load() == mine) && !yield(struct{}{}) {
						return
					}
					first = false
				}
			}
		}
	},
	"watch/ends": func(b *broken) { // stops for nobody
		b.watch = func(ctx context.Context, prefix string) iter.Seq[struct{}] {
			if prefix != "" {
				return b.Store.Watch(ctx, prefix)
			}
			return func(yield func(struct{}) bool) {
				for yield(struct{}{}) && ctx.Err() == nil {
					<-ctx.Done()
				}
			}
		}
	},
	"cast/reaches-its-topic": func(b *broken) { // listens by prefix
		b.hear = func(ctx context.Context, topic string, hear func([]byte)) {
			b.Store.Hear(ctx, topic+"/other", hear)
		}
	},
}
