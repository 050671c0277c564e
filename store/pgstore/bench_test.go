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

// BenchmarkAppend appends entries of 1 KiB: bare is an INSERT of pgx for each,
// grouped is what one statement could do at best.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("bare/", writers), func(b *testing.B) {
			base := pgtest.URL(b)
			pool, err := pgxpool.New(b.Context(), pgtest.With(base, "pool_max_conns", fmt.Sprint(writers)))
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			table := pgtest.Name()
			if _, err := pool.Exec(b.Context(), "CREATE TABLE "+table+" (journal bigint, seq bigint, data bytea, PRIMARY KEY (journal, seq))"); err != nil {
				b.Fatal(err)
			}
			share(b, writers, func(ctx context.Context, w int, n int, data []byte) error {
				_, err := pool.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3)", w, n, data)
				return err
			})
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

func openBench(b *testing.B) *pgstore.Store {
	s, err := pgstore.Open(b.Context(), pgtest.With(pgtest.URL(b), "schema", pgtest.Name()), pgstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// share lets writers do b.N appends, each in a sequence of its own.
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
