package pgtx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/pgstore/pgtx"
)

// TestSettingsEndWithTheirStep: what one step sets in its session, the next one on
// that connection does not see.
func TestSettingsEndWithTheirStep(t *testing.T) {
	p := newPlace(t)
	settings := func(ctx context.Context, tx pgx.Tx) (all string, err error) {
		err = tx.QueryRow(ctx, `SELECT concat_ws(' ', pg_backend_pid(), current_setting('search_path'), current_setting('statement_timeout'), current_setting('synchronous_commit'),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), to_regclass('pg_temp.mine'))`).Scan(&all)
		return all, err
	}
	k := kit.New(t, p.open(t), perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		before, err := pgtx.Step(ctx, "before", settings)
		if err != nil {
			return "", err
		}
		if _, err = pgtx.Step(ctx, "set", func(ctx context.Context, tx pgx.Tx) (bool, error) {
			_, err := tx.Exec(ctx, `SET search_path = pg_catalog; SET statement_timeout = 12345; SET synchronous_commit = off; SELECT pg_advisory_lock(7); CREATE TEMPORARY TABLE mine (n int)`)
			return true, err
		}); err != nil {
			return "", err
		}
		after, err := pgtx.Step(ctx, "after", settings)
		if after != before {
			t.Errorf("pid and settings were %q, and are %q after a step that changed them", before, after)
		}
		return "", err
	}))
	k.StartOn("t", "f", "")
	k.WaitFor("t", perdure.Succeeded)
}

// TestTheFunctionEndsNothing: a function that commits or rolls back by itself fails
// its step, once, with words that say so.
func TestTheFunctionEndsNothing(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit":          func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"habit":           func(ctx context.Context, tx pgx.Tx) error { defer tx.Rollback(ctx); return nil },
		"statement":       func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK"); return err },
		"committed":       func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err },
		"another":         func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK; BEGIN"); return err },
		"another in line": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK AND CHAIN"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			calls := 0
			k := kit.New(t, p.open(t), perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
				return pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (string, error) {
					calls++
					_, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('void')")
					if err == nil {
						err = end(ctx, tx)
					}
					return "", err
				}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
			}))
			k.StartOn("t", "f", "")
			run := k.WaitFor("t", perdure.Failed)
			want, says, rows := 1, "must not end its transaction: return nil to commit", "0"
			switch {
			case strings.HasPrefix(name, "another"): // which only the store notices
				want, says = 2, "has ended the transaction"
			case name == "statement":
				says = "has ended its transaction"
			case name == "committed":
				says, rows = "what that committed stays: return nil", "1"
			}
			if calls != want || !strings.Contains(run.Err.Error(), says) {
				t.Errorf("the function was called %d times, and the run failed with %v", calls, run.Err)
			}
			if got := p.query(t, "SELECT count(*) FROM "+p.Table); got != rows {
				t.Errorf("there are %s rows, want %s", got, rows)
			}
		})
	}
}

// TestMoreStepsThanConnections has more steps in transactions than a pooler has
// connections, so that the store has none left beside them.
func TestMoreStepsThanConnections(t *testing.T) {
	p := newPlace(t)
	p.URL = pgtest.Schema(pgtest.Bouncer(t), t.TempDir())
	k := kit.New(t, p.open(t), perdure.Options{}, perdure.NewFlow("f", func(ctx context.Context, _ string) (string, error) {
		for i := range 3 {
			_, err := pgtx.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context, tx pgx.Tx) (bool, error) {
				_, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" SELECT $1 FROM pg_sleep(0.2)", perdure.Key(ctx))
				return true, err
			}, perdure.Retry(perdure.RetryPolicy{Attempts: 20, Wait: time.Millisecond}))
			if err != nil {
				return "", err
			}
		}
		return "", nil
	}))
	const runs = 8 // the pooler has five connections
	for i := range runs {
		k.StartOn(fmt.Sprint("t", i), "f", "")
	}
	for i := range runs {
		k.WaitFor(fmt.Sprint("t", i), perdure.Succeeded)
	}
	if got := p.query(t, "SELECT count(*) || ' ' || count(DISTINCT step) FROM "+p.Table); got != "24 24" {
		t.Errorf("rows, and steps that have one: %s", got)
	}
}
