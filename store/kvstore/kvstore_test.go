package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/storetest"
)

// opener returns stores over one engine per folder. They outlive their
// handles, as an engine in another process does.
func opener(engine func() kvstore.KV, pack int) storetest.Opener {
	var engines sync.Map
	return func(_ context.Context, dir string) (store.Store, error) {
		kv, _ := engines.LoadOrStore(dir, engine())
		return kvstore.New(kv.(kvstore.KV), kvstore.Options{Durability: store.Process, Pack: pack}), nil
	}
}

func TestStore(t *testing.T) {
	t.Run("counted versions", func(t *testing.T) {
		storetest.Run(t, opener(func() kvstore.KV { return newEngine(false) }, 0))
	})
	t.Run("hashed versions and news", func(t *testing.T) {
		storetest.Run(t, opener(func() kvstore.KV { return &telling{newEngine(true), store.NewHub()} }, 0))
	})
	t.Run("packed", func(t *testing.T) {
		storetest.Run(t, opener(func() kvstore.KV { return kind{pack: 100}.engine() }, 100))
	})
}

// Every KV call of a remote engine costs a round trip, so their number is part
// of what the package promises.
func TestCallsPerOperation(t *testing.T) {
	e := newEngine(false)
	kv := shake(e, nil)
	s := kvstore.New(kv, kvstore.Options{})
	ctx := t.Context()
	last := uint64(0)
	add := func() error {
		var err error
		last, err = s.Append(ctx, "j", last, []byte("entry"))
		return err
	}
	read := func(after uint64) func() error {
		return func() error { _, err := store.ReadAll(ctx, s, "j", after); return err }
	}
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{
		{"the first append", add, "get list put"},
		{"an append", add, "put put"},
		{"another append", add, "put put"},
		{"a read of the newest batch", read(2), "get"},
		{"a read behind the end", read(3), "get"},
		{"a read of the newest two batches", read(1), "get list next"},
		{"a read of all", read(0), "get list next next"},
		{"a stale append", func() error {
			if err := appended(s, "j", 1, "x"); !errors.Is(err, store.ErrConflict) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, "get"},
		{"a cell", func() error { _, err := s.Put(ctx, "k", nil, ""); return err }, "put"},
		{"a drop", func() error { return s.Drop(ctx, "j") }, "get put list next delete next delete"},
		{"an append to a dropped journal", func() error {
			if err := appended(s, "j", 3, "x"); !errors.Is(err, store.ErrDropped) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}, "get"},
		{"a second drop", func() error { return s.Drop(ctx, "j") }, "get list"},
	} {
		kv.ops = nil
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := strings.Join(kv.ops, " "); got != c.want {
			t.Errorf("%s calls the engine with %q, want %q", c.what, got, c.want)
		}
	}
}

// Packed, an append is one write, and many entries are read with few calls.
func TestCallsPacked(t *testing.T) {
	k := kind{pack: 1000}
	kv := shake(k.engine(), nil)
	s := kvstore.New(kv, k.options())
	const entries = 1000
	for n := range uint64(entries) {
		must(t, appended(s, "j", n, strings.Repeat("x", 9)))
	}
	if writes := len(kv.ops) - 2; writes != entries+entries/100-1 {
		t.Errorf("%d appends take %d writes, want one each and one for every 100 entries that are moved", entries, writes)
	}
	kv.ops = nil
	if all, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(all) != entries {
		t.Fatalf("there are %d entries: %v", len(all), err)
	}
	if len(kv.ops) > 2+entries/100 {
		t.Errorf("a read of %d entries calls the engine %d times: %v", entries, len(kv.ops), kv.ops)
	}
}

// An append by a handle that was overtaken or whose journal was dropped must
// find out, although its head is cached.
func TestOutdatedHead(t *testing.T) {
	ctx := t.Context()
	e := newEngine(false)
	one, two := kvstore.New(e, kvstore.Options{}), kvstore.New(e, kvstore.Options{})
	must(t, appended(one, "j", 0, "a"))
	must(t, appended(two, "j", 1, "b"))
	if err := appended(one, "j", 1, "c"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("append of an overtaken handle: %v, want ErrConflict", err)
	}
	must(t, appended(one, "j", 2, "c"))
	must(t, two.Drop(ctx, "j"))
	if err := appended(one, "j", 3, "d"); !errors.Is(err, store.ErrDropped) {
		t.Errorf("append to a journal that another handle dropped: %v, want ErrDropped", err)
	}
	if left := e.snapshot(); len(left) != 1 {
		t.Errorf("the engine holds %d keys behind a drop, want the tombstone alone", len(left))
	}
}

// A version that changes without the value, as when an engine is restored from
// a copy, refuses one append and not all that follow.
func TestNewVersionOfTheSameHead(t *testing.T) {
	e := newEngine(false)
	s := kvstore.New(e, kvstore.Options{})
	must(t, appended(s, "sick", 0, "1"))
	e.mu.Lock()
	cell := e.cells["h-edkm6qo"]
	cell.Version = "restored"
	e.cells["h-edkm6qo"] = cell
	e.mu.Unlock()
	if err := appended(s, "sick", 1, "2"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the first append: %v, want ErrConflict", err)
	}
	must(t, appended(s, "sick", 1, "2"))
}

// The cache of heads may not grow with the number of journals, and forgetting
// one may cost a call but no entry.
func TestManyLargeJournals(t *testing.T) {
	kv := shake(newEngine(false), nil)
	s := kvstore.New(kv, kvstore.Options{})
	big := strings.Repeat("x", store.MaxEntry)
	const journals = 50
	for after := range uint64(2) {
		kv.ops = nil
		for j := range journals {
			must(t, appended(s, fmt.Sprint(j), after, big))
		}
	}
	gets := 0
	for _, op := range kv.ops {
		if op == "get" {
			gets++
		}
	}
	if gets == 0 {
		t.Errorf("all of %d heads of %d bytes are in memory", journals, len(big))
	}
	for j := range journals {
		entries, err := store.ReadAll(t.Context(), s, fmt.Sprint(j), 0)
		if err != nil || len(entries) != 2 {
			t.Fatalf("journal %d has %d entries (%v), want 2", j, len(entries), err)
		}
	}
}

// A store is a KV, and what it offers beyond reaches through.
func TestOverAStore(t *testing.T) {
	ctx := t.Context()
	one := kvstore.New(memstore.Open(t.Name()), kvstore.Options{Durability: store.Power})
	two := kvstore.New(memstore.Open(t.Name()), kvstore.Options{})
	defer two.Close()
	if d := store.DurabilityOf(one); d != store.None {
		t.Errorf("the durability is %v, want that of the engine, none", d)
	}
	heard := make(chan string)
	go func() {
		defer close(heard)
		for m := range store.Listen(ctx, two, "topic") {
			heard <- string(m)
			return
		}
	}()
	woken := 0
	for range store.Watch(ctx, two, "pre") {
		entries, err := store.ReadAll(ctx, two, "prefixed", 0)
		if err != nil {
			t.Fatal(err)
		}
		if woken++; len(entries) == 2 {
			break
		}
		must(t, appended(one, "prefixed", uint64(len(entries)), "x"))
	}
	for open := true; open; {
		must(t, store.Cast(ctx, one, "topic", []byte("hello")))
		select {
		case m, ok := <-heard:
			if open = ok; ok && m != "hello" {
				t.Errorf("heard %q", m)
			}
		default:
		}
	}
	must(t, one.Close())
	must(t, one.Close())
	if _, err := one.Get(ctx, "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Get of a closed store: %v", err)
	}
	for range store.Watch(ctx, one, "") {
		t.Error("Watch of a closed store yields")
	}
	for range store.Listen(ctx, one, "topic") {
		t.Error("Listen of a closed store yields")
	}
}

