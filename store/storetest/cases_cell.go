package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

var cellCases = []testCase{
	{"cell/missing", `Get of a cell that is not there is ErrNotFound, which is not the same as an empty value.`,
		func(k *kit) {
			s := k.open()
			_, err := s.Get(k.ctx, "never")
			k.want(err, store.ErrNotFound, "Get of a cell that was never written")
		}},

	{"cell/get-tells-the-version", `Get returns the version that the last Put returned, which is good for writing and deleting.`,
		func(k *kit) {
			s := k.open()
			get := func() store.Version {
				cell, err := s.Get(k.ctx, "told")
				if err != nil {
					k.Fatalf("Get: %v", err)
				}
				return cell.Version
			}
			put := k.put(s, "told", "1", "")
			if got := get(); got != put {
				k.Fatalf("Get returns version %q, want %q, which Put returned", got, put)
			}
			k.put(s, "told", "2", get())
			k.delete(s, "told", get())
		}},

	{"cell/create-once", `Put without a previous version creates a cell and does nothing else: of two creators one learns that it came second.`,
		func(k *kit) {
			s := k.open()
			k.put(s, "c", "first", "")
			_, err := s.Put(k.ctx, "c", []byte("second"), "")
			k.want(err, store.ErrConflict, "Put without a version on a cell that exists")
			if got := k.value(s, "c"); got != "first" {
				k.Fatalf("a refused Put changed the cell to %q", got)
			}
		}},

	{"cell/stale-conflicts", `Put with any version other than the current one is refused and changes nothing.`,
		func(k *kit) {
			s := k.open()
			v1 := k.put(s, "c", "1", "")
			v2 := k.put(s, "c", "2", v1)
			v3 := k.put(s, "c", "3", v2)
			other := k.put(s, "other", "x", "")
			for name, prev := range map[string]store.Version{"first": v1, "second": v2, "other cell's": other} {
				_, err := s.Put(k.ctx, "c", []byte("stale"), prev)
				k.want(err, store.ErrConflict, "Put over the third version with the %s", name)
			}
			_, err := s.Put(k.ctx, "never", []byte("x"), v3)
			k.want(err, store.ErrConflict, "Put with a version on a cell that does not exist")
			if got := k.value(s, "c"); got != "3" {
				k.Fatalf("a refused Put changed the cell to %q", got)
			}
		}},

	{"cell/delete", `Delete removes the version that it names and no other, so that nobody deletes what they have not seen.`,
		func(k *kit) {
			s := k.open()
			v1 := k.put(s, "c", "1", "")
			v2 := k.put(s, "c", "2", v1)
			k.want(s.Delete(k.ctx, "c", v1), store.ErrConflict, "Delete with a stale version")
			k.want(s.Delete(k.ctx, "c", ""), store.ErrInvalid, "Delete without a version")
			if got := k.value(s, "c"); got != "2" {
				k.Fatalf("a refused Delete changed the cell to %q", got)
			}
			k.delete(s, "c", v2)
			_, err := s.Get(k.ctx, "c")
			k.want(err, store.ErrNotFound, "Get of a deleted cell")
			if keys := k.keys(s, "", ""); len(keys) != 0 {
				k.Fatalf("List yields %q after the only cell was deleted", keys)
			}
			k.want(s.Delete(k.ctx, "c", v2), store.ErrConflict, "Delete of a deleted cell")
		}},

	{"cell/versions-never-repeat", `A version identifies one write for ever, even across Delete and re-creation: otherwise a slow writer would overwrite what it never saw.`,
		func(k *kit) {
			s := k.open()
			seen := map[store.Version]int{}
			var first store.Version
			for life := range 6 {
				prev := store.Version("")
				for write := range 3 {
					prev = k.put(s, "c", "same value", prev)
					if at, dup := seen[prev]; dup {
						k.Fatalf("write %d of the cell got version %q, which write %d had", len(seen)+1, prev, at)
					}
					seen[prev] = len(seen) + 1
					if life == 0 && write == 0 {
						first = prev
					}
				}
				if life > 0 {
					_, err := s.Put(k.ctx, "c", []byte("x"), first)
					k.want(err, store.ErrConflict, "Put with a version from before the cell was deleted")
				}
				k.delete(s, "c", prev)
			}
		}},

	{"cell/one-winner", `Of concurrent writes over the same version, through any handle, at most one wins, be it a change, a Delete or the creation, and the cell holds what the winner wrote.`,
		func(k *kit) {
			const rounds, writers = 40, 8
			s := k.open()
			handles := []store.Store{s, k.open()}
			version := k.put(s, "c", "start", "")
			won := 0
			for round := range rounds {
				var wins atomic.Int64
				var mu sync.Mutex
				var value string
				next := version
				start := make(chan struct{}) // lets all go at once
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						<-start
						mine := fmt.Sprintf("round %d writer %d", round, w)
						var v store.Version
						var err error
						if w%4 > 1 && version != "" && round%3 == 0 {
							mine, err = "", handles[w%2].Delete(k.ctx, "c", version)
						} else {
							v, err = handles[w%2].Put(k.ctx, "c", []byte(mine), version)
						}
						if err == nil {
							wins.Add(1)
							mu.Lock()
							next, value = v, mine
							mu.Unlock()
						} else if !errors.Is(err, store.ErrConflict) {
							k.Errorf("a write over version %q: %v", version, err)
						}
					})
				}
				close(start)
				wg.Wait()
				switch wins.Load() {
				case 0:
				case 1:
					won++
					if value == "" {
						_, err := s.Get(k.ctx, "c")
						k.want(err, store.ErrNotFound, "Get after a Delete won")
					} else if got := k.value(s, "c"); got != value {
						k.Fatalf("the cell holds %q after %q won", got, value)
					}
				default:
					k.Fatalf("%d of %d concurrent writes over one version succeeded", wins.Load(), writers)
				}
				version = next
			}
			if won < rounds/2 {
				k.Fatalf("only %d of %d rounds had a winner: spurious conflicts must be rare", won, rounds)
			}
		}},

	{"cell/unsynced", `PutUnsynced differs from Put only in what a power failure leaves: it compares versions and assigns new ones, is visible to all handles at once, wakes watchers, and survives the process.`,
		func(k *kit) {
			a, b := k.open(), k.open()
			if _, ok := a.(store.Unsynced); !ok {
				k.Skip("the store has no store.Unsynced")
			}
			put := func(s store.Store, value string, prev store.Version) (version store.Version) {
				k.Helper()
				err := sure(func() (err error) { version, err = store.PutUnsynced(k.ctx, s, "c", []byte(value), prev); return err })
				if err != nil || k.value(a, "c") != value || k.value(b, "c") != value {
					k.Fatalf("PutUnsynced(prev %q) = %v, and the handles get %q and %q; want %q", prev, err, k.value(a, "c"), k.value(b, "c"), value)
				}
				return version
			}
			refuses := func(want error, what, key, value string, prev store.Version) {
				k.Helper()
				_, err := store.PutUnsynced(k.ctx, a, key, []byte(value), prev)
				k.want(err, want, "PutUnsynced %s", what)
			}
			versions := map[store.Version]bool{"": true}
			last := store.Version("")
			for n := range 8 {
				old := last
				if n%3 == 2 {
					last = k.put(a, "c", strconv.Itoa(n), last)
				} else {
					last = put([]store.Store{a, b}[n%2], strconv.Itoa(n), last)
				}
				if versions[last] {
					k.Fatalf("write %d got version %q, which an earlier one had", n+1, last)
				}
				versions[last] = true
				refuses(store.ErrConflict, "over a version that was replaced", "c", "stale", old)
				refuses(store.ErrConflict, "over a version of a cell that is not there", "none", "stale", last)
			}
			refuses(store.ErrInvalid, "without a name", "", "x", "")
			refuses(store.ErrTooLarge, "of too much", "c", strings.Repeat("x", store.MaxEntry+store.Slack+1), last)
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			woken := 0
			for range store.Watch(ctx, b, "c") {
				if woken++; woken > 1 {
					break
				}
				last = put(a, "woken", last)
			}
			if woken < 2 {
				k.Fatalf("no wake-up came within %v after PutUnsynced", patience)
			}
			class := store.DurabilityOf(a)
			for _, s := range []store.Store{a, b} {
				if err := s.Close(); err != nil {
					k.Fatal(err)
				}
			}
			refuses(store.ErrClosed, "on a closed store", "c", "x", last)
			if class != store.None {
				if got := k.value(k.open(), "c"); got != "woken" {
					k.Fatalf("the cell holds %q after reopening", got)
				}
			}
		}},

	{"cell/bytes-change-hands", `The store and its callers do not share slices.`,
		func(k *kit) {
			s := k.open()
			buf := []byte("before")
			if err := sure(func() error { _, err := s.Put(k.ctx, "c", buf, ""); return err }); err != nil {
				k.Fatal(err)
			}
			copy(buf, "after!")
			cell, err := s.Get(k.ctx, "c")
			if err != nil {
				k.Fatal(err)
			}
			copy(cell.Value, "XXXXXX")
			for cell, err := range s.List(k.ctx, "", "") {
				if err != nil {
					k.Fatal(err)
				}
				copy(cell.Value, "YYYYYY")
			}
			if got := k.value(s, "c"); got != "before" {
				k.Fatalf("the cell holds %q, want %q", got, "before")
			}
		}},
}

