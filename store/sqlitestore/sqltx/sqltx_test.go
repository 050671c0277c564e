package sqltx_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/sqlitestore/sqltx"
)

func openStore(t *testing.T, file string) store.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{})
	kit.NoErr(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

const steps = 4

// charge has steps that each insert a row, two of them in branches beside an
// ordinary step, and one with a result that becomes a blob. No row is refused
// because it is there already.
func charge(inside func()) perdure.Flow {
	one := func(ctx context.Context, name string, size int) error {
		_, err := sqltx.Step(ctx, name, func(ctx context.Context, tx *sqltx.Tx) (string, error) {
			if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS effects (step TEXT)"); err != nil {
				return "", err
			}
			_, err := tx.Exec(ctx, "INSERT INTO effects VALUES (?)", perdure.Key(ctx))
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
		return steps, one(ctx, "large", 300_000)
	})
}

// wantRows demands that each step with a row that the journals have on record has
// exactly one, and no other step has any.
func wantRows(t *testing.T, file string) (rows string) {
	t.Helper()
	got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM effects", "SELECT count(DISTINCT step) FROM effects",
		"SELECT count(*) FROM history WHERE kind = 'step' AND path NOT LIKE '%plain%' AND json_extract(body, '$.fail') IS NULL")
	kit.NoErr(t, err)
	if got[0] != got[1] || got[0] != got[2] {
		t.Fatalf("there are %s rows of %s steps, and the journals have %s steps", got[0], got[1], got[2])
	}
	return got[0]
}

// TestRowsAndOutcomesGoTogether lets many runs write rows at once.
func TestRowsAndOutcomesGoTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	k := kit.New(t, openStore(t, file), perdure.Options{}, charge(func() {}))
	for i := range 10 {
		k.StartOn(fmt.Sprint("t", i), "charge", "")
	}
	for i := range 10 {
		k.WaitFor(fmt.Sprint("t", i), perdure.Succeeded)
	}
	if got := wantRows(t, file); got != fmt.Sprint(10*steps) {
		t.Errorf("there are %s rows", got)
	}
}

// TestNoOutcomeNoRow ends steps without a result, in every way.
func TestNoOutcomeNoRow(t *testing.T) {
	mine := errors.New("mine")
	type tx = *sqltx.Tx
	for name, c := range map[string]struct {
		fn   func(context.Context, tx) (string, error)
		opts []perdure.StepOption
		want error
	}{
		"error": {fn: func(context.Context, tx) (string, error) { return "", mine }},
		"panic": {fn: func(context.Context, tx) (string, error) { panic("mine") }, want: perdure.ErrPanic},
		"limit": {fn: func(ctx context.Context, _ tx) (string, error) { <-ctx.Done(); return "", nil }, opts: []perdure.StepOption{sqltx.Limit(20 * time.Millisecond)}, want: perdure.ErrTimeout},
		"endless": {fn: func(ctx context.Context, q tx) (string, error) {
			_, err := q.Exec(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO effects SELECT sum(i) FROM n")
			return "", err
		}, opts: []perdure.StepOption{sqltx.Limit(50 * time.Millisecond)}, want: perdure.ErrTimeout},
		"timeout": {fn: func(ctx context.Context, _ tx) (string, error) { <-ctx.Done(); return "", ctx.Err() }, opts: []perdure.StepOption{perdure.Timeout(20 * time.Millisecond)}, want: perdure.ErrTimeout},
		"verb": {fn: func(ctx context.Context, _ tx) (string, error) {
			return "", perdure.Sleep(ctx, "nap", time.Hour)
		}, want: perdure.ErrComposite},
		"not JSON": {fn: func(context.Context, tx) (string, error) { return "\xff", nil }, want: perdure.ErrNotJSON},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "test.db")
			flow := perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				_, err := sqltx.Step(ctx, "table", func(ctx context.Context, tx *sqltx.Tx) (int64, error) {
					return tx.Exec(ctx, "CREATE TABLE effects (step TEXT)")
				})
				if err != nil {
					return "", err
				}
				return sqltx.Step(ctx, "s", func(ctx context.Context, tx *sqltx.Tx) (string, error) {
					if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ('void')"); err != nil {
						return "", err
					}
					return c.fn(ctx, tx)
				}, c.opts...)
			})
			k := kit.New(t, openStore(t, file), perdure.Options{}, flow)
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Failed)
			if c.want != nil && !errors.Is(run.Err, c.want) {
				t.Errorf("the run failed with %v, want %v", run.Err, c.want)
			}
			if got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM effects"); err != nil || got[0] != "0" {
				t.Errorf("there are %q rows, %v", got, err)
			}
		})
	}
}

// TestRefused uses options and stores that do not fit.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		s    store.Store
		opts []perdure.StepOption
	}{
		"at most once":  {openStore(t, filepath.Join(t.TempDir(), "test.db")), []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(time.Second)}},
		"another store": {memstore.New(), []perdure.StepOption{perdure.Retry(perdure.RetryPolicy{})}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t, c.s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return sqltx.Step(ctx, "s", func(context.Context, *sqltx.Tx) (string, error) {
					t.Error("the function was called")
					return "", nil
				}, c.opts...)
			}))
			k.StartOn("t", "f", "")
			if run := k.WaitFor("t", perdure.Failed); !errors.Is(run.Err, perdure.ErrOption) {
				t.Errorf("the run failed with %v, want ErrOption", run.Err)
			}
		})
	}
}

