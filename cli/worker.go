package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
)

func init() { register(workerCommand) }

// workerCommand makes the command that executes runs and serves nothing.
func workerCommand(a *app) *cobra.Command {
	var o perdure.Options
	var steps, tell string
	c := &cobra.Command{
		Use:   "worker",
		Short: "execute the runs of a store",
		Long: `Executes the runs of a store, in as many processes as you like, until it is
stopped. The first interrupt or SIGTERM hands over what is between two steps and
lets running steps end; a worker that is killed loses nothing that is recorded,
and others take its runs over when its lease is over.`,
		Example: "  perdure worker --store sqlite:perdure.db --concurrency 16",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usage(errors.New("a worker needs --store: it executes runs where they are kept"))
			}
			if o.Concurrency < 0 {
				return usage(errors.New("--concurrency is how many runs may be executed at a time"))
			}
			url, err := a.storeHere()
			if err != nil {
				return err
			}
			o.Logger = a.logger()
			var seen *stepLog
			if steps != "" {
				if seen, err = newStepLog(steps); err != nil {
					return err
				}
				defer seen.Close()
				o.Observer = seen
			}
			rt, closeStore, err := a.runtime(c.Context(), url, o)
			if err != nil {
				return err
			}
			defer closeStore()
			if tell == "" {
				fmt.Fprintf(a.err, "%s: works on %s, process %d; stop it with Ctrl-C\n", a.shellName(), url, os.Getpid())
				return rt.Work(c.Context())
			}
			ctx, stop := context.WithCancel(c.Context())
			defer stop()
			go func() { // whoever started this process is gone when its pipe is
				_, _ = io.Copy(io.Discard, a.in)
				stop()
			}()
			go tellDeltas(ctx, rt, tell, seen, a.out)
			return rt.Work(ctx)
		},
	}
	c.Flags().IntVar(&o.Concurrency, "concurrency", 0, "how many runs to execute at a time; 0 is 64")
	c.Flags().DurationVar(&o.Lease, "lease", 0, "how long the runs of a killed worker rest; 0 is 3s")
	c.Flags().StringVar(&steps, "log-steps", "", "append a line to this file for each step that begins")
	c.Flags().StringVar(&tell, "tell", "", "print the deltas of this thread, and stop when the input ends")
	for _, name := range []string{"log-steps", "tell"} { // for demo
		_ = c.Flags().MarkHidden(name)
	}
	return c
}

// storeHere returns the URL of the store that the flags name, or else of that
// which dev has made in this folder.
func (a *app) storeHere() (string, error) {
	if a.store != "" {
		return a.store, nil
	}
	file := filepath.Join(devFolder, devFile)
	if _, err := os.Stat(file); err != nil {
		return "", usage(fmt.Errorf("name a store with --store, such as --store sqlite:perdure.db; there is none in ./%s", devFolder))
	}
	return "sqlite:" + filepath.ToSlash(file), nil
}

// runtime opens a store with the program's flows. A store that fails is opened
// again by itself. One that nobody named is used only if it is known.
func (a *app) runtime(ctx context.Context, url string, o perdure.Options) (*perdure.Runtime, func(), error) {
	made := false
	if a.store == "" {
		_, err := os.Stat(filepath.Join(devFolder, devFile))
		made = errors.Is(err, fs.ErrNotExist)
	}
	s, err := store.Reopen(ctx, func(ctx context.Context) (store.Store, error) { return a.openURL(ctx, url) })
	if err != nil {
		return nil, nil, &exitError{code: exitUnavailable, err: fmt.Errorf("opening the store %s: %w", url, err)}
	}
	rt, err := perdure.New(ctx, s, a.runtimeOptions(o), a.flows...)
	if err == nil && a.store == "" {
		err = a.familiar(ctx, rt, made)
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return rt, func() { s.Close() }, nil
}

// openURL opens a store, with what the flags say about its folder.
func (a *app) openURL(ctx context.Context, url string) (store.Store, error) {
	if a.shared && (strings.HasPrefix(url, "sqlite:") || strings.HasPrefix(url, "file:")) {
		url = strings.TrimSuffix(url, store.SharedFolder) + store.SharedFolder
	}
	return store.Open(ctx, url)
}

// logger returns the program's own, or one that writes for people.
func (a *app) logger() *slog.Logger {
	if log := a.opts.Runtime.Logger; log != nil {
		return log
	}
	return slog.New(slog.NewTextHandler(a.err, nil))
}

// runtimeOptions returns the program's options, but for those that a command
// sets. A program's observer sees what the command's does.
func (a *app) runtimeOptions(o perdure.Options) perdure.Options {
	all := a.opts.Runtime
	if o.Logger != nil {
		all.Logger = o.Logger
	}
	switch {
	case all.Observer == nil:
		all.Observer = o.Observer
	case o.Observer != nil:
		all.Observer = observers{all.Observer, o.Observer}
	}
	if o.Concurrency != 0 {
		all.Concurrency = o.Concurrency
	}
	if o.Lease != 0 {
		all.Lease = o.Lease
	}
	return all
}

// observers are two, of whom the first makes the context of a step.
type observers [2]perdure.Observer

// StepStarted tells both.
func (o observers) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	ctx, first := o[0].StepStarted(ctx, s)
	ctx, second := o[1].StepStarted(ctx, s)
	return ctx, func(err error) {
		second(err)
		first(err)
	}
}

// Committed tells both.
func (o observers) Committed(e perdure.Event) {
	o[0].Committed(e)
	o[1].Committed(e)
}

// stepLog writes down, outside the journal, which process begins which step.
type stepLog struct {
	file *os.File
	seq  atomic.Uint64 // of the last entry that this process committed
}

var _ perdure.Observer = (*stepLog)(nil)

func newStepLog(name string) (*stepLog, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &stepLog{file: f}, nil
}

// begunStep is a line of the log.
type begunStep struct {
	PID     int       `json:"pid"`
	Path    string    `json:"path"`
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
}

// StepStarted appends a line, with one write, before the step does anything.
func (l *stepLog) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	line, err := json.Marshal(begunStep{os.Getpid(), s.Path, s.Attempt, time.Now()})
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perdure: the log of steps:", err)
	}
	return ctx, func(error) {}
}

// Committed remembers how far the journal is.
func (l *stepLog) Committed(e perdure.Event) {
	for old := l.seq.Load(); e.Seq > old && !l.seq.CompareAndSwap(old, e.Seq); old = l.seq.Load() {
	}
}

// Close closes the file.
func (l *stepLog) Close() error { return l.file.Close() }

// readSteps reads a log.
func readSteps(name string) ([]begunStep, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []begunStep
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var b begunStep
		if err := json.Unmarshal(lines.Bytes(), &b); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", len(all)+1, name, err)
		}
		all = append(all, b)
	}
	return all, lines.Err()
}

// toldDelta is a delta on its way to another process.
type toldDelta struct {
	After uint64             `json:"after"` // what was committed before
	Delta perdure.DeltaEvent `json:"delta"`
}

// tellDeltas prints the deltas of a thread as lines of JSON: what SQLite casts
// stays in the process.
func tellDeltas(ctx context.Context, rt *perdure.Runtime, thread string, seen *stepLog, out io.Writer) {
	e := json.NewEncoder(out)
	for d, err := range rt.Deltas(ctx, thread) {
		t := toldDelta{Delta: d}
		if seen != nil {
			t.After = seen.seq.Load()
		}
		if err != nil || e.Encode(t) != nil {
			return
		}
	}
}
