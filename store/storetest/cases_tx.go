package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/perdure/perdure/store"
)

// openTx is open for a case about transactions, which not every store has.
func (k *kit) openTx() store.Store {
	k.Helper()
	s := k.open()
	tx, err := store.Begin(k.ctx, s)
	if err == errors.ErrUnsupported {
		k.Skip("the store has no store.Transactor")
	}
	if err != nil {
		k.Fatalf("Begin = %v", err)
	}
	if err := tx.Rollback(); err != nil {
		k.Fatalf("Rollback of a transaction in which nothing was done = %v", err)
	}
	return s
}

func (k *kit) begin(s store.Store) store.Tx {
	k.Helper()
	tx, err := store.Begin(k.ctx, s)
	if err != nil {
		k.Fatalf("Begin = %v", err)
	}
	return tx
}

// join joins a transaction that stands for one that the program began itself. Not
// every store can.
func (k *kit) join(s store.Store, program store.Tx) store.Tx {
	k.Helper()
	tx, err := store.Join(k.ctx, s, program.Native())
	if err == errors.ErrUnsupported {
		_ = program.Rollback()
		k.Skip("the store cannot join a transaction")
	}
	if err != nil {
		k.Fatalf("Join = %v", err)
	}
	return tx
}

func (k *kit) txPut(tx store.Tx, key, value string, prev store.Version) store.Version {
	k.Helper()
	version, err := tx.Put(k.ctx, key, []byte(value), prev)
	if err != nil || version == "" {
		k.Fatalf("Put(%q, prev %q) in a transaction = %q, %v; want success", key, prev, version, err)
	}
	return version
}

func (k *kit) txCommit(tx store.Tx, b store.Batch) {
	k.Helper()
	want := b.After + uint64(len(b.Entries))
	if last, err := tx.Commit(k.ctx, b); err != nil || last != want {
		k.Fatalf("Commit to %q after %d = %d, %v; want %d and success", b.Journal, b.After, last, err, want)
	}
}

// overNow demands that nothing can be done in a transaction any more.
func (k *kit) overNow(tx store.Tx, journal string, after uint64) {
	k.Helper()
	_, err := tx.Put(k.ctx, "late", []byte("late"), "")
	k.want(err, store.ErrRolledBack, "Put in a transaction that is over")
	_, err = tx.Commit(k.ctx, batchOf(journal, after, "late"))
	k.want(err, store.ErrRolledBack, "Commit of a transaction that is over")
	if err := tx.Rollback(); err != nil {
		k.Errorf("Rollback of a transaction that is over = %v, want nil", err)
	}
}

