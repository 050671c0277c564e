// Command bench measures stores, kernel and agents together with the raw limits of
// the disk and of the engines, in one run, and prints rates and ratios. Rates depend on the machine; the
// ratios can be compared.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/kvstore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

// entrySize is the size of what is appended.
const entrySize = 1 << 10

// parts are what can be measured alone, by the flag that says so.
var parts = []struct {
	flag, usage string
	run         func(ctx context.Context, dir string) error
}{
	{"kernel", "measure the kernel only", kernel},
	{"turns", "measure starts, ends and wake-ups only", turns},
	{"old", "measure threads with many runs behind them only", old},
	{"agent", "measure agents only", agents},
	{"http", "measure event streams over HTTP only", overHTTP},
	{"command", "measure the API's cost and the stock binary only", command},
	{"tokens", "measure agents that stream to readers only", tokens},
	{"scale", "measure many threads and processes only", scale},
	{"lists", "measure lists of few and of many threads only", lists},
	{"console", "measure the console in a browser only", inBrowser},
	{"postgres", "measure PostgreSQL only", postgres},
}

var (
	rounds = flag.Int("rounds", 7, "rounds; the subjects take turns in each, and medians are shown")
	one    = flag.Int("appends", 1500, "appends of one writer in each round")
	many   = flag.Int("appends64", 12000, "appends of 64 writers together in each round")
)

