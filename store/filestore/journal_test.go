package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
)

// TestManyJournals appends to more journals than files are kept open.
func TestManyJournals(t *testing.T) {
	const journals, rounds, writers = maxOpen + 50, 3, 4
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	for round := range uint64(rounds) {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := w; i < journals; i += writers {
					if _, err := s.Append(t.Context(), fmt.Sprintf("journal-%03d", i), round, fmt.Appendf(nil, "%d", round)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	if open := s.engine.files.order.Len(); open > maxOpen || open == 0 {
		t.Errorf("%d files are open, want at most %d", open, maxOpen)
	}
	s.Close()
	if open := s.engine.files.order.Len(); open != 0 {
		t.Errorf("%d files are open after Close", open)
	}
	s = mustOpen(t, dir, healthy)
	count := 0
	for name, err := range s.Journals(t.Context(), "") {
		if err != nil || name != fmt.Sprintf("journal-%03d", count) {
			t.Fatalf("Journals yields %q, %v as number %d", name, err, count)
		}
		if got, err := contents(t.Context(), s, name); err != nil || len(got) != rounds {
			t.Fatalf("%s holds %q, %v", name, got, err)
		}
		count++
	}
	if count != journals {
		t.Errorf("Journals yields %d names, want %d", count, journals)
	}
}

// TestReadFromTheMiddle reads a journal of many chunks from every hundredth
// entry, both as it was appended and as it is loaded.
func TestReadFromTheMiddle(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	var want [][]byte
	for len(want) < 1200 {
		n := len(want)
		batch := [][]byte{fmt.Appendf(nil, "%d", n), bytes.Repeat([]byte{byte(n)}, n%997), {}}
		if n%300 == 0 {
			batch[1] = bytes.Repeat([]byte("\xff"), 200_000) // longer than a chunk
		}
		if _, err := s.Append(t.Context(), "j", uint64(n), batch...); err != nil {
			t.Fatal(err)
		}
		want = append(want, batch...)
	}
	for range 2 {
		if marks := len(s.engine.loaded["j"].now().marks); marks < 5 || marks > 100 {
			t.Errorf("%d marks", marks)
		}
		for after := 0; after <= len(want)+100; after += 100 {
			got, err := store.ReadAll(t.Context(), s, "j", uint64(after))
			if err != nil || len(got) != max(0, len(want)-after) {
				t.Fatalf("Read behind %d yields %d entries, %v", after, len(got), err)
			}
			for i, e := range got {
				if e.Seq != uint64(after+i+1) || !bytes.Equal(e.Data, want[after+i]) {
					t.Fatalf("Read behind %d yields %d with %.20q as number %d", after, e.Seq, e.Data, i)
				}
			}
		}
		s.Close()
		s = mustOpen(t, dir, healthy)
		if _, err := contents(t.Context(), s, "j"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeadsTakeTurns: one head line is always a whole one, of the last append
// or the one before.
func TestHeadsTakeTurns(t *testing.T) {
	s := mustOpen(t, t.TempDir(), healthy)
	for n := range uint64(4) {
		if _, err := s.Append(t.Context(), "j", n, []byte("1")); err != nil {
			t.Fatal(err)
		}
		j := s.engine.loaded["j"]
		b, err := os.ReadFile(j.path)
		if err != nil {
			t.Fatal(err)
		}
		one, ok1 := parseHead(b[j.body-2*headLen:j.body-headLen], j.salt)
		two, ok2 := parseHead(b[j.body-headLen:j.body], j.salt)
		if !ok1 || !ok2 || max(one.seq, two.seq) != n+1 || min(one.seq, two.seq) != max(n, 1) {
			t.Errorf("after append %d the heads are %v and %v", n+1, one, two)
		}
	}
}

// TestUnknownNamesAreForgotten: asking for names does not use up memory.
func TestUnknownNamesAreForgotten(t *testing.T) {
	s := mustOpen(t, t.TempDir(), healthy)
	for i := range 100 {
		name := fmt.Sprint("unknown ", i)
		if got, err := contents(t.Context(), s, name); err != nil || len(got) != 0 {
			t.Fatalf("Read of an unknown journal = %q, %v", got, err)
		}
		if _, err := s.Append(t.Context(), name, 5, []byte("1")); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("Append beyond the end = %v, want ErrConflict", err)
		}
	}
	if n := len(s.engine.loaded); n != 0 {
		t.Errorf("%d unknown journals are remembered", n)
	}
}

// TestDropLeavesNoBytes looks for a dropped journal's bytes in the folder.
func TestDropLeavesNoBytes(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, healthy)
	if _, err := s.Append(t.Context(), "j", 0, []byte(`"very secret"`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the folder holds %v, %v, want one tombstone", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil || bytes.Contains(b, []byte("secret")) || len(b) > 128 {
		t.Errorf("the tombstone holds %q, %v", b, err)
	}
}

func TestDurability(t *testing.T) {
	s := mustOpen(t, t.TempDir(), healthy)
	if got := s.Durability(); got != store.Process {
		t.Errorf("the durability without syncs is %v, want process", got)
	}
	dir := t.TempDir()
	want := store.Power
	if inMemory(dir) || !dirSyncs {
		want = store.Process
	}
	synced, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer synced.Close()
	if got := synced.Durability(); got != want {
		t.Errorf("the durability with syncs is %v, want %v", got, want)
	}
}
