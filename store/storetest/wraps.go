package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// Wraps checks that the optional upgrades of a store can be reached through a
// wrapper. A wrapper that hides one still works, because package store falls back:
// its users poll instead of being woken, lose live messages, and are told that
// nothing is durable. So no other test would fail. Wraps also checks that neither a
// batch nor a transaction bypasses the wrapper, whether or not the wrapper implements
// store.Batcher.
//
// Wrap is called several times with a store that has every upgrade, and once with
// one that cannot batch.
func Wraps(t *testing.T, wrap func(store.Store) store.Store) {
	for _, c := range wrapCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, wrap) })
	}
}

type wrapCase struct {
	name string
	why  string
	run  func(k *kit, inside *upgraded, wrapped store.Store)

	unbatched bool // the store inside has no store.Batcher and no store.Transactor after all
}

func (c wrapCase) check(tb testing.TB, wrap func(store.Store) store.Store) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wrapTime)
	defer cancel()
	defer func() {
		if tb.Failed() {
			tb.Logf("the clause: %s", c.why)
		}
	}()
	inside := newUpgraded(store.Power)
	inside.unbatched = c.unbatched
	wrapped := wrap(inside)
	defer wrapped.Close()
	c.run(&kit{TB: tb, ctx: ctx}, inside, wrapped)
}

// wrapTime bounds a wait for something that must happen.
const wrapTime = 20 * time.Second

var wrapCases = []wrapCase{
	{name: "batch", why: "a batch takes the same path through the wrapper as its appends and puts: one that went past it would not be encrypted, or not be seen", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		wrapBatch(k, inside, wrapped)
		if has := store.BatcherOf(wrapped) != nil; has != (inside.batches.Load() > 0) {
			k.Errorf("%T has a store.Batcher: %t, and %d batches reached the store inside", wrapped, has, inside.batches.Load())
		}
	}},
	{name: "no batch", why: "a wrapper returns errors.ErrUnsupported for a batch that the store inside cannot make, so that it is made as single writes", unbatched: true, run: wrapBatch},
	{name: "transaction", why: "what a transaction appends and puts takes the same path through the wrapper as appends and puts, and its conflicts leave it open", run: wrapTx},
	{name: "no transaction", why: "a wrapper returns errors.ErrUnsupported from Begin if the store inside has no transactions", unbatched: true, run: func(k *kit, _ *upgraded, wrapped store.Store) {
		if tx, err := store.Begin(k.ctx, wrapped); err != errors.ErrUnsupported {
			k.Errorf("Begin of %T around a store without store.Transactor = %v, %v; want errors.ErrUnsupported", wrapped, tx, err)
		}
	}},
	{name: "unsynced", why: "an unsynced put takes the same path through the wrapper as a put, and is not synced inside", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		k.put(wrapped, "single", "value", "")
		if _, err := store.PutUnsynced(k.ctx, wrapped, "unsynced", []byte("value"), ""); err != nil {
			k.Fatalf("PutUnsynced through %T = %v", wrapped, err)
		}
		if got := k.value(wrapped, "unsynced"); got != "value" {
			k.Errorf("a cell that was put unsynced through %T holds %q, want %q", wrapped, got, "value")
		}
		if single, unsynced := k.value(inside, "single") == "value", k.value(inside, "unsynced") == "value"; single != unsynced {
			k.Errorf("through %T a put reaches the store inside as it is: %t, and an unsynced one: %t", wrapped, single, unsynced)
		}
		if _, has := wrapped.(store.Unsynced); has != (inside.hasty.Load() > 0) {
			k.Errorf("%T has a store.Unsynced: %t, and %d such puts reached the store inside", wrapped, has, inside.hasty.Load())
		}
	}},
	{name: "unwrap", why: "a wrapper implements store.Wrapper, so that store.As finds the upgrades that it does not have itself", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		s := wrapped
		for s != store.Store(inside) {
			w, ok := s.(store.Wrapper)
			if !ok {
				k.Fatalf("%T has no Unwrap() store.Store, so upgrades inside it cannot be found", s)
			}
			if s = w.Unwrap(); s == nil {
				k.Fatalf("Unwrap of %T returned nil, want the store that was wrapped", w)
			}
		}
	}},
	{name: "durability", why: "store.Open refuses a store that is less durable than required, and believes the wrapper", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		if _, ok := store.As[store.Durable](wrapped); !ok {
			k.Fatalf("store.As finds no store.Durable in %T", wrapped)
		}
		for _, want := range []store.Durability{store.Power, store.Process, store.None} {
			inside.durability.Store(int64(want))
			if got := store.DurabilityOf(wrapped); got != want {
				k.Errorf("DurabilityOf(%T) = %v around a store of class %v", wrapped, got, want)
			}
		}
	}},
	{name: "watch", why: "a watcher is woken by what is written through the wrapper, without polling, until the store is closed", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		if _, ok := store.As[store.Watcher](wrapped); !ok {
			k.Fatalf("store.As finds no store.Watcher in %T", wrapped)
		}
		awake := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range store.Watch(k.ctx, wrapped, "watched") {
				select {
				case awake <- struct{}{}:
				case <-k.ctx.Done():
				}
			}
		}()
		k.await(awake, "the first, immediate wake-up")
		if inside.watches.Load() == 0 {
			k.Fatalf("Watch of %T does not reach Watch of the store inside", wrapped)
		}
		k.append(wrapped, "watched", 0, "entry")
		k.await(awake, "a wake-up after an append to the watched journal")
		k.put(wrapped, "watched cell", "value", "")
		k.await(awake, "a wake-up after a put of a cell with the watched prefix")
		go wrapped.Close()
		drain(k, awake, ended, "Watch")
	}},
	{name: "cast", why: "a message cast through the wrapper reaches listeners through it, until the store is closed", run: func(k *kit, inside *upgraded, wrapped store.Store) {
		if _, ok := store.As[store.Caster](wrapped); !ok {
			k.Fatalf("store.As finds no store.Caster in %T", wrapped)
		}
		const message = "a message \x00\xff"
		heard := make(chan string)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for m := range store.Listen(k.ctx, wrapped, "topic") {
				select {
				case heard <- string(m):
				case <-k.ctx.Done():
				}
			}
		}()
		again := time.NewTicker(5 * time.Millisecond) // the listener may not be there yet
		defer again.Stop()
		for quiet := true; quiet; {
			if err := store.Cast(k.ctx, wrapped, "topic", []byte(message)); err != nil {
				k.Fatalf("Cast through %T: %v", wrapped, err)
			}
			select {
			case m := <-heard:
				if quiet = false; m != message {
					k.Errorf("Listen through %T yielded %q, cast was %q", wrapped, m, message)
				}
			case <-again.C:
			case <-k.ctx.Done():
				k.Fatalf("waited %v in vain for a message cast repeatedly through %T", wrapTime, wrapped)
			}
		}
		if inside.casts.Load() == 0 {
			k.Errorf("Cast of %T does not reach Cast of the store inside, so other processes hear nothing", wrapped)
		}
		go wrapped.Close()
		drain(k, heard, ended, "Listen")
	}},
}

