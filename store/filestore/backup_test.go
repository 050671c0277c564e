package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
)

// dump returns everything in a store. A dropped journal that has a name in names is
// "dropped".
func dump(t *testing.T, s store.Store, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, err := range s.Journals(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		entries, err := contents(t.Context(), s, name)
		if err != nil {
			t.Fatal(err)
		}
		all["journal "+name] = strings.Join(entries, "\n")
	}
	for _, name := range names {
		if _, err := contents(t.Context(), s, name); errors.Is(err, store.ErrDropped) {
			all["journal "+name] = "dropped"
		}
	}
	for c, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		all["cell "+c.Key] = string(c.Value) + " " + string(c.Version)
	}
	return all
}

// change makes a random change: an append, a new journal, a drop, a put or a delete.
func change(ctx context.Context, s store.Store, r *rand.Rand, names []string) error {
	name := names[r.IntN(len(names))]
	switch r.IntN(8) {
	case 0:
		return s.Drop(ctx, name)
	case 1, 2:
		c, err := s.Get(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.Delete(ctx, name, c.Version)
		}
		return err
	case 3, 4:
		_, err := store.Update(ctx, s, name, func(store.Cell) ([]byte, error) {
			return fmt.Appendf(nil, "%d %s", r.Int(), strings.Repeat("v", r.IntN(5000))), nil
		})
		return err
	}
	entries, err := store.ReadAll(ctx, s, name, 0)
	if errors.Is(err, store.ErrDropped) {
		return nil
	}
	if err != nil {
		return err
	}
	var more [][]byte
	for range 1 + r.IntN(4) {
		more = append(more, fmt.Appendf(nil, "%d %s", r.Int(), strings.Repeat("e", r.IntN(5000))))
	}
	_, err = s.Append(ctx, name, uint64(len(entries)), more...)
	if errors.Is(err, store.ErrConflict) {
		err = nil
	}
	return err
}

// TestBackupIsOneMoment changes a store in every way after a backup has begun, before
// and while files are copied. The copy is the store as it was when it began.
func TestBackupIsOneMoment(t *testing.T) {
	names := make([]string, 60)
	for i := range names {
		names[i] = fmt.Sprint("name-", i)
	}
	rounds := 30
	if testing.Short() {
		rounds = 6
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 0))
			dir, to := filepath.Join(t.TempDir(), "store"), t.TempDir()
			s := mustOpen(t, dir, osDisk{noSync: true})
			for range 200 {
				if err := change(t.Context(), s, r, names[:50]); err != nil {
					t.Fatal(err)
				}
			}
			want := dump(t, s, names...)
			if seed%2 == 1 { // most journals are not loaded, and one has a torn append
				s.Close()
				tear(t, dir)
				s = mustOpen(t, dir, osDisk{noSync: true})
			}
			defer s.Close()
			c, err := newCopying(filepath.Join(to, backupName))
			if err == nil {
				err = s.folder.beginCopy(c)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				if err := change(t.Context(), s, r, names); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for w := range 4 {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(w+1)))
				all.Go(func() {
					for range 100 {
						if err := change(t.Context(), s, r, names); err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrDropped) {
							t.Errorf("a change = %v", err)
						}
					}
				})
			}
			err = c.run(func() error { return nil })
			all.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.folder.endCopy(c), c.complete()); err != nil {
				t.Fatal(err)
			}
			copied := mustOpen(t, c.dir, osDisk{})
			defer copied.Close()
			if diff := cmp.Diff(want, dump(t, copied, names...)); diff != "" {
				t.Errorf("the copy differs from the store when it began:\n%s", diff)
			}
		})
	}
}

// tear leaves half of an append at the end of each journal, as a crash does.
func tear(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journals", "*", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), `"seq":1,`) {
			continue // a tombstone
		}
		if err := os.WriteFile(file, append(data, strings.Repeat(`{"seq":9`, 1000)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupAcrossReopen poisons a store while it is backed up, and opens it again:
// the new engine knows nothing of the copy, so that is refused.
func TestBackupAcrossReopen(t *testing.T) {
	d := newFaultDisk()
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, dir, d)
	defer s.Close()
	if _, err := s.Put(t.Context(), "c", []byte("1"), ""); err != nil {
		t.Fatal(err)
	}
	c, err := newCopying(filepath.Join(t.TempDir(), backupName))
	if err == nil {
		err = s.folder.beginCopy(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), t.TempDir()); !errors.Is(err, store.ErrBackup) {
		t.Errorf("a second backup = %v, want ErrBackup", err)
	}
	d.set(1, true, half)
	if _, err := s.Put(t.Context(), "d", []byte("1"), ""); !errors.Is(err, store.ErrPoisoned) {
		t.Fatalf("Put = %v", err)
	}
	d.set(0, false, nothing)
	again := mustOpen(t, dir, d)
	defer again.Close()
	if _, err := again.Put(t.Context(), "c2", []byte("1"), ""); err != nil {
		t.Fatal(err)
	}
	if err := c.run(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.folder.endCopy(c); err == nil || !strings.Contains(err.Error(), "back it up again") {
		t.Errorf("the end of a backup that missed writes = %v", err)
	}
	if _, err := again.Backup(t.Context(), t.TempDir()); err != nil {
		t.Errorf("the next backup = %v", err)
	}
}

// TestBackupOfTornJournal appends to a journal that a crash has torn, after the copy
// has looked at its file and before it reads it.
func TestBackupOfTornJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, dir, healthy)
	if _, err := s.Append(t.Context(), "j", 0, []byte("1"), []byte("2")); err != nil {
		t.Fatal(err)
	}
	want := dump(t, s)
	s.Close()
	tear(t, dir)
	s = mustOpen(t, dir, healthy)
	c, err := newCopying(filepath.Join(t.TempDir(), backupName))
	if err == nil {
		err = s.folder.beginCopy(c)
	}
	path := s.engine.journals.path(placeOf("j"))
	if err == nil {
		err = c.file(path).pin(path, -1)
	}
	if err == nil {
		_, err = s.Append(t.Context(), "j", 2, []byte("3"), []byte("4"))
	}
	if err == nil {
		err = c.run(func() error { return nil })
	}
	if err == nil {
		err = errors.Join(s.folder.endCopy(c), c.complete())
	}
	if err != nil {
		t.Fatal(err)
	}
	copied := mustOpen(t, c.dir, healthy)
	if diff := cmp.Diff(want, dump(t, copied)); diff != "" {
		t.Errorf("the copy differs from the store when it began:\n%s", diff)
	}
}
