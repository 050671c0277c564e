package sqltx_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/sqlitestore/sqltx"
)

// TestLeasesOutliveTransactions keeps the write lock for most of the time, each time
// for as long as it may be held. The worker is not taken for dead meanwhile: another
// process would claim its runs again.
func TestLeasesOutliveTransactions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	const lease = 4 * time.Second
	hold := perdure.NewFlow("hold", func(ctx context.Context, _ string) (string, error) {
		for i := range 5 {
			_, err := sqltx.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context, tx *sqltx.Tx) (int64, error) {
				if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS effects (step TEXT)"); err != nil {
					return 0, err
				}
				time.Sleep(lease / 4) // with the lock
				return tx.Exec(ctx, "INSERT INTO effects VALUES (?)", perdure.Key(ctx))
			}, sqltx.Limit(time.Minute), perdure.Retry(perdure.RetryPolicy{Attempts: 100, Wait: time.Millisecond}))
			if err != nil {
				return "", err
			}
		}
		return "", nil
	})
	k := kit.New(t, openStore(t, file), perdure.Options{Lease: lease}, hold)
	k.StartOn("t", "hold", "")
	kit.New(t, openStore(t, file), perdure.Options{Lease: lease}, hold) // would take the run over
	k.WaitFor("t", perdure.Succeeded)
	got, err := sqlitestore.Inspect(file, "SELECT count(*) FROM history WHERE kind = 'claimed'", "SELECT count(*) || ' ' || count(DISTINCT step) FROM effects")
	kit.NoErr(t, err)
	if got[0] != "1" || got[1] != "5 5" {
		t.Errorf("there are %s claims; rows, and steps that have one: %s", got[0], got[1])
	}
}

// TestTablesOfTheProgramStay erases threads, and opens the file again, beside tables,
// an index and a view of the program.
func TestTablesOfTheProgramStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{})
	kit.NoErr(t, err)
	note := perdure.NewFlow("note", func(ctx context.Context, in string) (int64, error) {
		return sqltx.Step(ctx, "s", func(ctx context.Context, tx *sqltx.Tx) (int64, error) {
			for _, define := range []string{"CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)", "CREATE INDEX IF NOT EXISTS notes_text ON notes (text)",
				"CREATE VIEW IF NOT EXISTS long_notes AS SELECT * FROM notes WHERE length(text) > 3"} {
				if _, err := tx.Exec(ctx, define); err != nil {
					return 0, err
				}
			}
			return tx.Exec(ctx, "INSERT INTO notes (text) VALUES (?)", in)
		})
	})
	k := kit.New(t, s, perdure.Options{}, note)
	for i := range 5 {
		id := fmt.Sprint("t", i)
		k.StartOn(id, "note", "note of "+id)
		k.WaitFor(id, perdure.Succeeded)
	}
	for i := range 4 {
		kit.NoErr(t, k.Erase(t.Context(), fmt.Sprint("t", i), perdure.EraseOptions{}))
	}
	k.Stop()
	kit.NoErr(t, s.Close())
	again := kit.New(t, openStore(t, file), perdure.Options{}, note)
	again.StartOn("t5", "note", "note of t5")
	again.WaitFor("t5", perdure.Succeeded)
	got, err := sqlitestore.Inspect(file, "PRAGMA integrity_check", "SELECT count(*) FROM notes", "SELECT count(*) FROM long_notes WHERE text LIKE 'note of t_'", "SELECT count(*) FROM threads")
	kit.NoErr(t, err)
	if fmt.Sprint(got) != "[ok 6 6 2]" {
		t.Errorf("the file, rows, rows of the view and threads: %v", got)
	}
}
