package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/perdure/perdure/store"
)

// batching is a store that can batch.
type batching interface {
	store.Store
	store.Batcher
}

// openBatching is open for a case about batches, which not every store can do.
func (k *kit) openBatching() batching {
	k.Helper()
	s := k.open()
	if store.BatcherOf(s) == nil {
		k.Skip("the store has no store.Batcher")
	}
	return s.(batching)
}

// commit makes a batch and demands success, like append.
func (k *kit) commit(s store.Batcher, b store.Batch) {
	k.Helper()
	want := b.After + uint64(len(b.Entries))
	var last uint64
	err := sure(func() (err error) { last, err = s.AppendBatch(k.ctx, b); return err })
	if err != nil || last != want {
		k.Fatalf("AppendBatch to %.40q after %d with %d cells = %d, %v; want %d and success", b.Journal, b.After, len(b.Cells), last, err, want)
	}
}

// cells demands that there are exactly these cells.
func (k *kit) cells(s store.Store, want map[string]string) {
	k.Helper()
	n := 0
	for cell, err := range s.List(k.ctx, "", "") {
		if err != nil {
			k.Fatalf("List = %v", err)
		}
		if value, ok := want[cell.Key]; !ok || value != string(cell.Value) {
			k.Fatalf("cell %.40q holds %.40q, want the cells %.40q", cell.Key, cell.Value, want)
		}
		n++
	}
	if n != len(want) {
		k.Fatalf("there are %d cells, want %.40q", n, want)
	}
}

func puts(key, value string, prev store.Version) store.Write {
	return store.Write{Key: key, Value: []byte(value), Prev: prev}
}

func removes(key string, prev store.Version) store.Write {
	return store.Write{Key: key, Prev: prev, Remove: true}
}

func maybe(w store.Write) store.Write {
	w.Optional = true
	return w
}

func quiet(w store.Write) store.Write {
	w.Quiet = true
	return w
}

func batchOf(journal string, after uint64, entry string, cells ...store.Write) store.Batch {
	return store.Batch{Journal: journal, After: after, Entries: [][]byte{[]byte(entry)}, Cells: cells}
}

// stales returns writes of "cell" and "none" that do not fit: the cell "cell"
// had the version old once and has now, and there is no cell "none".
func stales(old, now store.Version) []store.Write {
	return []store.Write{
		puts("cell", "x", ""), puts("cell", "x", old), removes("cell", old),
		puts("none", "x", now), removes("none", now),
	}
}

