package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/pgstore/pgtx"
	"github.com/perdure/perdure/store/seal"
)

// echo returns the length of its input.
var echo = perdure.NewFlow("echo", func(_ context.Context, in string) (int, error) { return len(in), nil })

// begin begins a transaction of the program, on a connection of its own whose
// search_path and settings are not the store's.
func begin(t *testing.T, url string) pgx.Tx {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	kit.NoErr(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(t.Context(), config)
	kit.NoErr(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	tx, err := c.Begin(t.Context())
	kit.NoErr(t, err)
	return tx
}

// startRow starts a run and writes a row with the thread's id, in one transaction.
func (p place) startRow(ctx context.Context, rt *perdure.Runtime, tx pgx.Tx, q perdure.StartRequest) error {
	if _, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('"+q.Thread+"')"); err != nil {
		return err
	}
	q.Flow = "echo"
	_, err := pgtx.Start(ctx, rt, tx, q)
	return err
}

// everything counts what the store holds.
func (p place) everything(t *testing.T) string {
	return p.query(t, fmt.Sprintf("SELECT (SELECT count(*) FROM %s.journals) || ' ' || (SELECT count(*) FROM %[1]s.entries) || ' ' || (SELECT count(*) FROM %[1]s.cells)", p.Schema))
}

// wantStarts demands that the rows are the ids of the threads.
func (p place) wantStarts(t *testing.T) (rows string) {
	t.Helper()
	got := p.query(t, fmt.Sprintf("SELECT (SELECT coalesce(string_agg(step, ' ' ORDER BY step), '') FROM %s) || '|' || (SELECT coalesce(string_agg(thread, ' ' ORDER BY thread), '') FROM %s.threads)", p.Table, p.Schema))
	rows, threads, _ := strings.Cut(got, "|")
	if rows != threads {
		t.Fatalf("there are rows for %s, and threads %s", rows, threads)
	}
	return rows
}

// TestStartIfCommitted starts runs in transactions that are rolled back, and that
// are committed.
func TestStartIfCommitted(t *testing.T) {
	sealed := func(s store.Store) store.Store {
		ring, err := seal.NewRing("key", map[string][]byte{"key": make([]byte, 32)})
		kit.NoErr(t, err)
		sealed, err := seal.New(t.Context(), observed.New(s, observed.Func(func(ctx context.Context, _ observed.Call) (context.Context, func(observed.Result)) { return ctx, nil })), ring)
		kit.NoErr(t, err)
		return sealed
	}
	for name, c := range map[string]struct {
		wrap  func(store.Store) store.Store
		url   func(testing.TB) string // of the program's connection
		input string
	}{
		"small":  {input: "small"},
		"large":  {input: strings.Repeat("large", 200_000)},
		"sealed": {wrap: sealed, input: strings.Repeat("large", 200_000)},
		"pooled": {url: pgtest.Bouncer, input: "small"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			s, url := p.open(t), pgtest.URL(t)
			if c.wrap != nil {
				s = c.wrap(s)
			}
			if c.url != nil {
				url = c.url(t)
			}
			rt := kit.Runtime(t, s, perdure.Options{}, echo)
			before := p.everything(t)
			for range 2 {
				tx := begin(t, url)
				kit.NoErr(t, p.startRow(t.Context(), rt, tx, perdure.StartRequest{Thread: "t", Input: c.input}))
				if _, err := rt.Get(t.Context(), "t"); !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("before the commit there is a thread: %v", err)
				}
				kit.NoErr(t, tx.Rollback(t.Context()))
				if got := p.everything(t); got != before {
					t.Errorf("after the rollback the store holds %s, before %s", got, before)
				}
			}
			k := kit.New(t, s, perdure.Options{}, echo)
			tx := begin(t, url)
			_, err := tx.Exec(t.Context(), "SET LOCAL search_path TO pg_temp")
			kit.NoErr(t, err)
			run, err := pgtx.Start(t.Context(), k.Runtime, tx, perdure.StartRequest{Flow: "echo", Thread: "t", Input: c.input})
			kit.NoErr(t, err)
			if run.Thread != "t" || run.Status != perdure.Queued || run.Flow != "echo" {
				t.Errorf("the run that is to be is %+v", run)
			}
			kit.NoErr(t, tx.Commit(t.Context()))
			if got := k.WaitFor("t", perdure.Succeeded); got.ID != run.ID || string(got.Output) != fmt.Sprint(len(c.input)) {
				t.Errorf("the run ended as %+v", got)
			}
		})
	}
}

