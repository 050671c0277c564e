package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func bundleCommand(a *app) *cobra.Command {
	var to string
	var with []string
	c := &cobra.Command{
		Use:   "bundle THREAD [RUN]",
		Short: "write a zip file about a run, to attach to a ticket",
		Long: `Write a zip file about a run, the thread's newest by default: its post-mortem, the
shape of the journal, versions, options, workers and log lines. README.txt in it says
what is in it.

It contains nothing that users, models or tools wrote: no inputs, outputs, users, titles,
metadata, error texts or thread ids. Names of flows and steps are replaced. --with names
keeps those, --with hosts the names of machines, and --with contents everything,
including the whole thread.`,
		Example: "  perdure bundle trip-7\n  perdure bundle trip-7 RUN -o ticket-12.zip --with names,hosts",
		Args:    arguments(1, 2),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var o perdure.BundleOptions
		for _, what := range with {
			switch what {
			case "names":
				o.Names = true
			case "hosts":
				o.Hosts = true
			case "contents":
				o.Contents = true
			default:
				return exit.Usage(fmt.Errorf("--with is names, hosts or contents, not %q", what))
			}
		}
		run := api.Newest
		if len(args) > 1 {
			if run = args[1]; run == "" {
				return exit.Usage(errors.New("no run is given: its id is empty"))
			}
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.bundle(ctx, l, args[0], run, to, o) })
	}
	c.Flags().StringVarP(&to, "output", "o", "", "file to write, which must not exist; bundle-RUN.zip by default, - is the standard output")
	c.Flags().StringSliceVar(&with, "with", nil, "what else to include: names, hosts, contents")
	return c
}

func (a *app) bundle(ctx context.Context, l *link.Link, thread, run, to string, o perdure.BundleOptions) error {
	if to == "-" {
		return l.Client.Bundle(ctx, thread, run, a.term.Out, o)
	}
	found, err := l.Client.GetRun(ctx, thread, run)
	if err != nil {
		return err
	}
	if to == "" {
		to = "bundle-" + safe.Label(found.ID) + ".zip"
	}
	n, err := saveFile(to, func(w io.Writer) error { return l.Client.Bundle(ctx, thread, found.ID, w, o) })
	if err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(map[string]any{"thread": thread, "run": found.ID, "file": to, "bytes": n})
	}
	a.term.PrintName(to)
	if o.Contents {
		a.hint("it has the contents of the thread: treat it as you treat the data of your users")
	} else {
		a.hint("it has no contents; README.txt in it says what it has")
	}
	return nil
}

// saveFile writes a file that must not exist. It is written under another name, so that
// a process that is killed leaves nothing in the way of the same command.
func saveFile(name string, write func(io.Writer) error) (int64, error) {
	exists := exit.Usage(fmt.Errorf("%s exists; choose another file", name))
	if _, err := os.Lstat(name); err == nil {
		return 0, exists
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".part-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	err = errors.Join(write(f), f.Sync())
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err == nil {
		err = putInPlace(f.Name(), name)
	}
	switch {
	case errors.Is(err, os.ErrExist):
		return 0, exists
	case err != nil:
		return 0, fmt.Errorf("writing %s: %w", name, err)
	}
	return info.Size(), nil
}

// putInPlace gives a file its name, unless there is one of that name.
func putInPlace(file, name string) error {
	err := os.Link(file, name)
	if err == nil || errors.Is(err, os.ErrExist) {
		return err
	}
	// A file system without links. What is renamed replaces the empty file, not another.
	claim, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(claim.Close(), os.Rename(file, name)); err != nil {
		os.Remove(name)
	}
	return err
}
