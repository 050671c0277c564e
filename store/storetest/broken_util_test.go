package storetest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func TestMemory(t *testing.T) {
	Run(t, func(_ context.Context, dir string) (store.Store, error) { return memstore.Open(dir), nil })
}

// window is how long the stores that look and then act leave others between
// the two. It is long beside the moment in which a case starts its writers,
// also on a busy machine.
const window = 3 * time.Millisecond

// TestEachClauseIsTested runs all cases against the broken stores: each must
// fail the case that it was broken for, and no other.
func TestEachClauseIsTested(t *testing.T) {
	before := patience
	t.Cleanup(func() { patience = before })
	patience = 5 * time.Second
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
		if breaks[c.name] == nil {
			t.Errorf("case %s has no broken store that fails it", c.name)
		}
	}
	all := maps.Clone(breaks)
	maps.Copy(all, subtle)
	if len(all) != len(breaks)+len(subtle) {
		t.Error("two broken stores have one name")
	}
	for what, how := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // some wait for what never comes
			name, _, _ := strings.Cut(what, ": ")
			if !slices.Contains(names, name) {
				t.Fatalf("there is no case %s", name)
			}
			for _, c := range cases() {
				failed, log := record(t, func(tb testing.TB) { c.check(tb, breakStore(how)) })
				if failed != (c.name == name) {
					t.Errorf("broken for %s: case %s failed: %t\n%s", what, c.name, failed, log)
				}
			}
		})
	}
}

// breakVersions numbers the versions of a cell by next, which gets the number
// that it has now; 0 if there is none.
func breakVersions(b *broken, next func(now int) int) {
	type counted struct {
		real store.Version
		n    int
	}
	type versions struct {
		sync.Mutex
		cells map[string]counted
	}
	vs := shared(b, &versions{cells: map[string]counted{}})
	label := func(n int) store.Version { return store.Version(strconv.Itoa(n)) }
	expect := func(key string, prev store.Version) (store.Version, error) {
		now, ok := vs.cells[key]
		if ok && prev == label(now.n) {
			return now.real, nil
		}
		if prev == "" {
			return "", nil
		}
		return "", store.NotVersion(key, prev, label(now.n))
	}
	b.put = func(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
		vs.Lock()
		defer vs.Unlock()
		if err := ctx.Err(); err != nil {
			return "", err
		}
		real, conflict := expect(key, prev)
		if conflict != nil {
			real = "none" // the memory refuses it, or the call, as it sees fit
		}
		v, err := b.Store.Put(ctx, key, value, real)
		if err != nil {
			return "", err
		}
		n := next(vs.cells[key].n)
		vs.cells[key] = counted{v, n}
		return label(n), nil
	}
	b.delete = func(ctx context.Context, key string, prev store.Version) error {
		vs.Lock()
		defer vs.Unlock()
		if real, err := expect(key, prev); err == nil && prev != "" {
			prev = real
		}
		err := b.Store.Delete(ctx, key, prev)
		if err == nil {
			delete(vs.cells, key)
		}
		return err
	}
	relabel := func(cell store.Cell) store.Cell {
		vs.Lock()
		defer vs.Unlock()
		cell.Version = label(vs.cells[cell.Key].n)
		return cell
	}
	b.get = func(ctx context.Context, key string) (store.Cell, error) {
		cell, err := b.Store.Get(ctx, key)
		return relabel(cell), err
	}
	b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
		return func(yield func(store.Cell, error) bool) {
			for cell, err := range b.Store.List(ctx, prefix, after) {
				if !yield(relabel(cell), err) {
					return
				}
			}
		}
	}
}

// byOffset yields a list page by page, each found by how many came before.
func byOffset[T any](list func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	const page = 10
	return func(yield func(T, error) bool) {
		for offset := 0; ; offset += page {
			var items []T
			var last error
			n := 0
			for item, err := range list() {
				if last = err; err != nil {
					break
				}
				if n++; n > offset && len(items) < page {
					items = append(items, item)
				}
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if last != nil {
				var none T
				yield(none, last)
			}
			if last != nil || len(items) < page {
				return
			}
		}
	}
}

// endsWith returns the error that a loop ends with.
func endsWith[T any](loop iter.Seq2[T, error]) (err error) {
	for _, err = range loop {
	}
	return err
}

// unlessBegun hides the error that a loop ends with, if it has yielded before.
func unlessBegun[T any](loop iter.Seq2[T, error], hidden error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		for item, err := range loop {
			if n++; n > 1 && errors.Is(err, hidden) || !yield(item, err) {
				return
			}
		}
	}
}
