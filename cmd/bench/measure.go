package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/perdure/perdure/store"
)

// result collects one subject's rounds.
type result struct {
	one, many series
	bytes     []float64 // written to files for one append
	read      []float64 // entries a second of a read-back
}

// series is the rate of each round, and the latencies of all.
type series struct {
	rates     []float64
	latencies []time.Duration
}

func (s series) rate() float64 { return median(s.rates) }

func (s *series) p(percent int) time.Duration {
	slices.Sort(s.latencies)
	return s.latencies[(len(s.latencies)-1)*percent/100]
}

// ratio is the median of the rounds' ratios: what slows the disk down for a
// moment slows neighbours in a round alike.
func ratio(a, b series) float64 {
	var each []float64
	for i := range a.rates {
		each = append(each, a.rates[i]/b.rates[i])
	}
	return median(each)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// measure measures one round of a subject.
func (r *result) measure(ctx context.Context, s subject, parent string) error {
	t, done, err := s.openNew(ctx, parent)
	if err != nil {
		return err
	}
	defer done()

	// Some appends first: files are created and grown to the length at which
	// they are used again, caches filled. What is measured is the steady state.
	data := entry()
	const warm = 1500
	for n := range uint64(warm) {
		if err := t.append(ctx, 0, n, data); err != nil {
			return err
		}
	}
	before, counted := bytesWritten()
	if err := r.one.writers(ctx, t, 1, *one, warm, data); err != nil {
		return err
	}
	if after, ok := bytesWritten(); ok && counted {
		r.bytes = append(r.bytes, float64(after-before)/float64(*one))
	}
	if st, ok := t.(storeTarget); ok {
		if err := r.readBack(ctx, st.s, data); err != nil {
			return err
		}
	}
	// The same with 64 writers: their journals are there when it counts.
	const each = 50
	var unmeasured series
	if err := unmeasured.writers(ctx, t, 64, 64*each, 0, data); err != nil {
		return err
	}
	return r.many.writers(ctx, t, 64, *many, each, data)
}

// openNew opens a subject in a new folder; done closes it and removes the folder.
func (s subject) openNew(ctx context.Context, parent string) (t target, done func(), err error) {
	dir, err := os.MkdirTemp(parent, "subject-")
	if err != nil {
		return nil, nil, err
	}
	t, err = s.open(ctx, dir)
	return t, func() { t.close(); os.RemoveAll(dir) }, err
}

// writers lets n writers append total entries together. Writer 0 has written
// already, so with several the numbers of journals start at 1.
func (s *series) writers(ctx context.Context, t target, n, total int, from uint64, data []byte) error {
	each := total / n
	latencies := make([][]time.Duration, n)
	errs := make([]error, n)
	first := min(n-1, 1)
	runtime.GC()
	start := time.Now()
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			lat := make([]time.Duration, each)
			for i := range each {
				began := time.Now()
				if err := t.append(ctx, first+w, from+uint64(i), data); err != nil {
					errs[w] = fmt.Errorf("append %d of writer %d: %w", i, w, err)
					return
				}
				lat[i] = time.Since(began)
			}
			latencies[w] = lat
		})
	}
	wg.Wait()
	took := time.Since(start)
	s.latencies = append(s.latencies, slices.Concat(latencies...)...)
	s.rates = append(s.rates, float64(each*n)/took.Seconds())
	return errors.Join(errs...)
}

// readBack fills a journal with 10 000 entries and reads it.
func (r *result) readBack(ctx context.Context, s store.Store, data []byte) error {
	const entries = 10_000
	if err := fill(ctx, s, "read-back", 0, entries, data[:256]); err != nil {
		return err
	}
	runtime.GC()
	start := time.Now()
	n := 0
	for _, err := range s.Read(ctx, "read-back", 0) {
		if err != nil {
			return err
		}
		n++
	}
	if n != entries {
		return fmt.Errorf("read %d of %d entries", n, entries)
	}
	r.read = append(r.read, entries/time.Since(start).Seconds())
	return nil
}

// fill appends entries in batches until the journal has total.
func fill(ctx context.Context, s store.Store, journal string, from, total uint64, data []byte) error {
	for n := from; n < total; {
		batch := make([][]byte, min(50, total-n))
		for i := range batch {
			batch[i] = data
		}
		last, err := s.Append(ctx, journal, n, batch...)
		if err != nil {
			return err
		}
		n = last
	}
	return nil
}

// entry is one-line JSON of entrySize bytes.
func entry() []byte {
	const head, tail = `{"kind":"step","text":"`, `"}`
	return []byte(head + string(bytes.Repeat([]byte("x"), entrySize-len(head)-len(tail))) + tail)
}

