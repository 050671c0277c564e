package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/spf13/cobra"
)

func init() { register(workerCommand) }

// workerCommand makes the command that executes runs and serves nothing.
func workerCommand(a *app) *cobra.Command {
	var o perdure.Options
	c := &cobra.Command{
		Use:   "worker",
		Short: "execute the runs of a store",
		Long: `Executes the runs of a store until it is stopped. Start as many as you like. The
first interrupt or SIGTERM hands over runs that are between two steps and lets
running steps end. A worker that is killed loses nothing that is recorded, and others
take over its runs when its lease expires.`,
		Example: "  perdure worker --store sqlite:perdure.db --concurrency 16",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return exit.Usage(errors.New("a worker needs --store: it executes runs where they are kept"))
			}
			if o.Concurrency < 0 {
				return exit.Usage(errors.New("--concurrency is how many runs may be executed at a time"))
			}
			url, err := a.conn.StoreHere()
			if err != nil {
				return err
			}
			o.Logger = a.logger()
			rt, closeStore, err := a.conn.OpenRuntime(c.Context(), url, o)
			if err != nil {
				return err
			}
			defer closeStore()
			fmt.Fprintf(a.term.Err, "%s: works on %s, process %d; stop it with Ctrl-C\n", a.shellName(), url, os.Getpid())
			return rt.Work(c.Context())
		},
	}
	c.Flags().IntVar(&o.Concurrency, "concurrency", 0, "how many runs to execute at a time; 0 means 64")
	c.Flags().DurationVar(&o.Lease, "lease", 0, "how long the runs of a killed worker wait; 0 means 3s")
	return c
}

// logger returns the program's own, or one that writes for people.
func (a *app) logger() *slog.Logger {
	if log := a.opts.Runtime.Logger; log != nil {
		return log
	}
	return slog.New(slog.NewTextHandler(a.term.Err, nil))
}
