package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
)

func init() { register(workerCommand) }

// workerCommand makes the command that executes runs and serves nothing.
func workerCommand(a *app) *cobra.Command {
	var o perdure.Options
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
			rt, closeStore, err := a.runtime(c.Context(), url, o)
			if err != nil {
				return err
			}
			defer closeStore()
			fmt.Fprintf(a.term.Err, "%s: works on %s, process %d; stop it with Ctrl-C\n", a.shellName(), url, os.Getpid())
			return rt.Work(c.Context())
		},
	}
	c.Flags().IntVar(&o.Concurrency, "concurrency", 0, "how many runs to execute at a time; 0 is 64")
	c.Flags().DurationVar(&o.Lease, "lease", 0, "how long the runs of a killed worker rest; 0 is 3s")
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
	return slog.New(slog.NewTextHandler(a.term.Err, nil))
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
