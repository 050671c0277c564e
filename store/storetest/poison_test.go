package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// fragile is a store over a disk that can fail. Its memory is what the disk
// holds, and outlives the handle. Flaws make it break a promise.
type fragile struct {
	*memstore.Store
	disk     *fragileDisk
	flaw     string
	mu       sync.Mutex
	poisoned bool
	shown    map[string]store.Entry // of the flaw that shows what failed
}

type fragileDisk struct {
	mu      sync.Mutex
	failing bool
	broken  bool // of the flaw that never recovers
	opened  int
}

// fragileOpener returns an opener for Poison whose disks last as long as the
// test.
func fragileOpener(tb testing.TB, flaw string) poisonOpener {
	disks := map[string]*fragileDisk{}
	return func(_ context.Context, dir string) (store.Store, func(bool), error) {
		disk := disks[dir]
		if disk == nil {
			disk = &fragileDisk{}
			disks[dir] = disk
			keep := memstore.Open(dir)
			tb.Cleanup(func() { keep.Close() })
		}
		if disk.opened++; disk.opened > 1 && flaw == "loses what was acknowledged" {
			dir += " is gone"
		}
		s := &fragile{Store: memstore.Open(dir), disk: disk, flaw: flaw, shown: map[string]store.Entry{}}
		return s, func(on bool) {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			disk.failing = on
		}, nil
	}
}

// write does a write if the disk takes it.
func (f *fragile) write(kind string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disk.mu.Lock()
	failing := f.disk.failing
	f.disk.mu.Unlock()
	switch {
	case f.poisoned, f.disk.broken:
		return fmt.Errorf("%s: %w", kind, store.ErrPoisoned)
	case !failing:
		return do()
	}
	f.poisoned = true
	err := errors.New("input/output error")
	switch f.flaw {
	case "acknowledges what it lost":
		return nil
	case "acknowledges what it kept":
		return do()
	case "calls it a conflict":
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case "goes on when the disk works":
		f.poisoned = false
	case "goes on after a failed " + kind:
		f.poisoned = false
	case "never recovers":
		f.disk.broken = true
	case "keeps what failed":
		do()
	}
	return fmt.Errorf("%s: %w: %w", kind, store.ErrPoisoned, err)
}

func (f *fragile) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (last uint64, err error) {
	err = f.write("append", func() error {
		last, err = f.Store.Append(ctx, journal, after, entries...)
		return err
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
	case f.flaw == "keeps half a batch" && len(entries) > 1:
		f.Store.Append(ctx, journal, after, entries[0])
	case f.flaw == "shows what failed":
		f.shown[journal] = store.Entry{Seq: after + 1, Data: entries[0]}
	}
	return last, err
}

func (f *fragile) AppendBatch(ctx context.Context, b store.Batch) (last uint64, err error) {
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	err = f.write("batch", func() error {
		last, err = f.Store.AppendBatch(ctx, b)
		return err
	})
	if err != nil && f.flaw == "keeps the entries of a batch" {
		f.Store.Append(ctx, b.Journal, b.After, b.Entries...)
	}
	if err != nil && f.flaw == "keeps a cell of a batch" {
		f.Store.Put(ctx, b.Cells[0].Key, b.Cells[0].Value, b.Cells[0].Prev)
	}
	return last, err
}

func (f *fragile) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if f.flaw == "reads nothing more" && f.poisoned {
			return
		}
		for e, err := range f.Store.Read(ctx, journal, after) {
			if !yield(e, err) {
				return
			}
		}
		if e, ok := f.shown[journal]; ok {
			yield(e, nil)
		}
	}
}

func (f *fragile) Put(ctx context.Context, key string, value []byte, prev store.Version) (version store.Version, err error) {
	err = f.write("put", func() error {
		version, err = f.Store.Put(ctx, key, value, prev)
		return err
	})
	return version, err
}

func (f *fragile) Delete(ctx context.Context, key string, prev store.Version) error {
	return f.write("delete", func() error { return f.Store.Delete(ctx, key, prev) })
}

func (f *fragile) Drop(ctx context.Context, journal string) error {
	return f.write("drop", func() error { return f.Store.Drop(ctx, journal) })
}

func TestPoison(t *testing.T) {
	for _, flaw := range []string{"none", "keeps what failed"} { // the second is none
		t.Run(flaw, func(t *testing.T) { Poison(t, fragileOpener(t, flaw)) })
	}
}

func TestPoisonCatches(t *testing.T) {
	all := []string{"append", "batch", "first append", "put", "first put", "delete", "append with a cell", "drop", "traffic"}
	for _, test := range []struct {
		flaw  string
		want  string
		parts []string // that fail
	}{
		{"acknowledges what it lost", "succeeded|acknowledged before", all},
		{"acknowledges what it kept", "succeeded", all[:8]},
		{"calls it a conflict", "leaves the outcome open", all[:8]},
		{"goes on when the disk works", "want store.ErrPoisoned", all},
		{"goes on after a failed append", "want store.ErrPoisoned", []string{"append", "batch", "first append", "traffic"}},
		{"goes on after a failed batch", "want store.ErrPoisoned", []string{"append with a cell"}},
		{"keeps the entries of a batch", "as a whole or not at all", []string{"append with a cell"}},
		{"keeps a cell of a batch", "as a whole or not at all", []string{"append with a cell"}},
		{"goes on after a failed put", "want store.ErrPoisoned", []string{"put", "first put"}},
		{"goes on after a failed delete", "want store.ErrPoisoned", []string{"delete"}},
		{"goes on after a failed drop", "want store.ErrPoisoned", []string{"drop"}},
		{"loses what was acknowledged", "want the acknowledged|the .* acknowledged before", all},
		{"keeps half a batch", "or nothing|or none", []string{"batch"}},
		{"shows what failed", "must not vanish", []string{"append", "batch", "first append"}},
		{"reads nothing more", "or an error", all[:8]},
		{"never recovers", "want success", all},
	} {
		t.Run(test.flaw, func(t *testing.T) {
			caught := map[string]bool{}
			part := func(name string, run func(tb testing.TB, open poisonOpener)) {
				if failed, log := record(t, func(tb testing.TB) { run(tb, fragileOpener(t, test.flaw)) }); failed {
					caught[name] = regexp.MustCompile(test.want).MatchString(log)
					if !caught[name] {
						t.Errorf("%s failed, want it to say %q; it said:\n%s", name, test.want, log)
					}
				}
			}
			for _, w := range poisonWrites {
				part(w.name, func(tb testing.TB, open poisonOpener) { poison(tb, open, w) })
			}
			part("traffic", poisonTraffic)
			for _, name := range test.parts {
				if !caught[name] {
					t.Errorf("%s does not catch it", name)
				}
			}
		})
	}
}

func TestOutage(t *testing.T) {
	Outage(t, fragileOpener(t, "goes on when the disk works"))
	for flaw, want := range map[string]string{"none": "does not come back", "acknowledges what it lost": "succeeded|acknowledged before"} {
		failed, log := record(t, func(tb testing.TB) { outage(tb, fragileOpener(t, flaw), poisonWrites[0]) })
		if !failed || !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("a store with the flaw %q: failed %v, want it to say %q; it said:\n%s", flaw, failed, want, log)
		}
	}
}
