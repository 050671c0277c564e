package seal_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

func TestRotate(t *testing.T) { synctest.Test(t, testRotate) }

func testRotate(t *testing.T) {
	inner := memstore.New()
	old := sealed(t, inner, ring(t, "old"))
	for i := range 10 {
		add(t, old, fmt.Sprint(i), 0, "x")
	}
	put(t, old, "c", "value")
	before, _ := store.ReadAll(t.Context(), inner, "3", 0)

	s := sealed(t, inner, ring(t, "new", "old"))
	for _, want := range []int{11, 0} {
		if n, err := s.Rotate(t.Context()); n != want || err != nil {
			t.Errorf("Rotate = %d, %v; want %d", n, err, want)
		}
	}
	after, _ := store.ReadAll(t.Context(), inner, "3", 0)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("Rotate rewrote entries")
	}

	s = sealed(t, inner, ring(t, "new"))
	for i := range 10 {
		wantText(t, s, fmt.Sprint(i), "x")
	}
	if c, err := s.Get(t.Context(), "c"); err != nil || string(c.Value) != "value" {
		t.Errorf("Get = %q, %v", c.Value, err)
	}
	if _, err := seal.New(t.Context(), inner, ring(t, "old")); !errors.Is(err, store.ErrKey) {
		t.Errorf("New with the old key only = %v", err)
	}
	// A handle that was opened before goes on.
	add(t, old, "3", 1, "y")
	wantText(t, s, "3", "x y")
}

func TestRotateSweep(t *testing.T) { synctest.Test(t, testRotateSweep) }

func testRotateSweep(t *testing.T) {
	for cut, plan := range faulty.SweepCalls(everyFault...) {
		inner := memstore.New()
		s := sealed(t, inner, ring(t, "old"))
		add(t, s, "j", 0, "x")
		add(t, s, "k", 0, "y")
		put(t, s, "c", "value")
		both := ring(t, "new", "old")
		if cutStore, err := seal.New(t.Context(), faulty.New(inner, plan), both); err == nil {
			if _, err := cutStore.Rotate(t.Context()); err == nil {
				sealed(t, inner, ring(t, "new"))
			}
		}
		if s, err := seal.New(t.Context(), inner, ring(t, "new")); err == nil {
			wantText(t, s, "j", "x")
			wantText(t, s, "k", "y")
		} else if !errors.Is(err, store.ErrKey) {
			t.Errorf("%s: New without the old key = %v", cut, err)
		}
		s = sealed(t, inner, both)
		wantText(t, s, "j", "x")
		if _, err := s.Rotate(t.Context()); err != nil {
			t.Errorf("%s: Rotate again = %v", cut, err)
		}
		s = sealed(t, inner, ring(t, "new"))
		wantText(t, s, "j", "x")
		wantText(t, s, "k", "y")
		if _, err := s.Get(t.Context(), "c"); err != nil {
			t.Errorf("%s: Get = %v", cut, err)
		}
		for c, err := range inner.List(t.Context(), "", "") {
			if err != nil || strings.Contains(string(c.Value), "old") {
				t.Errorf("%s: cell %q still names the old key: %q, %v", cut, c.Key, c.Value, err)
			}
		}
	}
}

// Journals are begun, written, read and dropped while the keys are rotated,
// several times and by several at once.
func TestRotateUnderLoad(t *testing.T) { synctest.Test(t, testRotateUnderLoad) }

func testRotateUnderLoad(t *testing.T) {
	inner := memstore.New()
	oldest := sealed(t, inner, ring(t, "0"))
	for i := range 50 {
		add(t, oldest, fmt.Sprint("old", i), 0, "x")
		add(t, oldest, fmt.Sprint("doomed", i), 0, "x")
	}
	both := ring(t, "1", "0")
	var all sync.WaitGroup
	for w := range 4 {
		s := sealed(t, inner, both)
		all.Go(func() {
			for i := range 50 {
				journal := fmt.Sprintf("%d-%d", w, i)
				for after := range uint64(3) {
					if _, err := s.Append(t.Context(), journal, after, []byte("x")); err != nil {
						t.Errorf("Append = %v", err)
					}
				}
				if got, err := text(t.Context(), s, journal); err != nil || got != "x x x" {
					t.Errorf("Read = %q, %v", got, err)
				}
				if got, err := text(t.Context(), s, fmt.Sprint("old", i)); err != nil || got != "x" {
					t.Errorf("Read = %q, %v", got, err)
				}
				if err := s.Drop(t.Context(), fmt.Sprint("doomed", i)); err != nil {
					t.Errorf("Drop = %v", err)
				}
				if _, err := s.Rotate(t.Context()); err != nil {
					t.Errorf("Rotate = %v", err)
				}
			}
		})
	}
	all.Wait()
	s := sealed(t, inner, ring(t, "1"))
	for i := range 50 {
		wantText(t, s, fmt.Sprint("old", i), "x")
		for w := range 4 {
			wantText(t, s, fmt.Sprintf("%d-%d", w, i), "x x x")
		}
	}
	if got := len(cells(t, inner)); got != 1+50+200 {
		t.Errorf("%d data keys, want one for the cells and each of 250 journals", got)
	}
}

