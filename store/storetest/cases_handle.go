package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/store"
)

var handleCases = []testCase{
	{"handles/see-each-other", `Handles on one store see each other's writes at once, and compare and swap against them.`,
		func(k *kit) {
			a, b := k.open(), k.open()
			k.append(a, "j", 0, "from a")
			k.holds(b, "j", "from a")
			k.append(b, "j", 1, "from b")
			_, err := a.Append(k.ctx, "j", 1, []byte("stale"))
			k.want(err, store.ErrConflict, "Append by the first handle behind what the second wrote")
			k.holds(a, "j", "from a", "from b")

			v1 := k.put(a, "c", "1", "")
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

	{"handles/reopen", `What was acknowledged is there when the store is opened again, if it claims to survive its process; dropped stays dropped and versions go on.`,
		func(k *kit) {
			s := k.open()
			class := store.DurabilityOf(s)
			k.Logf("durability class: %s", class)
			k.append(s, "j", 0, "one", "two")
			k.append(s, "j", 2, "three")
			k.append(s, "gone", 0, "x")
			if err := s.Drop(k.ctx, "gone"); err != nil {
				k.Fatal(err)
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
			_, err = s.Append(k.ctx, "gone", 0, []byte("x"))
			k.want(err, store.ErrDropped, "Append to a dropped journal after reopening")
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

	{"handles/closed", `A closed store answers ErrClosed to every call, and closing twice is harmless.`,
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
}

// patience bounds the wait for a wake-up. It is far above what any store
// needs, so that only one that never comes fails.
var patience = 30 * time.Second

var watchCases = []testCase{
	{"watch/wakes", `Watch yields at once and after each change, also one by another handle; changes may be coalesced, but the last is never lost: a sleeper would sleep for ever.`,
		func(k *kit) {
			s, writer := k.open(), k.open()
			rounds := 30
			if _, ok := store.As[store.Watcher](s); !ok {
				rounds = 3 // each is a poll
			}
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			// The writer appends the next entry, and writes the next cell,
			// only when the watcher has seen the last.
			saw := make(chan uint64)
			done := make(chan error, 1)
			go func() {
				for n := uint64(0); n < uint64(rounds); n++ {
					select {
					case <-ctx.Done():
						done <- ctx.Err()
						return
					case got := <-saw:
						if got != n {
							done <- fmt.Errorf("the watcher saw entry %d, want %d", got, n)
							return
						}
					}
					if _, err := store.AppendOnce(k.ctx, writer, "j", n, []byte("x")); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			var seen uint64
			first := true
			for range store.Watch(ctx, s, "j") {
				before := seen
				for e, err := range s.Read(k.ctx, "j", seen) {
					if err != nil {
						k.Fatalf("Read: %v", err)
					}
					seen = e.Seq
				}
				if seen == uint64(rounds) {
					break
				}
				if first || seen > before {
					first = false
					select {
					case saw <- seen:
					case err := <-done:
						k.Fatal(err)
					}
				}
			}
			if seen != uint64(rounds) {
				k.Fatalf("no wake-up came within %v after entry %d of %d was appended", patience, seen+1, rounds)
			}
			if err := <-done; err != nil {
				k.Fatal(err)
			}
		}},

	{"watch/wakes-for-cells", `Watch yields after a change of a cell too: workers wait for due hints, which are cells.`,
		func(k *kit) {
			s, writer := k.open(), k.open()
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			put := false
			for range store.Watch(ctx, s, "due/") {
				if _, err := s.Get(k.ctx, "due/1"); err == nil {
					return
				} else if !errors.Is(err, store.ErrNotFound) {
					k.Fatal(err)
				}
				if !put {
					put = true
					k.put(writer, "due/1", "now", "")
				}
			}
			k.Fatalf("no wake-up came within %v after a cell was put", patience)
		}},

	{"watch/ends", `A loop over Watch ends when its context ends and, where the store watches by itself, when the store is closed; otherwise a server could not stop.`,
		func(k *kit) {
			s := k.open()
			ctx, cancel := context.WithCancel(k.ctx)
			defer cancel()
			n := 0
			for range store.Watch(ctx, s, "") {
				cancel()
				if n++; n > 10 {
					k.Fatal("the loop over Watch goes on after its context ended")
				}
			}
			if _, ok := store.As[store.Watcher](s); !ok {
				return
			}
			ended := make(chan struct{})
			watching := make(chan struct{})
			go func() {
				defer close(ended)
				once := false
				for range store.Watch(k.ctx, s, "") {
					if !once {
						once = true
						close(watching)
					}
				}
			}()
			<-watching
			if err := s.Close(); err != nil {
				k.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				k.Fatalf("the loop over Watch goes on %v after Close", patience)
			}
		}},

	{"cast/reaches-its-topic", `Where a store carries messages, they reach the listeners of their topic, whole and in order, and no others. They may be lost, so the sender here repeats.`,
		func(k *kit) {
			s := k.open()
			if _, ok := store.As[store.Caster](s); !ok {
				k.Log("the store carries no messages")
				return
			}
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					buf := fmt.Appendf(nil, "other %d", n)
					_ = store.Cast(ctx, s, "topic/other", buf)
					buf = fmt.Appendf(buf[:0], "%08d", n)
					_ = store.Cast(ctx, s, "topic", buf)
					copy(buf, "reused!!")
				}
			}()
			heard, last := 0, -1
			for m := range store.Listen(ctx, s, "topic") {
				var n int
				if _, err := fmt.Sscanf(string(m), "%08d", &n); err != nil || len(m) < 8 {
					k.Fatalf("heard %.40q, which was not cast to this topic", m)
				}
				if n <= last {
					k.Fatalf("heard message %d after %d", n, last)
				}
				if last, heard = n, heard+1; heard == 20 {
					return
				}
			}
			k.Fatalf("heard %d of 20 messages within %v", heard, patience)
		}},
}
