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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// queryRows runs a statement and returns its rows, of int64, string and []byte.
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
			switch stmt.ColumnType(i) {
			case sqlite3.INTEGER:
				r = append(r, stmt.ColumnInt64(i))
			case sqlite3.TEXT:
				r = append(r, stmt.ColumnText(i))
			default:
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

// A canary is the text that a journal or cell of a test is full of.
func canary(name string) string { return "CANARY-" + name + "." }

// TestErase has two handles write to many journals and cells, so that SQLite
// moves rows about, and erase some of them in between. Of those it looks for
// remains in the raw files: after each erase, and after later writes, which
// might write a page anew that still has some.
func TestErase(t *testing.T) {
	const many, rounds, writes = 240, 6, 600
	dir := t.TempDir()
	var stores []*sqlitestore.Store
	for range 2 {
		s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func(name string) []byte {
		size := r.IntN(2000)
		if r.IntN(100) == 0 {
			size = 200 << 10
		}
		return bytes.Repeat([]byte(canary(name)), 1+size/16)
	}
	last, versions := make([]uint64, many), make([]store.Version, many)
	var gone []string
	check := func(when string) {
		t.Helper()
		var all []string
		for _, name := range gone {
			all = append(all, canary(name))
		}
		there := ""
		for n := range many {
			if last[n] > 0 {
				there = canary(fmt.Sprint("j", n))
			}
		}
		found := scan(t, dir, append(all, there)...)
		for _, text := range all {
			if found[text] {
				t.Errorf("%s: %s is still in the files", when, text)
			}
		}
		if !found[there] {
			t.Errorf("%s: %s is not found; the scan looks in the wrong place", when, there)
		}
	}
	for round := range rounds {
		first := round * many / rounds / 2 // those before it are erased
		for i := range writes {
			n, s := first+r.IntN(many-first), stores[r.IntN(1+round%2)] // in some rounds one alone, with its cache
			var err error
			if i%2 == 0 {
				name := fmt.Sprint("j", n)
				last[n], err = s.Append(t.Context(), name, last[n], text(name))
			} else {
				name := fmt.Sprint("c", n)
				versions[n], err = s.Put(t.Context(), name, text(name), versions[n])
			}
			if err != nil {
				t.Fatal(err)
			}
			if i == writes/10 {
				check(fmt.Sprintf("round %d, after some writes", round))
			}
		}
		check(fmt.Sprintf("round %d, after writing", round))
		s := stores[0]
		until := (round + 1) * many / rounds / 2
		for n := first; n < until; n++ { // cells first and journals then, as a thread is erased
			if versions[n] == "" {
				continue
			}
			gone = append(gone, fmt.Sprint("c", n))
			if err := s.Delete(t.Context(), fmt.Sprint("c", n), versions[n]); err != nil {
				t.Fatal(err)
			}
		}
		for n := first; n < until; n++ {
			gone, last[n] = append(gone, fmt.Sprint("j", n)), 0
			if err := s.Drop(t.Context(), fmt.Sprint("j", n)); err != nil {
				t.Fatal(err)
			}
		}
		check(fmt.Sprintf("round %d, after Drop", round))
	}
	for n := range many {
		if last[n] == 0 {
			continue
		}
		if entries, err := store.ReadAll(t.Context(), stores[0], fmt.Sprint("j", n), 0); err != nil || len(entries) != int(last[n]) {
			t.Errorf("journal %d, which was kept, has %d entries of %d, %v", n, len(entries), last[n], err)
		}
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	check("after Close")
}

// TestEraseForgets has one handle drop journals and write to all the others after
// each, so that it writes every page anew as its cache has it.
func TestEraseForgets(t *testing.T) {
	many, drops := 120, 50
	if testing.Short() {
		drops = 10
	}
	dir := t.TempDir()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	last := make([]uint64, many)
	write := func(n int, data []byte) {
		if last[n], err = s.Append(t.Context(), fmt.Sprint("j", n), last[n], data); err != nil {
			t.Fatal(err)
		}
	}
	for range 25 * many {
		n := r.IntN(many)
		write(n, bytes.Repeat([]byte(canary(fmt.Sprint("j", n))), 1+r.IntN(125)))
	}
	for dropped := range drops {
		name := fmt.Sprint("j", dropped)
		if err := s.Drop(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for n := dropped + 1; n < many; n++ {
			write(n, []byte("tiny"))
		}
		if scan(t, dir, canary(name))[canary(name)] {
			t.Errorf("%s is in the files again", canary(name))
		}
	}
}

// TestEraseAfterAnotherProgram has a process die, and another program, as SQLite's
// shell, copy what is in its WAL into the file and remove the WAL. What it leaves
// there does not outlive an erase either, wherever the next process dies first, or
// finds the disk full.
func TestEraseAfterAnotherProgram(t *testing.T) {
	const many = 120
	left := t.TempDir()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(left, "test.db"), sqlitestore.Options{Synchronous: sqlitestore.Normal})
	if err != nil {
		t.Fatal(err)
	}
	other := rawConn(t, left)
	run(t, other, "BEGIN")
	run(t, other, "SELECT * FROM entries") // s cannot copy what is written after it
	r := rand.New(rand.NewPCG(1, 2))
	last := make([]uint64, many)
	var fulls []bool
	for range 25 * many {
		n := r.IntN(many)
		data := bytes.Repeat([]byte(canary(fmt.Sprint("j", n))), 1+r.IntN(125))
		if last[n], err = s.Append(t.Context(), fmt.Sprint("j", n), last[n], data); err != nil {
			t.Fatal(err)
		}
	}
	run(t, other, "COMMIT")
	s.Close()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(left, "test.db-wal")); err == nil {
		t.Fatal("the other program left the WAL")
	}
	for writes := 1; ; writes = writes*2 + 1 {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(left)); err != nil {
			t.Fatal(err)
		}
		cmd := child(t, "die", dir)
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", childWrites, writes))
		ended := cmd.Run() == nil
		fullDisk(writes, func() {
			s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
			if err == nil {
				s.Close()
			} else if !errors.Is(err, store.ErrFull) {
				t.Errorf("Open with room for %d writes = %v, want ErrFull", writes, err)
			}
			fulls = append(fulls, err != nil)
		})
		s := openTest(t, dir)
		for n := range many {
			if entries, err := store.ReadAll(t.Context(), s, fmt.Sprint("j", n), 0); err != nil || len(entries) != int(last[n]) {
				t.Errorf("after %d writes journal %d has %d entries, %v; want %d", writes, n, len(entries), err, last[n])
			}
		}
		var gone []string
		for n := range many / 2 {
			gone = append(gone, canary(fmt.Sprint("j", n)))
			if err := s.Drop(t.Context(), fmt.Sprint("j", n)); err != nil {
				t.Fatal(err)
			}
		}
		if found := scan(t, dir, gone...); len(found) > 0 {
			t.Errorf("after a death at write %d, %d of %d journals are still in the files", writes, len(found), len(gone))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "test.db-scrub")); err == nil {
			t.Error("a clean close leaves the mark of a crash")
		}
		if ended {
			break
		}
	}
	if !slices.Contains(fulls, true) {
		t.Error("the disk was never full")
	}
}

