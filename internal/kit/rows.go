package kit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// Rows tests steps whose effects are rows in the database of the store. It is what
// the tests know about an engine. A place is a store, and a table of the program
// beside it, in words that another process understands too.
type Rows[Tx any] struct {
	New    func(t *testing.T) (place string)
	Open   func(ctx context.Context, place string) (store.Store, error)
	Step   func(ctx context.Context, name string, fn func(context.Context, Tx) (string, error), opts ...perdure.StepOption) (string, error)
	Insert func(ctx context.Context, tx Tx, place, step string) error

	// Count returns the number of rows, of steps that they name, and of steps that
	// the journals have on record without a failure and below no branch "plain".
	Count func(t *testing.T, place string) [3]string
}

const (
	rowsEnv   = "PERDURE_ROWS_PLACE"
	rowsSteps = 4 // with a row, of a run
)

func (r Rows[Tx]) open(t *testing.T, place string) store.Store {
	t.Helper()
	s := must(r.Open(t.Context(), place))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// flow has steps that each insert a row, two of them in branches beside an
// ordinary step, and one with a result that becomes a blob. No row is refused
// because it is there already.
func (r Rows[Tx]) flow(place string, inside func()) perdure.Flow {
	one := func(ctx context.Context, name string, size int) error {
		_, err := r.Step(ctx, name, func(ctx context.Context, tx Tx) (string, error) {
			err := r.Insert(ctx, tx, place, perdure.Key(ctx))
			inside()
			return strings.Repeat("x", size), err
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 100, Wait: time.Millisecond, MaxWait: 10 * time.Millisecond}))
		return err
	}
	return perdure.NewFlow("charge", func(ctx context.Context, _ string) (int, error) {
		if err := one(ctx, "first", 1); err != nil {
			return 0, err
		}
		g := perdure.NewGroup(ctx)
		g.Go("left", func(ctx context.Context) error { return one(ctx, "row", 1) })
		g.Go("right", func(ctx context.Context) error { return one(ctx, "row", 1) })
		g.Go("plain", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "no row", func(context.Context) (int, error) { return 1, nil })
			return err
		})
		if err := g.Wait(); err != nil {
			return 0, err
		}
		return rowsSteps, one(ctx, "large", 300_000)
	})
}

// want demands that each step with a row that the journals have on record has
// exactly one, and no other step has any. It returns the number of rows.
func (r Rows[Tx]) want(t *testing.T, place string) (rows string) {
	t.Helper()
	n := r.Count(t, place)
	if n[0] != n[1] || n[0] != n[2] {
		t.Fatalf("there are %s rows of %s steps, and the journals have %s steps", n[0], n[1], n[2])
	}
	return n[0]
}

// wantRuns is want, for so many runs that have ended.
func (r Rows[Tx]) wantRuns(t *testing.T, place string, runs int) {
	t.Helper()
	if got := r.want(t, place); got != fmt.Sprint(runs*rowsSteps) {
		t.Errorf("there are %s rows, want %d", got, runs*rowsSteps)
	}
}

// GoTogether lets many runs write rows at once.
func (r Rows[Tx]) GoTogether(t *testing.T) {
	const runs = 20
	place := r.New(t)
	k := New(t, r.open(t, place), perdure.Options{}, r.flow(place, func() {}))
	for i := range runs {
		k.StartOn(fmt.Sprint("t", i), "charge", "")
	}
	for i := range runs {
		k.WaitFor(fmt.Sprint("t", i), perdure.Succeeded)
	}
	r.wantRuns(t, place, runs)
}

// RowsCase is a step that has inserted a row, and then ends without a result.
type RowsCase[Tx any] struct {
	Fn   func(context.Context, Tx) (string, error)
	Opts []perdure.StepOption
	Want error // nil: any
}

