package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

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
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench", Concurrency: 64}, beat, quiet)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return errors.Join(rt.Work(ctx), s.Close())
}

// quiet is a flow of n steps with results of 1 KiB, for other processes.
var quiet = perdure.NewFlow("quiet", func(ctx context.Context, n int) (int, error) {
	return n, doSteps(ctx, n, entrySize)
})

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
	expect("steps/s of 64 runs over 2 worker processes ÷ over 1", median(rates[2])/median(rates[1]), 0.6)
	expect("steps/s of 64 runs over 4 worker processes ÷ over 1", median(rates[4])/median(rates[1]), 0.4)
	return nil
}

// onFile calls fn with a runtime without a worker on a new file.
func onFile(ctx context.Context, parent string, fn func(file string, s store.Store, rt *perdure.Runtime) error) error {
	dir, err := os.MkdirTemp(parent, "process-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "store.db")
	s, err := sqlitestore.Open(ctx, file, sqlitestore.Options{})
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, beat, quiet)
	if err == nil {
		err = fn(file, s, rt)
	}
	return errors.Join(err, s.Close())
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
			if _, err := rt.Start(ctx, perdure.StartRequest{Flow: "quiet", Input: each, Thread: fmt.Sprint("quiet-", i)}); err != nil {
				return err
			}
		}
		for i := range runs {
			if err := succeed(ctx, rt, fmt.Sprint("quiet-", i)); err != nil {
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