// TestErasedSpace has threads come and go. The file does not grow with them.
func TestErasedSpace(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "test.db"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var first int64
	for i := range 60 {
		name := fmt.Sprint("j", i)
		for after := range uint64(20) {
			if _, err := s.Append(t.Context(), name, after, make([]byte, 3000)); err != nil {
				t.Fatal(err)
			}
		}
		if i >= 5 {
			if err := s.Drop(t.Context(), fmt.Sprint("j", i-5)); err != nil {
				t.Fatal(err)
			}
		}
		if i == 10 {
			first = size()
		}
	}
	if now := size(); now > first*5/4 {
		t.Errorf("the file has grown from %d to %d bytes, with as much in it", first, now)
	}
}

// TestEraseLater deletes a cell and drops nothing.
func TestEraseLater(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	other := openTest(t, dir) // keeps the WAL when s is closed
	if _, err := other.Get(t.Context(), "c"); err == nil {
		t.Fatal("a new store has a cell")
	}
	write := func(text string) {
		version, err := s.Put(t.Context(), "c", []byte(text), "")
		if err != nil {
			t.Fatal(err)
		}
		if !scan(t, dir, text)[text] {
			t.Fatal("a cell is not in the files")
		}
		if err := s.Delete(t.Context(), "c", version); err != nil {
			t.Fatal(err)
		}
	}
	text := canary("one")
	write(text)
	for deadline := time.Now().Add(20 * time.Second); scan(t, dir, text)[text]; {
		if time.Now().After(deadline) {
			t.Fatal("a deleted cell is still in the files of an idle store")
		}
	}
	text = canary("two")
	write(text)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if scan(t, dir, text)[text] {
		t.Error("a deleted cell is still in the files of a closed store")
	}
}

// TestEraseBehindReader has another connection read the WAL while a journal
// is dropped.
func TestEraseBehindReader(t *testing.T) {
	dir := t.TempDir()
	s := openBusy(t, dir)
	text := canary("j")
	if _, err := s.Append(t.Context(), "j", 0, []byte(text)); err != nil {
		t.Fatal(err)
	}
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
	if scan(t, dir, text)[text] {
		t.Error("the repeated Drop left the journal in the files")
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
