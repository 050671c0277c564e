package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/store"
)

var readCases = []testCase{
	{"read/from-anywhere", `Read yields what is behind after. At or beyond the end, and for a journal that was never written, that is nothing, and no error: a follower asks for what is not there yet.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "a", "b", "c")
			k.append(s, "j", 3, "d")
			all := []string{"a", "b", "c", "d"}
			for after := range uint64(7) {
				entries, err := store.ReadAll(k.ctx, s, "j", after)
				if err != nil {
					k.Fatalf("Read behind %d of a journal that ends at 4: %v", after, err)
				}
				want := all[min(after, 4):]
				if len(entries) != len(want) {
					k.Fatalf("Read behind %d yielded %d entries, want %d", after, len(entries), len(want))
				}
				for i, e := range entries {
					if e.Seq != after+uint64(i)+1 || string(e.Data) != want[i] {
						k.Fatalf("Read behind %d yielded (%d, %q) at place %d, want (%d, %q)", after, e.Seq, e.Data, i, after+uint64(i)+1, want[i])
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

	{"read/loop-may-use-the-store", `The body of a loop over Read may append, read and stop early: a follower writes what it decides, and a slow one holds nothing.`,
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

var dropCases = []testCase{
	{"drop/for-ever", `A dropped name answers ErrDropped for ever, through every handle: an old writer can never reach a new journal of the same name.`,
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
				k.want(k.readErr(h, "gone"), store.ErrDropped, "handle %d: Read of a dropped journal", i+1)
				k.holds(h, "stays", "here")
			}
		}},

	{"drop/repeatable", `Drop can be repeated, also on a name that was never written, so that an interrupted erase is finished by doing it again.`,
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

	{"drop/not-listed", `Journals does not yield dropped journals: what is rebuilt from the enumeration must not bring them back.`,
		func(k *kit) {
			s := k.open()
			for _, name := range []string{"a", "b", "c"} {
				k.append(s, name, 0, "x")
			}
			if err := s.Drop(k.ctx, "b"); err != nil {
				k.Fatal(err)
			}
			if got := k.names(s, ""); !slices.Equal(got, []string{"a", "c"}) {
				k.Fatalf("Journals yields %q after b was dropped, want [a c]", got)
			}
		}},
}
