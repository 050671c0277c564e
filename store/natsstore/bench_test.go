package natsstore_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/natsstore"
)

// BenchmarkAppend appends entries of 1 KiB to servers that sync before they acknowledge.
// In comparison, bare publishes with the same condition and waits for each answer.
func BenchmarkAppend(b *testing.B) {
	dir := b.TempDir()
	single := natstest.Start(b, natstest.Config{Dir: dir, SyncAlways: true}).URL()
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("bare/", writers), func(b *testing.B) {
			nc, err := nats.Connect(single)
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				b.Fatal(err)
			}
			name := fmt.Sprint("bare", nats.NewInbox()[10:])
			if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage}); err != nil {
				b.Fatal(err)
			}
			last := make([]uint64, writers)
			share(b, writers, func(ctx context.Context, w, _ int, data []byte) error {
				ack, err := js.Publish(ctx, name+"."+strconv.Itoa(w), data, jetstream.WithExpectLastSequencePerSubject(last[w]))
				if err == nil {
					last[w] = ack.Sequence
				}
				return err
			})
		})
		b.Run(fmt.Sprint("store/", writers), func(b *testing.B) {
			s := openBench(b, single)
			share(b, writers, func(ctx context.Context, w, n int, data []byte) error {
				_, err := s.Append(ctx, fmt.Sprint("journal ", w), uint64(n), data)
				return err
			})
		})
		b.Run(fmt.Sprint("batch/", writers), func(b *testing.B) {
			s := openBench(b, single)
			share(b, writers, func(ctx context.Context, w, n int, data []byte) error {
				_, err := s.AppendBatch(ctx, store.Batch{Journal: fmt.Sprint("journal ", w), After: uint64(n), Entries: [][]byte{data},
					Cells: []store.Write{{Key: fmt.Sprint("cell ", w, n), Value: data[:100]}}})
				return err
			})
		})
	}
}

// BenchmarkRead reads a journal of 200 appends.
func BenchmarkRead(b *testing.B) {
	s := openBench(b, natstest.URL(b))
	for n := range uint64(200) {
		if _, err := s.Append(b.Context(), "j", n, make([]byte, 1024)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if entries, err := store.ReadAll(b.Context(), s, "j", 0); err != nil || len(entries) != 200 {
			b.Fatal(len(entries), err)
		}
	}
}

func openBench(b *testing.B, base string) *natsstore.Store {
	s, err := natsstore.Open(b.Context(), natstest.With(base, "stream", "t"+nats.NewInbox()[10:]), natsstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// share divides b.N appends among writers, each with a sequence of its own.
func share(b *testing.B, writers int, do func(ctx context.Context, w, n int, data []byte) error) {
	data := make([]byte, 1024)
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
