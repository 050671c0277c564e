package sqlitestore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

const benchEntry = 1 << 10

func benchStore(b *testing.B) store.Store {
	s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlitestore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkAppend1(b *testing.B)  { benchmarkAppend(b, 1) }
func BenchmarkAppend64(b *testing.B) { benchmarkAppend(b, 64) }

// benchmarkAppend has each writer append to a journal of its own.
func benchmarkAppend(b *testing.B, writers int) {
	s := benchStore(b)
	data := bytes.Repeat([]byte("x"), benchEntry)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.SetBytes(benchEntry)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			journal := fmt.Sprintf("journal-%d", w)
			for after := uint64(0); left.Add(-1) >= 0; after++ {
				if _, err := s.Append(b.Context(), journal, after, data); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkWarm alternates between a store whose WAL is emptied after every 250
// appends and one whose WAL never is, and compares the quickest tenths of their
// appends, which other load on the disk disturbs least.
func BenchmarkWarm(b *testing.B) {
	const piece = 250
	data := bytes.Repeat([]byte("x"), benchEntry)
	stores := []store.Store{benchStore(b), benchStore(b)}
	var spent [2][]time.Duration
	for i := range b.N {
		if i%piece == 0 {
			if err := stores[0].Drop(b.Context(), "empties the WAL"+fmt.Sprint(i)); err != nil {
				b.Fatal(err)
			}
		}
		for n, s := range stores {
			start := time.Now()
			if _, err := s.Append(b.Context(), "journal", uint64(i), data); err != nil {
				b.Fatal(err)
			}
			spent[n] = append(spent[n], time.Since(start))
		}
	}
	for n := range spent {
		slices.Sort(spent[n])
	}
	b.ReportMetric(float64(spent[0][b.N/10])/float64(spent[1][b.N/10]), "emptied/warm")
}

// BenchmarkRawFdatasync is the disk's own limit: the same bytes into a file
// that has its size already, and one sync each.
func BenchmarkRawFdatasync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size = 16 << 20
	if _, err := f.Write(make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	data := bytes.Repeat([]byte("x"), benchEntry)
	b.SetBytes(benchEntry)
	b.ResetTimer()
	for i := range b.N {
		if _, err := f.WriteAt(data, int64(i)*benchEntry%size); err != nil {
			b.Fatal(err)
		}
		if err := datasync(f); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}

// BenchmarkRead reads a journal of 10 000 entries of 512 bytes.
func BenchmarkRead(b *testing.B) {
	const count = 10_000
	s := benchStore(b)
	batch := make([][]byte, store.MaxBatch)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("x"), 512)
	}
	for after := uint64(0); after < count; {
		n := min(len(batch), count-int(after))
		last, err := s.Append(b.Context(), "journal", after, batch[:n]...)
		if err != nil {
			b.Fatal(err)
		}
		after = last
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		n := 0
		for _, err := range s.Read(b.Context(), "journal", 0) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != count {
			b.Fatalf("read %d entries, want %d", n, count)
		}
	}
	b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkList lists 64 cells of 200 bytes.
func BenchmarkList(b *testing.B) {
	s := benchStore(b)
	for i := range 64 {
		if _, err := s.Put(b.Context(), fmt.Sprintf("due/%020d/thread-%d", i, i), make([]byte, 200), ""); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		n := 0
		for _, err := range s.List(b.Context(), "due/", "") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 64 {
			b.Fatalf("%d cells, want 64", n)
		}
	}
}