// TestStartRefused starts what cannot be started, and goes on with the transaction.
func TestStartRefused(t *testing.T) {
	p := newPlace(t)
	k := kit.New(t, p.open(t), perdure.Options{}, echo)
	elsewhere := kit.Runtime(t, memstore.New(), perdure.Options{}, echo)
	k.StartOn("there", "echo", "x")
	k.WaitFor("there", perdure.Succeeded)
	k.MustStart(perdure.StartRequest{Flow: "echo", Thread: "keyed", Key: "key", Input: "x"})
	k.WaitFor("keyed", perdure.Succeeded)
	k.Stop() // from here on only this test writes
	other := pgtest.Name()
	p.query(t, "CREATE DATABASE "+other)
	t.Cleanup(func() { p.query(t, "DROP DATABASE "+other+" WITH (FORCE)") })
	for name, c := range map[string]struct {
		rt   *perdure.Runtime
		url  string
		q    perdure.StartRequest
		want error
	}{
		"exists":         {q: perdure.StartRequest{Thread: "there"}, want: perdure.ErrExists},
		"exists, key":    {q: perdure.StartRequest{Thread: "there", Key: "key"}, want: perdure.ErrExists},
		"key reused":     {q: perdure.StartRequest{Thread: "keyed", Key: "key", Input: "y"}, want: perdure.ErrKeyReused},
		"sequence":       {q: perdure.StartRequest{IfSeq: 1}, want: perdure.ErrStale},
		"twice":          {q: perdure.StartRequest{Thread: "twice"}, want: perdure.ErrExists},
		"no flow":        {q: perdure.StartRequest{Flow: "none"}, want: perdure.ErrNoFlow},
		"input":          {q: perdure.StartRequest{Input: 1}, want: perdure.ErrInvalid},
		"another store":  {rt: elsewhere, want: perdure.ErrOption},
		"other database": {url: strings.Replace(pgtest.URL(t), "/postgres?", "/"+other+"?", 1), want: perdure.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rt == nil {
				c.rt = k.Runtime
			}
			if c.url == "" {
				c.url = pgtest.URL(t)
			}
			if c.q.Flow == "" {
				c.q.Flow = "echo"
			}
			if c.q.Input == nil {
				c.q.Input = "x"
			}
			tx := begin(t, c.url)
			if name == "twice" {
				_, err := pgtx.Start(t.Context(), c.rt, tx, c.q)
				kit.NoErr(t, err)
			}
			before := p.everything(t)
			if run, err := pgtx.Start(t.Context(), c.rt, tx, c.q); !errors.Is(err, c.want) {
				t.Errorf("Start = %+v, %v; want %v", run, err, c.want)
			}
			if got := p.everything(t); got != before {
				t.Errorf("the store holds %s, before %s", got, before)
			}
			var one int
			kit.NoErr(t, tx.QueryRow(t.Context(), "SELECT 1").Scan(&one)) // it can still be used
			kit.NoErr(t, tx.Commit(t.Context()))
		})
	}
	if _, err := pgtx.Start(t.Context(), k.Runtime, nil, perdure.StartRequest{Flow: "echo", Input: "x"}); !errors.Is(err, perdure.ErrInvalid) {
		t.Errorf("Start without a transaction = %v", err)
	}
	for _, sql := range []string{"COMMIT", "SELECT nonsense", "SET TRANSACTION READ ONLY", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"} {
		tx := begin(t, pgtest.URL(t))
		_, _ = tx.Exec(t.Context(), sql)
		run, err := pgtx.Start(t.Context(), k.Runtime, tx, perdure.StartRequest{Flow: "echo", Thread: sql, Input: "x"})
		if serializable := strings.Contains(sql, "SERIALIZABLE"); (err == nil) != serializable {
			t.Errorf("Start after %s = %+v, %v", sql, run, err)
		}
		_ = tx.Rollback(t.Context())
	}
	failed, ended, gone := begin(t, pgtest.URL(t)), begin(t, pgtest.URL(t)), begin(t, pgtest.URL(t))
	_, _ = failed.Exec(t.Context(), "SELECT nonsense")
	kit.NoErr(t, ended.Rollback(t.Context()))
	_, err := gone.Exec(t.Context(), "ROLLBACK")
	kit.NoErr(t, err)
	for what, tx := range map[string]pgx.Tx{"none": nil, "failed": failed, "ended": ended, "gone": gone} {
		if run, err := pgtx.Start(t.Context(), k.Runtime, tx, perdure.StartRequest{Flow: "echo", Thread: "void", Input: "x"}); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("Start in a transaction that is %s = %+v, %v; want ErrInvalid", what, run, err)
		}
	}
	if run, err := pgtx.Start(t.Context(), nil, begin(t, pgtest.URL(t)), perdure.StartRequest{Flow: "echo"}); !errors.Is(err, perdure.ErrInvalid) {
		t.Errorf("Start without a runtime = %+v, %v; want ErrInvalid", run, err)
	}
	if run, err := pgtx.Start(t.Context(), k.Runtime, begin(t, pgtest.URL(t)), perdure.StartRequest{Flow: "echo", Thread: "keyed", Key: "key", Input: "x"}); err != nil || run.Thread != "keyed" {
		t.Errorf("Start with a key that has started a run = %+v, %v", run, err)
	}
	kit.New(t, k.Store, perdure.Options{}, echo).WaitFor("twice", perdure.Succeeded)
}

