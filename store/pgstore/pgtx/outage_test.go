package pgtx_test

import (
	"context"
	"errors"
	"fmt"
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

// terminate ends the connection of a transaction from outside.
func (p place) terminate(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if got := p.query(t, fmt.Sprintf("SELECT pg_terminate_backend(%d, 60000)", tx.Conn().PgConn().PID())); got != "true" {
		t.Errorf("the connection was not ended: %s", got)
	}
}

// TestLostInTheMiddle cuts the connection of a transaction while the function of its
// step runs. Whatever the function makes of that, it is called again, without a Retry.
func TestLostInTheMiddle(t *testing.T) {
	for name, after := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"nobody notices": func(context.Context, pgx.Tx) error { return nil },
		"passed on": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		},
		"own words": func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, "SELECT 1").Scan(new(int)); err != nil {
				return perdure.Permanent(errors.New("it did not work"))
			}
			return nil
		},
		"ignored": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1")
			return nil
		},
		"panic": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
				panic(err)
			}
			return nil
		},
		"copy": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"none"}, []string{"step"}, pgx.CopyFromRows([][]any{{"row"}})); err != nil {
				return errors.New("the copy failed")
			}
			return nil
		},
		"prepared": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Prepare(ctx, "mine", "SELECT 1"); err != nil {
				return errors.New("the statement could not be prepared")
			}
			return nil
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			b := new(pgx.Batch)
			b.Queue("SELECT 1")
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return errors.New("the batch failed")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			var calls atomic.Int64
			k := kit.New(t, p.open(t), perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
				_, err := pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (string, error) {
					if _, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('row')"); err != nil {
						return "", err
					}
					if calls.Add(1) > 1 {
						return strings.Repeat("large", 100_000), nil
					}
					p.terminate(t, tx)
					return strings.Repeat("large", 100_000), after(ctx, tx)
				})
				return err
			}))
			k.StartOn("t", "f", struct{}{})
			k.WaitFor("t", perdure.Succeeded)
			if got := p.query(t, "SELECT count(*) FROM "+p.Table); got != "1" || calls.Load() != 2 {
				t.Errorf("%d calls have left %s rows, want 2 calls and 1 row", calls.Load(), got)
			}
		})
	}
}

// TestRestartInTheMiddle restarts the server while the function of a step runs.
func TestRestartInTheMiddle(t *testing.T) {
	server := pgtest.Start(t)
	admin, err := pgx.Connect(t.Context(), server.URL)
	kit.NoErr(t, err)
	_, err = admin.Exec(t.Context(), "CREATE TABLE effects (step text)")
	kit.NoErr(t, err)
	kit.NoErr(t, admin.Close(t.Context()))
	s, err := pgstore.Open(t.Context(), server.URL, pgstore.Options{})
	kit.NoErr(t, err)
	defer s.Close()
	var calls atomic.Int64
	k := kit.New(t, s, perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
		_, err := pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (count int, err error) {
			if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ('row')"); err != nil {
				return 0, err
			}
			if calls.Add(1) == 1 {
				if err := server.Ctl("restart", "-m", "immediate"); err != nil {
					t.Error(err)
				}
			}
			err = tx.QueryRow(ctx, "SELECT count(*) FROM effects").Scan(&count)
			return count, err
		})
		return err
	}))
	defer k.Stop()
	k.StartOn("t", "f", struct{}{})
	run, err := k.Wait(t.Context(), "t", "")
	for n := 0; n < 1000 && errors.Is(err, store.ErrUnavailable); n++ {
		run, err = k.Wait(t.Context(), "t", "")
	}
	if kit.NoErr(t, err); run.Status != perdure.Succeeded {
		t.Errorf("the run is %s: %v", run.Status, run.Err)
	}
	if calls.Load() != 2 {
		t.Errorf("the function was called %d times, want 2", calls.Load())
	}
}

// TestLostByTheFunction: a function that costs itself the connection has failed, and
// is not called again for ever.
func TestLostByTheFunction(t *testing.T) {
	for name, fn := range map[string]func(ctx context.Context, t *testing.T, p place, tx pgx.Tx) error{
		"own time-out": func(ctx context.Context, _ *testing.T, _ place, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if _, err := tx.Exec(short, "SELECT pg_sleep(60)"); err != nil {
				return errors.New("it did not work")
			}
			return nil
		},
		"own time-out, ignored": func(ctx context.Context, _ *testing.T, _ place, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, _ = tx.Exec(short, "SELECT pg_sleep(60)")
			return nil
		},
		"closed": func(ctx context.Context, _ *testing.T, _ place, tx pgx.Tx) error { return tx.Conn().Close(ctx) },
		"idle": func(ctx context.Context, t *testing.T, p place, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 20"); err != nil {
				return err
			}
			there := fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", tx.Conn().PgConn().PID())
			for p.query(t, there) != "0" && ctx.Err() == nil {
			}
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			var calls atomic.Int64
			k := kit.New(t, p.open(t), perdure.Options{}, kit.FlowOf(func(ctx context.Context) error {
				_, err := pgtx.Step(ctx, "s", func(ctx context.Context, tx pgx.Tx) (string, error) {
					calls.Add(1)
					if _, err := tx.Exec(ctx, "INSERT INTO "+p.Table+" VALUES ('row')"); err != nil {
						return "", err
					}
					return "", fn(ctx, t, p, tx)
				})
				return err
			}))
			k.StartOn("t", "f", struct{}{})
			k.WaitFor("t", perdure.Failed)
			if got := p.query(t, "SELECT count(*) FROM "+p.Table); got != "0" || calls.Load() != 1 {
				t.Errorf("%d calls have left %s rows, want 1 call and no row", calls.Load(), got)
			}
		})
	}
}
