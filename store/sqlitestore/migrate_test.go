package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// format1 puts the file that a binary of format 1 made into a new folder. It has
// the journals 0 to 7, of which 3 was dropped, and the cells 0 to 29, of which
// every fifth was deleted.
func format1(t *testing.T) (dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "format1.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "test.db"), string(data))
	return dir
}

// oldEntry is an entry of the file.
func oldEntry(journal int, seq uint64) []byte {
	data, i := fmt.Appendf(nil, `{"journal":%d,"entry":%d}`, journal, seq), seq-1
	switch {
	case i%7 == 3:
		data = []byte{}
	case i%7 == 4:
		data = bytes.Repeat([]byte{0, 255, byte(journal), byte(i)}, 40)
	case i == 9:
		data = bytes.Repeat(data, 250)
	}
	return data
}

// checkOld demands that a store has all that the file of format 1 had, but for
// one journal or cell.
func checkOld(t *testing.T, s store.Store, but string) {
	t.Helper()
	for n := range 8 {
		name := fmt.Sprint("journal ", n)
		entries, err := store.ReadAll(t.Context(), s, name, 0)
		if n == 3 {
			if !errors.Is(err, store.ErrDropped) {
				t.Errorf("%s, which was dropped, gives %v", name, err)
			}
			continue
		}
		if name == but {
			continue
		}
		if err != nil || len(entries) != 20+n {
			t.Errorf("%s has %d entries, %v", name, len(entries), err)
		}
		for _, e := range entries {
			if want := oldEntry(n, e.Seq); !bytes.Equal(e.Data, want) {
				t.Errorf("%s/%d is %.40q, want %.40q", name, e.Seq, e.Data, want)
			}
		}
	}
	for n := range 30 {
		name, want := fmt.Sprint("cell ", n), fmt.Sprintf(`{"cell":%d}`, n)
		if n%5 == 1 {
			want = string([]byte{0, 255, byte(n)})
		}
		cell, err := s.Get(t.Context(), name)
		switch {
		case name == but:
		case n%5 == 0:
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s, which was deleted, gives %v", name, err)
			}
		case err != nil || string(cell.Value) != want:
			t.Errorf("%s is %q, %v; want %q", name, cell.Value, err, want)
		}
	}
}

// TestMigrate opens a file of format 1 and goes on in it.
func TestMigrate(t *testing.T) {
	dir := format1(t)
	c := rawConn(t, dir)
	keys, err := queryRows(c, "SELECT key FROM keys WHERE NOT free AND key <> zeroblob(16)")
	c.Close()
	if err != nil || len(keys) == 0 {
		t.Fatalf("the file of format 1 has %d keys, %v", len(keys), err)
	}
	for range 2 {
		s := openTest(t, dir)
		checkOld(t, s, "")
		s.Close()
	}
	var texts []string
	for _, row := range keys {
		texts = append(texts, string(row[0].([]byte)))
	}
	if found := scan(t, dir, texts...); len(found) > 0 {
		t.Errorf("%d keys of format 1 are still in the files", len(found))
	}
	s := openTest(t, dir)
	if _, err := s.Append(t.Context(), "journal 1", 21, []byte("next")); err != nil {
		t.Error(err)
	}
	if _, err := s.Append(t.Context(), "new", 0, []byte("new")); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), "cell 0", []byte("again"), ""); err != nil {
		t.Error(err)
	}
	if _, err := s.Append(t.Context(), "journal 3", 0, []byte("x")); !errors.Is(err, store.ErrDropped) {
		t.Errorf("Append to a journal that was dropped = %v", err)
	}
}

