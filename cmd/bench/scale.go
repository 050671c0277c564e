package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// suspended is how many threads wait while others are claimed.
const suspended = 100_000

// scale measures what must not grow with the number or length of threads.
func scale(ctx context.Context, dir string) error {
	fmt.Println("\nMany and long threads on sqlitestore:")
	if err := claims(ctx, dir); err != nil {
		return err
	}
	if err := forks(ctx, dir); err != nil {
		return err
	}
	return snapshots(ctx)
}

// claims compares how soon a run begins in an empty store and in one in which
// many threads are suspended.
func claims(ctx context.Context, dir string) error {
	var empty, full []float64
	begun := make(chan time.Time, 1)
	flow := perdure.NewFlow("claims", func(ctx context.Context, _ int) (int, error) {
		return perdure.Step(ctx, "first", func(context.Context) (int, error) {
			begun <- time.Now()
			return 1, nil
		})
	})
	measure := func(s store.Store, into *[]float64) error {
		rt, stop, err := working(ctx, s, flow)
		if err != nil {
			return err
		}
		defer stop()
		const warm, due = 5, 30
		for i := range warm + due {
			start := time.Now()
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "claims", Input: i}); err != nil {
				return err
			}
			select {
			case at := <-begun:
				if i >= warm {
					*into = append(*into, float64(at.Sub(start)))
				}
			case <-time.After(time.Minute):
				return errors.New("a run does not begin")
			}
		}
		return nil
	}
	err := inStore(ctx, dir, func(s store.Store) error {
		if err := measure(s, &empty); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "\rwriting %d suspended threads", suspended)
		err := rest(ctx, s)
		fmt.Fprintf(os.Stderr, "\r%40s\r", "")
		if err != nil {
			return err
		}
		return measure(s, &full)
	})
	if err != nil {
		return err
	}
	fmt.Printf("from Start to the first step: %s in an empty store, %s beside %d suspended threads\n",
		short(time.Duration(median(empty))), short(time.Duration(median(full))), suspended)
	atMost(fmt.Sprintf("time to begin a run beside %d suspended threads ÷ in an empty store", suspended), median(full)/median(empty), 1.5)
	return nil
}

// rest writes the journals and cells that suspended threads leave in a store:
// half of them wait for an answer and half for a timer.
func rest(ctx context.Context, s store.Store) error {
	line := entry()[:300]
	later := time.Now().Add(1000 * time.Hour).UnixMicro()
	var next atomic.Int64
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := next.Add(1); i <= suspended; i = next.Add(1) {
				name := fmt.Sprintf("0123456789abcdef.%032dabcdefgh", i)
				_, err := s.Append(ctx, "thread/"+name, 0, line, line, line, line)
				for _, key := range []string{"thread/" + name, fmt.Sprintf("id/%032d", i), fmt.Sprintf("alarm/claims/%016x/%s", later+i, name)} {
					if err == nil && (i%2 == 0 || !strings.HasPrefix(key, "alarm/")) {
						_, err = s.Put(ctx, key, []byte(`{"id":"0123456789abcdef","status":"suspended","seq":4}`), "")
					}
				}
				if errs[w] = err; err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// forks compares the cost of forking a short and a long thread.
func forks(ctx context.Context, dir string) error {
	lengths := []int{100, 100_000}
	from := memstore.New()
	long := perdure.NewFlow("long", func(ctx context.Context, n int) (int, error) {
		return n, doSteps(ctx, n, 8)
	})
	rt, stop, err := working(ctx, from, long)
	if err != nil {
		return err
	}
	for _, n := range lengths {
		id := fmt.Sprint("long-", n)
		_, err := rt.Start(ctx, perdure.StartRequest{Flow: "long", Input: n, Thread: id})
		if err == nil {
			err = succeed(ctx, rt, id)
		}
		if err != nil {
			stop()
			return err
		}
	}
	stop()
	return inStore(ctx, dir, func(s store.Store) error {
		if err := copyStore(ctx, s, from); err != nil {
			return err
		}
		rt, err := perdure.New(ctx, s, perdure.Options{})
		if err != nil {
			return err
		}
		took := make([][]float64, len(lengths))
		for i := range 25 {
			for l, n := range lengths {
				start := time.Now()
				if _, err := rt.Fork(ctx, perdure.ForkRequest{Thread: fmt.Sprint("long-", n)}); err != nil {
					return err
				}
				if i >= 5 {
					took[l] = append(took[l], float64(time.Since(start)))
				}
			}
		}
		fmt.Printf("a fork of a thread of %d steps: %s, of %d: %s\n", lengths[0], short(time.Duration(median(took[0]))), lengths[1], short(time.Duration(median(took[1]))))
		atMost(fmt.Sprintf("cost of a fork at %d steps ÷ at %d", lengths[1], lengths[0]), median(took[1])/median(took[0]), 1.3)
		return nil
	})
}

// copyStore copies journals and cells: long ones are quickly made in memory.
func copyStore(ctx context.Context, to, from store.Store) error {
	for cell, err := range from.List(ctx, "", "") {
		if err == nil && !strings.HasPrefix(cell.Key, "worker/") {
			_, err = to.Put(ctx, cell.Key, cell.Value, "")
		}
		if err != nil {
			return err
		}
	}
	for name, err := range from.Journals(ctx, "") {
		if err != nil {
			return err
		}
		lines, err := store.ReadAll(ctx, from, name, 0)
		if err != nil {
			return err
		}
		for at := 0; at < len(lines); {
			var batch [][]byte
			for i := at; i < len(lines) && len(batch) < store.MaxBatch; i++ {
				batch = append(batch, lines[i].Data)
			}
			if _, err := to.Append(ctx, name, uint64(at), batch...); err != nil {
				return err
			}
			at += len(batch)
		}
	}
	return nil
}

// snapshotted counts the bytes of snapshots and of journals that are written.
type snapshotted struct {
	store.Store
	snapshots, journals atomic.Int64
}

// Unwrap returns the store inside.
func (s *snapshotted) Unwrap() store.Store { return s.Store }

// Append counts the bytes of entries.
func (s *snapshotted) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	for _, e := range entries {
		s.journals.Add(int64(len(e)))
	}
	return s.Store.Append(ctx, journal, after, entries...)
}

// Put counts the bytes of snapshots.
func (s *snapshotted) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "snapshot/") {
		s.snapshots.Add(int64(len(value)))
	}
	return s.Store.Put(ctx, key, value, prev)
}

// snapshots shows what all snapshots of a long conversation cost together.
func snapshots(ctx context.Context) error {
	s := &snapshotted{Store: memstore.New()}
	rt, stop, err := working(ctx, s)
	if err != nil {
		return err
	}
	defer stop()
	for range 200 {
		if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "steps", Input: 10, Thread: "talk"}); err != nil {
			return err
		}
		<-ended
		if _, err := rt.WaitEnd(ctx, "talk", ""); err != nil {
			return err
		}
	}
	atMost("bytes of all snapshots of 200 turns of 10 steps ÷ bytes of the journal", float64(s.snapshots.Load())/float64(s.journals.Load()), 0.25)
	return nil
}