// TestStartOneThreadAtOnce lets transactions, and starts without one, meet at one
// id.
func TestStartOneThreadAtOnce(t *testing.T) {
	p := newPlace(t)
	k := kit.New(t, p.open(t), perdure.Options{}, echo)
	for round := range kit.Sized(2, 10, 30) {
		id := fmt.Sprint("t", round)
		var all sync.WaitGroup
		for i := range 8 {
			tx := begin(t, pgtest.URL(t))
			all.Go(func() {
				switch err := p.startRow(t.Context(), k.Runtime, tx, perdure.StartRequest{Thread: id, Input: "x"}); {
				case err == nil && i%4 > 0:
					if err := tx.Commit(t.Context()); err != nil {
						t.Error(err)
					}
				case err == nil, errors.Is(err, perdure.ErrExists):
					if err := tx.Rollback(t.Context()); err != nil {
						t.Error(err)
					}
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		p.wantStarts(t)
		k.WaitFor(id, perdure.Succeeded)
		if runs := k.KindsOf(id)["queued"]; runs != 1 {
			t.Errorf("%s has %d runs", id, runs)
		}
		// One that is started on a thread waits for it to be, or not to be.
		id += "b"
		tx := begin(t, pgtest.URL(t))
		kit.NoErr(t, p.startRow(t.Context(), k.Runtime, tx, perdure.StartRequest{Thread: id, Input: "x"}))
		all.Go(func() { k.StartOn(id, "echo", "y") })
		if round%2 == 0 {
			kit.NoErr(t, tx.Commit(t.Context()))
		} else {
			_, err := tx.Exec(t.Context(), "SELECT pg_sleep(0.05)")
			kit.NoErr(t, errors.Join(err, tx.Rollback(t.Context())))
			p.query(t, "INSERT INTO "+p.Table+" VALUES ('"+id+"')")
		}
		all.Wait()
		k.WaitFor(id, perdure.Succeeded)
		p.wantStarts(t)
	}
}

// TestStartCrash fails and crashes before and after each write of a start.
func TestStartCrash(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{"lost": faulty.FailBefore, "crash before": faulty.CrashBefore, "conflict": faulty.Conflict} {
		t.Run(name, func(t *testing.T) {
			for at, hit := 1, true; hit; at += kit.Sized(6, 1, 1) {
				p := newPlace(t)
				s := p.open(t)
				hit = false
				armed := false
				writes := 0
				sick := faulty.New(s, func(c faulty.Call) faulty.Fault {
					if armed && c.Op != store.OpGet && c.Op != store.OpRead && c.Op != store.OpList {
						if writes++; writes == at {
							hit = true
							return fault
						}
					}
					return faulty.None
				})
				rt := kit.Runtime(t, sick, perdure.Options{}, echo)
				before := p.everything(t)
				armed = true
				tx := begin(t, pgtest.URL(t))
				err := p.startRow(t.Context(), rt, tx, perdure.StartRequest{Thread: "t", Input: strings.Repeat("large", 200_000)})
				if err != nil && p.everything(t) != before {
					t.Errorf("%s at %d left something behind", name, at)
				}
				if err == nil {
					kit.NoErr(t, tx.Commit(t.Context()))
					p.wantStarts(t)
				} else {
					_, err = tx.Exec(t.Context(), "DELETE FROM "+p.Table)
					kit.NoErr(t, errors.Join(err, tx.Commit(t.Context())))
				}
				if got := p.everything(t); err != nil && got != before {
					t.Errorf("%s at %d: the store holds %s, before %s", name, at, got, before)
				}
			}
		})
	}
}

// startAndDie starts runs in transactions until it dies, at a point of its choice.
func startAndDie(p place) error {
	ctx := context.Background()
	s, err := pgstore.Open(ctx, p.URL, pgstore.Options{})
	if err != nil {
		return err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "test"}, echo)
	if err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, os.Getenv(pgtest.Env))
	if err != nil {
		return err
	}
	life := rand.Uint64() // a process id comes back
	for i := 0; ; i++ {
		input := strings.Repeat("x", []int{1, 300_000}[i%2])
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		if i > 2 {
			go func() {
				time.Sleep(rand.N(30 * time.Millisecond))
				kit.Die(3 * time.Millisecond)
			}()
		}
		if err := p.startRow(ctx, rt, tx, perdure.StartRequest{Thread: fmt.Sprint(life, "-", i), Input: input}); err != nil {
			return err
		}
		kit.Die(0)
		if i%3 == 2 {
			err = tx.Rollback(ctx)
		} else {
			err = tx.Commit(ctx)
		}
		if err != nil {
			return err
		}
		kit.Die(0)
	}
}

// TestStartsThatAreKilled kills processes between Start and COMMIT and around them:
// there is a thread for each row, and no other.
func TestStartsThatAreKilled(t *testing.T) {
	p := newPlace(t)
	p.open(t)
	self, err := os.Executable()
	kit.NoErr(t, err)
	for range kit.Sized(3, 40, 320) {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "PGTX_STARTER="+p.name())
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("the process ended by itself: %v\n%s", err, out)
		}
		p.wantStarts(t)
	}
	k := kit.New(t, p.open(t), perdure.Options{Version: "test"}, echo)
	for _, id := range strings.Fields(p.wantStarts(t)) {
		k.WaitFor(id, perdure.Succeeded)
	}
}
