package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/pgstore/pgtx"
)

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

// name returns the place in words, see kit.Rows.
func (p place) name() string { return p.URL + " " + p.Schema + " " + p.Table }

func namedPlace(name string) (p place) {
	f := strings.Fields(name)
	return place{URL: f[0], Schema: f[1], Table: f[2]}
}

// rows is PostgreSQL for the tests that all engines share.
var rows = kit.Rows[pgx.Tx]{
	New: func(t *testing.T) string { return newPlace(t).name() },
	Open: func(ctx context.Context, name string) (store.Store, error) {
		return pgstore.Open(ctx, namedPlace(name).URL, pgstore.Options{})
	},
	Step: pgtx.Step[string],
	Insert: func(ctx context.Context, tx pgx.Tx, name, step string) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+namedPlace(name).Table+" VALUES ($1)", step)
		return err
	},
	Count: func(t *testing.T, name string) (n [3]string) {
		t.Helper()
		p := namedPlace(name)
		copy(n[:], strings.Fields(p.query(t, fmt.Sprintf(`SELECT (SELECT count(*) FROM %s) || ' ' || (SELECT count(DISTINCT step) FROM %[1]s) || ' ' ||
			(SELECT count(*) FROM %s.history WHERE kind = 'step' AND path NOT LIKE '%%plain%%' AND body::json->>'fail' IS NULL)`, p.Table, p.Schema))))
		return n
	},
}

// TestMain lets the test binary be a process that dies.
func TestMain(m *testing.M) {
	rows.Worker()
	if name := os.Getenv("PGTX_STARTER"); name != "" {
		fmt.Println(startAndDie(namedPlace(name)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestRowsAndOutcomesGoTogether(t *testing.T) { rows.GoTogether(t) }

// fullStore is a store whose transactions fail for want of space at first.
type fullStore struct {
	store.Store
	left atomic.Int32 // so often
}

func (s *fullStore) Unwrap() store.Store { return s.Store }

func (s *fullStore) Begin(ctx context.Context, native any) (store.Tx, error) {
	tx, err := store.Join(ctx, s.Store, native)
	return &fullTx{tx, s}, err
}

type fullTx struct {
	store.Tx
	s *fullStore
}

func (t *fullTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	if t.s.left.Add(-1) < 0 {
		return t.Tx.Commit(ctx, b)
	}
	return 0, errors.Join(store.RolledBack(store.ErrFull), t.Rollback())
}

// TestFullStoreFailsNoStep: that a store has no space for an outcome is no outcome
// of the step, which runs again until there is.
func TestFullStoreFailsNoStep(t *testing.T) {
	p := newPlace(t)
	s := &fullStore{Store: p.open(t)}
	s.left.Store(3)
	k := kit.New(t, s, perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		return pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('s')")
			return "done", err
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 1}))
	}))
	k.StartOn("t", "f", "")
	k.WaitFor("t", perdure.Succeeded)
	if rows := p.query(t, "SELECT count(*) FROM "+p.Table); rows != "1" || s.left.Load() >= 0 {
		t.Errorf("there are %s rows, and the store was full for %d times less", rows, s.left.Load())
	}
}

func TestNoOutcomeNoRow(t *testing.T) {
	rows.NoOutcome(t, map[string]kit.RowsCase[pgx.Tx]{
		"statement": {Fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, _ = tx.Exec(ctx, "SELECT nonsense")
			return "all the same", nil
		}},
		"long": {Fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return "", err
		}, Opts: []perdure.StepOption{perdure.Timeout(50 * time.Millisecond)}, Want: perdure.ErrTimeout},
		"deaf": {Fn: func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(60)")
			return "", err
		}, Opts: []perdure.StepOption{perdure.Timeout(50 * time.Millisecond)}, Want: perdure.ErrTimeout},
		"rollback": {Fn: func(ctx context.Context, tx pgx.Tx) (string, error) { return "all the same", tx.Rollback(ctx) }},
		"deferred": {Fn: func(ctx context.Context, tx pgx.Tx) (string, error) { return "all the same", deferred(ctx, tx) }},
	})
}

// deferred makes the commit itself fail.
func deferred(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP; INSERT INTO one VALUES (1), (1)")
	return err
}

func TestRefused(t *testing.T) { rows.Refused(t) }

func TestCrashAtEachWrite(t *testing.T) { rows.Crash(t) }

func TestKilledStepsHaveOneRow(t *testing.T) { rows.Kill(t) }
