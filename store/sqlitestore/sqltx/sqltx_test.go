package sqltx_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/sqlitestore/sqltx"
)

func openStore(t *testing.T, file string) store.Store {
	t.Helper()
	s, err := rows.Open(t.Context(), file)
	kit.NoErr(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// rows is SQLite for the tests that all engines share. A place is a file, in which a
// step that needs the table creates it.
var rows = kit.Rows[*sqltx.Tx]{
	New: func(t *testing.T) string { return filepath.Join(t.TempDir(), "test.db") },
	Open: func(ctx context.Context, file string) (store.Store, error) {
		return sqlitestore.Open(ctx, file, sqlitestore.Options{})
	},
	Step: sqltx.Step[string],
	Insert: func(ctx context.Context, tx *sqltx.Tx, _, step string) error {
		_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS effects (step TEXT)")
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO effects VALUES (?)", step)
		}
		return err
	},
	Count: func(t *testing.T, file string) (n [3]string) {
		t.Helper()
		got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM effects", "SELECT count(DISTINCT step) FROM effects",
			"SELECT count(*) FROM history WHERE kind = 'step' AND path NOT LIKE '%plain%' AND json_extract(body, '$.fail') IS NULL")
		kit.NoErr(t, err)
		for i := range n {
			if n[i] = got[i]; strings.Contains(got[i], "no such table: effects") {
				n[i] = "0"
			}
		}
		return n
	},
}

func TestMain(m *testing.M) {
	rows.Worker()
	os.Exit(m.Run())
}

func TestRowsAndOutcomesGoTogether(t *testing.T) { rows.GoTogether(t) }

func TestNoOutcomeNoRow(t *testing.T) {
	rows.NoOutcome(t, map[string]kit.RowsCase[*sqltx.Tx]{
		"limit": {Fn: func(ctx context.Context, _ *sqltx.Tx) (string, error) { <-ctx.Done(); return "", nil }, Opts: []perdure.StepOption{sqltx.Limit(20 * time.Millisecond)}, Want: perdure.ErrTimeout},
		"endless": {Fn: func(ctx context.Context, tx *sqltx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO effects SELECT sum(i) FROM n")
			return "", err
		}, Opts: []perdure.StepOption{sqltx.Limit(50 * time.Millisecond)}, Want: perdure.ErrTimeout},
	})
}

func TestRefused(t *testing.T) { rows.Refused(t) }

func TestCrashAtEachWrite(t *testing.T) { rows.Crash(t) }

func TestKilledStepsHaveOneRow(t *testing.T) { rows.Kill(t) }

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