// One data key that cannot be unwrapped does not hold up the others.
func TestRotateGoesOnPastDamage(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "old"))
	for i := range 5 {
		add(t, s, fmt.Sprint(i), 0, "x")
	}
	for _, key := range cells(t, inner) {
		if strings.HasSuffix(key, "/cells") {
			continue
		}
		c, _ := inner.Get(t.Context(), key)
		if _, err := inner.Put(t.Context(), key, []byte("garbage"), c.Version); err != nil {
			t.Fatal(err)
		}
		break
	}
	s = sealed(t, inner, ring(t, "new", "old"))
	n, err := s.Rotate(t.Context())
	if n != 5 || !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "1 data keys were not rotated; keep the old keys") {
		t.Errorf("Rotate = %d, %v; want 5 and an ErrKey that counts the other", n, err)
	}
}

// A process that still wraps with an old key is noticed: while the key is retired, and
// later by whoever opens the store without it.
func TestOldKeyUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		late := sealed(t, inner, ring(t, "old"))
		add(t, late, "j", 0, "x")
		s := sealed(t, inner, ring(t, "new", "old"))
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(3 * time.Second) // while Retire waits
			add(t, late, "k", 0, "y")
		})
		if _, err := s.Rotate(t.Context()); !errors.Is(err, store.ErrKey) || !strings.Contains(err.Error(), "still wraps new data keys with old") {
			t.Errorf("Rotate beside a process with the old ring = %v", err)
		}
		all.Wait()
		if counts, err := s.Keys(t.Context()); err != nil || counts["new"] != 3 || counts["old"] != 0 || len(counts) != 2 {
			t.Errorf("Keys = %v, %v", counts, err)
		}
		if n, err := s.Rotate(t.Context()); n != 0 || err != nil {
			t.Errorf("Rotate again = %d, %v", n, err)
		}
		sealed(t, inner, ring(t, "new"))
		time.Sleep(time.Minute)
		add(t, late, "l", 0, "z")
		if _, err := seal.New(t.Context(), inner, ring(t, "new")); !errors.Is(err, store.ErrKey) {
			t.Errorf("New without a key that was used again = %v", err)
		}
		if n, err := s.Rotate(t.Context()); n != 1 || err != nil {
			t.Errorf("Rotate at last = %d, %v", n, err)
		}
		wantText(t, sealed(t, inner, ring(t, "new")), "l", "z")
	})
}

// A rotation in parts rotates everything once.
func TestRotateInParts(t *testing.T) {
	inner := memstore.New()
	s := sealed(t, inner, ring(t, "old"))
	for i := range 10 {
		add(t, s, fmt.Sprint(i), 0, "x")
	}
	s = sealed(t, inner, ring(t, "new", "old"))
	total, parts := 0, 0
	for next := ""; parts == 0 || next != ""; parts++ {
		var n int
		var err error
		if next, n, err = s.RotateAfter(t.Context(), next, 4); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 11 || parts != 3 {
		t.Errorf("%d data keys were rotated in %d parts", total, parts)
	}
}

// After a rotation no file names the old key.
func TestRotatedFiles(t *testing.T) {
	for _, engine := range []string{"file", "sqlite"} {
		dir := t.TempDir()
		inner, err := store.Open(t.Context(), engine+":"+filepath.Join(dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		s := sealed(t, inner, ring(t, "canary-2025"))
		for i := range 30 {
			add(t, s, fmt.Sprint("j", i), 0, strings.Repeat("x", 500*i))
		}
		if !anyFileHas(t, dir, "canary-2025") {
			t.Errorf("%s: no file names the key before", engine)
		}
		s = sealed(t, inner, ring(t, "2026", "canary-2025"))
		if n, err := s.Rotate(t.Context()); n != 31 || err != nil {
			t.Errorf("%s: Rotate = %d, %v", engine, n, err)
		}
		if err := inner.Close(); err != nil {
			t.Fatal(err)
		}
		if anyFileHas(t, dir, "canary-2025") {
			t.Errorf("%s: a file still names the old key", engine)
		}
	}
}

func anyFileHas(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, form := range []string{text, base64.StdEncoding.EncodeToString(append([]byte{1, byte(len(text))}, text...))[:16]} {
			found = found || strings.Contains(string(data), form)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
