package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// gather lets writes queue up behind another connection's lock, in order, and
// then go. It returns their answers and how many syncs they took.
func gather(t *testing.T, dir string, s *sqlitestore.Store, writes ...func() error) (answers []error, syncCount int) {
	t.Helper()
	c := rawConn(t, dir)
	defer c.Close()
	run(t, c, "BEGIN IMMEDIATE")
	done := make([]chan error, len(writes))
	for i, write := range writes {
		done[i] = make(chan error, 1)
		go func() { done[i] <- write() }()
		queued(t, s, i+1)
	}
	wal := filepath.Join(dir, "test.db-wal")
	before := syncs(wal)
	run(t, c, "COMMIT")
	for i := range done {
		answers = append(answers, <-done[i])
	}
	return answers, syncs(wal) - before
}

// TestGroup demands that writes which wait share a sync, and that each gets
// an answer of its own.
func TestGroup(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	appendTo := func(ctx context.Context, journal string, after uint64) func() error {
		return func() error { _, err := s.Append(ctx, journal, after, fmt.Append(nil, journal, after)); return err }
	}
	batchTo := func(journal string, cells ...store.Write) func() error {
		return func() error {
			_, err := s.AppendBatch(t.Context(), store.Batch{Journal: journal, Entries: [][]byte{[]byte(journal)}, Cells: cells})
			return err
		}
	}
	if err := appendTo(t.Context(), "old", 0)(); err != nil { // the WAL has its header
		t.Fatal(err)
	}
	writes := []func() error{
		appendTo(t.Context(), "j", 0),
		appendTo(t.Context(), "j", 0), // conflicts with the one before
		appendTo(t.Context(), "j", 1), // builds on the first
		appendTo(t.Context(), "old", 7),
		func() error { _, err := s.Put(t.Context(), "c", []byte("x"), ""); return err },
		func() error { _, err := s.Put(t.Context(), "c", []byte("y"), ""); return err },
		batchTo("b", store.Write{Key: "d"}, store.Write{Key: "c", Optional: true}),
		batchTo("j", store.Write{Key: "e"}),  // the journal has entries
		batchTo("b2", store.Write{Key: "d"}), // conflicts with the one before
		batchTo("b3", store.Write{Key: "f"}),
	}
	want := []error{nil, store.ErrConflict, nil, store.ErrConflict, nil, store.ErrConflict, nil, store.ErrConflict, store.ErrConflict, nil}
	for i := range 64 {
		writes, want = append(writes, appendTo(t.Context(), fmt.Sprint("j", i), 0)), append(want, nil)
	}
	answers, n := gather(t, dir, s, writes...)
	for i := range want {
		if !errors.Is(answers[i], want[i]) {
			t.Errorf("write %d = %v, want %v", i, answers[i], want[i])
		}
	}
	if n != 1 {
		t.Errorf("%d writes took %d syncs, want 1", len(writes), n)
	}
	for journal, want := range map[string]int{"j": 2, "b": 1, "b2": 0, "b3": 1} {
		if got, err := read(t.Context(), s, journal); err != nil || len(got) != want {
			t.Errorf("%s holds %q, %v; want %d entries", journal, got, err, want)
		}
	}
	for key, want := range map[string]error{"c": nil, "d": nil, "e": store.ErrNotFound, "f": nil} {
		if _, err := s.Get(t.Context(), key); !errors.Is(err, want) {
			t.Errorf("Get(%q) = %v, want %v", key, err, want)
		}
	}
}

// TestUnsynced counts the syncs of puts that need none, alone and beside others.
func TestUnsynced(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	wal := filepath.Join(dir, "test.db-wal")
	appendTo := func(journal string) func() error {
		return func() error { _, err := s.Append(t.Context(), journal, 0, []byte("x")); return err }
	}
	loose := func(key string) func() error {
		return func() error {
			old, err := s.Get(t.Context(), key)
			if err == nil || errors.Is(err, store.ErrNotFound) {
				_, err = s.PutUnsynced(t.Context(), key, []byte("x"), old.Version)
			}
			return err
		}
	}
	count := func(what string, want int, writes ...func() error) {
		t.Helper()
		before := syncs(wal)
		for i, write := range writes {
			if err := write(); err != nil {
				t.Errorf("%s: write %d = %v", what, i+1, err)
			}
		}
		if n := syncs(wal) - before; n != want {
			t.Errorf("%s took %d syncs, want %d", what, n, want)
		}
	}
	if err := appendTo("first")(); err != nil { // the WAL has its header
		t.Fatal(err)
	}
	count("unsynced puts", 0, loose("a"), loose("a"), loose("b"))
	count("an append behind them", 1, appendTo("second"))
	count("puts by turns", 2, loose("a"), appendTo("third"), loose("a"), loose("b"), appendTo("fourth"), loose("b"))
	for i, group := range []struct {
		writes []func() error
		want   int
	}{
		{[]func() error{loose("a"), loose("b"), loose("c")}, 0},
		{[]func() error{loose("a"), appendTo("fifth"), loose("b"), loose("c")}, 1},
		{[]func() error{appendTo("sixth"), loose("a"), loose("b")}, 1},
	} {
		answers, n := gather(t, dir, s, group.writes...)
		if err := errors.Join(answers...); err != nil || n != group.want {
			t.Errorf("group %d = %v, with %d syncs, want %d", i+1, err, n, group.want)
		}
	}
	failDisk(dir, failure{sync: sqlite3.IOERR_FSYNC})
	count("an unsynced put on a disk that cannot sync", 0, loose("a"))
	if err := appendTo("seventh")(); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("an append on a disk that cannot sync = %v, want ErrPoisoned", err)
	}
	if err := loose("a")(); !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("an unsynced put after it = %v, want ErrPoisoned", err)
	}
	failDisk(dir, failure{})
}