var batchCases = []testCase{
	{"batch/whole", `A batch appends its entries and makes its writes: new cells, replaced ones, removed ones. It keeps none of the caller's slices.`,
		func(k *kit) {
			s := k.openBatching()
			k.commit(s, batchOf("alone", 0, "without cells"))
			b := store.Batch{Journal: "j", Entries: [][]byte{[]byte("one"), []byte("two")}, Cells: []store.Write{
				puts("new", "a", ""), puts("replaced", "b", k.put(s, "replaced", "old", "")), removes("removed", k.put(s, "removed", "old", "")),
				puts("empty", "", ""),
			}}
			k.put(s, "beside", "c", "")
			k.commit(s, b)
			for _, buffer := range [][]byte{b.Entries[0], b.Entries[1], b.Cells[0].Value, b.Cells[1].Value} {
				copy(buffer, "changed")
			}
			k.holds(s, "alone", "without cells")
			k.holds(s, "j", "one", "two")
			k.cells(s, map[string]string{"new": "a", "replaced": "b", "empty": "", "beside": "c"})
		}},

	{"batch/made", `A batch that succeeds may tell its writer which versions its cells have after it: those that Get returns. A version that is wrong would make the next write conflict. A batch that is refused tells nothing.`,
		func(k *kit) {
			s := k.openBatching()
			made := make([]store.Version, 4)
			b := batchOf("j", 0, "x", puts("new", "a", ""), puts("replaced", "b", k.put(s, "replaced", "old", "")),
				removes("removed", k.put(s, "removed", "old", "")), maybe(puts("optional", "c", "")))
			for i := range made {
				b.Cells[i].Made = &made[i]
			}
			stale := b
			stale.After = 7
			_, err := s.AppendBatch(k.ctx, stale)
			k.want(err, store.ErrConflict, "AppendBatch after 7 to an empty journal")
			for i, version := range made {
				if version != "" {
					k.Fatalf("a refused batch says that cell %q was made as %q", b.Cells[i].Key, version)
				}
			}
			k.commit(s, b)
			for i, w := range b.Cells {
				if cell, _ := s.Get(k.ctx, w.Key); made[i] != "" && made[i] != cell.Version {
					k.Fatalf("the batch made cell %q as %q, but it is %q", w.Key, made[i], cell.Version)
				}
			}
		}},

	{"batch/journal-first", `A batch whose journal does not end at After is refused for that reason, whatever its cells hold: the writer has to read the journal before it can judge cells. Nothing is written.`,
		func(k *kit) {
			s := k.openBatching()
			k.append(s, "j", 0, "one", "two")
			old := k.put(s, "cell", "1", "")
			now := k.put(s, "cell", "2", old)
			for _, after := range []uint64{0, 1, 3} {
				for _, w := range append(stales(old, now), puts("cell", "x", now), maybe(puts("cell", "x", old)), puts("new", "x", "")) {
					_, err := s.AppendBatch(k.ctx, batchOf("j", after, "x", w))
					k.want(err, store.ErrConflict, "AppendBatch after %d to a journal that ends at 2", after)
					if cell := (*store.CellConflict)(nil); errors.As(err, &cell) {
						k.Fatalf("AppendBatch after %d to a journal that ends at 2 blames cell %q", after, cell.Key)
					}
				}
			}
			k.holds(s, "j", "one", "two")
			k.cells(s, map[string]string{"cell": "2"})
		}},

	{"batch/cell-conflicts", `If a required cell is not at its version, the batch is refused with a *CellConflict that names the cell, so that a stale cell is not mistaken for a spurious conflict of the journal. Nothing is written, not even the cells before it.`,
		func(k *kit) {
			s := k.openBatching()
			k.append(s, "j", 0, "one")
			old := k.put(s, "cell", "1", "")
			now := k.put(s, "cell", "2", old)
			other := k.put(s, "other", "3", "")
			gone := k.put(s, "gone", "x", "")
			k.delete(s, "gone", gone)
			for i, w := range append(stales(old, now), puts("gone", "x", gone), removes("gone", gone)) {
				for _, journal := range []string{"j", "new"} {
					b := batchOf(journal, uint64(len(k.read(s, journal))), "x", maybe(puts("maybe", "x", "")), puts("first", "x", ""), removes("other", other), w, puts("last", "x", ""))
					_, err := s.AppendBatch(k.ctx, b)
					k.want(err, store.ErrConflict, "AppendBatch with stale write %d of cell %q", i+1, w.Key)
					cell := (*store.CellConflict)(nil)
					if !errors.As(err, &cell) || cell.Key != w.Key {
						k.Fatalf("AppendBatch with stale write %d of cell %q = %v (%T), want a *store.CellConflict that names it", i+1, w.Key, err, err)
					}
				}
			}
			k.holds(s, "j", "one")
			k.holds(s, "new")
			k.cells(s, map[string]string{"cell": "2", "other": "3"})
		}},

	{"batch/optional", `Optional writes are made in order, up to the first whose cell is not at its version, so that one may depend on another. They never fail the batch, and do not affect the required ones.`,
		func(k *kit) {
			s := k.openBatching()
			old := k.put(s, "cell", "1", "")
			now := k.put(s, "cell", "2", old)
			var after uint64
			for _, w := range stales(old, now) {
				k.commit(s, batchOf("j", after, strconv.FormatUint(after, 10), maybe(w), puts("n", strconv.FormatUint(after, 10), version(k, s, "n"))))
				after++
			}
			k.cells(s, map[string]string{"cell": "2", "n": strconv.FormatUint(after-1, 10)})
			k.commit(s, batchOf("j", after, "fits", maybe(puts("cell", "3", now)), maybe(puts("new", "4", "")), maybe(removes("n", version(k, s, "n")))))
			k.cells(s, map[string]string{"cell": "3", "new": "4"})
			after++
			k.commit(s, batchOf("j", after, "up to the second", maybe(puts("o1", "5", "")), puts("r1", "5", ""), maybe(puts("cell", "x", now)),
				maybe(puts("o2", "x", "")), puts("r2", "5", ""), maybe(removes("new", version(k, s, "new")))))
			k.cells(s, map[string]string{"cell": "3", "new": "4", "o1": "5", "r1": "5", "r2": "5"})
			if got := len(k.read(s, "j")); got != int(after)+1 {
				k.Fatalf("the journal has %d entries, want %d", got, after+1)
			}
		}},

	{"batch/versions-never-repeat", `A cell that a batch writes gets a version that it never had, even if its value stays the same: a holder of the previous version has not seen this write.`,
		func(k *kit) {
			handles := []batching{k.openBatching(), k.openBatching()}
			seen := map[store.Version]bool{"": true}
			for i := range 12 {
				s := handles[i%2]
				now := version(k, s, "cell")
				if i == 7 {
					k.commit(s, batchOf("j", uint64(i), "x", removes("cell", now)))
					continue
				}
				if i%3 == 2 {
					k.put(s, "cell", "same", now)
					k.append(s, "j", uint64(i), "x")
				} else {
					k.commit(s, batchOf("j", uint64(i), "x", puts("cell", "same", now)))
				}
				if now = version(k, s, "cell"); seen[now] {
					k.Fatalf("write %d of the cell got version %q, which an earlier one had", i+1, now)
				}
				seen[now] = true
			}
		}},

	{"batch/limits", `A batch may hold MaxWrites cells of the largest size in addition to a full append. Beyond the limits, or with a repeated or nameless cell, it is refused before anything is written.`,
		func(k *kit) {
			s := k.openBatching()
			full := func(n int) (cells []store.Write) {
				for i := range n {
					cells = append(cells, puts(fmt.Sprint("cell ", i), strings.Repeat(strconv.Itoa(i%10), store.MaxEntry), ""))
				}
				return cells
			}
			entry := strings.Repeat("e", store.MaxEntry)
			long := strings.Repeat("n", store.MaxName+1)
			for _, bad := range []struct {
				what string
				b    store.Batch
				want error
			}{
				{"too many cells", batchOf("j", 0, "x", full(store.MaxWrites+1)...), store.ErrTooLarge},
				{"a value that is too large", batchOf("j", 0, "x", puts("c", strings.Repeat("x", store.MaxEntry+store.Slack+1), "")), store.ErrTooLarge},
				{"an entry that is too large", batchOf("j", 0, strings.Repeat("x", store.MaxEntry+store.Slack+1), puts("c", "x", "")), store.ErrTooLarge},
				{"no entry", store.Batch{Journal: "j", Cells: []store.Write{puts("c", "x", "")}}, store.ErrInvalid},
				{"a journal without a name", batchOf("", 0, "x", puts("c", "x", "")), store.ErrInvalid},
				{"a cell without a name", batchOf("j", 0, "x", puts("c", "x", ""), puts("", "x", "")), store.ErrInvalid},
				{"a cell with a name that is too long", batchOf("j", 0, "x", maybe(puts(long, "x", ""))), store.ErrInvalid},
				{"a cell twice", batchOf("j", 0, "x", puts("c", "x", ""), maybe(puts("c", "y", ""))), store.ErrInvalid},
				{"a removal without a version", batchOf("j", 0, "x", maybe(removes("c", ""))), store.ErrInvalid},
			} {
				_, err := s.AppendBatch(k.ctx, bad.b)
				k.want(err, bad.want, "AppendBatch with %s", bad.what)
			}
			k.holds(s, "j")
			k.cells(s, nil)
			k.commit(s, batchOf("j", 0, entry, full(store.MaxWrites)...))
			k.holds(s, "j", entry)
			want := map[string]string{}
			for _, w := range full(store.MaxWrites) {
				want[w.Key] = string(w.Value)
			}
			k.cells(s, want)
		}},

	{"batch/dropped", `A batch for a dropped journal is ErrDropped, even if its cells are stale, and writes none of them: what was erased must not come back as a hint.`,
		func(k *kit) {
			s := k.openBatching()
			k.append(s, "j", 0, "x")
			v := k.put(s, "cell", "1", "")
			for _, name := range []string{"j", "never"} {
				if err := s.Drop(k.ctx, name); err != nil {
					k.Fatal(err)
				}
				for _, after := range []uint64{0, 1} {
					for _, w := range []store.Write{puts("new", "x", ""), puts("cell", "x", ""), removes("cell", v), maybe(puts("new", "x", ""))} {
						_, err := s.AppendBatch(k.ctx, batchOf(name, after, "x", w))
						k.want(err, store.ErrDropped, "AppendBatch to dropped journal %q after %d", name, after)
					}
				}
			}
			k.cells(s, map[string]string{"cell": "1"})
		}},

	{"batch/closed", `A closed store returns ErrClosed for a batch.`,
		func(k *kit) {
			keeper, s := k.open(), k.openBatching()
			if err := s.Close(); err != nil {
				k.Fatal(err)
			}
			_, err := s.AppendBatch(k.ctx, batchOf("j", 0, "x", puts("c", "x", "")))
			k.want(err, store.ErrClosed, "AppendBatch")
			k.holds(keeper, "j")
			k.cells(keeper, nil)
		}},

	{"batch/one-winner", `Of concurrent batches that require the same version of a cell, for any journals and through any handle, at most one wins; the others write nothing. The same holds for batches for the same end of a journal.`,
		func(k *kit) {
			const rounds, writers = 20, 8
			handles := []batching{k.openBatching(), k.openBatching()}
			wins := 0
			for round := range rounds {
				prev := version(k, handles[0], "cell")
				errs := [writers]error{}
				start := make(chan struct{})
				var wg sync.WaitGroup
				for w := range writers {
					// Even rounds meet at the cell, odd ones at the journal.
					b := batchOf(fmt.Sprintf("j%d", round), 0, strconv.Itoa(w), puts(fmt.Sprintf("c%d/%d", round, w), "x", ""))
					if round%2 == 0 {
						b = batchOf(fmt.Sprintf("j%d/%d", round, w), 0, "x", puts(fmt.Sprintf("c%d/%d", round, w), "x", ""), puts("cell", strconv.Itoa(w), prev))
					}
					wg.Go(func() {
						<-start
						_, errs[w] = handles[w%2].AppendBatch(k.ctx, b)
					})
				}
				close(start)
				wg.Wait()
				won := 0
				for w, err := range errs {
					if err == nil {
						won++
					} else if !errors.Is(err, store.ErrConflict) {
						k.Fatalf("a concurrent batch = %v, want success or a conflict", err)
					}
					_, getErr := handles[0].Get(k.ctx, fmt.Sprintf("c%d/%d", round, w))
					there := round%2 == 1 || len(k.read(handles[1], fmt.Sprintf("j%d/%d", round, w))) == 1
					if (getErr == nil) != (err == nil) || there != (err == nil) && round%2 == 0 {
						k.Fatalf("after a batch that returned %v, the entry is there: %t, the cell: %v", err, there, getErr)
					}
				}
				if won > 1 {
					k.Fatalf("%d of %d concurrent batches won, want at most one", won, writers)
				}
				wins += won
			}
			if wins < rounds/2 {
				k.Fatalf("only %d of %d rounds had a winner: spurious conflicts must be rare", wins, rounds)
			}
		}},

	{"batch/seen-together", `A reader that sees the entry sees the cells, and one that sees a cell sees the entry, through any handle: there is never a hint of an entry that is not there, or an entry without its hint.`,
		func(k *kit) {
			const most, enough = 400, 25
			writer, reader := k.openBatching(), k.openBatching()
			stop := make(chan struct{})
			done := make(chan error, 1)
			go func() {
				var err error
				for n := uint64(0); n < most && err == nil; n++ {
					select {
					case <-stop:
						n = most
						continue
					default:
					}
					var first, last store.Cell
					if n > 0 {
						if first, err = writer.Get(k.ctx, "first"); err == nil {
							last, err = writer.Get(k.ctx, "last")
						}
					}
					if err == nil {
						value := strconv.FormatUint(n+1, 10)
						b := batchOf("j", n, value, puts("first", value, first.Version), puts("last", value, last.Version))
						err = sure(func() error { _, err := writer.AppendBatch(k.ctx, b); return err })
					}
				}
				done <- err
			}()
			number := func(key string) int {
				cell, err := reader.Get(k.ctx, key)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					k.Errorf("Get(%q) = %v", key, err)
				}
				n, _ := strconv.Atoi(string(cell.Value))
				return n
			}
			seen := map[int]bool{}
			running := true
			for stopped := false; running && !k.Failed(); {
				select {
				case err := <-done:
					if running = false; err != nil {
						k.Errorf("AppendBatch: %v", err)
					}
				default:
				}
				last := number("last")
				first := number("first")
				entries := len(k.read(reader, "j"))
				again := number("last")
				if first < last || entries < first || again < entries {
					k.Errorf("a reader saw one after the other: cell last at %d, cell first at %d, %d entries, cell last at %d; want them to grow", last, first, entries, again)
				}
				if seen[entries] = true; len(seen) >= enough && !stopped {
					stopped = true
					close(stop)
				}
			}
			if running {
				<-done
			}
		}},

	{"batch/cancelled-leaves-no-half", `A cancelled context leaves all of a batch or nothing.`,
		func(k *kit) {
			s := k.openBatching()
			for try := range 40 {
				name := fmt.Sprint("try ", try)
				ctx, cancel := context.WithCancel(k.ctx)
				if try%4 == 0 {
					cancel()
				}
				done := make(chan error, 1)
				go func() {
					_, err := s.AppendBatch(ctx, batchOf(name, 0, "x", puts(name, "x", ""), puts(name+" too", "x", "")))
					done <- err
				}()
				for range rand.IntN(2000) {
					_ = ctx.Err() // a short, varied while
				}
				cancel()
				err := <-done
				// What was sent may still arrive: then what is read last is there if
				// what was read before it is.
				cells := len(k.keys(s, name, ""))
				entries := len(k.read(s, name))
				if cells == 0 && entries == 1 {
					cells = len(k.keys(s, name, ""))
				}
				if cells != 2*entries || err == nil && entries == 0 {
					k.Fatalf("a cancelled batch of an entry and two cells, which returned %v, left %d and %d", err, entries, cells)
				}
				if entries == 1 {
					k.delete(s, name, version(k, s, name))
					k.delete(s, name+" too", version(k, s, name+" too"))
				}
			}
		}},

	{"batch/wakes", `A batch wakes the watchers of its journal and of each cell that it wrote or removed, including those of another handle. Those of cells that it writes quietly it may leave asleep.`,
		func(k *kit) {
			writer, s := k.openBatching(), k.open()
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			k.put(writer, "woken/removed", "x", "")
			for _, watched := range []string{"woken/j", "woken/new", "woken/optional", "woken/removed"} {
				journal, n := "woken/j/"+watched, 0
				for range store.Watch(ctx, s, watched) {
					if n++; n > 1 && len(k.read(s, journal)) == 1 {
						n = -1
						break
					}
					if n == 1 {
						k.commit(writer, batchOf(journal, 0, "x", puts("woken/new", "x", version(k, writer, "woken/new")),
							maybe(puts("woken/optional", "x", version(k, writer, "woken/optional"))),
							quiet(puts("woken/quiet", "x", version(k, writer, "woken/quiet"))), removes("woken/removed", version(k, writer, "woken/removed"))))
					}
				}
				if n >= 0 {
					k.Fatalf("no wake-up of a watch of %q came within %v after a batch", watched, patience)
				}
				k.put(writer, "woken/removed", "x", "")
			}
		}},
}

// version returns the version of a cell, "" if there is none.
func version(k *kit, s store.Store, key string) store.Version {
	k.Helper()
	cell, err := s.Get(k.ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		k.Fatalf("Get(%.40q) = %v", key, err)
	}
	return cell.Version
}
