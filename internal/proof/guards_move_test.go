package proof_test

import (
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
)

// TestMovesAndTransactionsFailWithoutAGuard: the tests of migrations, and of
// transactions with rows of the program, look at every guard of these.
func TestMovesAndTransactionsFailWithoutAGuard(t *testing.T) {
	if !testing.Short() {
		pgtest.URL(t) // one server for all
	}
	whole := map[string]string{
		"./internal/migrate":  "^(TestDamagedTarget|TestLateWrites|TestRefusedTargets|TestRuntimesRefuse|TestTwoMigrations|TestWorkersInTheSource|TestWritesBesideTheMark)$",
		"./store/pgstore":     "^TestStore$/^transaction$",
		"./store/sqlitestore": "^TestStore$/^transaction$",
	}
	wantFailures(t, map[string][]guard{"./internal/migrate": moveGuards, "./store/pgstore": pgtxGuards, "./store/sqlitestore": sqltxGuards},
		func(pkg string) string { return whole[pkg] })
}

// sqltxGuards are those of transactions in SQLite. A batch that is refused there has
// written nothing, so its savepoint is only for damage.
var sqltxGuards = []guard{
	{
		name:  "a conflict leaves a transaction open in SQLite",
		edits: []edit{{"store/sqlitestore/tx.go", `	case err == nil, errors.Is(err, store.ErrConflict):`, `	case err == nil, errors.Is(err, store.ErrConflict) && !OFF:`}},
		test:  "^TestStore$/^transaction$/^conditions$", says: "a conflict leaves the transaction as it was",
	},
	{
		name: "the end of a transaction rolls it back in SQLite",
		edits: []edit{{"store/sqlitestore/tx.go", `	w.conn.rollback()
}

// use`, `	if OFF {
		_ = w.conn.commit()
	}
	w.conn.rollback()
}

// use`}},
		test: "^TestStore$/^transaction$/^rollback$", says: "leaves nothing",
	},
}

// pgtxGuards are those of transactions in PostgreSQL.
var pgtxGuards = []guard{
	{
		name:  "a refused batch goes back to the savepoint in PostgreSQL",
		edits: []edit{{"store/pgstore/tx.go", `t.exec(ctx, "ROLLBACK TO perdure")`, `t.exec(ctx, map[bool]string{false: "ROLLBACK TO perdure", true: "SELECT 1"}[OFF])`}},
		test:  "^TestStore$/^transaction$/^conditions$", says: "Commit",
	},
	{
		name:  "a conflict leaves a transaction open in PostgreSQL",
		edits: []edit{{"store/pgstore/tx.go", `	case errors.Is(err, store.ErrConflict):`, `	case errors.Is(err, store.ErrConflict) && !OFF:`}},
		test:  "^TestStore$/^transaction$/^conditions$", says: "a conflict leaves the transaction as it was",
	},
	{
		name: "the end of a transaction rolls it back in PostgreSQL",
		edits: []edit{{"store/pgstore/tx.go", `	if err := t.pgx.Rollback(bounded); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		cutOff(t.conn)`, `	if OFF {
		_ = t.pgx.Commit(bounded)
	}
	if err := t.pgx.Rollback(bounded); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		cutOff(t.conn)`}},
		test: "^TestStore$/^transaction$/^rollback$", says: "leaves nothing",
	},
}

// moveGuards are those of migrations.
var moveGuards = []guard{
	{
		name:  "a target in use is refused",
		edits: []edit{{"internal/migrate/migrate.go", `		if cell.Key != threads.CopyCell {`, `		if cell.Key != threads.CopyCell && !OFF {`}},
		test:  "^TestRefusedTargets$", says: "in use: got error",
	},
	{
		name:  "a copy is compared before its source is closed",
		edits: []edit{{"internal/migrate/journal.go", `		case !bytes.Equal(their.Data, line.Data):`, `		case !bytes.Equal(their.Data, line.Data) && !OFF:`}},
		test:  "^TestDamagedTarget$", says: "has moved to a target that is damaged",
	},
	{
		name:  "the entry moved is a fence",
		edits: []edit{{"internal/engine/commit.go", `		if err != nil || !e.Kind.Open() {`, `		if err != nil || !e.Kind.Open() && !(OFF && e.Kind == journal.Moved) {`}},
		test:  "^TestWorkersInTheSource$", says: "goes on in the source",
	},
	{
		name:  "open transactions of programs are waited for",
		edits: []edit{{"internal/migrate/migrate.go", `	if err := m.awaitTransactions(ctx); err != nil {`, `	if err := m.awaitTransactions(ctx); err != nil && !OFF {`}},
		test:  "^TestOpenTransactions$/^plain$", says: "without patience",
	},
	{
		name: "an interrupted migration goes on where it was",
		edits: []edit{{"internal/migrate/migrate.go", `			m.mark = found
`, `			if !OFF {
				m.mark = found
			}
`}},
		test: "^TestKilledAnywhere$", says: "the target is in use",
	},
	{
		name: "a run of a migration that another took over from ends",
		edits: []edit{
			{"internal/migrate/migrate.go", `	if err == nil && (now == nil || now.Run != m.mark.Run) {`, `	if err == nil && (now == nil || now.Run != m.mark.Run) && !OFF {`},
			{"internal/migrate/migrate.go", `err != nil || now.Run != m.mark.Run {`, `err != nil || now.Run != m.mark.Run && !OFF {`},
		},
		test: "^TestTwoMigrations$", says: " pauses",
	},
	{
		name:  "no runtime opens a target that is not complete",
		edits: []edit{{"internal/threads/moved.go", `m != nil && m.Stage != CopyDone {`, `m != nil && m.Stage != CopyDone && !OFF {`}},
		test:  "^TestRuntimesRefuse$", says: "not complete: got error",
	},
	{
		name:  "every process looks at the source's mark before a journal is closed",
		edits: []edit{{"internal/migrate/migrate.go", `	case <-time.After(m.opts.Grace):`, `	case <-time.After(map[bool]time.Duration{false: m.opts.Grace}[OFF]):`}},
		test:  "^TestWritesBesideTheMark$", says: "it is in the target: false, but the answer was: <nil>",
	},
	{
		name:  "a request that took long looks at the source's mark again",
		edits: []edit{{"internal/threads/moved.go", `	if c.unmovedFor(MovedKept) {`, `	if c.unmovedFor(MovedKept) || OFF {`}},
		test:  "^TestLateWrites$", says: "the late request: got error",
	},
	{
		name:  "workers leave alone what a migration has missed",
		edits: []edit{{"internal/worker/look.go", `err != nil && o.Thread.Moved == "" {`, `err != nil && o.Thread.Moved == "" && !OFF {`}},
		test:  "^TestLateWrites$", says: "the late run is",
	},
	{
		name: "cells are copied again when nothing begins any more",
		edits: []edit{{"internal/migrate/migrate.go", `	if err := m.copyCells(ctx, math.MaxInt); err != nil {`, `	if OFF {
		return m.dropDropped(ctx)
	}
	if err := m.copyCells(ctx, math.MaxInt); err != nil {`}},
		test: "^TestWritesBesideTheMark$/^put$", says: "it is in the target: false, but the answer was: <nil>",
	},
}
