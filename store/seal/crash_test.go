package seal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// everyFault is each way in which one call can go wrong.
var everyFault = []faulty.Fault{
	faulty.CrashBefore, faulty.CrashAfter, faulty.FailBefore, faulty.FailAfter, faulty.FailAmid(1), faulty.Conflict,
}

func TestFirstAppendSweep(t *testing.T) {
	t.Run("append", func(t *testing.T) {
		firstAppendSweep(t, 5, func(s *seal.Store) error {
			_, err := s.Append(t.Context(), "j", 0, []byte("one"), []byte("two"))
			return err
		})
	})
	t.Run("batch", func(t *testing.T) {
		firstAppendSweep(t, 4, func(s *seal.Store) error {
			_, err := s.AppendBatch(t.Context(), store.Batch{
				Journal: "j", Entries: [][]byte{[]byte("one"), []byte("two")}, Cells: []store.Write{{Key: "batched", Value: []byte("x")}},
			})
			return err
		})
	})
}

// firstAppendSweep cuts the first append to a journal, which makes so many calls
// at least. A cell "batched" comes with the entries.
func firstAppendSweep(t *testing.T, calls int, first func(*seal.Store) error) {
	keys := ring(t, "a")
	cuts := 0
	for cut, plan := range faulty.SweepCalls(everyFault...) {
		cuts++
		inner := memstore.New()
		program := func(s store.Store) error {
			sealed, err := seal.New(t.Context(), s, keys)
			if err != nil {
				return err
			}
			return first(sealed)
		}
		err := program(faulty.New(inner, plan))
		s := sealed(t, inner, keys)
		got, readErr := text(t.Context(), s, "j")
		if readErr != nil || got != "one two" && (got != "" || err == nil) {
			t.Errorf("%s: program = %v; the journal holds %q, %v", cut, err, got, readErr)
		}
		if there := slices.Contains(cells(t, inner), "batched"); there && got == "" || !there && got != "" && calls == 4 {
			t.Errorf("%s: the journal holds %q, and the cell is there: %t", cut, got, there)
		}
		if got == "" {
			if err := first(s); err != nil {
				t.Errorf("%s: the second try: %v", cut, err)
			}
		}
		add(t, s, "j", 2, "three")
		wantText(t, sealed(t, inner, keys), "j", "one two three")
		if got := slices.DeleteFunc(cells(t, inner), func(key string) bool { return key == "batched" }); len(got) != 2 {
			t.Errorf("%s: data keys in %q; want one for the cells and one for the journal", cut, got)
		}
	}
	if cuts < calls*len(everyFault) {
		t.Errorf("the sweep made %d cuts only", cuts)
	}
}

func TestDropSweep(t *testing.T) {
	keys := ring(t, "a")
	for cut, plan := range faulty.SweepCalls(everyFault...) {
		inner := memstore.New()
		s := sealed(t, inner, keys)
		add(t, s, "j", 0, "x")
		add(t, s, "stays", 0, "y")
		cutStore, newErr := seal.New(t.Context(), faulty.New(inner, plan), keys)
		if newErr == nil {
			err := cutStore.Drop(t.Context(), "j")
			if err == nil {
				wantShredded(t, cut, inner)
			} else if !errors.Is(err, faulty.ErrInjected) {
				t.Errorf("%s: Drop = %v", cut, err)
			}
		}
		// Through another handle, which has the key in memory, the journal is
		// whole or dropped, never something else.
		if got, err := text(t.Context(), s, "j"); !(errors.Is(err, store.ErrDropped) || err == nil && got == "x") {
			t.Errorf("%s: then the journal holds %q, %v", cut, got, err)
		}
		if err := s.Drop(t.Context(), "j"); err != nil {
			t.Errorf("%s: Drop again = %v", cut, err)
		}
		wantShredded(t, cut, inner)
		if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrDropped) {
			t.Errorf("%s: Append after Drop = %v", cut, err)
		}
		wantShredded(t, cut, inner)
		wantText(t, s, "stays", "y")
	}
}

// wantShredded demands that of all data keys those of the cells and of one
// other journal are left.
func wantShredded(t *testing.T, cut string, inner store.Store) {
	t.Helper()
	if got := cells(t, inner); len(got) != 2 {
		t.Errorf("%s: data keys in %q; want two", cut, got)
	}
}

