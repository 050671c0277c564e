package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
)

// BenchmarkAppend appends entries of 1 KiB, on a server with appendfsync always. In
// comparison, bare pushes to lists with go-redis, a connection for each writer, and
// grouped pushes for all writers in one pipeline.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("bare/", writers), func(b *testing.B) {
			o, err := redis.ParseURL(redistest.URL(b))
			if err != nil {
				b.Fatal(err)
			}
			o.PoolSize = writers
			c := redis.NewClient(o)
			defer c.Close()
			name := redistest.Name()
			share(b, writers, func(ctx context.Context, w, n int, data []byte) error {
				return c.RPush(ctx, name+strconv.Itoa(w), data).Err()
			})
		})
		b.Run(fmt.Sprint("grouped/", writers), func(b *testing.B) {
			c, name, data := client(b, redistest.URL(b)), redistest.Name(), make([]byte, 1024)
			b.ResetTimer()
			for n := 0; n < b.N; n += writers {
				_, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
					for w := range writers {
						p.RPush(b.Context(), name+strconv.Itoa(w), data)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
		b.Run(fmt.Sprint("store/", writers), func(b *testing.B) {
			s := openURL(b, redistest.With(redistest.URL(b), "prefix", redistest.Name()))
			share(b, writers, func(ctx context.Context, w, n int, data []byte) error {
				_, err := s.Append(ctx, fmt.Sprint("journal ", w), uint64(n), data)
				return err
			})
		})
		b.Run(fmt.Sprint("batch/", writers), func(b *testing.B) {
			s := openURL(b, redistest.With(redistest.URL(b), "prefix", redistest.Name()))
			share(b, writers, func(ctx context.Context, w, n int, data []byte) error {
				_, err := s.AppendBatch(ctx, store.Batch{Journal: fmt.Sprint("journal ", w), After: uint64(n), Entries: [][]byte{data},
					Cells: []store.Write{{Key: fmt.Sprint("cell ", w, n), Value: data[:100]}}})
				return err
			})
		})
	}
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

// TestOneRoundTrip counts what a server is asked: one script for each batch.
func TestOneRoundTrip(t *testing.T) {
	server := redistest.Start(t, redistest.Always...)
	s := openURL(t, server.URL)
	ctx := t.Context()
	c := client(t, server.URL)
	asked := func(command string) int {
		found := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(c.Info(ctx, "commandstats").Val())
		if found == nil {
			return 0
		}
		n, _ := strconv.Atoi(found[1])
		return n
	}
	before := asked("evalsha") + asked("eval")
	const times = 20
	for n := range uint64(times) {
		_, err := s.AppendBatch(ctx, store.Batch{Journal: "j", After: n, Entries: [][]byte{[]byte("x")},
			Cells: []store.Write{{Key: fmt.Sprint("a", n), Value: []byte("x")}, {Key: fmt.Sprint("b", n), Value: []byte("x"), Optional: true}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := asked("evalsha") + asked("eval") - before; got != times+1 { // the first one did not know the script
		t.Errorf("%d batches were %d scripts", times, got)
	}
}