var listCases = []testCase{
	{"list/ordered", `List yields exactly the keys with the prefix that come after the given one, ordered bytewise, with their values and versions. No character of a prefix is special, and no bound is too long. Count agrees with it.`,
		func(k *kit) {
			s := k.open()
			keys := []string{"a", "a/", "a/1", "a/10", "a/2", "a/B", "a/_", "a/b", "a/é", "a/\xff", "a/\xff\xff", "a0", "aa", "b", "p%", "p%x", "p_", "p_x", "pax", "p*", "p*x", "p?x", "\x00", "\x00\x01", "\xff", "\xff\xff"}
			versions := map[string]store.Version{}
			for _, key := range keys {
				versions[key] = k.put(s, key, contentOf(key), "")
			}
			slices.Sort(keys)
			check := func(prefix, after string) {
				k.Helper()
				var want []string
				for _, key := range keys {
					if key > after && len(key) >= len(prefix) && key[:len(prefix)] == prefix {
						want = append(want, key)
					}
				}
				if got := k.keys(s, prefix, after); !slices.Equal(got, want) {
					k.Fatalf("List(%q, after %q) yields %q, want %q", prefix, after, got, want)
				}
			}
			long := strings.Repeat("a", 3*store.MaxName)
			for _, prefix := range []string{"", "a", "a/", "a/1", "p_", "p%", "p*", "\x00", "\xff", "a/\xff", "zz", "_", "%", long} {
				check(prefix, "")
				if n, err := store.Count(k.ctx, s, prefix); err != nil || n != len(k.keys(s, prefix, "")) {
					k.Fatalf("Count(%q) = %d, %v; List yields %d", prefix, n, err, len(k.keys(s, prefix, "")))
				}
				for _, after := range []string{"a", "a/", "a/1", "a/5", "a/\xff", "p", "p_", "\x00", "\xff", "\xff\xff\xff", long, strings.Repeat("\xff", 3*store.MaxName)} {
					check(prefix, after)
				}
			}
			for cell, err := range s.List(k.ctx, "", "") {
				if err != nil || string(cell.Value) != contentOf(cell.Key) || cell.Version != versions[cell.Key] {
					k.Fatalf("List yields %q with value %q and version %q, %v; want version %q", cell.Key, cell.Value, cell.Version, err, versions[cell.Key])
				}
			}
		}},

	{"list/exactly-once", `A cell that is not written during a List is yielded exactly once, whatever happens to others: a worker that walks its due cells misses none. The order holds for all cells, so none is yielded twice.`,
		func(k *kit) {
			const stable = 300
			s := k.open()
			moving := map[string]store.Version{}
			for i := range stable {
				k.put(s, fmt.Sprintf("k/%03d", i), "stays", "")
				if i%3 == 0 {
					key := fmt.Sprintf("k/%03d-moving", i)
					moving[key] = k.put(s, key, "moves", "")
				}
			}
			seen := map[string]int{}
			steps, before := 0, ""
			for cell, err := range s.List(k.ctx, "k/", "") {
				if err != nil {
					k.Fatalf("List: %v", err)
				}
				if cell.Key <= before {
					k.Fatalf("List yields %q after %q", cell.Key, before)
				}
				before = cell.Key
				seen[cell.Key]++
				if steps++; steps%5 == 0 && steps < stable {
					// Before and behind the place where the loop is.
					k.put(s, "k/"+strconv.Itoa(steps/100)+"00-new-"+strconv.Itoa(steps), "new", "")
					k.put(s, "k/299-new-"+strconv.Itoa(steps), "new", "")
					for key, version := range moving {
						if steps%2 == 0 {
							moving[key] = k.put(s, key, "moved", version)
							break
						}
						k.delete(s, key, version)
						delete(moving, key)
						break
					}
				}
			}
			for i := range stable {
				if key := fmt.Sprintf("k/%03d", i); seen[key] != 1 {
					k.Fatalf("cell %q, not written during the List, was yielded %d times", key, seen[key])
				}
			}
		}},

	{"journals/ordered", `Journals yields all names in bytewise order and can be resumed after any.`,
		func(k *kit) {
			s := k.open()
			names := []string{"a", "B", "b", "a/b", "a0", "é", "\x00", "\xff", "z%", "_", "a\x00b"}
			for _, name := range names {
				k.append(s, name, 0, "x")
			}
			slices.Sort(names)
			if got := k.names(s, ""); !slices.Equal(got, names) {
				k.Fatalf("Journals yields %q, want %q", got, names)
			}
			for _, after := range append(slices.Clone(names), "a1", "\x01", "\xff\xff", strings.Repeat("a", 3*store.MaxName)) {
				want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n <= after })
				if got := k.names(s, after); !slices.Equal(got, want) {
					k.Fatalf("Journals after %q yields %q, want %q", after, got, want)
				}
			}
		}},

	{"journals/exactly-once", `A journal that is neither created nor dropped during the call is yielded exactly once: hints rebuilt from it lose no thread.`,
		func(k *kit) {
			const stable = 300
			s := k.open()
			for i := range stable {
				k.append(s, fmt.Sprintf("j/%03d", i), 0, "x")
			}
			for i := range 40 {
				k.append(s, fmt.Sprintf("j/%03d-moving", i*7), 0, "x")
			}
			seen := map[string]int{}
			steps, before := 0, ""
			for name, err := range s.Journals(k.ctx, "") {
				if err != nil {
					k.Fatalf("Journals: %v", err)
				}
				if name <= before {
					k.Fatalf("Journals yields %q after %q", name, before)
				}
				before = name
				seen[name]++
				if steps++; steps%5 == 0 && steps < stable {
					k.append(s, fmt.Sprintf("j/%03d-new-%d", (steps*37)%stable, steps), 0, "x")
					if moving := steps/5 - 1; moving < 40 {
						if err := s.Drop(k.ctx, fmt.Sprintf("j/%03d-moving", (39-moving)*7)); err != nil {
							k.Fatal(err)
						}
					}
				}
			}
			for i := range stable {
				if name := fmt.Sprintf("j/%03d", i); seen[name] != 1 {
					k.Fatalf("journal %q was yielded %d times", name, seen[name])
				}
			}
		}},
}