// An append that makes the data key while the journal is dropped removes it
// again, or leaves it to the next Drop if it is cut off.
func TestAppendRacesDrop(t *testing.T) {
	keys := ring(t, "a")
	for cut, plan := range faulty.SweepCalls(faulty.None, faulty.CrashAfter, faulty.CrashBefore) {
		inner := memstore.New()
		other := sealed(t, inner, keys)
		// The other handle drops the journal in the moment before the data
		// key is put.
		dropping := faulty.New(inner, func(c faulty.Call) faulty.Fault {
			if c.Op == store.OpPut {
				if err := other.Drop(t.Context(), "j"); err != nil {
					t.Error(err)
				}
			}
			return faulty.None
		})
		s, err := seal.New(t.Context(), faulty.New(dropping, plan), keys)
		if err == nil {
			_, err = s.Append(t.Context(), "j", 0, []byte("x"))
			if !errors.Is(err, store.ErrDropped) && !errors.Is(err, faulty.ErrInjected) {
				t.Errorf("%s: Append = %v", cut, err)
			}
		}
		if strings.HasPrefix(cut, "none") && len(cells(t, inner)) != 1 {
			t.Errorf("%s: the append left %q", cut, cells(t, inner))
		}
		if err := other.Drop(t.Context(), "j"); err != nil {
			t.Error(err)
		}
		if got := cells(t, inner); len(got) != 1 {
			t.Errorf("%s: a repeated Drop left %q", cut, got)
		}
	}
}

// at returns a store that calls f in the moment before the first call that is
// op on a data key of a journal.
func at(inner store.Store, op store.Op, f func()) store.Store {
	var once sync.Once
	return faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == op && strings.HasPrefix(c.Name, "~seal/j/") {
			once.Do(f)
		}
		return faulty.None
	})
}

// Whatever finds no data key because the journal is dropped at that moment
// says so, or has nothing to do.
func TestDroppedAtThatMoment(t *testing.T) { synctest.Test(t, testDroppedAtThatMoment) }

func testDroppedAtThatMoment(t *testing.T) {
	for name, test := range map[string]struct {
		call func(*seal.Store) error
		want error
	}{
		"read":   {func(s *seal.Store) error { _, err := text(t.Context(), s, "j"); return err }, store.ErrDropped},
		"append": {func(s *seal.Store) error { _, err := s.Append(t.Context(), "j", 1, []byte("y")); return err }, store.ErrDropped},
		"batch": {func(s *seal.Store) error {
			_, err := s.AppendBatch(t.Context(), store.Batch{Journal: "j", After: 1, Entries: [][]byte{[]byte("y")}, Cells: []store.Write{{Key: "c"}}})
			return err
		}, store.ErrDropped},
		"rotate": {func(s *seal.Store) error { _, err := s.Rotate(t.Context()); return err }, nil},
		"drop":   {func(s *seal.Store) error { return s.Drop(t.Context(), "j") }, nil},
	} {
		inner := memstore.New()
		other := sealed(t, inner, ring(t, "a"))
		add(t, other, "j", 0, "x")
		s := sealed(t, at(inner, store.OpGet, func() {
			if err := other.Drop(t.Context(), "j"); err != nil {
				t.Error(err)
			}
		}), ring(t, "b", "a"))
		if err := test.call(s); !errors.Is(err, test.want) {
			t.Errorf("%s = %v; want %v", name, err, test.want)
		}
		if got := cells(t, inner); len(got) != 1 {
			t.Errorf("%s: data keys in %q; want that of the cells", name, got)
		}
	}
}

// A Drop whose data key is rotated before it deletes it deletes the new one.
func TestRotatedAtThatMoment(t *testing.T) { synctest.Test(t, testRotatedAtThatMoment) }

func testRotatedAtThatMoment(t *testing.T) {
	inner := memstore.New()
	other := sealed(t, inner, ring(t, "a"))
	add(t, other, "j", 0, "x")
	other = sealed(t, inner, ring(t, "b", "a"))
	s := sealed(t, at(inner, store.OpDelete, func() {
		if n, err := other.Rotate(t.Context()); n != 2 || err != nil {
			t.Errorf("Rotate = %d, %v", n, err)
		}
	}), ring(t, "b", "a"))
	if err := s.Drop(t.Context(), "j"); err != nil {
		t.Errorf("Drop = %v", err)
	}
	if got := cells(t, inner); len(got) != 1 {
		t.Errorf("data keys in %q; want that of the cells", got)
	}
}

// A journal that another begins between the looks for its data key and its
// entries is not taken for one that lost its key.
func TestBegunAtThatMoment(t *testing.T) {
	inner := memstore.New()
	other := sealed(t, inner, ring(t, "a"))
	began := false
	s := sealed(t, faulty.New(inner, func(c faulty.Call) faulty.Fault {
		if c.Op == store.OpRead && !began {
			began = true
			add(t, other, "j", 0, "x")
		}
		return faulty.None
	}), ring(t, "a"))
	if _, err := s.Append(t.Context(), "j", 0, []byte("y")); !errors.Is(err, store.ErrConflict) || !began {
		t.Errorf("Append = %v; want ErrConflict", err)
	}
	add(t, s, "j", 1, "y")
	wantText(t, other, "j", "x y")
}

