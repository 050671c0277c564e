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
)

// scale measures what must not grow with the number or length of threads.
func scale(ctx context.Context, dir string) error {
	fmt.Println("\nMany and long threads on sqlitestore:")
	sleepers := func(ctx context.Context, dir string) error { return claims(ctx, dir, 100_000) }
	for _, part := range []func(context.Context, string) error{sleepers, forks, snapshots, takeovers, processes} {
		if err := part(ctx, dir); err != nil {
			return err
		}
	}
	return nil
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
func childWorker(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench", Concurrency: 64}, beat, plainSteps, turn)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return errors.Join(rt.Work(ctx), s.Close())
}

// spawnWorker starts a worker process.
func spawnWorker(ctx context.Context, url string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-worker", url)
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

// takeovers measures how long a run stands still when its process ends.
func takeovers(ctx context.Context, dir string) error {
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
	return nil
}

// processes compares several worker processes on one store with one.
func processes(ctx context.Context, where string) error {
	least := map[int]float64{2: 0.9, 4: 0.8}
	if isPostgres(where) {
		least = map[int]float64{2: 1, 4: 1}
	}
	steps, turns := map[int]series{}, map[int]series{}
	for round := range 3 {
		for _, n := range []int{1, 2, 4} {
			fmt.Fprintf(os.Stderr, "\r%d worker processes, round %d of 3", n, round+1)
			of, ofTurns := steps[n], turns[n]
			if err := together(ctx, where, n, &of, &ofTurns); err != nil {
				return err
			}
			steps[n], turns[n] = of, ofTurns
		}
	}
	fmt.Fprintf(os.Stderr, "\r%40s\r", "")
	for _, n := range []int{1, 2, 4} {
		of, ofTurns := steps[n], turns[n]
		fmt.Printf("64 runs at a time over %d worker processes: %.0f steps/s, %.0f turns/s, turn p50 %s\n", n, of.rate(), ofTurns.rate(), short(ofTurns.p(50)))
	}
	for _, n := range []int{2, 4} {
		expect(fmt.Sprintf("steps/s of 64 runs over %d worker processes ÷ over 1", n), ratio(steps[n], steps[1]), least[n])
		expect(fmt.Sprintf("turns/s of 64 clients over %d worker processes ÷ over 1", n), ratio(turns[n], turns[1]), least[n])
	}
	return nil
}

// asClient calls fn with a runtime without a worker on a new store.
func asClient(ctx context.Context, where string, fn func(url string, s store.Store, rt *perdure.Runtime) error) error {
	return inStore(ctx, where, func(s store.Store, url string) error {
		rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, beat, plainSteps, turn)
		if err != nil {
			return err
		}
		return fn(url, s, rt)
	})
}

// takeover lets a process execute some runs, ends it by a signal, and measures
// until each of them does its next step here.
func takeover(ctx context.Context, dir string, sig syscall.Signal, less time.Duration, into *series) error {
	return asClient(ctx, dir, func(url string, s store.Store, rt *perdure.Runtime) error {
		const runs = 8
		other, err := spawnWorker(ctx, url)
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

// together measures the steps of 64 runs and the turns of 64 clients over some worker
// processes.
func together(ctx context.Context, where string, workers int, steps, turns *series) error {
	return asClient(ctx, where, func(url string, _ store.Store, rt *perdure.Runtime) error {
		const runs, each = 64, 100
		for range workers {
			w, err := spawnWorker(ctx, url)
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
		steps.rates = append(steps.rates, runs*each/time.Since(start).Seconds())
		return turns.clients(ctx, rt, 64, 64*30)
	})
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
