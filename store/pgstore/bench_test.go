package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
)

// BenchmarkAppend appends entries of 1 KiB. In comparison, bare runs one INSERT with
// pgx per entry, and grouped one INSERT for the entries of all writers.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("bare/", writers), func(b *testing.B) {
			pool, table := newTable(b, writers)
			defer pool.Close()
			share(b, writers, func(ctx context.Context, w int, n int, data []byte) error {
				_, err := pool.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3)", w, n, data)
				return err
			})
		})
		b.Run(fmt.Sprint("grouped/", writers), func(b *testing.B) {
			pool, table := newTable(b, 1)
			defer pool.Close()
			data := make([]byte, 1024)
			b.ResetTimer()
			for n := 0; n < b.N; n += writers {
				var journals, seqs []int64
				var datas [][]byte
				for w := range writers {
					journals, seqs, datas = append(journals, int64(w)), append(seqs, int64(n)), append(datas, data)
				}
				if _, err := pool.Exec(b.Context(), "INSERT INTO "+table+" SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])", journals, seqs, datas); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
		b.Run(fmt.Sprint("store/", writers), func(b *testing.B) {
			s := openBench(b)
			share(b, writers, func(ctx context.Context, w int, n int, data []byte) error {
				_, err := s.Append(ctx, fmt.Sprint("journal ", w), uint64(n), data)
				return err
			})
		})
		b.Run(fmt.Sprint("batch/", writers), func(b *testing.B) {
			s := openBench(b)
			share(b, writers, func(ctx context.Context, w int, n int, data []byte) error {
				_, err := s.AppendBatch(ctx, store.Batch{Journal: fmt.Sprint("journal ", w), After: uint64(n), Entries: [][]byte{data},
					Cells: []store.Write{{Key: fmt.Sprint("cell ", w, n), Value: data[:100]}}})
				return err
			})
		})
	}
}

// newTable returns connections to a table like the one for entries.
func newTable(b *testing.B, conns int) (*pgxpool.Pool, string) {
	pool, err := pgxpool.New(b.Context(), pgtest.With(pgtest.URL(b), "pool_max_conns", fmt.Sprint(conns)))
	if err != nil {
		b.Fatal(err)
	}
	table := pgtest.Name()
	if _, err := pool.Exec(b.Context(), "CREATE TABLE "+table+" (journal bigint, seq bigint, data bytea, PRIMARY KEY (journal, seq))"); err != nil {
		b.Fatal(err)
	}
	return pool, table
}

func openBench(b *testing.B) *pgstore.Store {
	s, err := pgstore.Open(b.Context(), pgtest.With(pgtest.URL(b), "schema", pgtest.Name()), pgstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// share divides b.N appends among writers, each with a sequence of its own.
func share(b *testing.B, writers int, do func(ctx context.Context, w, n int, data []byte) error) {
	data := make([]byte, 1024)
	for i := range data {
		data[i] = byte(i * 7)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; left.Add(-1) >= 0; n++ {
				if err := do(b.Context(), w, n, data); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}
