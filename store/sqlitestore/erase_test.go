package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// secrets returns what makes the bytes of a journal or cell readable.
func secrets(t *testing.T, dir, table, name string) string {
	t.Helper()
	c := rawConn(t, dir)
	defer c.Close()
	rows, err := queryRows(c, "SELECT k.key FROM "+table+" t JOIN keys k ON k.id = t.id WHERE t.name = ?", []byte(name))
	if err != nil || len(rows) != 1 {
		t.Fatalf("no key of %s in %s: %v", name, table, err)
	}
	return string(rows[0][0].([]byte))
}

// queryRows runs a statement and returns its rows, of int64 and []byte.
func queryRows(c *sqlite3.Conn, text string, args ...any) (rows [][]any, err error) {
	stmt, _, err := c.Prepare(text)
	if err != nil {
		return nil, err
	}
	defer stmt.Close()
	for i, arg := range args {
		switch arg := arg.(type) {
		case int64:
			stmt.BindInt64(i+1, arg)
		case []byte:
			stmt.BindBlob(i+1, arg)
		case string:
			stmt.BindText(i+1, arg)
		}
	}
	for stmt.Step() {
		var r []any
		for i := range stmt.ColumnCount() {
			if stmt.ColumnType(i) == sqlite3.INTEGER {
				r = append(r, stmt.ColumnInt64(i))
			} else {
				r = append(r, stmt.ColumnBlob(i, []byte{}))
			}
		}
		rows = append(rows, r)
	}
	return rows, stmt.Err()
}