// TestCancelRollsBack cancels a run in the middle of a transaction.
func TestCancelRollsBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	s := openStore(t, file)
	inside := make(chan struct{})
	k := kit.New(t, s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		return sqltx.Step(ctx, "s", func(ctx context.Context, tx *sqltx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "CREATE TABLE effects (step TEXT)")
			close(inside)
			<-ctx.Done()
			return "", err // all the same
		}, sqltx.Limit(100*time.Millisecond))
	}))
	k.StartOn("t", "f", "")
	<-inside
	go func() { _ = k.Control("cancel", "t", "") }() // is recorded when the limit has ended the transaction
	k.WaitFor("t", perdure.Cancelled)
	if got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM effects"); err != nil || !strings.Contains(got[0], "no such table") {
		t.Errorf("the table is there: %q, %v", got, err)
	}
}

// TestCrashAtEachWrite crashes a process before and after each of its writes, and
// loses each answer without a crash; another process takes the run over.
func TestCrashAtEachWrite(t *testing.T) {
	faults := map[string]faulty.Fault{"lost": faulty.FailBefore, "unanswered": faulty.FailAfter, "crash before": faulty.CrashBefore, "crash after": faulty.CrashAfter}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 4; ; at += kit.Sized(4, 1, 1) {
				file := filepath.Join(t.TempDir(), "test.db")
				s := openStore(t, file)
				hit := false
				sick := faulty.New(s, func(c faulty.Call) faulty.Fault {
					if c.W == at {
						hit = true
						return fault
					}
					return faulty.None
				})
				o := perdure.Options{Version: "test", Lease: 500 * time.Millisecond}
				ctx, cancel := context.WithCancel(t.Context())
				sick.OnCrash(cancel)
				over := make(chan struct{})
				if rt, err := perdure.New(ctx, sick, o, charge(func() {})); err == nil {
					_, _ = rt.Start(ctx, perdure.StartRequest{Flow: "charge", Thread: "t", Key: "k", Input: ""})
					go func() {
						defer close(over)
						_ = rt.Work(ctx)
					}()
				} else {
					close(over)
				}
				k := kit.New(t, s, o, charge(func() {}))
				k.MustStart(perdure.StartRequest{Flow: "charge", Thread: "t", Key: "k", Input: ""})
				k.WaitFor("t", perdure.Succeeded)
				cancel()
				<-over
				k.Stop()
				if got := wantRows(t, file); got != fmt.Sprint(steps) {
					t.Fatalf("%s at write %d: there are %s rows", name, at, got)
				}
				if !hit || at > 40 {
					break
				}
			}
		})
	}
}

// deadly kills the process around a commit of a transaction.
type deadly struct {
	store.Store
	at func(point int)
}

func (d deadly) Unwrap() store.Store { return d.Store }

func (d deadly) Begin(ctx context.Context, native any) (store.Tx, error) {
	tx, err := store.Join(ctx, d.Store, native)
	return deadlyTx{tx, d}, err
}

type deadlyTx struct {
	store.Tx
	deadly
}

func (t deadlyTx) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return t.Tx.Put(ctx, key, value, prev)
}

func (t deadlyTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	t.at(1)
	go t.at(2)
	last, err := t.Tx.Commit(ctx, b)
	t.at(3)
	return last, err
}

// die kills the process, at one of four points, by SIGKILL.
func die(point int) {
	if rand.IntN(40) > 0 {
		return
	}
	if point == 2 {
		time.Sleep(rand.N(3 * time.Millisecond))
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	runtime.Goexit()
}

// TestMain lets the test binary be a worker that dies in its steps.
func TestMain(m *testing.M) {
	if file := os.Getenv("SQLTX_WORKER"); file != "" {
		s, err := sqlitestore.Open(context.Background(), file, sqlitestore.Options{})
		if err == nil {
			rt, newErr := perdure.New(context.Background(), deadly{s, die}, perdure.Options{Version: "test", Lease: 500 * time.Millisecond}, charge(func() { die(0) }))
			if err = newErr; err == nil {
				fmt.Println("works")
				err = rt.Work(context.Background())
			}
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestKilledStepsHaveOneRow kills workers in their steps and commits: each step has
// its row once, and the journal agrees after each death.
func TestKilledStepsHaveOneRow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	k := kit.Runtime(t, openStore(t, file), perdure.Options{Version: "test"}, charge(func() {}))
	self, err := os.Executable()
	kit.NoErr(t, err)
	runs := 0
	for range kit.Sized(20, 60, 320) {
		for range 20 {
			runs++
			kit.Start(t, k, perdure.StartRequest{Flow: "charge", Thread: fmt.Sprint("t", runs), Input: ""})
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "SQLTX_WORKER="+file)
		out, err := cmd.StdoutPipe()
		kit.NoErr(t, err)
		kit.NoErr(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() != "works" {
				t.Fatalf("the worker: %s", lines.Text())
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("the worker ended by itself: %v", err)
		}
		if got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM sqlite_schema WHERE name = 'effects'"); err == nil && got[0] == "1" {
			wantRows(t, file)
		}
	}
	last := kit.New(t, openStore(t, file), perdure.Options{Version: "test"}, charge(func() {}))
	for i := range runs {
		last.WaitFor(fmt.Sprint("t", i+1), perdure.Succeeded)
	}
	if got := wantRows(t, file); got != fmt.Sprint(runs*steps) {
		t.Errorf("there are %s rows, want %d", got, runs*steps)
	}
}
