package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

var readCases = []testCase{
	{"read/from-anywhere", `Read yields the entries after the given sequence. At or beyond the end, and for a journal that was never written, it yields nothing and no error: a follower asks for what is not there yet.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "a", "b", "c")
			k.append(s, "j", 3, "d")
			all := []string{"a", "b", "c", "d"}
			for _, after := range []uint64{0, 1, 2, 3, 4, 5, 6, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
				entries, err := store.ReadAll(k.ctx, s, "j", after)
				if err != nil {
					k.Fatalf("Read after %d of a journal that ends at 4: %v", after, err)
				}
				want := all[min(after, 4):]
				if len(entries) != len(want) {
					k.Fatalf("Read after %d yielded %d entries, want %d", after, len(entries), len(want))
				}
				for i, e := range entries {
					if e.Seq != after+uint64(i)+1 || string(e.Data) != want[i] {
						k.Fatalf("Read after %d yielded (%d, %q) at place %d, want (%d, %q)", after, e.Seq, e.Data, i, after+uint64(i)+1, want[i])
					}
				}
			}
			if entries, err := store.ReadAll(k.ctx, s, "never", 0); err != nil || len(entries) != 0 {
				k.Fatalf("Read of a journal that was never written = %d entries, %v; want none, nil", len(entries), err)
			}
		}},

	{"read/growing-prefixes", `Each read begins with all that an earlier read saw: a reader that went back in time would show a stream with a gap or a repeat.`,
		func(k *kit) {
			const entries, reads = 100, 200
			s := k.open()
			done := make(chan error, 1)
			go func() {
				var err error
				for i := 0; i < entries && err == nil; i++ {
					_, err = store.AppendOnce(k.ctx, s, "j", uint64(i), fmt.Appendf(nil, "entry %d", i))
				}
				done <- err
			}()
			var seen []string
			finished := false
			for n := 0; n < reads; n++ {
				if !finished {
					n = min(n, reads/2) // half of them afterwards
				}
				got := k.read(s, "j")
				if len(got) < len(seen) || !slices.Equal(got[:len(seen)], seen) {
					k.Fatalf("a read yielded %s after an earlier one had yielded %s", brief(got), brief(seen))
				}
				seen = got
				select {
				case err := <-done:
					if finished = true; err != nil {
						k.Fatalf("Append: %v", err)
					}
				default:
				}
			}
		}},

	{"read/begins-with-the-loop", `Read looks at the journal when its loop begins, not when it is called, and again for each loop: a follower that keeps the sequence and ranges over it later misses nothing.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "one")
			entries := s.Read(k.ctx, "j", 0)
			for want := 2; want <= 3; want++ {
				k.append(s, "j", uint64(want-1), "more")
				n := 0
				for _, err := range entries {
					if err != nil {
						k.Fatalf("Read: %v", err)
					}
					n++
				}
				if n != want {
					k.Fatalf("a loop over Read yielded %d entries, want the %d that were there when it began", n, want)
				}
			}
		}},

	{"read/loop-may-use-the-store", `The body of a loop over Read may append, read and stop early: a follower writes what it decides, and a slow one holds up nothing.`,
		func(k *kit) {
			s := k.open()
			var want []string
			for i := range 20 {
				want = append(want, fmt.Sprintf("entry %d", i))
				k.append(s, "j", uint64(i), want[i])
			}
			n := 0
			for e, err := range s.Read(k.ctx, "j", 0) {
				if err != nil {
					k.Fatalf("Read: %v", err)
				}
				if n++; n > 20 {
					break // what the body appends may be yielded or not
				}
				k.append(s, "copy", e.Seq-1, string(e.Data))
				k.append(s, "j", 19+e.Seq, "more")
				k.put(s, fmt.Sprintf("cell %d", e.Seq), "v", "")
				if e.Seq == 5 {
					for range s.Read(k.ctx, "j", 0) {
						break
					}
				}
			}
			k.holds(s, "copy", want...)
		}},

	{"read/caller-owns-the-bytes", `What Read yields belongs to the caller: changing it changes nothing in the store.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "kept")
			for e, err := range s.Read(k.ctx, "j", 0) {
				if err != nil {
					k.Fatal(err)
				}
				copy(e.Data, "XXXX")
			}
			k.holds(s, "j", "kept")
		}},

	{"read/cancelled-says-so", `A loop that a cancelled context cuts short ends with an error. Silence would pass for the end of the journal.`,
		func(k *kit) {
			s := k.open()
			for i := range 50 {
				k.append(s, "j", uint64(i), "entry")
				k.append(s, fmt.Sprintf("j%d", i), 0, "entry")
				k.put(s, fmt.Sprintf("cell %d", i), "v", "")
			}
			ctx, cancel := context.WithCancel(k.ctx)
			cancel()
			loops := map[string]func() (int, error){
				"Read": func() (n int, last error) {
					for _, err := range s.Read(ctx, "j", 0) {
						n, last = n+1, err
					}
					return
				},
				"Journals": func() (n int, last error) {
					for _, err := range s.Journals(ctx, "") {
						n, last = n+1, err
					}
					return
				},
				"List": func() (n int, last error) {
					for _, err := range s.List(ctx, "", "") {
						n, last = n+1, err
					}
					return
				},
			}
			for name, loop := range loops {
				if n, err := loop(); err == nil && n < 50 {
					k.Errorf("%s with a cancelled context ended after %d of 50 or more without an error", name, n)
				} else if err != nil && !errors.Is(err, context.Canceled) {
					k.Errorf("%s with a cancelled context ended with %v, which does not match context.Canceled", name, err)
				}
			}
		}},
}

// shortCase cuts loops short in their middle, by cut, which gets the handle
// that is read and what cancels its context.
func shortCase(cut func(s store.Store, cancel func())) func(*kit) {
	return func(k *kit) {
		const size, at = 100, 7
		keeper := k.open() // keeps a store without durability alive
		batch := slices.Repeat([]string{"entry"}, store.MaxBatch)
		for i := range 10 {
			k.append(keeper, "j", uint64(i*len(batch)), batch...)
		}
		for i := range size {
			k.append(keeper, fmt.Sprintf("j%d", i), 0, "entry")
			k.put(keeper, fmt.Sprintf("cell %d", i), "v", "")
		}
		loops := map[string]func(context.Context, store.Store, func(error) bool){
			"Read": func(ctx context.Context, s store.Store, next func(error) bool) {
				s.Read(ctx, "j", 0)(func(_ store.Entry, err error) bool { return next(err) })
			},
			"Journals": func(ctx context.Context, s store.Store, next func(error) bool) {
				s.Journals(ctx, "j0")(func(_ string, err error) bool { return next(err) })
			},
			"List": func(ctx context.Context, s store.Store, next func(error) bool) {
				s.List(ctx, "cell ", "")(func(_ store.Cell, err error) bool { return next(err) })
			},
		}
		for name, loop := range loops {
			s := k.open()
			ctx, cancel := context.WithCancel(k.ctx)
			defer cancel()
			whole := 0
			loop(k.ctx, s, func(err error) bool { whole++; return err == nil })
			n, failed := 0, error(nil)
			loop(ctx, s, func(err error) bool {
				if failed != nil {
					k.Errorf("%s yields more after the error %v", name, failed)
					return false
				}
				if failed = err; err != nil {
					return true
				}
				if n++; n == at {
					cut(s, cancel)
				}
				return true
			})
			if failed == nil && n != whole {
				k.Errorf("%s was cut short after %d of %d without an error", name, n, whole)
			}
		}
	}
}

var shortCases = []testCase{
	{"read/cancelled-midway-says-so", `A loop whose context is cancelled midway continues to its end or ends with an error, which nothing follows. A driver that does not ask its engine why there are no more rows would show a shorter journal.`,
		shortCase(func(_ store.Store, cancel func()) { cancel() })},

	{"read/closed-midway-says-so", `So does a loop whose store is closed midway.`,
		shortCase(func(s store.Store, _ func()) {
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				s.Close()
			}()
			select { // a Close that waits for the loop may do so
			case <-closed:
			case <-time.After(100 * time.Millisecond):
			}
		})},
}

var dropCases = []testCase{
	{"drop/for-ever", `A dropped name returns ErrDropped for ever, through every handle: an old writer can never reach a new journal of the same name.`,
		func(k *kit) {
			s, other := k.open(), k.open()
			k.append(s, "gone", 0, "one", "two")
			k.append(s, "stays", 0, "here")
			if err := s.Drop(k.ctx, "gone"); err != nil {
				k.Fatalf("Drop: %v", err)
			}
			for i, h := range []store.Store{s, other, k.open()} {
				for after := range uint64(4) {
					_, err := h.Append(k.ctx, "gone", after, []byte("again"))
					k.want(err, store.ErrDropped, "handle %d: Append behind %d to a dropped journal", i+1, after)
				}
				for after := range uint64(4) {
					_, err := store.ReadAll(k.ctx, h, "gone", after)
					k.want(err, store.ErrDropped, "handle %d: Read after %d of a dropped journal", i+1, after)
				}
				k.holds(h, "stays", "here")
			}
		}},

	{"drop/repeatable", `Drop can be repeated, and applies to a name that was never written, so that an interrupted erase can be finished by repeating it.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "one")
			for i := range 3 {
				if err := s.Drop(k.ctx, "j"); err != nil {
					k.Fatalf("Drop, time %d: %v", i+1, err)
				}
			}
			if err := s.Drop(k.ctx, "never"); err != nil {
				k.Fatalf("Drop of a journal that was never written: %v", err)
			}
			_, err := s.Append(k.ctx, "never", 0, []byte("x"))
			k.want(err, store.ErrDropped, "Append to a journal dropped before it was written")
		}},

	{"drop/beats-appends", `A Drop amid appends is final too: none of those in progress brings the journal back.`,
		func(k *kit) {
			const rounds, writers = 12, 4
			handles := []store.Store{k.open(), k.open()}
			for round := range rounds {
				journal := fmt.Sprintf("j%d", round)
				if round%2 == 0 {
					k.append(handles[0], journal, 0, "x")
				}
				dropped := make(chan struct{})
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						s, last, late := handles[w%2], uint64(0), false
						for !late {
							select {
							case <-dropped:
								late = true // the next append began behind the Drop
							default:
							}
							_, err := s.Append(k.ctx, journal, last, []byte("x"))
							if late && !errors.Is(err, store.ErrDropped) {
								k.Errorf("an append that began after the Drop = %v, want ErrDropped", err)
							}
							for e, err := range s.Read(k.ctx, journal, last) {
								if err == nil {
									last = e.Seq
								}
							}
							runtime.Gosched()
						}
					})
				}
				for range round {
					runtime.Gosched() // a short, varied while
				}
				if err := handles[round%2].Drop(k.ctx, journal); err != nil {
					k.Errorf("Drop amid appends: %v", err)
				}
				close(dropped)
				wg.Wait()
				for i, s := range handles {
					k.want(k.readErr(s, journal), store.ErrDropped, "handle %d: Read after a Drop amid appends", i+1)
				}
			}
			if got := k.names(handles[0], ""); len(got) != 0 {
				k.Fatalf("Journals yields %q after all were dropped", got)
			}
		}},

	{"drop/not-listed", `Journals yields neither dropped journals nor names that were dropped before they were written: whatever is rebuilt from the enumeration must not bring them back.`,
		func(k *kit) {
			s := k.open()
			for _, name := range []string{"a", "b", "c"} {
				k.append(s, name, 0, "x")
			}
			for _, name := range []string{"b", "bb"} {
				if err := s.Drop(k.ctx, name); err != nil {
					k.Fatal(err)
				}
			}
			if got := k.names(s, ""); !slices.Equal(got, []string{"a", "c"}) {
				k.Fatalf("Journals yields %q after b and the never written bb were dropped, want [a c]", got)
			}
		}},
}