// bytesWritten is what this process has passed to write calls, where the
// system counts it.
func bytesWritten() (int64, bool) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("wchar:")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// printGrowth shows what an append allocates at two lengths of its journal.
func printGrowth(ctx context.Context, parent string) error {
	fmt.Println("\nBytes allocated by one append, at two lengths of the journal:")
	for _, s := range subjects()[3:] {
		t, done, err := s.openNew(ctx, parent)
		if err != nil {
			return err
		}
		var at []float64
		for _, length := range []uint64{100, 20_000} {
			got, err := allocated(ctx, t.(storeTarget).s, length)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			at = append(at, got)
		}
		fmt.Printf("  %-24s %7.0f at 100   %7.0f at 20 000   ratio %.2f\n", s.name, at[0], at[1], at[1]/at[0])
		done()
	}
	return nil
}

func allocated(ctx context.Context, s store.Store, length uint64) (float64, error) {
	const appends = 500
	data := entry()
	journal := fmt.Sprintf("growth-%d", length)
	if err := fill(ctx, s, journal, 0, length, data[:64]); err != nil {
		return 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range uint64(appends) {
		if _, err := s.Append(ctx, journal, length+n, data); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / appends, nil
}

// preallocate is the size of a file that is made beforehand, so that a sync writes
// data and no change of the file's size.
const preallocate = 64 << 20

// rawFile is a preallocated file, written from its beginning again when it is full.
type rawFile struct {
	mu sync.Mutex
	f  *os.File
	at int64
}

// openRaw returns a function that opens a raw file as a target.
func openRaw(as func(*rawFile) target) func(context.Context, string) (target, error) {
	return func(_ context.Context, dir string) (target, error) {
		f, err := os.Create(dir + "/raw")
		if err != nil {
			return nil, err
		}
		zeros := make([]byte, 1<<20)
		for at := 0; at < preallocate; at += len(zeros) {
			if _, err := f.WriteAt(zeros, int64(at)); err != nil {
				return nil, err
			}
		}
		return as(&rawFile{f: f}), f.Sync()
	}
}

// write writes parts one behind the other, and syncs once.
func (r *rawFile) write(parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if r.at+int64(size) > preallocate {
		r.at = 0
	}
	for _, part := range parts {
		if _, err := r.f.WriteAt(part, r.at); err != nil {
			return err
		}
		r.at += int64(len(part))
	}
	return datasync(r.f)
}

func (r *rawFile) close() error { return r.f.Close() }

// append is the plain loop: one write and one sync an append.
func (r *rawFile) append(_ context.Context, _ int, _ uint64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(data)
}

// rawPages is the plain loop with what a commit of SQLite's writes for one entry: two
// or three pages, each behind a header of its own. It is the limit of a store on
// SQLite's file format.
type rawPages struct{ file *rawFile }

func (r rawPages) append(_ context.Context, _ int, n uint64, _ []byte) error {
	r.file.mu.Lock()
	defer r.file.mu.Unlock()
	var frame [24 + 4096]byte
	header, page := frame[:24], frame[24:]
	parts := [][]byte{header, page, header, page, header, page}
	if n%5 == 0 {
		parts = parts[2:] // 2.8 pages on average, as counted
	}
	return r.file.write(parts...)
}

func (r rawPages) close() error { return r.file.close() }

// groupLog is the limit with many writers: those who come while a batch is being written
// gather in the next, and the first of them to get its turn writes and syncs once for
// all.
type groupLog struct {
	write  func(ctx context.Context, b *groupBatch) error
	closer func() error

	turn sync.Mutex // held while a batch is written
	mu   sync.Mutex
	next *groupBatch
}

// groupBatch is what some writers append together.
type groupBatch struct {
	writers, numbers []int64
	entries          [][]byte

	written bool // guarded by the turn, like err
	err     error
}

func newGroupLog(write func(context.Context, *groupBatch) error, close func() error) *groupLog {
	return &groupLog{write: write, closer: close, next: new(groupBatch)}
}

func (l *groupLog) append(ctx context.Context, w int, n uint64, data []byte) error {
	l.mu.Lock()
	b := l.next
	b.writers, b.numbers, b.entries = append(b.writers, int64(w)), append(b.numbers, int64(n)), append(b.entries, data)
	l.mu.Unlock()

	l.turn.Lock()
	defer l.turn.Unlock()
	if !b.written {
		l.mu.Lock()
		l.next = new(groupBatch)
		l.mu.Unlock()
		b.written, b.err = true, l.write(ctx, b)
	}
	return b.err
}

func (l *groupLog) close() error { return l.closer() }