// drain waits for the end of a loop that Close ends, and takes what it still
// yields meanwhile.
func drain[T any](k *kit, news <-chan T, ended <-chan struct{}, loop string) {
	k.Helper()
	for {
		select {
		case <-news:
		case <-ended:
			return
		case <-k.ctx.Done():
			k.Fatalf("waited %v in vain for the end of %s after Close", wrapTime, loop)
		}
	}
}

// await waits for something that must happen.
func (k *kit) await(c <-chan struct{}, what string) {
	k.Helper()
	select {
	case <-c:
	case <-k.ctx.Done():
		k.Fatalf("waited %v in vain for %s", wrapTime, what)
	}
}

// wrapBatch writes an entry and a cell singly and in a batch, and demands that
// the store inside gets both in the same guise: as they are, or changed.
func wrapBatch(k *kit, inside *upgraded, wrapped store.Store) {
	k.append(wrapped, "single", 0, "entry")
	k.put(wrapped, "single", "value", "")
	b := batchOf("batch", 0, "entry", puts("batch", "value", ""), maybe(puts("maybe", "value", "")))
	if last, err := store.AppendWith(k.ctx, wrapped, b); err != nil || last != 1 {
		k.Fatalf("AppendWith through %T = %d, %v; want 1 and success", wrapped, last, err)
	}
	k.holds(wrapped, "batch", "entry")
	for _, key := range []string{"batch", "maybe"} {
		if got := k.value(wrapped, key); got != "value" {
			k.Errorf("cell %q of a batch through %T holds %q, want %q", key, wrapped, got, "value")
		}
		if single, batched := k.value(inside, "single") == "value", k.value(inside, key) == "value"; single != batched {
			k.Errorf("through %T a put reaches the store inside as it is: %t, and one in a batch: %t", wrapped, single, batched)
		}
	}
	if single, batched := k.read(inside, "single")[0] == "entry", k.read(inside, "batch")[0] == "entry"; single != batched {
		k.Errorf("through %T an append reaches the store inside as it is: %t, and one in a batch: %t", wrapped, single, batched)
	}
	_, err := store.AppendWith(k.ctx, wrapped, batchOf("batch", 1, "another", puts("batch", "stale", "")))
	if cell := (*store.CellConflict)(nil); !errors.As(err, &cell) || cell.Key != "batch" {
		k.Errorf("AppendWith through %T with a stale cell = %v, want a *store.CellConflict that names it", wrapped, err)
	}
}

