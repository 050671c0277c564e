package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
)

// span is the time from the first to the last step of the runs measured.
var span struct {
	sync.Mutex
	first, last time.Time
}

// ended tells that a run has done its last step. Nobody reads its journal
// meanwhile: the stores are measured without readers too.
var ended = make(chan bool, 100)

// steps is a flow of n steps with results of 1 KiB.
var steps = perdure.NewFlow("steps", func(ctx context.Context, n int) (int, error) {
	began := time.Now()
	defer func() {
		span.Lock()
		defer span.Unlock()
		if span.first.IsZero() || began.Before(span.first) {
			span.first = began
		}
		span.last = time.Now()
		ended <- true
	}()
	return n, doSteps(ctx, n, entrySize)
})

// plainSteps is a flow of steps that nobody measures by itself.
var plainSteps = perdure.NewFlow("plain-steps", func(ctx context.Context, w work) (int, error) {
	return w.Steps, doSteps(ctx, w.Steps, w.Size)
})

// work is the input of plainSteps: how many steps, and the size of their results.
type work struct{ Steps, Size int }

// doSteps does n steps with results of so many bytes.
func doSteps(ctx context.Context, n, size int) error {
	result := strings.Repeat("x", size-2)
	for i := range n {
		if _, err := perdure.Step(ctx, fmt.Sprintf("step-%05d", i), func(context.Context) (string, error) { return result, nil }); err != nil {
			return err
		}
	}
	return nil
}

// succeed waits until a run of a thread has succeeded; "" is the newest one.
func succeed(ctx context.Context, rt *perdure.Runtime, thread, run string) error {
	ended, err := rt.WaitEnd(ctx, thread, run)
	if err == nil && ended.Status != perdure.Succeeded {
		err = fmt.Errorf("the run on %s is %s: %s", thread, ended.Status, ended.Error)
	}
	return err
}

// complete starts a run on a thread and waits until it has succeeded.
func complete(ctx context.Context, rt *perdure.Runtime, thread, flow string, input any) error {
	run, err := rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: flow, Input: input})
	if err == nil {
		err = succeed(ctx, rt, thread, run.ID)
	}
	return err
}

// kernel measures runs on sqlitestore.
func kernel(ctx context.Context, dir string) error {
	if err := stepRates(ctx, dir); err != nil {
		return err
	}
	if err := growth(ctx, dir); err != nil {
		return err
	}
	return resume(ctx, dir)
}

// rates are those of writes to a store, by 1 and by 64 at a time, in some rounds.
type rates struct {
	raw, appends, steps result
	allocs              []float64 // of a step
}

// round measures appends to a new store and the steps of runs on it, each so many by each
// writer and run, and bare writes beside them unless raw is nil. They take turns, in the
// steady state of one store.
func (r *rates) round(ctx context.Context, where string, raw target, each int) error {
	return inRuntime(ctx, where, func(s store.Store, rt *perdure.Runtime) error {
		t, data := storeTarget{s}, entry()
		if _, err := flows(ctx, rt, 1, 8*each, "warm"); err != nil {
			return err
		}
		for i := range 3 {
			from := uint64(each * i)
			if raw != nil {
				if err := r.raw.one.writers(ctx, raw, 1, each, from, data); err != nil {
					return err
				}
			}
			if err := r.appends.one.writers(ctx, t, 1, each, from, data); err != nil {
				return err
			}
			before := mallocs()
			rate, err := flows(ctx, rt, 1, each, fmt.Sprint("one-", i))
			if err != nil {
				return err
			}
			r.allocs = append(r.allocs, float64(mallocs()-before)/float64(each))
			r.steps.one.rates = append(r.steps.one.rates, rate)
		}
		if raw != nil {
			if err := r.raw.many.writers(ctx, raw, 64, 64*each, 0, data); err != nil {
				return err
			}
		}
		if err := r.appends.many.writers(ctx, t, 64, 64*each, 0, data); err != nil {
			return err
		}
		rate, err := flows(ctx, rt, 64, each, "many")
		r.steps.many.rates = append(r.steps.many.rates, rate)
		return err
	})
}

// stepRates measures runs on a store beside plain appends to it.
func stepRates(ctx context.Context, where string) error {
	var r rates
	for round := range *rounds {
		fmt.Fprintf(os.Stderr, "\rkernel, round %d of %d", round+1, *rounds)
		if err := r.round(ctx, where, nil, 200); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "\r%40s\r", "")
	fmt.Printf("\nThe kernel on %s, steps with results of %d bytes:\n", storeName(where), entrySize)
	fmt.Printf("one run: %.0f steps/s; 64 runs: %.0f steps/s; %.0f allocations a step\n", r.steps.one.rate(), r.steps.many.rate(), median(r.allocs))
	expect("steps/s of a 200-step run ÷ appends/s of 1 writer", ratio(r.steps.one, r.appends.one), 0.8)
	expect("steps/s of 64 runs ÷ appends/s of 64 writers", ratio(r.steps.many, r.appends.many), 0.6)
	return nil
}

// mallocs is how many objects this process has allocated.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// newStore returns the URL of a new store and what removes it: a sqlitestore if where
// is a folder, a schema if it is the URL of a PostgreSQL database, and a store of a new
// name if it is that of another engine, which is removed with its server.
func newStore(where string) (url string, remove func(), err error) {
	scheme, _, _ := strings.Cut(where, ":")
	switch scheme {
	case "postgres":
		return newSchema(where)
	case "redis":
		return redistest.With(where, "prefix", pgtest.Name()), func() {}, nil
	case "nats":
		return natstest.With(where, "stream", pgtest.Name()), func() {}, nil
	case "s3":
		return strings.Replace(where, s3test.Bucket, s3test.Bucket+"/"+pgtest.Name(), 1), func() {}, nil
	}
	dir, err := os.MkdirTemp(where, "store-")
	return "sqlite:" + dir + sqliteFile, func() { os.RemoveAll(dir) }, err
}

