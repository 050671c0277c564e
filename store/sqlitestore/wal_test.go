package sqlitestore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// TestSpilledTransaction rolls back a transaction that is larger than SQLite's
// cache, so that it has written to the WAL, where another connection then commits.
func TestSpilledTransaction(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := s.writer.conn
	b, err := s.openReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.run("PRAGMA query_only=OFF"))
	must(a.run("PRAGMA cache_size=10"))
	insert := func(key, size int) string {
		return fmt.Sprintf("INSERT INTO entries (key, crc, data) VALUES (%d, 0, hex(zeroblob(%d)))", key, size)
	}
	for round := range 3 {
		must(a.run("BEGIN IMMEDIATE"))
		for i := range 30 {
			must(a.run(insert(1000+i, 1<<10)))
		}
		a.rollback()
		must(b.run(insert(10*round, 100)))
		must(a.run("BEGIN IMMEDIATE"))
		must(a.run(insert(10*round+1, 100)))
		must(a.commit())
	}
	for _, c := range []*conn{a, b} {
		if rows, err := c.value("SELECT count(*) FROM entries"); err != nil || rows != "6" {
			t.Errorf("%s rows, %v; want 6", rows, err)
		}
		if check, err := c.value("PRAGMA integrity_check"); err != nil || check != "ok" {
			t.Errorf("integrity_check: %s, %v", check, err)
		}
	}
	must(a.run("PRAGMA wal_checkpoint(TRUNCATE)"))
	if check, err := b.value("PRAGMA integrity_check"); err != nil || check != "ok" {
		t.Errorf("integrity_check of the database: %s, %v", check, err)
	}
}

// countWrites counts the writes to a file.
type countWrites struct {
	vfs.File
	n int
}

func (f *countWrites) WriteAt(p []byte, off int64) (int, error) {
	f.n++
	return f.File.WriteAt(p, off)
}

// TestCommitIsOneWrite to the WAL, synced or not.
func TestCommitIsOneWrite(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	last, err := s.Append(t.Context(), "j", 0, []byte("the WAL grows to its first piece"))
	if err != nil {
		t.Fatal(err)
	}
	wal := s.writer.conn.wal
	count := &countWrites{File: wal.File}
	wal.file = file{count}
	many := make([][]byte, 40)
	for i := range many {
		many[i] = make([]byte, 4<<10)
	}
	if _, err := s.Append(t.Context(), "j", last, many...); err != nil || count.n != 1 {
		t.Errorf("an append of %d pages took %d writes, %v; want 1", len(many), count.n, err)
	}
	if _, err := s.PutUnsynced(t.Context(), "c", []byte("x"), ""); err != nil || count.n != 2 {
		t.Errorf("after an unsynced put %d writes, %v; want 2", count.n, err)
	}
}
