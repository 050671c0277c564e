package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
)

// TestAVetoLeavesItsJournalWritable lets writers share groups in which some appends
// are vetoed by their cells. Each of them can write to its journal afterwards.
func TestAVetoLeavesItsJournalWritable(t *testing.T) {
	t.Parallel()
	s := openSchema(t, pgtest.With(pgtest.URL(t), "schema", pgtest.Name()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a write that waits for itself
	defer cancel()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			journal, key := fmt.Sprint("journal ", w), fmt.Sprint("cell ", w)
			if _, err := s.Put(ctx, key, []byte("there"), ""); err != nil {
				t.Error(err)
				return
			}
			for n := range uint64(10) {
				batch := store.Batch{Journal: journal, After: n, Entries: [][]byte{[]byte("x")}}
				if w%2 == 0 {
					vetoed := batch
					vetoed.Cells = []store.Write{{Key: key, Value: []byte("new")}}
					if _, err := s.AppendBatch(ctx, vetoed); !errors.Is(err, store.ErrConflict) {
						t.Errorf("append %d to %s, whose cell is there, returned %v", n, journal, err)
						return
					}
				}
				if _, err := s.AppendBatch(ctx, batch); err != nil {
					t.Errorf("append %d to %s: %v", n, journal, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestPlansNeverScanATable uses tables that the server knows to be tiny, for which a
// plan that scans them would be chosen, and kept while they grow.
func TestPlansNeverScanATable(t *testing.T) {
	t.Parallel()
	name := pgtest.Name()
	url := pgtest.With(pgtest.With(pgtest.URL(t), "schema", name), "application_name", name)
	s := openSchema(t, url)
	ctx := t.Context()
	c, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := s.Append(ctx, "journal", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, "cell", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := s.Put(ctx, fmt.Sprint("other-", i), []byte("x"), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"journals", "entries", "cells"} {
		if _, err := c.Exec(ctx, "ANALYZE "+name+"."+table); err != nil {
			t.Fatal(err)
		}
	}
	const times = 20
	var version store.Version
	for n := range uint64(times) {
		_, err := s.Append(ctx, "journal", n+1, []byte("x"))
		if err == nil {
			_, err = s.AppendBatch(ctx, store.Batch{Journal: "with cells", After: n, Entries: [][]byte{[]byte("x")},
				Cells: []store.Write{{Key: "mine", Value: []byte("x"), Prev: version, Made: &version}}})
		}
		if err == nil {
			_, err = store.ReadAll(ctx, s, "journal", n)
		}
		if err == nil {
			_, err = s.Get(ctx, "cell")
		}
		for _, listErr := range s.List(ctx, "c", "") {
			err = errors.Join(err, listErr)
		}
		for _, listErr := range s.Journals(ctx, "") {
			err = errors.Join(err, listErr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	// The processes of the server tell what they did when they end.
	for open := 1; open > 0; {
		if err := c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&open); err != nil {
			t.Fatal(err)
		}
	}
	var scans int
	if err := c.QueryRow(ctx, "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname <> 'format'", name).Scan(&scans); err != nil {
		t.Fatal(err)
	}
	if scans >= times {
		t.Errorf("%d calls of each kind scanned tables %d times", times, scans)
	}
	var rows int
	if err := c.QueryRow(ctx, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1 AND relname = 'cells'", name).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows >= 20*times {
		t.Errorf("%d calls of each kind read %d cells", times, rows)
	}
}

// TestOthersDoNotWaitForAnOpenTransaction lets writers wait for transactions of the
// program, which are open and have begun the same journals. The other writes of the
// handle are made meanwhile, and those of the writers once the transactions have ended.
func TestOthersDoNotWaitForAnOpenTransaction(t *testing.T) {
	t.Parallel()
	const waiting, others, each = 12, 20, 30
	for name, url := range map[string]func(testing.TB) string{"direct": pgtest.URL, "pooled": pgtest.Bouncer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of writes that wait
			defer cancel()
			s, err := pgstore.Open(ctx, pgtest.With(url(t), "schema", pgtest.Name()), pgstore.Options{Timeout: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			batch := func(n int) store.Batch {
				return store.Batch{Journal: fmt.Sprint("begun ", n), Entries: [][]byte{[]byte("x")}, Cells: []store.Write{{Key: fmt.Sprint("cell ", n)}}}
			}
			var open []pgx.Tx
			for n := range waiting {
				c, err := pgx.Connect(ctx, pgtest.URL(t))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close(context.Background())
				program, err := c.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, program)
				joined, err := s.Begin(ctx, program)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := joined.Commit(ctx, batch(n)); err != nil {
					t.Fatal(err)
				}
			}
			outcomes := make([]chan error, waiting)
			var wg, began sync.WaitGroup
			began.Add(others)
			for n := range waiting {
				outcomes[n] = make(chan error, 1)
				go func() {
					began.Wait() // so that they are in groups with others
					_, err := s.AppendBatch(ctx, batch(n))
					outcomes[n] <- err
				}()
			}
			for w := range others {
				wg.Go(func() {
					journal, key, version := fmt.Sprint("journal ", w), fmt.Sprint("lease ", w), store.Version("")
					for n := range uint64(each) {
						_, err := s.Append(ctx, journal, n, []byte("x"))
						if err == nil {
							version, err = s.PutUnsynced(ctx, key, []byte("x"), version)
						}
						if n == 0 {
							began.Done()
						}
						if err != nil {
							t.Errorf("write %d of %s: %v", n, journal, err)
						}
					}
				})
			}
			wg.Wait()
			for n, program := range open {
				select {
				case err := <-outcomes[n]:
					t.Errorf("append %d has not waited for the transaction: %v", n, err)
				default:
				}
				end, want := program.Commit, store.ErrConflict
				if n%2 == 0 {
					end, want = program.Rollback, nil
				}
				if err := end(ctx); err != nil {
					t.Fatal(err)
				}
				if err := <-outcomes[n]; !errors.Is(err, want) {
					t.Errorf("append %d, which waited for the transaction, returned %v, want %v", n, err, want)
				}
			}
		})
	}
}