// NoOutcome ends steps without a result, in every way: those of all engines and more.
func (r Rows[Tx]) NoOutcome(t *testing.T, more map[string]RowsCase[Tx]) {
	cases := map[string]RowsCase[Tx]{
		"error":    {Fn: func(context.Context, Tx) (string, error) { return "", errors.New("mine") }},
		"panic":    {Fn: func(context.Context, Tx) (string, error) { panic("mine") }, Want: perdure.ErrPanic},
		"timeout":  {Fn: func(ctx context.Context, _ Tx) (string, error) { <-ctx.Done(); return "", ctx.Err() }, Opts: []perdure.StepOption{perdure.Timeout(20 * time.Millisecond)}, Want: perdure.ErrTimeout},
		"verb":     {Fn: func(ctx context.Context, _ Tx) (string, error) { return "", perdure.Sleep(ctx, "nap", time.Hour) }, Want: perdure.ErrComposite},
		"not JSON": {Fn: func(context.Context, Tx) (string, error) { return "\xff", nil }, Want: perdure.ErrNotJSON},
	}
	maps.Copy(cases, more)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			place := r.New(t)
			step := func(ctx context.Context, name string, fn func(context.Context, Tx) (string, error), opts ...perdure.StepOption) (string, error) {
				return r.Step(ctx, name, func(ctx context.Context, tx Tx) (string, error) {
					if err := r.Insert(ctx, tx, place, name); err != nil {
						return "", err
					}
					return fn(ctx, tx)
				}, append(opts, perdure.Retry(perdure.RetryPolicy{Attempts: 1}))...)
			}
			k := New(t, r.open(t, place), perdure.Options{}, FlowOf(func(ctx context.Context) error {
				if _, err := step(ctx, "good", func(context.Context, Tx) (string, error) { return "", nil }); err != nil {
					return err
				}
				_, err := step(ctx, "void", c.Fn, c.Opts...)
				return err
			}))
			k.StartOn("t", "f", struct{}{})
			run := k.WaitFor("t", perdure.Failed)
			if c.Want != nil && !errors.Is(run.Err, c.Want) {
				t.Errorf("the run failed with %v, want %v", run.Err, c.Want)
			}
			if got := r.Count(t, place)[0]; got != "1" {
				t.Errorf("there are %s rows, want the one of the step before", got)
			}
		})
	}
}

// Refused uses options and stores that do not fit.
func (r Rows[Tx]) Refused(t *testing.T) {
	for name, c := range map[string]struct {
		s    store.Store
		opts []perdure.StepOption
	}{
		"at most once":  {r.open(t, r.New(t)), []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(time.Second)}},
		"another store": {memstore.New(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := New(t, c.s, perdure.Options{}, FlowOf(func(ctx context.Context) error {
				_, err := r.Step(ctx, "s", func(context.Context, Tx) (string, error) {
					t.Error("the function was called")
					return "", nil
				}, c.opts...)
				return err
			}))
			k.StartOn("t", "f", struct{}{})
			if run := k.WaitFor("t", perdure.Failed); !errors.Is(run.Err, perdure.ErrOption) {
				t.Errorf("the run failed with %v, want ErrOption", run.Err)
			}
		})
	}
}

// Crash crashes a process before and after its writes, and loses answers without a
// crash; another process takes the run over.
func (r Rows[Tx]) Crash(t *testing.T) {
	faults := map[string]faulty.Fault{"lost": faulty.FailBefore, "unanswered": faulty.FailAfter, "crash before": faulty.CrashBefore, "crash after": faulty.CrashAfter}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 4; at < 44 && r.crashAt(t, fault, at); at += Sized(8, 1, 1) {
			}
		})
	}
}

// crashAt reports whether there was such a write.
func (r Rows[Tx]) crashAt(t *testing.T, fault faulty.Fault, at int) (hit bool) {
	t.Helper()
	place := r.New(t)
	s := r.open(t, place)
	sick := faulty.New(s, func(c faulty.Call) faulty.Fault {
		if c.W == at {
			hit = true
			return fault
		}
		return faulty.None
	})
	o := perdure.Options{Version: "test", Lease: 500 * time.Millisecond}
	q := perdure.StartRequest{Flow: "charge", Thread: "t", Key: "k", Input: ""}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sick.OnCrash(cancel)
	over := make(chan struct{})
	if rt, err := perdure.New(ctx, sick, o, r.flow(place, func() {})); err == nil {
		_, _ = rt.Start(ctx, q)
		go func() {
			defer close(over)
			_ = rt.Work(ctx)
		}()
	} else {
		close(over)
	}
	k := New(t, s, o, r.flow(place, func() {}))
	k.MustStart(q)
	k.WaitFor("t", perdure.Succeeded)
	cancel()
	<-over
	k.Stop()
	r.wantRuns(t, place, 1)
	return hit
}

