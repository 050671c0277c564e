package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/sqlitestore"
)

// suspended is how many threads wait while others are claimed.
const suspended = 100_000

// scale measures what must not grow with the number or length of threads.
func scale(ctx context.Context, dir string) error {
	fmt.Println("\nMany and long threads on sqlitestore:")
	for _, part := range []func(context.Context, string) error{claims, forks, snapshots, processes} {
		if err := part(ctx, dir); err != nil {
			return err
		}
	}
	return nil
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
	err := inStore(ctx, dir, func(s store.Store, _ string) error {
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
	return inStore(ctx, dir, func(s store.Store, _ string) error {
		if err := makeInMemory(ctx, s, func(rt *perdure.Runtime) error {
			for _, n := range lengths {
				if err := complete(ctx, rt, fmt.Sprint("long-", n), "plain-steps", work{n, 8}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
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

// makeInMemory lets fn make threads in memory, where that is fast, and copies their
// journals and cells to a store.
func makeInMemory(ctx context.Context, to store.Store, fn func(*perdure.Runtime) error) error {
	from := memstore.New()
	defer from.Close()
	rt, stop, err := working(ctx, from)
	if err != nil {
		return err
	}
	err = fn(rt)
	stop()
	if err != nil {
		return err
	}
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
		at := uint64(0)
		for part := range slices.Chunk(lines, store.MaxBatch) {
			var batch [][]byte
			for _, line := range part {
				batch = append(batch, line.Data)
			}
			if at, err = to.Append(ctx, name, at, batch...); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshots shows what all snapshots of a long conversation cost together.
func snapshots(ctx context.Context, _ string) error {
	var snapshots, journals atomic.Int64 // bytes written
	count := observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
		return ctx, func(r observed.Result) {
			switch {
			case c.Op == store.OpAppend:
				journals.Add(int64(r.Bytes))
			case c.Op == store.OpPut && strings.HasPrefix(c.Name, "snapshot/"):
				snapshots.Add(int64(r.Bytes))
			}
		}
	})
	rt, stop, err := working(ctx, observed.New(memstore.New(), count))
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
	atMost("bytes of all snapshots of 200 turns of 10 steps ÷ bytes of the journal", float64(snapshots.Load())/float64(journals.Load()), 0.25)
	return nil
}

// beatLength is how long a step takes during which its worker is stopped.
const beatLength = 50 * time.Millisecond

// beats tells which thread did a step when, in this process.
var beats = make(chan beatAt, 10_000)

type beatAt struct {
	thread string
	at     time.Time
}

// last says that runs of beat are to end.
var last sync.Map

// beat is a flow of steps of some length.
var beat = perdure.NewFlow("beat", func(ctx context.Context, thread string) (int, error) {
	for i := range 10_000 {
		_, err := perdure.Step(ctx, fmt.Sprint("beat-", i), func(context.Context) (int, error) {
			select {
			case beats <- beatAt{thread, time.Now()}:
			default: // nobody counts
			}
			time.Sleep(beatLength)
			return i, nil
		})
		if _, over := last.Load(thread); over || err != nil {
			return i, err
		}
	}
	return 0, errors.New("nobody ended it")
})

// childWorker is the life of a worker process: it works until it is told to
// stop.
func childWorker(file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := sqlitestore.Open(ctx, file, sqlitestore.Options{})
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench", Concurrency: 64}, beat, plainSteps)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return errors.Join(rt.Work(ctx), s.Close())
}

// spawnWorker starts a worker process.
func spawnWorker(ctx context.Context, file string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-worker", file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("a worker process says %q: %w", line, err), cmd.Process.Kill(), cmd.Wait())
	}
	return cmd, nil
}

// processes measures what several processes on one file do.
func processes(ctx context.Context, dir string) error {
	fmt.Println("\nProcesses on one sqlite file:")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		name, less, target := "SIGKILL", time.Duration(0), 5*time.Second
		if sig == syscall.SIGTERM {
			name, less, target = "SIGTERM, beyond the running step", beatLength, 100*time.Millisecond
		}
		var all series
		for round := range 6 {
			fmt.Fprintf(os.Stderr, "\rtakeover, round %d of 6", round+1)
			if err := takeover(ctx, dir, sig, less, &all); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "\r%40s\r", "")
		fmt.Printf("takeover after %s: p50 %s\n", name, short(all.p(50)))
		atMost(fmt.Sprintf("takeover after %s: p99 in ms", name), float64(all.p(99))/1e6, float64(target)/1e6)
	}
	rates := map[int][]float64{}
	for range 3 {
		for _, n := range []int{1, 2, 4} {
			rate, err := together(ctx, dir, n)
			if err != nil {
				return err
			}
			rates[n] = append(rates[n], rate)
		}
	}
	fmt.Printf("64 runs over 1 worker process: %.0f steps/s, over 2: %.0f, over 4: %.0f\n", median(rates[1]), median(rates[2]), median(rates[4]))
	expect("steps/s of 64 runs over 2 worker processes ÷ over 1", median(rates[2])/median(rates[1]), 0.9)
	expect("steps/s of 64 runs over 4 worker processes ÷ over 1", median(rates[4])/median(rates[1]), 0.8)
	return nil
}

// onFile calls fn with a runtime without a worker on a new file.
func onFile(ctx context.Context, parent string, fn func(file string, s store.Store, rt *perdure.Runtime) error) error {
	return inStore(ctx, parent, func(s store.Store, file string) error {
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, beat, plainSteps)
		if err != nil {
			return err
		}
		return fn(file, s, rt)
	})
}

// takeover lets a process execute some runs, ends it by a signal, and measures
// until each of them does its next step here.
func takeover(ctx context.Context, dir string, sig syscall.Signal, less time.Duration, into *series) error {
	return onFile(ctx, dir, func(file string, s store.Store, rt *perdure.Runtime) error {
		const runs = 8
		other, err := spawnWorker(ctx, file)
		if err != nil {
			return err
		}
		defer func() { _ = other.Process.Kill(); _ = other.Wait() }() // it may be over
		last.Clear()
		var ids []string
		for i := range runs {
			ids = append(ids, fmt.Sprint("beat-", i))
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "beat", Input: ids[i], Thread: ids[i]}); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if err := eventually(func() (bool, error) {
				run, err := rt.GetRun(ctx, id, "")
				return err == nil && run.Steps > 0, err
			}); err != nil {
				return err
			}
		}
		_, stop, err := working(ctx, s, beat)
		if err != nil {
			return err
		}
		defer stop()
		time.Sleep(1500 * time.Millisecond) // it has seen the other's lease, and that the runs are held
		if len(beats) > 0 {
			return errors.New("a run was taken from a living worker")
		}
		start := time.Now()
		if err := other.Process.Signal(sig); err != nil {
			return err
		}
		seen := map[string]bool{}
		for len(seen) < runs {
			select {
			case b := <-beats:
				if !seen[b.thread] {
					seen[b.thread] = true
					into.latencies = append(into.latencies, max(b.at.Sub(start)-less, 0))
				}
				last.Store(b.thread, true)
			case <-time.After(time.Minute):
				return fmt.Errorf("only %d of %d runs were taken over", len(seen), runs)
			}
		}
		for _, id := range ids {
			if _, err := rt.WaitEnd(ctx, id, ""); err != nil {
				return err
			}
		}
		for len(beats) > 0 {
			<-beats
		}
		return nil
	})
}

// together returns the steps a second of 64 runs over some worker processes.
func together(ctx context.Context, dir string, workers int) (rate float64, err error) {
	err = onFile(ctx, dir, func(file string, _ store.Store, rt *perdure.Runtime) error {
		const runs, each = 64, 100
		for range workers {
			w, err := spawnWorker(ctx, file)
			if err != nil {
				return err
			}
			defer func() { _ = w.Process.Signal(syscall.SIGTERM); _ = w.Wait() }() // nothing is left to lose
		}
		time.Sleep(time.Second) // the leases are taken
		start := time.Now()
		for i := range runs {
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "plain-steps", Input: work{each, entrySize}, Thread: fmt.Sprint("quiet-", i)}); err != nil {
				return err
			}
		}
		for i := range runs {
			if err := succeed(ctx, rt, fmt.Sprint("quiet-", i), ""); err != nil {
				return err
			}
		}
		rate = runs * each / time.Since(start).Seconds()
		return nil
	})
	return rate, err
}

// eventually waits until something holds.
func eventually(holds func() (bool, error)) error {
	for range 3000 {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("what was waited for did not come in 30 s")
}
