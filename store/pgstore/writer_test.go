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
	for _, table := range []string{"journals", "entries", "cells"} {
		if _, err := c.Exec(ctx, "ANALYZE "+name+"."+table); err != nil {
			t.Fatal(err)
		}
	}
	const times = 20
	for n := range uint64(times) {
		_, err := s.Append(ctx, "journal", n+1, []byte("x"))
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
}
