package pgtx_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/pgstore/pgtx"
)

const steps = 4

// place is a store, and a table of the program beside it.
type place struct{ URL, Schema, Table string }

func newPlace(t *testing.T) place {
	t.Helper()
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	config, err := pgx.ParseConfig(url)
	kit.NoErr(t, err)
	p := place{URL: url, Schema: config.RuntimeParams["schema"]}
	p.Table = "effects_" + p.Schema
	p.query(t, "CREATE TABLE "+p.Table+" (step text)")
	t.Cleanup(func() { p.query(t, "DROP TABLE "+p.Table) })
	return p
}

// query asks the database apart from the store, and returns the first column of
// the first row.
func (p place) query(t *testing.T, sql string) (first string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c, err := pgx.Connect(ctx, pgtest.URL(t))
	kit.NoErr(t, err)
	defer c.Close(ctx)
	rows, err := c.Query(ctx, sql)
	kit.NoErr(t, err)
	for rows.Next() {
		values, err := rows.Values()
		kit.NoErr(t, err)
		first = fmt.Sprint(values[0])
	}
	kit.NoErr(t, rows.Err())
	return first
}

func (p place) open(t *testing.T) store.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), p.URL, pgstore.Options{})
	kit.NoErr(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// wantRows demands that each step with a row that the journals have on record has
// exactly one, and no other step has any.
func (p place) wantRows(t *testing.T) (rows string) {
	t.Helper()
	got := p.query(t, fmt.Sprintf(`SELECT (SELECT count(*) FROM %s) || ' ' || (SELECT count(DISTINCT step) FROM %[1]s) || ' ' ||
		(SELECT count(*) FROM %s.history WHERE kind = 'step' AND path NOT LIKE '%%plain%%' AND body::json->>'fail' IS NULL)`, p.Table, p.Schema))
	n := strings.Fields(got)
	if n[0] != n[1] || n[0] != n[2] {
		t.Fatalf("there are %s rows of %s steps, and the journals have %s steps", n[0], n[1], n[2])
	}
	return n[0]
}

// charge has steps that each insert a row, two of them in branches beside an
// ordinary step, and one with a result that becomes a blob. No row is refused
// because it is there already.
func charge(table string, inside func()) perdure.Flow {
	one := func(ctx context.Context, name string, size int) error {
		_, err := pgtx.Step(ctx, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", perdure.Key(ctx))
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

// TestRowsAndOutcomesGoTogether lets many runs write rows at once.
func TestRowsAndOutcomesGoTogether(t *testing.T) {
	p := newPlace(t)
	k := kit.New(t, p.open(t), perdure.Options{}, charge(p.Table, func() {}))
	for i := range 30 {
		k.StartOn(fmt.Sprint("t", i), "charge", "")
	}
	for i := range 30 {
		k.WaitFor(fmt.Sprint("t", i), perdure.Succeeded)
	}
	if got := p.wantRows(t); got != fmt.Sprint(30*steps) {
		t.Errorf("there are %s rows", got)
	}
}

// TestNoOutcomeNoRow ends steps without a result, in every way.
func TestNoOutcomeNoRow(t *testing.T) {
	mine := errors.New("mine")
	once := perdure.Retry(perdure.RetryPolicy{Attempts: 1})
	for name, c := range map[string]struct {
		fn   func(context.Context, pgx.Tx) (string, error)
		opts []perdure.StepOption
		want error
	}{
		"error": {fn: func(context.Context, pgx.Tx) (string, error) { return "", mine }},
		"panic": {fn: func(context.Context, pgx.Tx) (string, error) { panic("mine") }, want: perdure.ErrPanic},
		"statement": {fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, _ = tx.Exec(ctx, "SELECT nonsense")
			return "all the same", nil
		}},
		"timeout": {fn: func(ctx context.Context, _ pgx.Tx) (string, error) { <-ctx.Done(); return "", ctx.Err() }, opts: []perdure.StepOption{perdure.Timeout(20 * time.Millisecond)}, want: perdure.ErrTimeout},
		"long": {fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return "", err
		}, opts: []perdure.StepOption{perdure.Timeout(50 * time.Millisecond)}, want: perdure.ErrTimeout},
		"deaf": {fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(60)")
			return "", err
		}, opts: []perdure.StepOption{perdure.Timeout(50 * time.Millisecond)}, want: perdure.ErrTimeout},
		"rollback": {fn: func(ctx context.Context, tx pgx.Tx) (string, error) { return "all the same", tx.Rollback(ctx) }},
		"verb":     {fn: func(ctx context.Context, _ pgx.Tx) (string, error) { return "", perdure.Sleep(ctx, "nap", time.Hour) }, want: perdure.ErrComposite},
		"not JSON": {fn: func(context.Context, pgx.Tx) (string, error) { return "\xff", nil }, want: perdure.ErrNotJSON},
		"deferred": {fn: func(ctx context.Context, tx pgx.Tx) (string, error) { return "all the same", deferred(ctx, tx) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			k := kit.New(t, p.open(t), perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (string, error) {
					if _, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('void')"); err != nil {
						return "", err
					}
					return c.fn(ctx, tx)
				}, append(c.opts, once)...)
			}))
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Failed)
			if c.want != nil && !errors.Is(run.Err, c.want) {
				t.Errorf("the run failed with %v, want %v", run.Err, c.want)
			}
			if got := p.query(t, "SELECT count(*) FROM "+p.Table); got != "0" {
				t.Errorf("there are %s rows", got)
			}
		})
	}
}

