package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/seal"
	"github.com/spf13/cobra"
)

// migrateCommand returns the command that moves everything to another store.
func migrateCommand(a *app) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use:   "migrate",
		Short: "move all threads and everything else to another store",
		Long: `Copies every journal, cell and blob to an empty store, verifies the copy along its
hash chains, and ends each journal of the old store with an entry that says where it
continues. The old store can still be read, but not written. Workers and servers of
it may run meanwhile: they lose their runs, which continue from their last recorded
step once workers are started on the new store. If it is interrupted, run it again;
of two that run at once, the later one goes on.

Tables of your programs, such as those that steps of sqltx and pgtx write to, are not
moved.

If a store is sealed, set PERDURE_FROM_KEYS or PERDURE_TO_KEYS to its key ring.`,
		Example: "  perdure migrate --from sqlite:perdure.db --to postgres://app@db.example/app\n  perdure migrate --from file:data --to sqlite:new.db --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return exit.Usage(errors.New("name both stores with --from and --to"))
			}
			if from == to {
				return exit.Usage(errors.New("--from and --to name the same store"))
			}
			return a.migrate(c.Context(), from, to)
		},
	}
	c.Flags().StringVar(&from, "from", "", "URL of the store to move")
	c.Flags().StringVar(&to, "to", "", "URL of the empty store to move it to")
	return c
}

func (a *app) migrate(ctx context.Context, fromURL, toURL string) error {
	if err := a.conn.Exists(fromURL); err != nil {
		return err
	}
	from, err := a.openSealed(ctx, fromURL, false, "PERDURE_FROM_KEYS")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := a.openSealed(ctx, toURL, true, "PERDURE_TO_KEYS")
	if err != nil {
		return err
	}
	defer to.Close()
	last := time.Now()
	report, err := migrate.Run(ctx, from, to, migrate.Options{To: link.StoreName(toURL), Progress: func(p migrate.Progress) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		if len(p.Open) > 0 {
			a.hint("%s for open transactions on the old store: %s", p.Stage, safe.Line(strings.Join(p.Open, ", ")))
		} else {
			a.hint("%s: %d journals, %d cells", p.Stage, p.Journals, p.Cells)
		}
	}})
	if err != nil {
		return err
	}
	if report.Left > 0 {
		a.hint("%s given meanwhile and left out, as the new store is not sealed; give them again", terminal.Count(report.Left, "credential was", "credentials were"))
	}
	if a.term.JSON {
		return a.term.PrintJSON(report)
	}
	if report.Already {
		a.term.Printf("This migration to %s was completed before.\n", safe.Line(report.To))
		return nil
	}
	a.term.Printf("Moved to %s and verified: %s, %d entries, %d cells, %d bytes.\n",
		safe.Line(report.To), terminal.Count(report.Threads, "thread", "threads"), report.Entries, report.Cells, report.Bytes)
	if report.Hints > 0 {
		a.term.Printf("%s for a worker of the new store.\n", terminal.Count(report.Hints, "thread waits", "threads wait"))
	}
	return nil
}

// openSealed opens a store, with the key ring in an environment variable if it is set.
func (a *app) openSealed(ctx context.Context, url string, create bool, keys string) (store.Store, error) {
	unavailable := func(err error) error {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("opening the store %s: %w", link.StoreName(url), err)}
	}
	s, err := a.conn.OpenURL(ctx, url, create)
	if err != nil {
		return nil, unavailable(err)
	}
	text := a.term.Env(keys)
	if text == "" {
		return s, nil
	}
	ring, err := seal.ParseRing(text)
	if err != nil {
		s.Close()
		return nil, exit.Usage(fmt.Errorf("$%s: %w", keys, err))
	}
	sealed, err := seal.New(ctx, s, ring)
	if err != nil {
		s.Close()
		return nil, unavailable(err)
	}
	return sealed, nil
}