type closer struct {
	*engine
	closed int
}

func (c *closer) Close() error { c.closed++; return nil }

func TestCloseClosesTheEngineOnce(t *testing.T) {
	kv := &closer{engine: newEngine(false)}
	s := kvstore.New(kv, kvstore.Options{Durability: store.Process})
	if d := store.DurabilityOf(s); d != store.Process {
		t.Errorf("the durability is %v, want that of the options, process", d)
	}
	must(t, s.Close())
	must(t, s.Close())
	if kv.closed != 1 {
		t.Errorf("the engine was closed %d times, want once", kv.closed)
	}
}

// Two handles and many writers on one engine: each journal ends with exactly
// the batches that were acknowledged, and a drop amid it leaves nothing.
func TestRace(t *testing.T) {
	ctx := t.Context()
	e := newEngine(true)
	handles := []*kvstore.Store{kvstore.New(e, kvstore.Options{}), kvstore.New(e, kvstore.Options{})}
	const journals, writers, each = 3, 4, 25
	acked := make([][]string, writers*journals*2)
	var all sync.WaitGroup
	for i := range acked {
		all.Go(func() {
			s, journal := handles[i%2], fmt.Sprint("j", i%journals)
			last := uint64(0)
			for n := range each {
				id := fmt.Sprintf("writer %d entry %d.", i, n)
				for {
					l, err := store.AppendOnce(ctx, s, journal, last, []byte(id), []byte(id))
					if err == nil {
						acked[i], last = append(acked[i], id), l
						break
					}
					if !errors.Is(err, store.ErrConflict) {
						t.Errorf("append: %v", err)
						return
					}
					for entry, err := range s.Read(ctx, journal, last) {
						if err != nil {
							t.Errorf("read: %v", err)
							return
						}
						last = entry.Seq
					}
				}
			}
		})
	}
	doomed := make(chan struct{})
	for i := range 4 {
		all.Go(func() {
			for last := uint64(0); ; {
				l, err := handles[i%2].Append(ctx, "doomed", last, []byte("canary"))
				switch {
				case err == nil:
					if last = l; last == 20 {
						close(doomed)
					}
				case errors.Is(err, store.ErrDropped):
					return
				case !errors.Is(err, store.ErrConflict):
					t.Errorf("append: %v", err)
					return
				default:
					for entry, err := range handles[i%2].Read(ctx, "doomed", last) {
						if err == nil {
							last = entry.Seq
						}
					}
				}
			}
		})
	}
	<-doomed
	must(t, handles[0].Drop(ctx, "doomed"))
	all.Wait()
	if key, ok := e.holds("canary"); ok {
		t.Errorf("key %s still holds bytes of the dropped journal", key)
	}
	for j := range journals {
		entries, err := store.ReadAll(ctx, handles[0], fmt.Sprint("j", j), 0)
		must(t, err)
		var want, got []string
		for i, ids := range acked {
			if i%journals == j {
				want = append(want, ids...)
			}
		}
		for i := 0; i+1 < len(entries); i += 2 {
			if string(entries[i].Data) != string(entries[i+1].Data) {
				t.Fatalf("entries %d and %d of j%d are of different batches", i+1, i+2, j)
			}
			got = append(got, string(entries[i].Data))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("j%d has %d batches, want the %d that were acknowledged", j, len(got), len(want))
		}
	}
}

func appended(s store.Store, journal string, after uint64, entries ...string) error {
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = []byte(e)
	}
	_, err := s.Append(context.Background(), journal, after, data...)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