// TestGroupDamage has one of several writes in a transaction meet damage, in
// the midst of its entries.
func TestGroupDamage(t *testing.T) {
	p := newSample(t)
	crc := p.column("SELECT crc FROM journals WHERE name = ?", "b")
	if _, err := p.s.Append(t.Context(), "b", 4, []byte("fifth"), []byte("sixth")); err != nil {
		t.Fatal(err)
	}
	id := p.integer("SELECT id FROM journals WHERE name = ?", "b")
	p.must("UPDATE journals SET last = 4, crc = ? WHERE id = ?", crc, id)
	p.must("DELETE FROM entries WHERE key = ?", id<<32|5)
	before := p.dump()

	answers, _ := gather(t, p.dir, p.s,
		func() error { _, err := p.s.Append(t.Context(), "a", 3, []byte("fourth of a")); return err },
		func() error { _, err := p.s.Append(t.Context(), "b", 4, []byte("5"), []byte("6")); return err },
		func() error { _, err := p.s.Append(t.Context(), "c", 1, []byte("second of c")); return err },
	)
	if answers[0] != nil || answers[2] != nil {
		t.Errorf("the others got %v and %v, want success", answers[0], answers[2])
	}
	if !errors.Is(answers[1], store.ErrCorrupt) {
		t.Errorf("the damaged journal got %v, want ErrCorrupt", answers[1])
	}
	p.journals["a"] = append(p.journals["a"], "fourth of a")
	p.journals["c"] = append(p.journals["c"], "second of c")
	p.healthy("after the transaction", "b")
	if got := len(p.dump().entries); got != len(before.entries)+2 {
		t.Errorf("%d entries, want the %d before and the two of the others", got, len(before.entries))
	}
}

// TestGroupFails has a transaction fail in which one write refuses another:
// what was not written must not be an answer.
func TestGroupFails(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	failDisk(dir, failure{sync: sqlite3.IOERR_FSYNC})
	answers, _ := gather(t, dir, s,
		func() error { return s.Drop(t.Context(), "j") },
		func() error { _, err := s.Append(t.Context(), "j", 1, []byte("y")); return err },
	)
	failDisk(dir, failure{})
	for i, err := range answers {
		if !errors.Is(err, store.ErrPoisoned) || errors.Is(err, store.ErrDropped) {
			t.Errorf("write %d = %v, want ErrPoisoned", i, err)
		}
	}
}

// TestWithdraw ends the context of a write that waits behind another one.
func TestWithdraw(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	c := rawConn(t, dir)
	defer c.Close()
	run(t, c, "BEGIN IMMEDIATE")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Append(t.Context(), "a", 0, []byte("x")); first <- err }()
	queued(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := s.Append(ctx, "b", 0, []byte("x")); second <- err }()
	queued(t, s, 2)
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the withdrawn append = %v, want Canceled", err)
	}
	run(t, c, "COMMIT")
	if err := <-first; err != nil {
		t.Errorf("the other append = %v", err)
	}
	if got, err := read(t.Context(), s, "b"); err != nil || len(got) != 0 {
		t.Errorf("the withdrawn append left %q, %v", got, err)
	}
}

// queued waits until n writes are in the queue.
func queued(t *testing.T, s *sqlitestore.Store, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.Queued() != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes wait, want %d", s.Queued(), n)
		}
	}
}

// TestManyEntriesAreDropped in the memory that a connection may have.
func TestManyEntriesAreDropped(t *testing.T) {
	s := openTest(t, t.TempDir())
	batch := make([][]byte, store.MaxBatch)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("x"), store.MaxEntry/len(batch))
	}
	batches := uint64(400)
	if testing.Short() {
		batches = 80
	}
	for after := uint64(0); after < batches*store.MaxBatch; {
		last, err := s.Append(t.Context(), "j", after, batch...)
		if err != nil {
			t.Fatal(err)
		}
		after = last
	}
	if err := s.Drop(t.Context(), "j"); err != nil {
		t.Fatal(err)
	}
}