// wrapTx commits a transaction through the wrapper if it has them, and demands
// that the store inside gets all in the same guise as from Append and Put.
func wrapTx(k *kit, inside *upgraded, wrapped store.Store) {
	tx, err := store.Begin(k.ctx, wrapped)
	if _, has := wrapped.(store.Transactor); !has {
		if err != errors.ErrUnsupported {
			k.Errorf("Begin of %T, which is no store.Transactor, = %v, %v", wrapped, tx, err)
		}
		return
	}
	if err != nil {
		k.Fatalf("Begin of %T = %v", wrapped, err)
	}
	k.append(wrapped, "single", 0, "entry")
	k.put(wrapped, "single", "value", "")
	if _, err := tx.Put(k.ctx, "put", []byte("value"), ""); err != nil {
		k.Fatalf("Put in a transaction through %T = %v", wrapped, err)
	}
	_, err = tx.Commit(k.ctx, batchOf("journal", 7, "entry"))
	k.want(err, store.ErrConflict, "Commit through %T after a sequence that is not there", wrapped)
	if last, err := tx.Commit(k.ctx, batchOf("journal", 0, "entry", puts("batch", "value", ""))); err != nil || last != 1 {
		k.Fatalf("Commit through %T after a conflict = %d, %v; want 1 and success", wrapped, last, err)
	}
	if inside.commits.Load() == 0 {
		k.Errorf("a transaction through %T did not reach the store inside", wrapped)
	}
	k.holds(wrapped, "journal", "entry")
	for _, key := range []string{"put", "batch"} {
		if got := k.value(wrapped, key); got != "value" {
			k.Errorf("cell %q of a transaction through %T holds %q, want %q", key, wrapped, got, "value")
		}
		if single, in := k.value(inside, "single") == "value", k.value(inside, key) == "value"; single != in {
			k.Errorf("through %T a put reaches the store inside as it is: %t, and cell %q of a transaction: %t", wrapped, single, key, in)
		}
	}
	if single, in := k.read(inside, "single")[0] == "entry", k.read(inside, "journal")[0] == "entry"; single != in {
		k.Errorf("through %T an append reaches the store inside as it is: %t, and one of a transaction: %t", wrapped, single, in)
	}
	if tx, err = store.Begin(k.ctx, wrapped); err != nil {
		k.Fatalf("the second Begin of %T = %v", wrapped, err)
	}
	if err := tx.Rollback(); err != nil {
		k.Errorf("Rollback through %T = %v", wrapped, err)
	}
	_, err = tx.Commit(k.ctx, batchOf("journal", 1, "another"))
	k.want(err, store.ErrRolledBack, "Commit through %T after Rollback", wrapped)
	if tx, err = store.Join(k.ctx, wrapped, "native"); err != nil || tx.Native() != any("native") {
		k.Fatalf("Join through %T = %v, %v; want a transaction with what was given to it", wrapped, tx, err)
	}
	if last, err := tx.Commit(k.ctx, batchOf("joined", 0, "entry")); err != nil || last != 1 {
		k.Fatalf("Commit through %T of a transaction of the program = %d, %v; want 1 and success", wrapped, last, err)
	}
	if single, in := k.read(inside, "single")[0] == "entry", k.read(inside, "joined")[0] == "entry"; single != in {
		k.Errorf("through %T an append reaches the store inside as it is: %t, and one in a transaction of the program: %t", wrapped, single, in)
	}
}