func main() {
	parent := flag.String("dir", "", "folder on the disk to measure (default: a temporary one)")
	worker := flag.String("worker", "", "be a worker process on the store with this URL, for another bench")
	streamer := flag.String("token-server", "", "be a measured process of tokens: perdure, worker, api or proxy, with the URLs of the model and the store")
	chosen := map[string]*bool{}
	for _, p := range parts {
		chosen[p.flag] = flag.Bool(p.flag, false, p.usage)
	}
	flag.Parse()
	var err error
	switch {
	case *worker != "":
		err = childWorker(*worker)
	case *streamer != "":
		err = tokenServer(*streamer, flag.Arg(0), flag.Arg(1))
	default:
		start := time.Now()
		err = run(context.Background(), *parent, chosen)
		fmt.Printf("\nThis took %s.\n", time.Since(start).Round(time.Second))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the chosen parts, or everything if none is chosen.
func run(ctx context.Context, parent string, chosen map[string]*bool) error {
	dir, err := os.MkdirTemp(parent, "perdure-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all := *engineNames == ""
	for _, on := range chosen {
		all = all && !*on
	}
	if all {
		if err := stores(ctx, dir); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if all || *chosen[p.flag] {
			if err := p.run(ctx, dir); err != nil {
				return err
			}
		}
	}
	if all || *engineNames != "" {
		return engines(ctx, dir)
	}
	return nil
}

// A subject can be appended to: a raw file or a store.
type subject struct {
	name string
	open func(ctx context.Context, dir string) (target, error)
}

// A target takes durable appends of writer w; n counts that writer's appends.
type target interface {
	append(ctx context.Context, w int, n uint64, data []byte) error
	close() error
}

func subjects() []subject {
	stores := []struct {
		name string
		open func(ctx context.Context, dir string) (store.Store, error)
	}{
		{"memstore", func(context.Context, string) (store.Store, error) { return memstore.New(), nil }},
		{"filestore", openFile},
		{"sqlitestore", openSQLite},
		{"kvstore on memory", func(context.Context, string) (store.Store, error) {
			return kvstore.New(memstore.New(), kvstore.Options{}), nil
		}},
		{"seal on sqlitestore", func(ctx context.Context, dir string) (store.Store, error) {
			ring, err := seal.NewRing("bench", map[string][]byte{"bench": make([]byte, 32)})
			if err != nil {
				return nil, err
			}
			s, err := openSQLite(ctx, dir)
			if err != nil {
				return nil, err
			}
			return seal.New(ctx, s, ring)
		}},
		{"observed on sqlitestore", func(ctx context.Context, dir string) (store.Store, error) {
			s, err := openSQLite(ctx, dir)
			if err != nil {
				return nil, err
			}
			return observed.New(s, new(observed.Stats)), nil
		}},
	}
	all := []subject{
		{"raw write+fdatasync", openRaw(func(f *rawFile) target { return f })},
		{"raw group-commit log", openRaw(func(f *rawFile) target {
			return newGroupLog(func(_ context.Context, b *groupBatch) error { return f.write(bytes.Join(b.entries, nil)) }, f.close)
		})},
		{"raw pages+fdatasync", openRaw(func(f *rawFile) target { return rawPages{f} })},
	}
	for _, s := range stores {
		all = append(all, subject{s.name, func(ctx context.Context, dir string) (target, error) {
			opened, err := s.open(ctx, dir)
			return storeTarget{opened}, err
		}})
	}
	return all
}

func openFile(ctx context.Context, dir string) (store.Store, error) {
	return filestore.Open(ctx, dir+"/store", filestore.Options{})
}

// sqliteFile is the file of a sqlitestore in its folder.
const sqliteFile = "/store.db"

func openSQLite(ctx context.Context, dir string) (store.Store, error) {
	return sqlitestore.Open(ctx, dir+sqliteFile, sqlitestore.Options{})
}

// storeTarget gives each writer a journal of its own.
type storeTarget struct{ s store.Store }

func (t storeTarget) append(ctx context.Context, w int, n uint64, data []byte) error {
	_, err := t.s.Append(ctx, fmt.Sprintf("journal-%02d", w), n, data)
	return err
}

func (t storeTarget) close() error { return t.s.Close() }

// stores measures appends to each subject.
func stores(ctx context.Context, dir string) error {
	all := subjects()
	results := make([]result, len(all))
	for round := range *rounds {
		for i, s := range all {
			fmt.Fprintf(os.Stderr, "\rround %d of %d: %-30s", round+1, *rounds, s.name)
			if err := results[i].measure(ctx, s, dir); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r%60s\r", "")
	printStores(all, results)
	return printGrowth(ctx, dir)
}

func printStores(all []subject, results []result) {
	fmt.Printf("Stores on %s/%s, %d CPUs, Go %s: entries of %d bytes; medians of %d rounds of %d appends by 1 writer, %d by 64, after a warm-up.\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), entrySize, *rounds, *one, *many)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t1 writer/s\tp50\tp99\tof raw\t64 writers/s\tp50\tp99\tof own 1\tof log\tbytes/append\tread/s\t")
	raw, log, pages := results[0], results[1], results[2]
	for i, s := range all {
		r := results[i]
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%.2f\t%.0f\t%s\t%s\t%.1f\t%.2f\t%s\t%s\t\n", s.name,
			r.one.rate(), short(r.one.p(50)), short(r.one.p(99)), ratio(r.one, raw.one),
			r.many.rate(), short(r.many.p(50)), short(r.many.p(99)), ratio(r.many, r.one), ratio(r.many, log.many),
			optional(r.bytes), optional(r.read))
	}
	w.Flush()
	fmt.Println("\nof raw: ratio to the raw loop at 1 writer; of own 1: ratio of 64 writers to 1; of log: ratio to the raw log at 64. Ratios are medians of the rounds' ratios.")
	for i, s := range all {
		if r := results[i]; s.name == "sqlitestore" {
			expect("sqlitestore at 1 writer ÷ raw write+fdatasync", ratio(r.one, raw.one), 0.85)
			fmt.Printf("sqlitestore at 1 writer ÷ raw pages+fdatasync, the bytes that SQLite writes: %.4g\n", ratio(r.one, pages.one))
			expect("sqlitestore at 64 writers ÷ its own rate at 1", ratio(r.many, r.one), 2.5)
			expect("sqlitestore reads back 10 000 entries, entries/s", median(r.read), 300_000)
		}
	}
}

// expect prints a figure that should be at least so large.
func expect(what string, got, least float64) { printVerdict(what, got, "least", least, got >= least) }

// atMost prints a figure that should be at most so large.
func atMost(what string, got, most float64) { printVerdict(what, got, "most", most, got <= most) }

func printVerdict(what string, got float64, bound string, limit float64, ok bool) {
	verdict := "as expected"
	if !ok {
		verdict = map[string]string{"least": "BELOW", "most": "ABOVE"}[bound] + " what is expected"
	}
	fmt.Printf("%s: %.4g (at %s %.4g: %s)\n", what, got, bound, limit, verdict)
}

func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1fµs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0fµs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1fms", float64(d)/1e6)
}

func optional(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", median(values))
}
