package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

var handleCases = []testCase{
	{"handles/see-each-other", `Handles on one store see each other's writes at once, and compare and swap against them.`,
		func(k *kit) {
			a, b := k.open(), k.open()
			lists := func(names, keys []string) {
				k.Helper()
				if got := k.names(b, ""); !slices.Equal(got, names) {
					k.Fatalf("Journals of the second handle yields %q, want %q", got, names)
				}
				if got := k.keys(b, "", ""); !slices.Equal(got, keys) {
					k.Fatalf("List of the second handle yields %q, want %q", got, keys)
				}
			}
			lists(nil, nil)
			k.append(a, "j", 0, "from a")
			lists([]string{"j"}, nil)
			k.holds(b, "j", "from a")
			k.append(b, "j", 1, "from b")
			_, err := a.Append(k.ctx, "j", 1, []byte("stale"))
			k.want(err, store.ErrConflict, "Append by the first handle that has not seen the second one's")
			k.holds(a, "j", "from a", "from b")

			v1 := k.put(a, "c", "1", "")
			lists([]string{"j"}, []string{"c"})
			if got := k.value(b, "c"); got != "1" {
				k.Fatalf("the second handle gets %q, want what the first wrote", got)
			}
			v2 := k.put(b, "c", "2", v1)
			if got := k.value(a, "c"); got != "2" {
				k.Fatalf("the first handle gets %q, want what the second wrote", got)
			}
			k.put(a, "c", "3", v2)
			if got := k.value(b, "c"); got != "3" {
				k.Fatalf("the second handle gets %q, want what the first wrote", got)
			}
			if err := a.Close(); err != nil {
				k.Fatal(err)
			}
			k.append(b, "j", 2, "b goes on")
			k.holds(b, "j", "from a", "from b", "b goes on")
		}},

	{"handles/versions-never-repeat", `A version identifies one write of a cell, whichever handle made it: if another handle reused it, a slow writer could overwrite what it never saw.`,
		func(k *kit) {
			handles := []store.Store{k.open(), k.open()}
			seen := map[store.Version]bool{}
			prev := store.Version("")
			for turn := range 4 {
				for range 3 {
					prev = k.put(handles[turn%2], "c", "same value", prev)
					if seen[prev] {
						k.Fatalf("write %d of the cell got version %q, which an earlier one had", len(seen)+1, prev)
					}
					seen[prev] = true
				}
			}
		}},

	{"handles/reopen", `Acknowledged writes are there when the store is opened again, if it claims to survive its process; dropped journals stay dropped, and versions do not repeat.`,
		func(k *kit) {
			s := k.open()
			class := store.DurabilityOf(s)
			k.Logf("durability class: %s", class)
			k.append(s, "j", 0, "one", "two")
			k.append(s, "j", 2, "three")
			k.append(s, "gone", 0, "x")
			for _, name := range []string{"gone", "never"} {
				if err := s.Drop(k.ctx, name); err != nil {
					k.Fatal(err)
				}
			}
			v1 := k.put(s, "c", "1", "")
			v2 := k.put(s, "c", "2", v1)
			gone := k.put(s, "deleted", "x", "")
			k.delete(s, "deleted", gone)
			if err := s.Close(); err != nil {
				k.Fatalf("Close: %v", err)
			}
			if class == store.None {
				return
			}
			s = k.open()
			k.holds(s, "j", "one", "two", "three")
			_, err := s.Append(k.ctx, "j", 2, []byte("stale"))
			k.want(err, store.ErrConflict, "stale Append after reopening")
			k.append(s, "j", 3, "four")
			for _, name := range []string{"gone", "never"} {
				k.want(k.readErr(s, name), store.ErrDropped, "Read of a dropped journal after reopening")
				_, err = s.Append(k.ctx, name, 0, []byte("x"))
				k.want(err, store.ErrDropped, "Append to a dropped journal after reopening")
			}
			if got := k.names(s, ""); !slices.Equal(got, []string{"j"}) {
				k.Errorf("Journals yields %q after reopening, want [j]", got)
			}
			if got := k.keys(s, "", ""); !slices.Equal(got, []string{"c"}) {
				k.Errorf("List yields %q after reopening, want [c]", got)
			}
			if got := k.value(s, "c"); got != "2" {
				k.Fatalf("the cell holds %q after reopening, want 2", got)
			}
			_, err = s.Get(k.ctx, "deleted")
			k.want(err, store.ErrNotFound, "Get of a deleted cell after reopening")
			for _, v := range []store.Version{k.put(s, "c", "3", v2), k.put(s, "deleted", "y", "")} {
				if v == v1 || v == v2 || v == gone {
					k.Fatalf("version %q was used again after reopening", v)
				}
			}
		}},

	{"handles/closed", `A closed store returns ErrClosed from every call, and closing twice is harmless.`,
		func(k *kit) {
			keeper := k.open() // keeps a store without durability alive
			k.append(keeper, "j", 0, "x")
			v := k.put(keeper, "c", "x", "")
			s := k.open()
			for range 2 {
				if err := s.Close(); err != nil {
					k.Fatalf("Close: %v", err)
				}
			}
			_, err := s.Append(k.ctx, "j", 1, []byte("x"))
			k.want(err, store.ErrClosed, "Append")
			k.want(k.readErr(s, "j"), store.ErrClosed, "Read")
			k.want(s.Drop(k.ctx, "j"), store.ErrClosed, "Drop")
			err = nil
			for _, err = range s.Journals(k.ctx, "") {
			}
			k.want(err, store.ErrClosed, "Journals")
			_, err = s.Get(k.ctx, "c")
			k.want(err, store.ErrClosed, "Get")
			_, err = s.Put(k.ctx, "c", []byte("x"), v)
			k.want(err, store.ErrClosed, "Put")
			k.want(s.Delete(k.ctx, "c", v), store.ErrClosed, "Delete")
			err = nil
			for _, err = range s.List(k.ctx, "", "") {
			}
			k.want(err, store.ErrClosed, "List")
		}},

	{"handles/closed-amid-calls", `Calls in progress when a handle is closed finish or fail, and none hangs. A write that was acknowledged is there, and one that returned ErrClosed is not.`,
		func(k *kit) {
			const rounds, writers, most = 5, 8, 200
			keeper := k.open()
			for round := range rounds {
				s := k.open()
				journal := func(w int) string { return fmt.Sprintf("j-%d-%d", round, w) }
				var acked [writers]uint64
				var ends [writers]error
				var begun, over sync.WaitGroup
				begun.Add(writers)
				for w := range writers {
					over.Go(func() {
						for first := true; acked[w] < most; {
							last, err := s.Append(k.ctx, journal(w), acked[w], []byte("x"))
							if err == nil {
								acked[w] = last
							}
							if first {
								first = false
								begun.Done()
							}
							if err != nil && !errors.Is(err, store.ErrConflict) {
								ends[w] = err
								return
							}
						}
					})
				}
				begun.Wait()
				if err := s.Close(); err != nil {
					k.Fatalf("Close amid appends: %v", err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					over.Wait()
				}()
				select {
				case <-done:
				case <-time.After(patience):
					k.Fatalf("an append has not returned %v after Close", patience)
				}
				for w := range writers {
					got := uint64(len(k.read(keeper, journal(w))))
					if got != acked[w] && (got != acked[w]+1 || errors.Is(ends[w], store.ErrClosed)) {
						k.Fatalf("a journal has %d entries after %d were acknowledged and one returned: %v", got, acked[w], ends[w])
					}
				}
			}
		}},
}
