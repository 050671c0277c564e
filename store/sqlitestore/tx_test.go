package sqlitestore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

func begin(t *testing.T, ctx context.Context, s store.Store) (store.Tx, *sqlitestore.SQL) {
	t.Helper()
	tx, err := store.Begin(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx, tx.Native().(*sqlitestore.SQL)
}

func mustExec(t *testing.T, q *sqlitestore.SQL, query string, args ...any) {
	t.Helper()
	if _, err := q.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// rows returns what is committed in table effects.
func rows(t *testing.T, s store.Store) (names []string) {
	t.Helper()
	tx, q := begin(t, t.Context(), s)
	defer tx.Rollback()
	for row, err := range q.Query(t.Context(), "SELECT name FROM effects ORDER BY name") {
		var name string
		if err := errors.Join(err, row.Scan(&name)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// create makes table effects, in a transaction of its own.
func create(t *testing.T, s store.Store) {
	t.Helper()
	tx, q := begin(t, t.Context(), s)
	mustExec(t, q, "CREATE TABLE effects (name TEXT PRIMARY KEY, amount INTEGER)")
	if _, err := tx.Commit(t.Context(), store.Batch{Journal: "setup", Entries: [][]byte{[]byte("table")}}); err != nil {
		t.Fatal(err)
	}
}

// wrappers are the ways in which a store is used.
var wrappers = map[string]func(context.Context, store.Store) (store.Store, error){
	"plain": func(_ context.Context, s store.Store) (store.Store, error) { return s, nil },
	"observed": func(_ context.Context, s store.Store) (store.Store, error) {
		return observed.New(s, new(observed.Stats)), nil
	},
	"faulty": func(_ context.Context, s store.Store) (store.Store, error) { return faulty.New(s, nil), nil },
	"seal": func(ctx context.Context, s store.Store) (store.Store, error) {
		ring, err := seal.NewRing("k", map[string][]byte{"k": bytes.Repeat([]byte("k"), 32)})
		if err != nil {
			return nil, err
		}
		return seal.New(ctx, s, ring)
	},
	"reopen": func(ctx context.Context, s store.Store) (store.Store, error) {
		return store.Reopen(ctx, func(context.Context) (store.Store, error) { return s, nil })
	},
}

// TestRowsGoWithTheEntries commits and rolls back rows beside entries, through
// each wrapper: the rows are there if and only if the entries are.
func TestRowsGoWithTheEntries(t *testing.T) {
	for name, wrap := range wrappers {
		t.Run(name, func(t *testing.T) {
			s, err := wrap(t.Context(), openTest(t, t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			create(t, s)
			for i, end := range []string{"commit", "conflict, then commit", "rollback", "cancel", "conflict, then rollback"} {
				ctx, cancel := context.WithCancel(t.Context())
				tx, q := begin(t, ctx, s)
				mustExec(t, q, "INSERT INTO effects VALUES (?, ?)", end, i)
				journal := store.Batch{Journal: "j", After: uint64(min(i, 2)), Entries: [][]byte{[]byte(end)}}
				if strings.HasPrefix(end, "conflict") {
					wrong := journal
					wrong.After += 5
					if _, err := tx.Commit(ctx, wrong); !errors.Is(err, store.ErrConflict) {
						t.Fatalf("%s: Commit after %d = %v", end, wrong.After, err)
					}
				}
				if end == "cancel" {
					cancel()
				}
				switch {
				case strings.HasSuffix(end, "commit"):
					_, err = store.CommitTx(ctx, s, tx, journal)
				case end == "cancel":
					if _, err := tx.Commit(t.Context(), journal); !errors.Is(err, store.ErrRolledBack) {
						t.Errorf("Commit after a cancel = %v", err)
					}
					_, err := q.Exec(t.Context(), "INSERT INTO effects VALUES ('late', 0)")
					if !errors.Is(err, store.ErrRolledBack) || !errors.Is(err, context.Canceled) {
						t.Errorf("Exec after a cancel = %v", err)
					}
				default:
					err = tx.Rollback()
				}
				if err != nil {
					t.Fatalf("%s: %v", end, err)
				}
				cancel()
			}
			want := []string{"commit", "conflict, then commit"}
			if got := rows(t, s); !slices.Equal(got, want) {
				t.Errorf("the rows are %q, want %q", got, want)
			}
			var entries []string
			for e, err := range s.Read(t.Context(), "j", 0) {
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, string(e.Data))
			}
			if !slices.Equal(entries, want) {
				t.Errorf("the entries are %q, want %q", entries, want)
			}
		})
	}
}

// TestLostAnswerToCommit loses the answer to COMMIT, and fails before it.
func TestLostAnswerToCommit(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{"before": faulty.FailBefore, "after": faulty.FailAfter} {
		t.Run(name, func(t *testing.T) {
			lose := false
			s := faulty.New(openTest(t, t.TempDir()), func(c faulty.Call) faulty.Fault {
				if lose && c.Op == store.OpAppend {
					return fault
				}
				return faulty.None
			})
			create(t, s)
			tx, q := begin(t, t.Context(), s)
			mustExec(t, q, "INSERT INTO effects VALUES ('once', 1)")
			lose = true
			_, err := store.CommitTx(t.Context(), s, tx, store.Batch{Journal: "j", Entries: [][]byte{[]byte("entry")}})
			lose = false
			there := len(rows(t, s)) == 1
			if name == "after" && (err != nil || !there) || name == "before" && (!errors.Is(err, store.ErrUnknown) || there) {
				t.Errorf("CommitTx = %v, and the row is there: %t", err, there)
			}
			if entries, _ := store.ReadAll(t.Context(), s, "j", 0); (len(entries) == 1) != there {
				t.Errorf("the journal has %d entries, and the row is there: %t", len(entries), there)
			}
		})
	}
}

// TestStatementsOfAStepReachOnlyTheirOwn runs what a program may not do, with
// the tables of the store and with the connection, and what it may.
func TestStatementsOfAStepReachOnlyTheirOwn(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	create(t, s)
	cell, err := s.Put(t.Context(), "cell", []byte("value"), "")
	if err != nil {
		t.Fatal(err)
	}
	refused := []string{
		"SELECT value FROM cells", "SELECT Value FROM main.CELLS", "SELECT count(*) FROM entries", "SELECT 1 FROM journals",
		"WITH threads AS (SELECT value FROM cells) SELECT * FROM threads", "SELECT * FROM threads", "SELECT * FROM history",
		"INSERT INTO cells (name) VALUES ('x')", "UPDATE cells SET value = 'x'", "DELETE FROM entries", "REPLACE INTO journals (id) VALUES (1)",
		"INSERT INTO effects SELECT name, 1 FROM cells", "DELETE FROM effects WHERE name IN (SELECT name FROM cells)",
		"DROP TABLE cells", "DROP VIEW threads", "DROP INDEX cells_sum", "ALTER TABLE cells ADD COLUMN x", "ALTER TABLE effects RENAME TO sqlite_x",
		"CREATE INDEX own ON cells (name)", "CREATE TRIGGER own AFTER INSERT ON cells BEGIN SELECT 1; END",
		"CREATE TABLE perdure_own (x)", "CREATE VIEW perdure_own AS SELECT 1",
		"CREATE TEMP TABLE threads (x)", "CREATE TEMP VIEW own AS SELECT value FROM cells", "CREATE TEMP TRIGGER own AFTER INSERT ON cells BEGIN SELECT 1; END",
		"CREATE VIRTUAL TABLE own USING fts5(name)", "SELECT * FROM sqlite_dbpage", "SELECT * FROM dbstat", "INSERT INTO sqlite_master (name) VALUES ('x')",
		"PRAGMA synchronous=OFF", "PRAGMA user_version", "SELECT * FROM pragma_table_info('cells')", "ATTACH ':memory:' AS other", "DETACH main",
		"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT own", "RELEASE batch", "ROLLBACK TO batch", "VACUUM", "VACUUM INTO '/tmp/never'", "ANALYZE", "REINDEX",
		"", " -- nothing", "SELECT 1; SELECT 2", "INSERT INTO effects VALUES ('a', 1); COMMIT",
	}
	tx, q := begin(t, t.Context(), s)
	for _, query := range refused {
		if n, err := q.Exec(t.Context(), query); err == nil {
			t.Errorf("%q was allowed, and changed %d rows", query, n)
		} else if errors.Is(err, store.ErrRolledBack) {
			t.Fatalf("%q ended the transaction: %v", query, err)
		}
	}
	for _, query := range []string{
		"CREATE TABLE more (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT REFERENCES effects (name) DEFERRABLE INITIALLY DEFERRED) STRICT", "CREATE INDEX more_name ON more (name)",
		"CREATE VIEW both AS SELECT * FROM more JOIN effects USING (name)", "CREATE TRIGGER again AFTER INSERT ON more BEGIN INSERT INTO effects VALUES (new.name, new.id); END",
		"INSERT INTO more (name) VALUES ('x'), ('y')", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) UPDATE effects SET amount = (SELECT max(i) FROM n)",
		"ALTER TABLE more ADD COLUMN extra TEXT", "SELECT * FROM json_each('[1]')", "CREATE TABLE brief (x)", "DROP TABLE brief", "INSERT INTO effects VALUES ('x', 2) ON CONFLICT DO UPDATE SET amount = excluded.amount",
		"CREATE VIEW sly AS WITH threads AS (SELECT value FROM cells) SELECT * FROM threads",
	} {
		mustExec(t, q, query)
	}
	if _, err := q.Exec(t.Context(), "SELECT * FROM sly"); err == nil {
		t.Error("a view of the program's own reads cells")
	}
	if _, err := tx.Commit(t.Context(), store.Batch{Journal: "j", Entries: [][]byte{[]byte("entry")}}); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, s); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("the rows are %q", got)
	}
	if _, err := s.Put(t.Context(), "cell", []byte("new"), cell); err != nil {
		t.Errorf("Put after all that = %v", err)
	}
	again := openTest(t, dir)
	if got := rows(t, again); len(got) != 2 {
		t.Errorf("opened again, the rows are %q", got)
	}
}

// TestForeignKeys breaks a deferred key, which COMMIT finds, and lets a table
// refer to one of the store, whose own deletes it would refuse.
func TestForeignKeys(t *testing.T) {
	s := openTest(t, t.TempDir())
	create(t, s)
	for what, queries := range map[string][]string{
		"broken":       {"CREATE TABLE child (name REFERENCES effects (name) DEFERRABLE INITIALLY DEFERRED)", "INSERT INTO child VALUES ('nobody')"},
		"to the store": {"CREATE TABLE child (id REFERENCES Cells (id))"},
	} {
		tx, q := begin(t, t.Context(), s)
		for _, query := range queries {
			mustExec(t, q, query)
		}
		_, err := tx.Commit(t.Context(), store.Batch{Journal: "j", Entries: [][]byte{[]byte("entry")}})
		if !errors.Is(err, store.ErrRolledBack) || errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: Commit = %v, want ErrRolledBack", what, err)
		}
		if entries, err := store.ReadAll(t.Context(), s, "j", 0); err != nil || len(entries) != 0 {
			t.Errorf("%s: the journal has %d entries, %v", what, len(entries), err)
		}
	}
	if _, err := s.Append(t.Context(), "j", 0, []byte("entry")); err != nil {
		t.Errorf("Append after it = %v", err)
	}
}

// TestRowsRoundTrip binds values of all types and scans them again.
func TestRowsRoundTrip(t *testing.T) {
	s := openTest(t, t.TempDir())
	_, q := begin(t, t.Context(), s)
	mustExec(t, q, "CREATE TABLE types (n INTEGER, big, f REAL, b BOOLEAN, s TEXT, raw BLOB, at TEXT, none, maybe)")
	now := time.Now().UTC()
	mustExec(t, q, "INSERT INTO types VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", 7, int64(1)<<62, 0.5, true, "'; DROP TABLE types; --", []byte{0, 255}, now, nil, sql.NullString{})
	var (
		n       int
		big     int64
		f       float64
		b       bool
		text    string
		raw     []byte
		at      time.Time
		nothing any
		maybe   sql.Null[string]
	)
	if err := q.QueryRow(t.Context(), "SELECT * FROM types").Scan(&n, &big, &f, &b, &text, &raw, &at, &nothing, &maybe); err != nil {
		t.Fatal(err)
	}
	if n != 7 || big != 1<<62 || f != 0.5 || !b || text != "'; DROP TABLE types; --" || !bytes.Equal(raw, []byte{0, 255}) || !at.Equal(now) || nothing != nil || maybe.Valid {
		t.Errorf("scanned %v %v %v %v %q %v %v %v %v", n, big, f, b, text, raw, at, nothing, maybe)
	}
	for what, err := range map[string]error{
		"too few variables": q.QueryRow(t.Context(), "SELECT 1, 2").Scan(&n),
		"NULL into int":     q.QueryRow(t.Context(), "SELECT NULL").Scan(&n),
		"text into int":     q.QueryRow(t.Context(), "SELECT 'x'").Scan(&n),
		"no argument":       q.QueryRow(t.Context(), "SELECT ?").Scan(&n),
		"a channel":         q.QueryRow(t.Context(), "SELECT ?", make(chan int)).Scan(&n),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if err := q.QueryRow(t.Context(), "SELECT 1 WHERE false").Scan(&n); err != sql.ErrNoRows {
		t.Errorf("no row: %v, want sql.ErrNoRows", err)
	}
}

// TestEndOfContextInterruptsAStatement cancels a statement that would run for
// ever, and one that SQLite rolls the whole transaction back for.
func TestEndOfContextInterruptsAStatement(t *testing.T) {
	s := openTest(t, t.TempDir())
	create(t, s)
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, q := begin(t, ctx, s)
	mustExec(t, q, "INSERT INTO effects VALUES ('void', 1)")
	started := make(chan struct{})
	go func() {
		<-started
		cancel(cause)
	}()
	close(started)
	_, err := q.Exec(t.Context(), "INSERT INTO effects WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'row', sum(i) FROM n")
	if !errors.Is(err, store.ErrRolledBack) || !errors.Is(err, cause) {
		t.Errorf("an endless statement whose transaction was cancelled = %v", err)
	}
	if got := rows(t, s); len(got) != 0 {
		t.Errorf("the rows are %q, want none", got)
	}
	tx, q := begin(t, t.Context(), s)
	mustExec(t, q, "INSERT INTO effects VALUES ('void', 1)")
	if _, err := q.Exec(t.Context(), "INSERT OR ROLLBACK INTO effects VALUES ('void', 2)"); !errors.Is(err, store.ErrRolledBack) {
		t.Errorf("OR ROLLBACK = %v", err)
	}
	if _, err := q.Exec(t.Context(), "INSERT INTO effects VALUES ('outside', 2)"); !errors.Is(err, store.ErrRolledBack) {
		t.Errorf("a statement after OR ROLLBACK = %v: it is in no transaction", err)
	}
	if _, err := tx.Commit(t.Context(), store.Batch{Journal: "j", Entries: [][]byte{[]byte("entry")}}); !errors.Is(err, store.ErrRolledBack) {
		t.Errorf("Commit after OR ROLLBACK = %v", err)
	}
	if got := rows(t, s); len(got) != 0 {
		t.Errorf("the rows are %q, want none", got)
	}
}

// TestTransactionsSpillAndErase commits and rolls back more rows than SQLite
// keeps in memory, between drops that empty the WAL.
func TestTransactionsSpillAndErase(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	create(t, s)
	big := strings.Repeat("x", 100_000)
	for i := range 4 {
		tx, q := begin(t, t.Context(), s)
		for n := range 50 {
			mustExec(t, q, "INSERT INTO effects VALUES (?, ?)", fmt.Sprint(i, n, big), n)
		}
		if i%2 == 1 {
			tx.Rollback()
		} else if _, err := tx.Commit(t.Context(), store.Batch{Journal: "j", After: uint64(i / 2), Entries: [][]byte{[]byte("entry")}}); err != nil {
			t.Fatal(err)
		}
		journal := fmt.Sprint("dropped", i)
		if _, err := s.Append(t.Context(), journal, 0, []byte(big)); err != nil {
			t.Fatal(err)
		}
		if err := s.Drop(t.Context(), journal); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(rows(t, s)); got != 100 {
		t.Errorf("there are %d rows, want 100", got)
	}
	if answers, err := sqlitestore.Inspect(filepath.Join(dir, "test.db"), "PRAGMA integrity_check"); err != nil || answers[0] != "ok" {
		t.Errorf("integrity_check: %q, %v", answers, err)
	}
}