func isPostgres(where string) bool { return strings.HasPrefix(where, "postgres:") }

// storeName returns the name of the stores that newStore makes.
func storeName(where string) string {
	if isPostgres(where) {
		return "pgstore"
	}
	return "sqlitestore"
}

// inStore calls fn with a new store, see newStore.
func inStore(ctx context.Context, where string, fn func(s store.Store, url string) error) error {
	url, remove, err := newStore(where)
	if err != nil {
		return err
	}
	defer remove()
	s, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(fn(s, url), s.Close())
}

// inRuntime calls fn with a new store and a runtime with a worker on it.
func inRuntime(ctx context.Context, where string, fn func(s store.Store, rt *perdure.Runtime) error, more ...perdure.Flow) error {
	return inStore(ctx, where, func(s store.Store, _ string) error {
		rt, stop, err := working(ctx, s, more...)
		if err != nil {
			return err
		}
		defer stop()
		return fn(s, rt)
	})
}

// working returns a runtime with a worker, and what stops it.
func working(ctx context.Context, s store.Store, more ...perdure.Flow) (*perdure.Runtime, func(), error) {
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench", Concurrency: 64}, append(more, steps, plainSteps)...)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := rt.Work(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
	})
	return rt, func() { cancel(); wg.Wait() }, nil
}

// flows executes n runs of each steps, and returns steps a second, from the
// beginning of the first run to the end of the last.
func flows(ctx context.Context, rt *perdure.Runtime, n, each int, name string) (float64, error) {
	runtime.GC()
	span.first = time.Time{}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = rt.Start(ctx, perdure.StartRequest{Flow: "steps", Input: each, Thread: fmt.Sprint(name, "-", i)})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	for range n {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			return 0, errors.New("a run does not end")
		}
	}
	for i := range n {
		errs[i] = succeed(ctx, rt, fmt.Sprint(name, "-", i), "")
	}
	return float64(n*each) / span.last.Sub(span.first).Seconds(), errors.Join(errs...)
}

// growth shows that a step costs the same early and late in a run.
func growth(ctx context.Context, dir string) error {
	return inRuntime(ctx, dir, func(s store.Store, rt *perdure.Runtime) error {
		if _, err := flows(ctx, rt, 1, 850, "growth"); err != nil {
			return err
		}
		sizes, err := entrySizes(ctx, s)
		if err != nil {
			return err
		}
		sum := func(list []int) (n int) {
			for _, size := range list {
				n += size
			}
			return n
		}
		atMost("bytes of a step at step 800 ÷ at step 50", float64(sum(sizes[795:805]))/float64(sum(sizes[45:55])), 1.1)
		atMost("bytes stored ÷ (1.3 × payload + 200 B a step)", float64(sum(sizes))/(850*(1.3*entrySize+200)), 1)
		return nil
	})
}

// entrySizes reads all journals and returns the sizes of their entries.
func entrySizes(ctx context.Context, s store.Store) (sizes []int, err error) {
	for name, err := range s.Journals(ctx, "") {
		if err != nil {
			return nil, err
		}
		for e, err := range s.Read(ctx, name, 0) {
			if err != nil {
				return nil, err
			}
			sizes = append(sizes, len(e.Data))
		}
	}
	return sizes, nil
}

// resume measures how long a run with many finished steps takes to go on.
func resume(ctx context.Context, dir string) error {
	const n = 10_000
	reached := make(chan time.Time, 100)
	waits := perdure.NewFlow("waits", func(ctx context.Context, n int) (int, error) {
		if err := doSteps(ctx, n, entrySize); err != nil {
			return 0, err
		}
		reached <- time.Now()
		_, err := perdure.Receive[bool](ctx, "go", "go", 0)
		return n, err
	})
	return inStore(ctx, dir, func(s store.Store, _ string) error {
		rt, stop, err := working(ctx, s, waits)
		if err != nil {
			return err
		}
		run, err := rt.Start(ctx, perdure.StartRequest{Flow: "waits", Input: n, Thread: "resume"})
		if err == nil {
			_, err = rt.Wait(ctx, run.Thread, run.ID)
		}
		stop()
		if err != nil {
			return err
		}
		<-reached
		var reads, resumes []float64
		for range 5 {
			start := time.Now()
			if _, err := entrySizes(ctx, s); err != nil {
				return err
			}
			reads = append(reads, float64(time.Since(start))/n)
			// A claim, and the replay of all steps up to the wait.
			if err := rt.Pause(ctx, "resume", "", perdure.Note{}); err != nil {
				return err
			}
			if err := rt.Resume(ctx, "resume", "", perdure.Note{}); err != nil {
				return err
			}
			start = time.Now()
			_, stop, err := working(ctx, s, waits)
			if err != nil {
				return err
			}
			select {
			case at := <-reached:
				resumes = append(resumes, float64(at.Sub(start))/n)
			case <-time.After(time.Minute):
				err = errors.New("the run does not go on")
			}
			stop()
			if err != nil {
				return err
			}
		}
		fmt.Printf("resume of a run with %d finished steps: %.1f µs a step, of which reading the entries is %.1f µs\n", n, median(resumes)/1e3, median(reads)/1e3)
		atMost("time to resume ÷ time to read the entries", median(resumes)/median(reads), 1.5)
		return nil
	})
}
