package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/spf13/cobra"
)

// The shape of a measurement: subjects take turns, so that other load on the
// machine affects them alike, and medians are shown.
const (
	benchRounds  = 3
	benchTurn    = 700 * time.Millisecond
	benchWriters = 16
	benchSize    = 1 << 10
)

// benchCommand returns the command that measures a store.
func benchCommand(a *app) *cobra.Command {
	turn := benchTurn
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure how fast a store is here, in about 12 seconds",
		Long: `Measures appends and steps on a store, and compares them with the disk itself and
with a store in memory, all in one run. Rates depend on this machine; ratios can be
compared with those of others. Without --store it uses a SQLite file in this folder
and removes it afterwards. It also removes what it writes to your own store.`,
		Example: "  perdure bench\n  perdure bench --store sqlite:/mnt/disk/try.db --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return exit.Usage(errors.New("bench measures a --store"))
			}
			if turn <= 0 {
				return exit.Usage(errors.New("--turn is how long each turn takes"))
			}
			return a.bench(c.Context(), turn)
		},
	}
	c.Flags().DurationVar(&turn, "turn", benchTurn, "how long each turn of a measurement takes")
	_ = c.Flags().MarkHidden("turn") // for tests
	return c
}

// subject is something to measure: run repeats it until the given time, and
// returns how often it did.
type subject struct {
	Name  string  `json:"name"`
	Rate  float64 `json:"per_second"` // median
	Ratio float64 `json:"ratio"`      // to the first one
	run   func(until time.Time) (int, error)
	rates []float64
}

func (a *app) bench(ctx context.Context, turn time.Duration) (err error) {
	url, folder := a.conn.Store, "."
	if url == "" {
		dir, err := os.MkdirTemp(".", ".perdure-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		url, folder = "sqlite:"+filepath.ToSlash(filepath.Join(dir, "bench.db")), dir
	} else {
		folder = cmp.Or(link.Folder(url), ".")
	}
	s, err := a.conn.OpenURL(ctx, url, true)
	if err != nil {
		return link.OpenError(url, err)
	}
	defer s.Close()
	memory := memstore.New()
	defer memory.Close()
	subjects := []*subject{
		{Name: "the disk: 1 KiB written and synced", run: func(until time.Time) (int, error) { return syncs(ctx, folder, until) }},
		{Name: "appends of 1 KiB, one writer", run: func(until time.Time) (int, error) { return appends(ctx, s, 1, until) }},
		{Name: fmt.Sprintf("appends of 1 KiB, %d writers", benchWriters), run: func(until time.Time) (int, error) { return appends(ctx, s, benchWriters, until) }},
		{Name: "steps, one run", run: func(until time.Time) (int, error) { return steps(ctx, s, 1, until) }},
		{Name: fmt.Sprintf("steps, %d runs at a time", benchWriters), run: func(until time.Time) (int, error) { return steps(ctx, s, benchWriters, until) }},
		{Name: "steps, one run, in memory", run: func(until time.Time) (int, error) { return steps(ctx, memory, 1, until) }},
	}
	for range benchRounds {
		for _, x := range subjects {
			n, err := x.run(time.Now().Add(turn))
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", x.Name, err)
			}
			x.rates = append(x.rates, float64(n)/turn.Seconds())
		}
	}
	for _, x := range subjects {
		slices.Sort(x.rates)
		x.Rate = x.rates[len(x.rates)/2]
		x.Ratio = x.Rate / max(subjects[0].Rate, 1e-9)
	}
	if a.term.JSON {
		return a.term.PrintJSON(struct {
			Store      string     `json:"store"`
			Durability string     `json:"durability"`
			Subjects   []*subject `json:"subjects"`
		}{link.StoreName(url), store.DurabilityOf(s).String(), subjects})
	}
	rows := [][]string{{"", "per second", "ratio"}}
	for _, x := range subjects {
		rows = append(rows, []string{x.Name, strconv.FormatFloat(x.Rate, 'f', 0, 64), strconv.FormatFloat(x.Ratio, 'f', 2, 64)})
	}
	a.term.Printf("%s, writes survive: %s\n\n", safe.Text(link.StoreName(url)), store.DurabilityOf(s))
	return a.term.Table(rows, render.StatusStyle)
}

// syncs writes to a file and waits for the disk each time.
func syncs(ctx context.Context, folder string, until time.Time) (n int, err error) {
	f, err := os.CreateTemp(folder, ".perdure-bench-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	data := make([]byte, benchSize)
	for ; time.Now().Before(until) && ctx.Err() == nil; n++ {
		_, err := f.Write(data)
		if err = cmp.Or(err, f.Sync()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// appends appends to journals, one for each writer, and drops them.
func appends(ctx context.Context, s store.Store, writers int, until time.Time) (int, error) {
	var total atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		all.Go(func() {
			name := "bench/" + rand.Text()
			data := make([]byte, benchSize)
			var last uint64
			var err error
			for time.Now().Before(until) && ctx.Err() == nil && err == nil {
				if last, err = store.AppendOnce(ctx, s, name, last, data); err == nil {
					total.Add(1)
				}
			}
			errs[w] = errors.Join(err, s.Drop(context.WithoutCancel(ctx), name))
		})
	}
	all.Wait()
	return int(total.Load()), errors.Join(errs...)
}

// steps executes runs whose steps do nothing, and erases their threads. Its
// runtime has no other flows, so that it leaves other runs alone.
func steps(ctx context.Context, s store.Store, runs int, until time.Time) (int, error) {
	var total atomic.Int64
	flow := perdure.NewFlow("perdure.bench", func(ctx context.Context, _ int) (int, error) {
		for i := 0; ; i++ {
			more, err := perdure.Step(ctx, "step-"+strconv.Itoa(i), func(context.Context) (bool, error) {
				total.Add(1)
				return time.Now().Before(until) && ctx.Err() == nil, nil
			})
			if err != nil || !more {
				return i, err
			}
		}
	})
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, flow)
	if err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	worked := make(chan error, 1)
	go func() { worked <- rt.Work(working) }()
	var all sync.WaitGroup
	errs := make([]error, runs)
	for i := range runs {
		all.Go(func() {
			run, err := rt.Start(ctx, perdure.StartRequest{Flow: flow.Name(), Input: 0})
			if err == nil {
				_, err = rt.WaitEnd(context.WithoutCancel(ctx), run.Thread, run.ID)
				err = errors.Join(err, rt.Erase(context.WithoutCancel(ctx), run.Thread, perdure.EraseOptions{}))
			}
			errs[i] = err
		})
	}
	all.Wait()
	stop()
	return int(total.Load()), errors.Join(append(errs, <-worked)...)
}
