package filestore

import (
	"errors"
	"slices"
	"testing"

	"github.com/perdure/perdure/store"
)

// A store that only reads leaves nothing behind that is not synced, also after a crash
// between the sync of an append and its head: a backup is opened and read before its
// digest is taken.
func TestReadingLeavesNothingUnsynced(t *testing.T) {
	d := newFaultDisk()
	dir := t.TempDir()
	s, err := openFolder(t.Context(), dir, Options{}, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "j", 0, []byte("1")); err != nil {
		t.Fatal(err)
	}
	d.set(3, true, nothing)
	if _, err := s.Append(t.Context(), "j", 1, []byte("2")); !errors.Is(err, store.ErrPoisoned) || d.failed != "write" {
		t.Fatalf("Append without a head = %v after a failed %s, want ErrPoisoned after a write", err, d.failed)
	}
	s.Close()
	d.set(0, false, nothing)
	if s, err = openFolder(t.Context(), dir, Options{}, d); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d.log = nil
	if got, err := contents(t.Context(), s, "j"); err != nil || !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the store reads %q, %v", got, err)
	}
	if n := len(d.log); !slices.Contains(d.log, "write") || d.log[n-1] != "sync" {
		t.Errorf("reading the journal came to %q, want a write, and a sync at the end", d.log)
	}
}

// On a full disk each new engine may be poisoned by a small write before the
// journal with the torn append is looked at. It is readable nevertheless, and
// repaired when there is space.
func TestTornAppendIsReadThroughAPoisonedStore(t *testing.T) {
	d := newFaultDisk()
	dir := t.TempDir()
	var handles []*Store
	open := func() *Store {
		t.Helper()
		s, err := openFolder(t.Context(), dir, Options{}, d)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, s)
		return s
	}
	defer func() {
		for _, s := range handles {
			s.Close()
		}
	}()
	s := open()
	for i, e := range []string{"1", "2"} {
		if _, err := s.Append(t.Context(), "j", uint64(i), []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	d.set(1, true, half)
	if _, err := s.Append(t.Context(), "j", 2, []byte("torn")); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("Append on a disk that takes half of it = %v, want ErrPoisoned", err)
	}
	for range 3 {
		d.set(0, false, nothing) // for opening, which needs no space
		s = open()
		d.set(1, true, half)
		if _, err := s.Put(t.Context(), "c", []byte("x"), ""); !errors.Is(err, store.ErrPoisoned) {
			t.Fatalf("Put on a full disk = %v, want ErrPoisoned", err)
		}
		for range 2 {
			if got, err := contents(t.Context(), s, "j"); err != nil || !slices.Equal(got, []string{"1", "2"}) {
				t.Errorf("the poisoned store reads %q, %v, want what was acknowledged", got, err)
			}
		}
		if _, err := s.Append(t.Context(), "j", 2, []byte("x")); !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("Append to the poisoned store = %v, want ErrPoisoned", err)
		}
	}
	d.set(0, false, nothing)
	s = open()
	if _, err := s.Append(t.Context(), "j", 2, []byte("3")); err != nil {
		t.Errorf("Append when there is space = %v", err)
	}
	if got, err := contents(t.Context(), s, "j"); err != nil || !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("the store reads %q, %v when there is space", got, err)
	}
}