var txCases = []testCase{
	{"transaction/commits all", "what Put and Commit write is there for all at once, and durable for another handle", func(k *kit) {
		s, other := k.openTx(), k.open()
		k.append(s, "j", 0, "first")
		version := k.put(s, "cell", "old", "")
		tx := k.begin(s)
		again := k.txPut(tx, "cell", "changed", version)
		k.txPut(tx, "cell", "new", again)
		k.txPut(tx, "made", "value", "")
		for _, h := range []store.Store{s, other} { // reads do not wait for it
			k.holds(h, "j", "first")
			k.cells(h, map[string]string{"cell": "old"})
		}
		k.txCommit(tx, batchOf("j", 1, "second", puts("with", "it", "")))
		for _, h := range []store.Store{s, other} {
			k.holds(h, "j", "first", "second")
			k.cells(h, map[string]string{"cell": "new", "made": "value", "with": "it"})
		}
		k.overNow(tx, "j", 2)
		k.holds(s, "j", "first", "second")
	}},
	{"transaction/conditions", "a conflict leaves the transaction as it was, and Commit may be called again", func(k *kit) {
		s := k.openTx()
		k.append(s, "j", 0, "first")
		version := k.put(s, "cell", "value", "")
		tx := k.begin(s)
		k.txPut(tx, "kept", "value", "")
		for _, prev := range []store.Version{"", "other"} {
			_, err := tx.Put(k.ctx, "cell", []byte("wrong"), prev)
			k.want(err, store.ErrConflict, "Put in a transaction with the wrong version %q", prev)
		}
		for _, after := range []uint64{0, 2} {
			_, err := tx.Commit(k.ctx, batchOf("j", after, "wrong", puts("beside", "wrong", "")))
			k.want(err, store.ErrConflict, "Commit after %d to a journal that ends at 1", after)
		}
		_, err := tx.Commit(k.ctx, batchOf("j", 1, "wrong", puts("beside", "wrong", ""), puts("cell", "wrong", "")))
		if cell := (*store.CellConflict)(nil); !errors.As(err, &cell) || cell.Key != "cell" {
			k.Errorf("Commit with a stale cell = %v, want a *store.CellConflict that names it", err)
		}
		k.txCommit(tx, batchOf("j", 1, "second", puts("cell", "new", version), maybe(puts("kept", "wrong", ""))))
		k.holds(s, "j", "first", "second")
		k.cells(s, map[string]string{"cell": "new", "kept": "value"})
	}},
	{"transaction/rollback", "a transaction that is not committed leaves nothing", func(k *kit) {
		s := k.openTx()
		k.append(s, "j", 0, "first")
		tx := k.begin(s)
		k.txPut(tx, "cell", "value", "")
		if _, err := tx.Commit(k.ctx, batchOf("j", 0, "wrong")); !errors.Is(err, store.ErrConflict) {
			k.Errorf("Commit after 0 = %v, want a conflict", err)
		}
		if err := tx.Rollback(); err != nil {
			k.Fatalf("Rollback = %v", err)
		}
		k.overNow(tx, "j", 1)
		k.append(s, "j", 1, "second")
		k.holds(s, "j", "first", "second")
		k.cells(s, nil)
	}},
	{"transaction/refused", "after an error other than a conflict the transaction is over and nothing of it is written", func(k *kit) {
		s := k.openTx()
		k.append(s, "gone", 0, "entry")
		if err := s.Drop(k.ctx, "gone"); err != nil {
			k.Fatalf("Drop = %v", err)
		}
		large := make([]byte, store.MaxEntry+store.Slack+1)
		for what, commit := range map[string]struct {
			b    store.Batch
			want error
		}{
			"a dropped journal": {batchOf("gone", 0, "late"), store.ErrDropped},
			"too large":         {store.Batch{Journal: "j", Entries: [][]byte{large}}, store.ErrTooLarge},
			"no entries":        {store.Batch{Journal: "j"}, store.ErrInvalid},
		} {
			tx := k.begin(s)
			k.txPut(tx, "cell", what, "")
			_, err := tx.Commit(k.ctx, commit.b)
			k.want(err, commit.want, "Commit: %s", what)
			k.overNow(tx, "j", 0)
		}
		k.holds(s, "j")
		k.cells(s, nil)
	}},
	{"transaction/context", "the end of its context rolls a transaction back, so that others can write although its owner does nothing", func(k *kit) {
		s, other := k.openTx(), k.open()
		ctx, cancel := context.WithCancelCause(k.ctx)
		cause := errors.New("the cause")
		tx, err := store.Begin(ctx, s)
		if err != nil {
			k.Fatalf("Begin = %v", err)
		}
		k.txPut(tx, "cell", "value", "")
		cancel(cause)
		k.append(s, "j", 0, "first") // waits for it, if anything
		k.append(other, "j", 1, "second")
		_, err = tx.Commit(k.ctx, batchOf("j", 2, "late"))
		k.want(err, store.ErrRolledBack, "Commit after the end of the context")
		k.want(err, cause, "Commit after the end of the context, with its cause,")
		k.overNow(tx, "j", 2)
		k.holds(s, "j", "first", "second")
		k.cells(s, nil)
		_, err = store.Begin(ctx, s)
		k.want(err, context.Canceled, "Begin with a context that has ended")
	}},
	{"transaction/others", "transactions and writes of many goroutines and handles end, and each commit is in the journal once", func(k *kit) {
		const each = 5
		handles := []store.Store{k.openTx(), k.open()}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				s := handles[i%2]
				for n := range each {
					b := batchOf("shared", 0, fmt.Sprintf("%d.%d", i, n))
					if err := k.addOne(s, b, i < 4); err != nil {
						k.Errorf("writer %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Wait()
		seen := map[string]bool{}
		for _, e := range k.read(handles[0], "shared") {
			if seen[e] {
				k.Errorf("entry %s is there twice", e)
			}
			seen[e] = true
		}
		cells := map[string]string{}
		for i := range 6 {
			for n := range each {
				key := fmt.Sprintf("%d.%d", i, n)
				if !seen[key] {
					k.Errorf("entry %s is missing", key)
				}
				cells[key] = "value"
			}
		}
		k.cells(handles[1], cells)
	}},
	{"transaction/wakes", "a commit wakes whoever watches the journal or a cell, of the same handle and of others", func(k *kit) {
		s, other := k.openTx(), k.open()
		for i, watched := range []string{"journal", "put", "batch"} {
			for j, h := range []store.Store{s, other} {
				ctx, cancel := context.WithTimeout(k.ctx, patience)
				id, first := fmt.Sprint(i, j), true
				for range store.Watch(ctx, h, watched) {
					if first {
						tx := k.begin(s)
						k.txPut(tx, "put"+id, "value", "")
						k.txCommit(tx, batchOf("journal"+id, 0, "entry", puts("batch"+id, "value", "")))
						first = false
						continue
					}
					break
				}
				if ctx.Err() != nil {
					k.Errorf("no wake-up of a watch of %q came within %v after a commit", watched, patience)
				}
				cancel()
			}
		}
	}},
	{"transaction/joined", "what is written in a transaction of the program is there if and only if the program commits, and only that is undone by Rollback", func(k *kit) {
		s, other := k.openTx(), k.open()
		k.append(s, "theirs", 0, "first")
		for _, commits := range []bool{false, true} {
			program := k.begin(s)
			k.txPut(program, "before", "value", "")
			k.txCommit(k.join(s, program), batchOf("one", 0, "entry"))
			undone := k.join(s, program)
			k.txPut(undone, "undone", "value", "")
			_, err := undone.Commit(k.ctx, batchOf("theirs", 0, "wrong", puts("undone too", "wrong", "")))
			k.want(err, store.ErrConflict, "Commit in a transaction of the program after 0 to a journal that ends at 1")
			if err := undone.Rollback(); err != nil {
				k.Errorf("Rollback of a part of a transaction = %v", err)
			}
			k.overNow(undone, "two", 0)
			k.join(s, program) // and nothing
			refused := k.join(s, program)
			_, err = refused.Commit(k.ctx, store.Batch{Journal: "three"})
			k.want(err, store.ErrInvalid, "Commit without entries in a transaction of the program")
			joined := k.join(s, program)
			k.txPut(joined, "put", "value", "")
			k.txCommit(joined, batchOf("two", 0, "entry", puts("batch", "value", "")))
			k.overNow(joined, "two", 1)
			for _, h := range []store.Store{s, other} {
				k.holds(h, "one")
				k.holds(h, "two")
				k.cells(h, nil)
			}
			if !commits {
				if err := program.Rollback(); err != nil {
					k.Errorf("Rollback of the program's transaction = %v", err)
				}
				continue
			}
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			first := true
			for range store.Watch(ctx, other, "two") {
				if !first {
					break
				}
				first = false
				k.txCommit(program, batchOf("theirs", 1, "second"))
			}
			if ctx.Err() != nil {
				k.Errorf("no wake-up came within %v after the program's commit", patience)
			}
			cancel()
		}
		for _, h := range []store.Store{s, other} {
			k.holds(h, "one", "entry")
			k.holds(h, "two", "entry")
			k.holds(h, "theirs", "first", "second")
			k.cells(h, map[string]string{"before": "value", "put": "value", "batch": "value"})
		}
		_, err := store.Join(k.ctx, s, "nonsense")
		k.want(err, store.ErrInvalid, "Join of what is no transaction")
	}},
	{"transaction/close", "Close does not wait for a transaction that nobody ends", func(k *kit) {
		s := k.openTx()
		tx := k.begin(s)
		k.txPut(tx, "cell", "value", "")
		if err := s.Close(); err != nil {
			k.Errorf("Close = %v", err)
		}
		_, err := tx.Commit(k.ctx, batchOf("j", 0, "late"))
		if err == nil {
			k.Errorf("Commit after Close succeeded")
		}
		k.cells(k.open(), nil)
	}},
}

// addOne appends an entry to the end of a journal, with a cell of the same name.
func (k *kit) addOne(s store.Store, b store.Batch, inTx bool) error {
	key := string(b.Entries[0])
	cell := puts(key, "value", "")
	if !inTx {
		for {
			b.After, b.Cells = uint64(len(k.read(s, b.Journal))), []store.Write{cell}
			if _, err := store.AppendWith(k.ctx, s, b); !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	}
	tx, err := store.Begin(k.ctx, s)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Put(k.ctx, key, cell.Value, ""); err != nil {
		return err
	}
	for {
		b.After = uint64(len(k.read(s, b.Journal)))
		if _, err := tx.Commit(k.ctx, b); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