// deferred makes the commit itself fail.
func deferred(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP; INSERT INTO one VALUES (1), (1)")
	return err
}

// TestRefused uses options and stores that do not fit.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		s    store.Store
		opts []perdure.StepOption
	}{
		"at most once":  {newPlace(t).open(t), []perdure.StepOption{perdure.AtMostOnce(), perdure.Timeout(time.Second)}},
		"another store": {memstore.New(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t, c.s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return pgtx.Step(ctx, "s", func(context.Context, pgx.Tx) (string, error) {
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

// TestCrashAtEachWrite crashes a process before and after its writes, and loses
// answers without a crash; another process takes the run over.
func TestCrashAtEachWrite(t *testing.T) {
	faults := map[string]faulty.Fault{"lost": faulty.FailBefore, "unanswered": faulty.FailAfter, "crash before": faulty.CrashBefore, "crash after": faulty.CrashAfter}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 4; ; at += kit.Sized(4, 1, 1) {
				p := newPlace(t)
				s := p.open(t)
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
				if rt, err := perdure.New(ctx, sick, o, charge(p.Table, func() {})); err == nil {
					_, _ = rt.Start(ctx, perdure.StartRequest{Flow: "charge", Thread: "t", Key: "k", Input: ""})
					go func() {
						defer close(over)
						_ = rt.Work(ctx)
					}()
				} else {
					close(over)
				}
				k := kit.New(t, s, o, charge(p.Table, func() {}))
				k.MustStart(perdure.StartRequest{Flow: "charge", Thread: "t", Key: "k", Input: ""})
				k.WaitFor("t", perdure.Succeeded)
				cancel()
				<-over
				k.Stop()
				if got := p.wantRows(t); got != fmt.Sprint(steps) {
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
}

func (d deadly) Unwrap() store.Store { return d.Store }

func (d deadly) Begin(ctx context.Context, native any) (store.Tx, error) {
	tx, err := store.Join(ctx, d.Store, native)
	return deadlyTx{tx}, err
}

type deadlyTx struct{ store.Tx }

func (t deadlyTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	die(1)
	go die(2)
	last, err := t.Tx.Commit(ctx, b)
	die(3)
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
	if text := os.Getenv("PGTX_WORKER"); text != "" {
		url, table, _ := strings.Cut(text, " ")
		s, err := pgstore.Open(context.Background(), url, pgstore.Options{})
		if err == nil {
			rt, newErr := perdure.New(context.Background(), deadly{s}, perdure.Options{Version: "test", Lease: 500 * time.Millisecond}, charge(table, func() { die(0) }))
			if err = newErr; err == nil {
				fmt.Println("works")
				err = rt.Work(context.Background())
			}
		}
		fmt.Println(err)
		os.Exit(1)
	}
	if text := os.Getenv("PGTX_STARTER"); text != "" {
		url, table, _ := strings.Cut(text, " ")
		fmt.Println(startAndDie(url, table))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestKilledStepsHaveOneRow kills workers in their steps and commits: each step has
// its row once, and the journal agrees after each death.
func TestKilledStepsHaveOneRow(t *testing.T) {
	p := newPlace(t)
	k := kit.Runtime(t, p.open(t), perdure.Options{Version: "test"}, charge(p.Table, func() {}))
	self, err := os.Executable()
	kit.NoErr(t, err)
	runs := 0
	for range kit.Sized(20, 60, 320) {
		for range 20 {
			runs++
			kit.Start(t, k, perdure.StartRequest{Flow: "charge", Thread: fmt.Sprint("t", runs), Input: ""})
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "PGTX_WORKER="+p.URL+" "+p.Table)
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
		p.wantRows(t)
	}
	last := kit.New(t, p.open(t), perdure.Options{Version: "test"}, charge(p.Table, func() {}))
	for i := range runs {
		last.WaitFor(fmt.Sprint("t", i+1), perdure.Succeeded)
	}
	if got := p.wantRows(t); got != fmt.Sprint(runs*steps) {
		t.Errorf("there are %s rows, want %d", got, runs*steps)
	}
}
