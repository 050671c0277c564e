package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// ring returns a ring of keys that follow from their ids; the first is the
// primary.
func ring(t testing.TB, ids ...string) *seal.Ring {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range ids {
		keys[id] = bytes.Repeat([]byte(id[:1]), 32)
	}
	r, err := seal.NewRing(ids[0], keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, inner store.Store, keys seal.Keyring) *seal.Store {
	t.Helper()
	s, err := seal.New(t.Context(), inner, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, s store.Store, journal string, after uint64, entries ...string) {
	t.Helper()
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = []byte(e)
	}
	if _, err := s.Append(t.Context(), journal, after, data...); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, s store.Store, key, value string) store.Version {
	t.Helper()
	v, err := s.Put(t.Context(), key, []byte(value), "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// text returns a journal's entries as one string.
func text(ctx context.Context, s store.Store, journal string) (string, error) {
	entries, err := store.ReadAll(ctx, s, journal, 0)
	var all []string
	for _, e := range entries {
		all = append(all, string(e.Data))
	}
	return strings.Join(all, " "), err
}

func wantText(t testing.TB, s store.Store, journal, want string) {
	t.Helper()
	if got, err := text(t.Context(), s, journal); err != nil || got != want {
		t.Errorf("journal %q holds %q, %v; want %q", journal, got, err, want)
	}
}

// cells returns the keys of all cells of a store.
func cells(t testing.TB, s store.Store) []string {
	t.Helper()
	var keys []string
	for c, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(c.Key, "seal/ring") {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

func TestReopen(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 0, "one", "two")
	put(t, s, "c", "value")
	s = sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 2, "three")
	wantText(t, s, "j", "one two three")
	if c, err := s.Get(t.Context(), "c"); err != nil || string(c.Value) != "value" {
		t.Errorf("Get = %q, %v", c.Value, err)
	}
}

func TestWrongKey(t *testing.T) {
	inner := memstore.New()
	add(t, sealed(t, inner, ring(t, "a")), "j", 0, "x")

	_, err := seal.New(t.Context(), inner, ring(t, "b", "c"))
	if !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), `needs key "a", which is not in the ring (b, c)`) {
		t.Errorf("New without the key = %v", err)
	}
	other, _ := seal.NewRing("a", map[string][]byte{"a": bytes.Repeat([]byte("?"), 32)})
	_, err = seal.New(t.Context(), inner, other)
	if !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), `key "a" of the ring does not open the data key`) {
		t.Errorf("New with other bytes under the id = %v", err)
	}
	if _, err = seal.New(t.Context(), inner, nil); !errors.Is(err, store.ErrKey) {
		t.Errorf("New without a ring = %v", err)
	}
	if _, err = seal.New(t.Context(), inner, ring(t, "z", "a")); err != nil {
		t.Errorf("New with the key as a secondary = %v", err)
	}
}

// A store in which the key of one journal only is missing can be opened once that key
// is given up, and its other journals read.
func TestKeyOfOneJournalMissing(t *testing.T) {
	inner := memstore.New()
	add(t, sealed(t, inner, ring(t, "a")), "old", 0, "x")
	s := sealed(t, inner, ring(t, "b", "a"))
	add(t, s, "new", 0, "y")
	for _, key := range cells(t, inner) { // rotate the cells' key only
		if strings.HasSuffix(key, "/cells") {
			c, _ := inner.Get(t.Context(), key)
			dataKey, err := ring(t, "a").Unwrap(t.Context(), c.Value, []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			wrapped, _ := ring(t, "b").Wrap(t.Context(), dataKey, []byte(key))
			if _, err := inner.Put(t.Context(), key, wrapped, c.Version); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := seal.New(t.Context(), inner, ring(t, "b")); !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "still need a,") {
		t.Errorf("New without a key that is in use = %v", err)
	}
	if err := seal.Abandon(t.Context(), inner, "a"); err != nil {
		t.Fatal(err)
	}
	s = sealed(t, inner, ring(t, "b"))
	wantText(t, s, "new", "y")
	if _, err := text(t.Context(), s, "old"); !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("Read of a journal whose key is missing = %v", err)
	}
	if _, err := s.Append(t.Context(), "old", 1, []byte("z")); !errors.Is(err, store.ErrKey) {
		t.Errorf("Append to it = %v", err)
	}
	if n, err := s.Rotate(t.Context()); n != 0 || !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "1 data keys were not rotated") {
		t.Errorf("Rotate = %d, %v", n, err)
	}
	if err := s.Drop(t.Context(), "old"); err != nil {
		t.Errorf("Drop of it = %v", err)
	}
}

func TestPlaintextIsRefused(t *testing.T) {
	t.Run("at open, a journal", func(t *testing.T) {
		inner := memstore.New()
		add(t, inner, "j", 0, "clear")
		if _, err := seal.New(t.Context(), inner, ring(t, "a")); !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), `journal "j"`) {
			t.Errorf("New = %v", err)
		}
	})
	t.Run("at open, a cell", func(t *testing.T) {
		inner := memstore.New()
		put(t, inner, "c", "clear")
		if _, err := seal.New(t.Context(), inner, ring(t, "a")); !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), `cell "c"`) {
			t.Errorf("New = %v", err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		inner := memstore.New()
		s := sealed(t, inner, ring(t, "a"))
		add(t, s, "mixed", 0, "sealed")
		add(t, inner, "mixed", 1, "clear")
		add(t, inner, "clear", 0, "clear", "clear")
		put(t, inner, "c", "clear")
		put(t, inner, "empty", "")
		for journal, seq := range map[string]uint64{"mixed": 2, "clear": 1} {
			_, err := text(t.Context(), s, journal)
			wantCorrupt(t, err, store.CorruptError{Journal: journal, Seq: seq}, "not sealed")
		}
		_, err := s.Append(t.Context(), "clear", 2, []byte("x"))
		wantCorrupt(t, err, store.CorruptError{Journal: "clear", Seq: 1}, "not sealed")
		for _, key := range []string{"c", "empty"} {
			_, err := s.Get(t.Context(), key)
			wantCorrupt(t, err, store.CorruptError{Cell: key}, "not sealed")
		}
		for _, err = range s.List(t.Context(), "", "") {
		}
		wantCorrupt(t, err, store.CorruptError{Cell: "c"}, "not sealed")
	})
}

