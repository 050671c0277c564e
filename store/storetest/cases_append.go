package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

var appendCases = []testCase{
	{"append/dense", `Sequences are dense from 1, and Append returns the last one, since the next append names it.`,
		func(k *kit) {
			s := k.open()
			var want []string
			for _, n := range []int{1, 3, 1, 13, 2} {
				var batch [][]byte
				for range n {
					want = append(want, fmt.Sprintf("entry %d", len(want)+1))
					batch = append(batch, []byte(want[len(want)-1]))
				}
				after := uint64(len(want) - n)
				var last uint64
				err := sure(func() (err error) { last, err = s.Append(k.ctx, "j", after, batch...); return err })
				if err != nil || last != after+uint64(n) {
					k.Fatalf("Append of %d entries after %d = %d, %v; want %d, nil", n, after, last, err, len(want))
				}
			}
			k.holds(s, "j", want...)
		}},

	{"append/stale-conflicts", `An append whose after is before the end is refused: its writer has not seen what others wrote. After 0 is compared like any other.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "one")
			k.append(s, "j", 1, "two")
			for after := range uint64(2) {
				_, err := s.Append(k.ctx, "j", after, []byte("stale"))
				k.want(err, store.ErrConflict, "Append after %d on a journal that ends at 2", after)
			}
		}},

	{"append/future-conflicts", `An append whose after is beyond the end is refused: it would leave a gap, or continue a journal other than the one that its writer saw.`,
		func(k *kit) {
			s := k.open()
			_, err := s.Append(k.ctx, "j", 1, []byte("early"))
			k.want(err, store.ErrConflict, "Append after 1 on a journal that was never written")
			k.append(s, "j", 0, "one")
			for _, after := range []uint64{2, 7, 1 << 40, 1<<63 - 1, 1<<64 - 1} {
				_, err := s.Append(k.ctx, "j", after, []byte("early"))
				k.want(err, store.ErrConflict, "Append after %d on a journal that ends at 1", after)
			}
			k.append(s, "j", 1, "two")
			k.holds(s, "j", "one", "two")
		}},

	{"append/inside-batch-conflicts", `An after inside an earlier append is refused. A store that keeps one object per append must not mistake a free key inside a batch for the end.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "a", "b", "c", "d")
			k.append(s, "j", 4, "e", "f")
			for _, after := range []uint64{1, 2, 3, 5} {
				_, err := s.Append(k.ctx, "j", after, []byte("inside"))
				k.want(err, store.ErrConflict, "Append after %d, inside an earlier append", after)
			}
		}},

	{"append/one-winner", `Of concurrent appends with the same after, through any handle, at most one wins. This is what fences off a worker whose run was taken over.`,
		func(k *kit) {
			const rounds, writers = 20, 8
			s := k.open()
			handles := []store.Store{s, k.open()}
			k.append(s, "j", 0, "first")
			wins := uint64(1)
			for range rounds {
				var won, other atomic.Uint64
				start := make(chan struct{}) // lets all go at once
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						<-start
						switch _, err := handles[w%2].Append(k.ctx, "j", wins, []byte("writer "+strconv.Itoa(w))); {
						case err == nil:
							won.Add(1)
						case !errors.Is(err, store.ErrConflict):
							other.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				if won.Load() > 1 {
					k.Fatalf("%d of %d concurrent appends after %d succeeded, want at most one", won.Load(), writers, wins)
				}
				if other.Load() > 0 {
					k.Fatalf("%d of %d concurrent appends failed with an error other than ErrConflict", other.Load(), writers)
				}
				wins += won.Load()
				if got := uint64(len(k.read(s, "j"))); got != wins {
					k.Fatalf("the journal has %d entries after %d successful appends", got, wins)
				}
			}
			if wins < 1+rounds/2 {
				k.Fatalf("only %d of %d rounds had a winner: spurious conflicts must be rare", wins-1, rounds)
			}
		}},

	{"append/conflict-writes-nothing", `ErrConflict means that nothing was written, not even a part: the writer decides again from what it reads.`,
		func(k *kit) {
			s := k.open()
			k.append(s, "j", 0, "one")
			for after := range uint64(5) {
				if after != 1 {
					_, err := s.Append(k.ctx, "j", after, []byte("x"), []byte("y"), []byte("z"))
					k.want(err, store.ErrConflict, "Append after %d on a journal that ends at 1", after)
				}
			}
			k.holds(s, "j", "one")
			_, err := s.Append(k.ctx, "other", 3, []byte("x"), []byte("y"))
			k.want(err, store.ErrConflict, "Append after 3 on a journal that was never written")
			if names := k.names(s, ""); !slices.Equal(names, []string{"j"}) {
				k.Fatalf("a refused append created a journal: Journals yields %q", names)
			}
		}},

	{"append/whole-batches", `The entries of one append are adjacent and become visible together: a reader never sees a part.`,
		func(k *kit) {
			const most, size, lengths = 400, 8, 25
			s := k.open()
			var enough atomic.Bool
			done := make(chan error, 1)
			go func() {
				var err error
				for b := 0; b < most && !enough.Load() && err == nil; b++ {
					var batch [][]byte
					for i := range size {
						batch = append(batch, fmt.Appendf(nil, "%d/%d", b, i))
					}
					_, err = store.AppendOnce(k.ctx, s, "j", uint64(b*size), batch...)
				}
				done <- err
			}()
			seen := map[int]bool{} // how long the journal was when it was read
			for finished := false; !finished; {
				select {
				case err := <-done:
					if finished = true; err != nil {
						k.Fatalf("Append: %v", err)
					}
				default:
				}
				got := k.read(s, "j")
				for i, e := range got {
					if want := fmt.Sprintf("%d/%d", i/size, i%size); e != want {
						k.Fatalf("entry %d is %q, want %q: batches are mixed", i+1, e, want)
					}
				}
				if len(got)%size != 0 {
					k.Fatalf("a reader saw %d entries, a part of a batch of %d", len(got), size)
				}
				seen[len(got)] = true
				enough.Store(len(seen) >= lengths)
			}
		}},

	{"append/keeps-its-own-bytes", `The store does not keep the caller's slices: a caller may reuse its buffer after Append returns.`,
		func(k *kit) {
			s := k.open()
			buf := []byte("before")
			if err := sure(func() error { _, err := s.Append(k.ctx, "j", 0, buf); return err }); err != nil {
				k.Fatal(err)
			}
			copy(buf, "after!")
			k.holds(s, "j", "before")
		}},

	{"append/journals-are-independent", `Appends to different journals do not disturb each other, even if the store commits them together: each has its own outcome.`,
		func(k *kit) {
			const writers, each = 64, 4
			s := k.open()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					journal := fmt.Sprintf("journal-%02d", w)
					for i := range each {
						entry := fmt.Sprintf("%s entry %d %s", journal, i, strings.Repeat("x", rand.IntN(200)))
						if _, err := store.AppendOnce(k.ctx, s, journal, uint64(i), []byte(entry)); err != nil {
							k.Errorf("Append to %s after %d: %v", journal, i, err)
							return
						}
						if _, err := s.Append(k.ctx, journal, uint64(i), []byte("stale")); !errors.Is(err, store.ErrConflict) {
							k.Errorf("stale Append to %s after %d = %v, want ErrConflict", journal, i, err)
						}
					}
				})
			}
			wg.Wait()
			for w := range writers {
				journal := fmt.Sprintf("journal-%02d", w)
				got := k.read(s, journal)
				if len(got) != each {
					k.Fatalf("%s has %d entries, want %d", journal, len(got), each)
				}
				for i, e := range got {
					if want := fmt.Sprintf("%s entry %d ", journal, i); !strings.HasPrefix(e, want) {
						k.Fatalf("%s holds %.60q at %d, want its own entry %d", journal, e, i+1, i)
					}
				}
			}
		}},

	{"append/cancelled-leaves-no-half", `A cancelled context leaves all of an append or nothing, and the bytes are those that were given, even if the caller reuses its slices once the call has returned.`,
		func(k *kit) {
			const tries, size = 40, 6
			s := k.open()
			for try := range tries {
				journal := fmt.Sprintf("j%d", try)
				ctx, cancel := context.WithCancel(k.ctx)
				if try%4 == 0 {
					cancel()
				}
				var batch [][]byte
				for i := range size {
					batch = append(batch, []byte(strconv.Itoa(i)))
				}
				done := make(chan error, 1)
				go func() {
					_, err := s.Append(ctx, journal, 0, batch...)
					done <- err
				}()
				for range rand.IntN(2000) {
					_ = ctx.Err() // a short, varied while
				}
				cancel()
				err := <-done
				for _, e := range batch {
					copy(e, "X")
				}
				got := k.read(s, journal)
				if len(got) != 0 && len(got) != size {
					k.Fatalf("a cancelled append of %d entries left %d", size, len(got))
				}
				if err == nil && len(got) == 0 {
					k.Fatal("a cancelled append returned success and wrote nothing")
				}
				for i, e := range got {
					if e != strconv.Itoa(i) {
						k.Fatalf("a cancelled append left the entry %q, want %q as it was given", e, strconv.Itoa(i))
					}
				}
			}
		}},
}