// A batch that brings a data key goes on with the one that another made since,
// and a batch that is full finds it made before.
func TestKeyMadeAtThatMoment(t *testing.T) {
	for _, n := range []int{1, store.MaxWrites} {
		inner := memstore.New()
		s := sealed(t, at(inner, store.OpAppend, func() {
			dying := sealed(t, faulty.New(inner, func(c faulty.Call) faulty.Fault {
				if c.Op == store.OpAppend {
					return faulty.CrashBefore
				}
				return faulty.None
			}), ring(t, "a"))
			_, _ = dying.Append(t.Context(), "j", 0, []byte("never"))
		}), ring(t, "a"))
		b := store.Batch{Journal: "j", Entries: [][]byte{[]byte("x")}}
		for i := range n {
			b.Cells = append(b.Cells, store.Write{Key: fmt.Sprint(i)})
		}
		if last, err := s.AppendBatch(t.Context(), b); last != 1 || err != nil {
			t.Errorf("AppendBatch with %d cells = %d, %v", n, last, err)
		}
		wantText(t, sealed(t, inner, ring(t, "a")), "j", "x")
		if got := cells(t, inner); len(got) != n+2 {
			t.Errorf("cells %q; want %d and two data keys", got, n)
		}
	}
}

// Readers and writers that race a Drop see the journal or ErrDropped, and no
// data key stays.
func TestUseRacesDrop(t *testing.T) {
	inner := memstore.New()
	keys := ring(t, "a")
	handles := []*seal.Store{sealed(t, inner, keys), sealed(t, inner, keys)}
	for round := range 100 {
		journal := fmt.Sprint(round)
		var all sync.WaitGroup
		for _, s := range handles {
			all.Go(func() { // writes
				for after := uint64(0); ; after++ {
					_, err := s.Append(t.Context(), journal, after, []byte("x"))
					if errors.Is(err, store.ErrDropped) {
						return
					}
					if err != nil && !errors.Is(err, store.ErrConflict) {
						t.Errorf("Append = %v", err)
						return
					}
				}
			})
			all.Go(func() { // reads, each time with the data key from its cell
				for {
					fresh, err := seal.New(t.Context(), inner, keys)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err = text(t.Context(), fresh, journal); errors.Is(err, store.ErrDropped) {
						return
					} else if err != nil {
						t.Errorf("Read = %v", err)
						return
					}
				}
			})
		}
		all.Go(func() {
			if err := handles[round%2].Drop(t.Context(), journal); err != nil {
				t.Errorf("Drop = %v", err)
			}
		})
		all.Wait()
	}
	if got := cells(t, inner); len(got) != 1 {
		t.Errorf("%d data keys are left: %q", len(got), got)
	}
}

func TestShredded(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	add(t, s, "j", 0, "x")
	for _, key := range cells(t, inner) {
		if c, _ := inner.Get(t.Context(), key); !strings.HasSuffix(key, "/cells") {
			if err := inner.Delete(t.Context(), key, c.Version); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = sealed(t, inner, ring(t, "a"))
	_, err := text(t.Context(), s, "j")
	if !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "shredded") {
		t.Errorf("Read = %v", err)
	}
	for after := range uint64(2) {
		if _, err := s.Append(t.Context(), "j", after, []byte("y")); !errors.Is(err, store.ErrKey) {
			t.Errorf("Append behind %d = %v", after, err)
		}
	}
	if got := cells(t, inner); len(got) != 1 {
		t.Errorf("a data key was made for a shredded journal: %q", got)
	}
	root, _ := inner.Get(t.Context(), cells(t, inner)[0])
	if err := inner.Delete(t.Context(), root.Key, root.Version); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.New(t.Context(), inner, ring(t, "a")); !errors.Is(err, store.ErrKey) {
		t.Errorf("New on a store that lost the data key of its cells = %v", err)
	}
}

func TestCancelled(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Append(ctx, "j", 0, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Append = %v", err)
	}
	if got := cells(t, inner); len(got) != 1 {
		t.Errorf("a cancelled append left %q", got)
	}
	if _, err := s.Rotate(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Rotate = %v", err)
	}
	if _, err := seal.New(ctx, inner, ring(t, "a")); !errors.Is(err, context.Canceled) {
		t.Errorf("New = %v", err)
	}
}