// TestMigrateDamage has damage in a file of format 1. It is found afterwards as
// it was before, and nothing else suffers.
func TestMigrateDamage(t *testing.T) {
	for name, test := range map[string]struct{ damage, thing string }{
		"entry":         {"UPDATE entries SET data = zeroblob(length(data)) WHERE key = 2 << 32 | 5", "journal 1"},
		"short entry":   {"UPDATE entries SET data = x'00' WHERE key = 2 << 32 | 5", "journal 1"},
		"lost entry":    {"DELETE FROM entries WHERE key = 2 << 32 | 5", "journal 1"},
		"foreign entry": {"UPDATE entries SET data = (SELECT data FROM entries WHERE key = 3 << 32 | 5) WHERE key = 2 << 32 | 5", "journal 1"},
		"end":           {"UPDATE journals SET last = 10 WHERE id = 2", "journal 1"},
		"name":          {"UPDATE journals SET name = CAST('other' AS BLOB) WHERE id = 2", "journal 1"},
		"key":           {"DELETE FROM keys WHERE id = 2", "journal 1"},
		"cell":          {"UPDATE cells SET value = zeroblob(20) WHERE name = CAST('cell 2' AS BLOB)", "cell 2"},
		"version":       {"UPDATE cells SET version = zeroblob(16) WHERE name = CAST('cell 2' AS BLOB)", "cell 2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := format1(t)
			execFile(t, filepath.Join(dir, "test.db"), test.damage)
			s := openTest(t, dir)
			checkOld(t, s, test.thing)
			_, err := store.ReadAll(t.Context(), s, test.thing, 0)
			if strings.HasPrefix(test.thing, "cell") {
				_, err = s.Get(t.Context(), test.thing)
			}
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s = %v, want ErrCorrupt", test.thing, err)
			}
		})
	}
}

// TestMigrateNeedsRoom has no room for what the migration adds to the file. It is
// refused before anything has changed, so that an older binary can go on.
func TestMigrateNeedsRoom(t *testing.T) {
	dir := format1(t)
	was := sqlitestore.SetFreeSpace(func(string) int64 { return 1000 })
	_, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
	sqlitestore.SetFreeSpace(was)
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "MiB more are needed") {
		t.Errorf("Open without room = %v, want ErrFull that tells how much is needed", err)
	}
	said, err := sqlitestore.Inspect(filepath.Join(dir, "test.db"), "PRAGMA user_version", "PRAGMA quick_check")
	if err != nil || said[0] != "1" || said[1] != "ok" {
		t.Fatalf("the file has format %q, %v", said, err)
	}
	checkOld(t, openTest(t, dir), "")
}

const childWrites = "PERDURE_SQLITESTORE_WRITES"

// childDie opens a store and dies at one of its writes.
func childDie(dir string) {
	broken.left, _ = strconv.Atoi(os.Getenv(childWrites))
	s, err := sqlitestore.Open(context.Background(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestMigrateDies kills the process that migrates a file, at each of its writes
// and syncs in turn. Whatever is left is a file of the one format or the other.
func TestMigrateDies(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	seen := map[string]int{}
	for n := 1; ; n += step {
		dir := format1(t)
		cmd := child(t, "die", dir)
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", childWrites, n))
		if err := cmd.Run(); err == nil {
			break // it came to its end
		}
		said, err := sqlitestore.Inspect(filepath.Join(dir, "test.db"), "PRAGMA user_version", "PRAGMA quick_check")
		if err != nil || said[1] != "ok" {
			t.Fatalf("after %d writes: %q, %v", n, said, err)
		}
		seen[said[0]]++
		s := openTest(t, dir)
		checkOld(t, s, "")
		s.Close()
	}
	if seen["1"] == 0 || seen["2"] == 0 || len(seen) != 2 {
		t.Errorf("the formats that were left, and how often: %v", seen)
	}
}

// TestMigrateFull has the disk full after every third write or sync of a migration
// in turn. Nothing is lost, and when there is room the next Open goes on.
func TestMigrateFull(t *testing.T) {
	step := 3
	if testing.Short() {
		step = 27
	}
	failed := 0
	for n, done := 0, false; !done; n += step {
		dir := format1(t)
		fullDisk(n, func() {
			s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
			if err == nil {
				done = true
				err = s.Close()
			}
			if err != nil && !errors.Is(err, store.ErrFull) {
				t.Fatalf("Open with room for %d writes = %v, want ErrFull", n, err)
			}
			if err != nil {
				failed++
				done = false
			}
		})
		s := openTest(t, dir)
		checkOld(t, s, "")
		s.Close()
	}
	if failed == 0 {
		t.Error("there was room for everything")
	}
}

// TestMigrateTogether has several processes open a file of format 1 at once.
func TestMigrateTogether(t *testing.T) {
	dir := format1(t)
	var cmds []*exec.Cmd
	for range 4 {
		cmd := child(t, "die", dir) // but it has no reason to
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	s := openTest(t, dir)
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkOld(t, s, "")
}
