package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// claims compares how soon a run begins in an empty store and in one in which so many
// threads are suspended: with a worker that is there, and with one that starts.
func claims(ctx context.Context, where string, suspended int) error {
	return inStore(ctx, where, func(empty store.Store, emptyURL string) error {
		return inStore(ctx, where, func(full store.Store, fullURL string) error {
			fmt.Fprintf(os.Stderr, "\rwriting %d suspended threads", suspended)
			err := rest(ctx, full, fullURL, suspended)
			fmt.Fprintf(os.Stderr, "\r%40s\r", "")
			if err != nil {
				return err
			}
			var begins [2]series
			if err := begin(ctx, []store.Store{empty, full}, begins[:]); err != nil {
				return err
			}
			fmt.Printf("from Start to the first step: %s in an empty store, %s beside %d suspended threads\n",
				short(begins[0].p(50)), short(begins[1].p(50)), suspended)
			atMost(fmt.Sprintf("time to begin a run beside %d suspended threads ÷ in an empty store", suspended), float64(begins[1].p(50))/float64(begins[0].p(50)), 1.5)
			var took [2][]float64
			var memory [2][]int64
			for range 3 {
				for i, url := range []string{emptyURL, fullURL} {
					first, most, err := firstRun(ctx, []store.Store{empty, full}[i], url)
					if err != nil {
						return err
					}
					took[i], memory[i] = append(took[i], first.Seconds()), append(memory[i], most)
				}
			}
			fmt.Printf("a worker process that starts ends the first run after %.2f s in an empty store, and takes %d MiB\n", median(took[0]), median(memory[0])>>20)
			atMost(fmt.Sprintf("seconds from the start of a worker process to the end of its first run beside %d suspended threads", suspended), median(took[1]), 1)
			atMost("its memory ÷ that in an empty store", float64(median(memory[1]))/float64(median(memory[0])), 1.2)
			return nil
		})
	})
}

// begin measures from Start to the first step on some stores in turns.
func begin(ctx context.Context, stores []store.Store, into []series) error {
	begun := make(chan time.Time, 1)
	flow := perdure.NewFlow("claims", func(ctx context.Context, _ int) (int, error) {
		return perdure.Step(ctx, "first", func(context.Context) (int, error) {
			begun <- time.Now()
			return 1, nil
		})
	})
	var runtimes []*perdure.Runtime
	for _, s := range stores {
		rt, stop, err := working(ctx, s, flow)
		if err != nil {
			return err
		}
		defer stop()
		runtimes = append(runtimes, rt)
	}
	const warm, due = 5, 60
	for n := range warm + due {
		for i, rt := range runtimes {
			start := time.Now()
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "claims", Input: n}); err != nil {
				return err
			}
			select {
			case at := <-begun:
				if n >= warm {
					into[i].latencies = append(into[i].latencies, at.Sub(start))
				}
			case <-time.After(time.Minute):
				return errors.New("a run does not begin")
			}
		}
	}
	return nil
}

// firstRun starts a worker process on a store in which a run is queued, and returns
// how long it takes until that has ended, and the most memory of the process in the
// two seconds after.
func firstRun(ctx context.Context, s store.Store, url string) (time.Duration, int64, error) {
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, plainSteps)
	if err != nil {
		return 0, 0, err
	}
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: "plain-steps", Input: work{1, 8}})
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	w, err := spawnWorker(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = w.Process.Signal(syscall.SIGTERM); _ = w.Wait() }() // nothing is left to lose
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = succeed(bounded, rt, run.Thread, run.ID)
	took := time.Since(start)
	time.Sleep(2 * time.Second) // it looks around
	return took, mostMemory(fmt.Sprint(w.Process.Pid)), err
}

// sleeper is what a suspended thread leaves in a store: a journal of four entries and
// cells, with an alarm if it waits for a timer.
func sleeper(i int, later int64) (journal string, keys []string) {
	name := fmt.Sprintf("0123456789abcdef.%032dabcdefgh", i)
	keys = []string{"thread/" + name, fmt.Sprintf("id/%032d", i)}
	if i%2 == 0 {
		keys = append(keys, fmt.Sprintf("alarm/claims/%016x/%s", later+int64(i), name))
	}
	return "thread/" + name, keys
}

// The entries and cells of a sleeper.
var (
	sleeperLine  = entry()[:300]
	sleeperValue = []byte(`{"id":"0123456789abcdef","status":"suspended","seq":4}`)
)

// rest writes the journals and cells that suspended threads leave in a store:
// half of them wait for an answer and half for a timer.
func rest(ctx context.Context, s store.Store, url string, suspended int) error {
	later := time.Now().Add(1000 * time.Hour).UnixMicro()
	if isPostgres(url) {
		return copyRest(ctx, url, suspended, later)
	}
	var next atomic.Int64
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= suspended; i = int(next.Add(1)) {
				journal, keys := sleeper(i, later)
				_, err := s.Append(ctx, journal, 0, sleeperLine, sleeperLine, sleeperLine, sleeperLine)
				for _, key := range keys {
					if err == nil {
						_, err = s.Put(ctx, key, sleeperValue, "")
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
