package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/store"
)

// patience bounds the wait for a wake-up. It is far above what any store
// needs, so that only one that never comes fails.
var patience = 30 * time.Second

var watchCases = []testCase{
	{"watch/wakes", `Watch yields immediately and after each change, including one by another handle; changes may be coalesced, but the last is never lost: otherwise a sleeper would sleep for ever.`,
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
				select {
				case err := <-done:
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						k.Fatal(err)
					}
				default:
				}
				k.Fatalf("no wake-up came within %v after entry %d of %d was appended", patience, seen+1, rounds)
			}
			if err := <-done; err != nil {
				k.Fatal(err)
			}
		}},

	{"watch/wakes-for-cells", `Watch also yields after a change of a cell: workers wait for due hints, which are cells.`,
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

	{"watch/wakes-for-each-change", `Watch yields again after an Append, a Put, a Delete and a Drop, even one made while the body of the loop ran: nothing is missed between looking and waiting.`,
		func(k *kit) {
			s, writer := k.open(), k.open()
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			var version store.Version
			changes := []struct {
				what string
				make func()
			}{
				{"an Append", func() { k.append(writer, "w/j", 0, "x") }},
				{"a second Append", func() { k.append(writer, "w/j", 1, "x") }},
				{"a Put", func() { version = k.put(writer, "w/c", "x", "") }},
				{"a Delete", func() { k.delete(writer, "w/c", version) }},
				{"a Drop", func() {
					if err := writer.Drop(k.ctx, "w/j"); err != nil {
						k.Fatal(err)
					}
				}},
			}
			n := 0
			for range store.Watch(ctx, s, "w/") {
				if n == len(changes) {
					return
				}
				changes[n].make()
				n++
			}
			if n == 0 {
				k.Fatal("Watch did not yield immediately")
			}
			k.Fatalf("no wake-up came within %v after %s in the body of the loop", patience, changes[n-1].what)
		}},

	{"watch/wakes-each", `Each loop over Watch is woken separately, and continues when other loops end and other handles are closed.`,
		func(k *kit) {
			s, other, leaver := k.open(), k.open(), k.open()
			watchers := []store.Store{s, s, other}
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			type news struct{ who, last int }
			heard := make(chan news)
			for who, h := range watchers {
				go func() {
					for range store.Watch(ctx, h, "j") {
						entries, _ := store.ReadAll(ctx, h, "j", 0)
						select {
						case heard <- news{who, len(entries)}:
						case <-ctx.Done():
						}
					}
				}()
			}
			await := func(last int) {
				k.Helper()
				saw := map[int]bool{}
				for len(saw) < len(watchers) {
					select {
					case n := <-heard:
						if n.last == last {
							saw[n.who] = true
						}
					case <-ctx.Done():
						k.Fatalf("%d of %d watchers were woken within %v when the journal ended at %d", len(saw), len(watchers), patience, last)
					}
				}
			}
			await(0)
			k.append(s, "j", 0, "x")
			await(1)
			for range store.Watch(ctx, s, "j") {
				break
			}
			if err := leaver.Close(); err != nil {
				k.Fatal(err)
			}
			k.append(s, "j", 1, "x")
			await(2)
		}},

	{"watch/ends", `A loop over Watch ends when its context ends and, if the store is a Watcher itself, when the store is closed; otherwise a server could not stop.`,
		func(k *kit) {
			s := k.open()
			ctx, cancel := context.WithCancel(k.ctx)
			defer cancel()
			n := 0
			for range store.Watch(ctx, s, "") {
				cancel()
				if n++; n > 10 {
					k.Fatal("the loop over Watch continues after its context ended")
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
			select {
			case <-watching:
			case <-ended:
				k.Fatal("the loop over Watch ended before its context or store did")
			case <-time.After(patience):
				k.Fatalf("Watch did not yield within %v, want immediately", patience)
			}
			if err := s.Close(); err != nil {
				k.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				k.Fatalf("the loop over Watch continues %v after Close", patience)
			}
		}},

	{"cast/reaches-its-topic", `If a store carries messages, they reach the listeners of their topic, whole and in order for each sender, and no others. They may be lost, those of other handles always, so the senders here repeat them.`,
		func(k *kit) {
			s := k.open()
			if _, ok := store.As[store.Caster](s); !ok {
				k.Log("the store carries no messages")
				return
			}
			ctx, cancel := context.WithTimeout(k.ctx, patience)
			defer cancel()
			senders := []store.Store{s, k.open()}
			for who, sender := range senders {
				go func() {
					for n := 0; ctx.Err() == nil; n++ {
						buf := fmt.Appendf(nil, "other %d %d", who, n)
						_ = store.Cast(ctx, sender, "topic/other", buf)
						buf = fmt.Appendf(buf[:0], "%d %08d", who, n)
						_ = store.Cast(ctx, sender, "topic", buf)
						copy(buf, "reused!!!!")
					}
				}()
			}
			heard, last := 0, []int{-1, -1}
			for m := range store.Listen(ctx, s, "topic") {
				var who, n int
				if _, err := fmt.Sscanf(string(m), "%d %08d", &who, &n); err != nil || len(m) < 10 || who >= len(senders) {
					k.Fatalf("heard %.40q, which was not cast to this topic", m)
				}
				if n <= last[who] {
					k.Fatalf("heard message %d of sender %d after %d", n, who, last[who])
				}
				last[who] = n
				if who == 0 {
					heard++
				}
				if heard == 20 {
					return
				}
			}
			k.Fatalf("heard %d of 20 messages within %v", heard, patience)
		}},
}