// deadly kills the process around a commit of a transaction.
type deadly struct{ store.Store }

func (d deadly) Unwrap() store.Store { return d.Store }

func (d deadly) Begin(ctx context.Context, native any) (store.Tx, error) {
	tx, err := store.Join(ctx, d.Store, native)
	return deadlyTx{tx}, err
}

type deadlyTx struct{ store.Tx }

func (t deadlyTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	Die(0)
	go Die(3 * time.Millisecond)
	last, err := t.Tx.Commit(ctx, b)
	Die(0)
	return last, err
}

// Die kills the process with SIGKILL, once in forty times, and not later than late.
func Die(late time.Duration) {
	if rand.IntN(40) > 0 {
		return
	}
	if late > 0 {
		time.Sleep(rand.N(late))
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	runtime.Goexit()
}

// Worker is for TestMain: in a process that Kill has started it works until it dies.
func (r Rows[Tx]) Worker() {
	place := os.Getenv(rowsEnv)
	if place == "" {
		return
	}
	s, err := r.Open(context.Background(), place)
	if err == nil {
		rt, newErr := perdure.New(context.Background(), deadly{s}, perdure.Options{Version: "test", Lease: 500 * time.Millisecond}, r.flow(place, func() { Die(0) }))
		if err = newErr; err == nil {
			fmt.Println("works")
			err = rt.Work(context.Background())
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// Kill kills workers in their steps and commits, as long as there is work: each step
// has its row once, and the journal agrees after each death.
func (r Rows[Tx]) Kill(t *testing.T) {
	place := r.New(t)
	rt := Runtime(t, r.open(t, place), perdure.Options{}, r.flow(place, func() {}))
	runs, kills := 0, Sized(6, 60, 320)
	start := func() {
		runs++
		Start(t, rt, perdure.StartRequest{Flow: "charge", Thread: fmt.Sprint("t", runs), Input: ""})
	}
	// A worker has more to do than it lives for, but not ever more where the machine is slow.
	enough := func() bool {
		old := runs - 20
		if old <= 0 {
			return false
		}
		run := must(rt.GetRun(t.Context(), fmt.Sprint("t", old), ""))(t)
		return run.Status == perdure.Queued || run.Status == perdure.Running || run.Status == perdure.Suspended
	}
	for range kills {
		cmd := exec.CommandContext(t.Context(), must(os.Executable())(t))
		cmd.Env = append(os.Environ(), rowsEnv+"="+place)
		out := must(cmd.StdoutPipe())(t)
		NoErr(t, cmd.Start())
		said := make(chan string)
		go func() {
			defer close(said)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said <- lines.Text()
			}
		}()
		for alive, works := true, false; alive; {
			var next <-chan time.Time
			if works {
				if !enough() {
					start()
				}
				next = time.After(20 * time.Millisecond)
			}
			select {
			case text, ok := <-said:
				alive = ok
				if works = works || ok; ok && text != "works" {
					t.Errorf("the worker: %s", text)
				}
			case <-next:
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("the worker ended by itself: %v", err)
		}
		r.want(t, place)
	}
	last := New(t, r.open(t, place), perdure.Options{}, r.flow(place, func() {}))
	for i := range runs {
		last.succeed(fmt.Sprint("t", i+1))
	}
	r.wantRuns(t, place, runs)
	t.Logf("%d kills, %d runs", kills, runs)
}

// succeed waits for the run of a thread, which may be quarantined because its workers
// were killed again and again.
func (k *Kit) succeed(thread string) {
	k.T.Helper()
	run := must(k.Wait(k.T.Context(), thread, ""))(k.T)
	if run.Status == perdure.Quarantined {
		NoErr(k.T, k.Control("retry", thread, run.ID))
		run = must(k.Wait(k.T.Context(), thread, ""))(k.T)
	}
	k.expect(run, perdure.Succeeded)
}