// wantCorrupt demands damage at a place, for a reason.
func wantCorrupt(t testing.TB, err error, place store.CorruptError, reason string) {
	t.Helper()
	var got *store.CorruptError
	if !errors.As(err, &got) || got.Journal != place.Journal || got.Seq != place.Seq || got.Cell != place.Cell || !strings.Contains(got.Reason, reason) {
		t.Errorf("got %v; want damage at %q %d, cell %q: %s", err, place.Journal, place.Seq, place.Cell, reason)
	}
}

func TestReservedKeys(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 0, "x")
	put(t, s, "~seal", "beside")
	for _, key := range cells(t, inner) {
		if key == "~seal" {
			continue
		}
		if _, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Get(%q) = %v", key, err)
		}
		if _, err := s.Put(t.Context(), key, nil, ""); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Put(%q) = %v", key, err)
		}
		if err := s.Delete(t.Context(), key, "1"); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Delete(%q) = %v", key, err)
		}
	}
	if got := fmt.Sprint(cells(t, s)); got != "[~seal]" {
		t.Errorf("List shows %s", got)
	}
}

func TestLimits(t *testing.T) {
	once := memstore.New()
	s := sealed(t, once, ring(t, "a"))
	twice := memstore.New()
	outer := sealed(t, sealed(t, twice, ring(t, "a")), ring(t, "b"))
	if _, err := seal.New(t.Context(), outer, ring(t, "c")); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("sealing a third time = %v", err)
	}
	const perEntry = 29
	for _, test := range []struct {
		name  string
		s     store.Store
		inner store.Store
		seals int
	}{{"sealed once", s, once, 1}, {"sealed twice", outer, twice, 2}} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{1, store.MaxBatch} {
				fits := store.MaxEntry + store.Slack - n*test.seals*perEntry
				if fits < store.MaxEntry {
					t.Fatalf("%d entries leave room for %d bytes, less than MaxEntry", n, fits)
				}
				before := len(cells(t, test.inner))
				over := batch(fits+1, n)
				if _, err := test.s.Append(t.Context(), fmt.Sprint("over", n), 0, over...); !errors.Is(err, store.ErrTooLarge) {
					t.Errorf("%d entries of %d bytes: %v", n, fits+1, err)
				}
				if after := len(cells(t, test.inner)); after != before {
					t.Errorf("a refused append left %d cells", after-before)
				}
				if _, err := test.s.Append(t.Context(), fmt.Sprint("fits", n), 0, batch(fits, n)...); err != nil {
					t.Errorf("%d entries of %d bytes: %v", n, fits, err)
				}
			}
			fits := store.MaxEntry + store.Slack - test.seals*perEntry
			if _, err := test.s.Put(t.Context(), "over", make([]byte, fits+1), ""); !errors.Is(err, store.ErrTooLarge) {
				t.Errorf("a value of %d bytes: %v", fits+1, err)
			}
			if _, err := test.s.Put(t.Context(), "fits", make([]byte, fits), ""); err != nil {
				t.Errorf("a value of %d bytes: %v", fits, err)
			}
		})
	}
}

// batch returns n entries of together size bytes.
func batch(size, n int) [][]byte {
	entries := make([][]byte, n)
	for i := range entries {
		entries[i] = make([]byte, size/n)
	}
	entries[0] = make([]byte, size-(n-1)*(size/n))
	return entries
}

// More journals than boxes are kept in memory.
func TestManyJournals(t *testing.T) {
	s := sealed(t, memstore.New(), ring(t, "a"))
	const n = 5000
	for i := range n {
		add(t, s, fmt.Sprint(i), 0, "x")
	}
	for i := range n {
		wantText(t, s, fmt.Sprint(i), "x")
	}
}

// Those who open a new store at once agree on the data key of its cells, and
// those who begin a journal at once on its data key.
func TestRacingCreators(t *testing.T) {
	for range 20 {
		inner := memstore.New()
		keys := ring(t, "a")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				s, err := seal.New(t.Context(), inner, keys)
				if err != nil {
					t.Error(err)
					return
				}
				mine := fmt.Appendf(nil, "writer %d", i)
				if _, err := s.Put(t.Context(), string(mine), mine, ""); err != nil {
					t.Error(err)
				}
				for after := uint64(0); ; after++ {
					var err error
					if i%2 == 0 {
						_, err = s.Append(t.Context(), "j", after, mine)
					} else {
						_, err = s.AppendBatch(t.Context(), store.Batch{Journal: "j", After: after, Entries: [][]byte{mine}})
					}
					if err == nil {
						return
					} else if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		s := sealed(t, inner, keys)
		if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 8 {
			t.Fatalf("read %d entries, %v; want 8", len(entries), err)
		}
		if got := cells(t, s); len(got) != 8 {
			t.Fatalf("cells %q; want 8", got)
		}
	}
}

func TestAppendBeyondTheEndOfNothing(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	before := len(cells(t, inner))
	if _, err := s.Append(t.Context(), "j", 7, []byte("x")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("Append behind 7 of a journal that is not there = %v", err)
	}
	if after := len(cells(t, inner)); after != before {
		t.Error("it left a data key")
	}
}