// rawConn opens the database beside the store.
func rawConn(t *testing.T, dir string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open(filepath.Join(dir, "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestErase fills a store so that SQLite moves rows about, drops and deletes
// half of it, and looks for the rest of it in the raw files: for the bytes
// themselves, and for the keys without which they are noise.
func TestErase(t *testing.T) {
	const many = 200
	dir := t.TempDir()
	s := openTest(t, dir)
	r := rand.New(rand.NewPCG(1, 2))
	text := func(what string, size int) []byte {
		return bytes.Repeat([]byte("CANARY-"+what+"."), 1+size/16)
	}
	last := make([]uint64, many)
	versions := make([]store.Version, many)
	for i := range 1500 {
		n := r.IntN(many)
		size := r.IntN(2000)
		if i%200 == 0 {
			size = 200 << 10
		}
		var err error
		if i%2 == 0 {
			last[n], err = s.Append(t.Context(), fmt.Sprint("j", n), last[n], text(fmt.Sprint("j", n), size))
		} else {
			versions[n], err = s.Put(t.Context(), fmt.Sprint("c", n), text(fmt.Sprint("c", n), size), versions[n])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type secret struct{ name, key string }
	var gone, kept []secret
	for n := range many {
		dst := &kept
		if n%2 == 0 {
			dst = &gone
		}
		if versions[n] != "" {
			*dst = append(*dst, secret{fmt.Sprint("c", n), secrets(t, dir, "cells", fmt.Sprint("c", n))})
		}
		if last[n] > 0 {
			*dst = append(*dst, secret{fmt.Sprint("j", n), secrets(t, dir, "journals", fmt.Sprint("j", n))})
		}
	}
	check := func(when string, gone, there []secret) {
		t.Helper()
		var all []string
		for _, x := range append(gone[:len(gone):len(gone)], there...) {
			all = append(all, x.key, "CANARY-"+x.name+".")
		}
		found := scan(t, dir, all...)
		for _, x := range gone {
			if found[x.key] {
				t.Errorf("%s: the key of %s is still in the files", when, x.name)
			}
			if found["CANARY-"+x.name+"."] {
				t.Errorf("%s: bytes of %s are in the files as they are", when, x.name)
			}
		}
		for _, x := range there {
			if !found[x.key] {
				t.Errorf("%s: the key of %s is not found; the scan looks in the wrong place", when, x.name)
			}
		}
	}
	check("before", nil, append(gone, kept...))

	// Cells first and journals then, as a thread is erased.
	for _, x := range gone {
		if strings.HasPrefix(x.name, "c") {
			cell, err := s.Get(t.Context(), x.name)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), x.name, cell.Version); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range gone {
		if strings.HasPrefix(x.name, "j") {
			if err := s.Drop(t.Context(), x.name); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("after Drop", gone, kept)
	for _, x := range kept {
		if strings.HasPrefix(x.name, "j") {
			if _, err := store.ReadAll(t.Context(), s, x.name, 0); err != nil {
				t.Errorf("%s, which was kept: %v", x.name, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("after Close", gone, kept)
}

// TestEraseLater deletes a cell and drops nothing.
func TestEraseLater(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	other := openTest(t, dir) // keeps the WAL when s is closed
	if _, err := other.Get(t.Context(), "c"); err == nil {
		t.Fatal("a new store has a cell")
	}
	write := func() string {
		version, err := s.Put(t.Context(), "c", []byte("value"), "")
		if err != nil {
			t.Fatal(err)
		}
		key := secrets(t, dir, "cells", "c")
		if !scan(t, dir, key)[key] {
			t.Fatal("the key of a cell is not in the files")
		}
		if err := s.Delete(t.Context(), "c", version); err != nil {
			t.Fatal(err)
		}
		return key
	}
	key := write()
	for deadline := time.Now().Add(20 * time.Second); scan(t, dir, key)[key]; {
		if time.Now().After(deadline) {
			t.Fatal("a deleted cell is still in the files of an idle store")
		}
	}
	key = write()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if scan(t, dir, key)[key] {
		t.Error("a deleted cell is still in the files of a closed store")
	}
}

// TestEraseBehindReader has another connection read the WAL while a journal
// is dropped.
func TestEraseBehindReader(t *testing.T) {
	dir := t.TempDir()
	s := openBusy(t, dir)
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	key := secrets(t, dir, "journals", "j")
	c := rawConn(t, dir)
	defer c.Close()
	run(t, c, "BEGIN")
	run(t, c, "SELECT * FROM journals")
	err := s.Drop(t.Context(), "j")
	if err == nil || !strings.Contains(err.Error(), "is dropped") || !strings.Contains(err.Error(), "again") {
		t.Errorf("Drop behind a reader = %v, want that it is dropped and to be repeated", err)
	}
	run(t, c, "COMMIT")
	if err := s.Drop(t.Context(), "j"); err != nil {
		t.Errorf("repeated Drop = %v", err)
	}
	if scan(t, dir, key)[key] {
		t.Error("the repeated Drop left the journal's key in the files")
	}
}

// TestEraseAmongReaders drops journals while another handle writes without a
// pause and there is always someone who reads: a reader ends when something
// was written since it began, or after a while, and the next has begun.
func TestEraseAmongReaders(t *testing.T) {
	const while = 20 * time.Millisecond
	dir := t.TempDir()
	s, other := openTest(t, dir), openTest(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var written atomic.Uint64
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := other.Append(ctx, "j", written.Load(), []byte("x")); err == nil {
				written.Add(1)
			} else if ctx.Err() == nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	now, next := rawConn(t, dir), rawConn(t, dir)
	if _, err := other.Append(t.Context(), "in the WAL", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	run(t, now, "BEGIN")
	run(t, now, "SELECT * FROM journals")
	wg.Go(func() {
		defer now.Close()
		defer next.Close()
		for ctx.Err() == nil {
			start, n := time.Now(), written.Load()
			for written.Load() == n && time.Since(start) < while {
				runtime.Gosched()
			}
			err := errors.Join(
				next.Exec("BEGIN"),
				next.Exec("SELECT * FROM journals"),
				now.Exec("COMMIT"))
			if err != nil {
				t.Error(err)
				return
			}
			now, next = next, now
		}
	})
	for i := range 3 {
		name := fmt.Sprint("dropped-", i)
		if _, err := s.Append(t.Context(), name, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Drop(t.Context(), name); err != nil {
			t.Fatalf("Drop %d among readers = %v", i, err)
		}
	}
}

// TestWALEnds has two handles write without a pause. The WAL is begun anew
// all the same.
func TestWALEnds(t *testing.T) {
	const appends = 4000
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 2 {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wg.Go(func() {
			for after := range uint64(appends) {
				if _, err := s.Append(t.Context(), fmt.Sprint("j", i), after, []byte("x")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(filepath.Join(dir, "test.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 2 * appends * 2 * 4096 // two pages an append
	if info.Size() > all*3/4 {
		t.Errorf("the WAL has %d bytes, of %d that were written", info.Size(), all)
	}
}

// TestWALGrowsInPieces has two handles write and empty the WAL in turn. Whoever
// writes, most appends find the file longer than they need.
func TestWALGrowsInPieces(t *testing.T) {
	dir := t.TempDir()
	stores := []*sqlitestore.Store{openTest(t, dir), openTest(t, dir)}
	var size int64
	grown := 0
	for i := range 60 {
		s := stores[i/2%2]
		if i%20 == 19 {
			if err := s.Drop(t.Context(), fmt.Sprint("dropped-", i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Append(t.Context(), "j", uint64(i), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "test.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != size {
			grown++
		}
		size = info.Size()
	}
	if grown > 6 {
		t.Errorf("the WAL changed its size with %d of 60 appends", grown)
	}
	for _, s := range stores {
		if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 60 {
			t.Errorf("ReadAll = %d entries, %v, want 60", len(entries), err)
		}
	}
}
