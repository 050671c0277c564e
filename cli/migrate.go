package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"time"

	"github.com/perdure/perdure"
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
	var weaker bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "move all threads and everything else to another store",
		Long: `Copies every journal, cell and blob to an empty store, verifies the copy along its
hash chains, and ends each journal of the old store with an entry that says where it
continues. The old store can still be read, but not written. Its workers and servers
may run meanwhile: they lose their runs, which continue from their last recorded
step once workers are started on the new store. If the command is interrupted, run it
again; if two of them run at once, the later one continues.

To move from a store whose writes survive the death of a process to one that guarantees
less, such as Upstash, --weaker is required.

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
			if strings.HasPrefix(to, "memory:") {
				return exit.Usage(errors.New("--to memory: would be gone with this command, and the old store read-only; move to one that lasts"))
			}
			return a.migrate(c.Context(), from, to, weaker)
		},
	}
	c.Flags().StringVar(&from, "from", "", "URL of the store to move")
	c.Flags().StringVar(&to, "to", "", "URL of the empty store to move it to")
	c.Flags().BoolVar(&weaker, "weaker", false, "allow a new store that may lose acknowledged writes when a process dies")
	return c
}

func (a *app) migrate(ctx context.Context, fromURL, toURL string, weaker bool) error {
	if err := a.conn.Exists(fromURL); err != nil {
		return err
	}
	from, err := a.openSealed(ctx, fromURL, false, "PERDURE_FROM_KEYS")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := a.openTarget(ctx, from, toURL, weaker)
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
	if errors.Is(err, migrate.ErrInUse) {
		return &exit.Error{Code: exit.BadUsage, Err: err, Next: "a store is in use once serve or another command has opened it. If the target holds nothing that you need, stop what uses it, " + emptying(toURL) + ", and run this again"}
	}
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
		safe.Line(link.WithoutPassword(toURL)), terminal.Count(report.Threads, "thread", "threads"), report.Entries, report.Cells, report.Bytes)
	if report.Hints > 0 {
		a.term.Printf("%s for a worker of the new store.\n", terminal.Count(report.Hints, "thread waits", "threads wait"))
	}
	return nil
}

// openTarget opens the target, and creates it unless the source moves to one already: a
// migration that was interrupted finds its own, and another target is refused.
func (a *app) openTarget(ctx context.Context, from store.Store, url string, weaker bool) (store.Store, error) {
	moved, err := migrate.Moved(ctx, from)
	if err != nil {
		return nil, err
	}
	if moved == "" {
		to, err := a.openSealed(ctx, url, true, "PERDURE_TO_KEYS")
		if err != nil {
			return nil, err
		}
		if err := a.checkDurability(from, to, weaker); err != nil {
			to.Close()
			return nil, err
		}
		return to, nil
	}
	if err = a.conn.Exists(url); err == nil {
		var to store.Store
		if to, err = a.openSealed(ctx, url, false, "PERDURE_TO_KEYS"); err == nil {
			return to, nil
		}
	}
	return nil, fmt.Errorf("%w; --to is not that one, or cannot be used: %v", &perdure.MovedError{To: moved}, err)
}

// checkDurability refuses a target that may lose what it acknowledges when a process
// dies, unless the source may or that is meant, and says so of one that is less durable
// otherwise.
func (a *app) checkDurability(from, to store.Store, weaker bool) error {
	had, has := store.DurabilityOf(from), store.DurabilityOf(to)
	if has >= had {
		return nil
	}
	why := ""
	if weak, ok := store.As[store.Weak](to); ok && weak.Weakness() != "" {
		why = "; " + weak.Weakness()
	}
	if has < store.Process && !weaker {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%w: nothing is sure to survive in the new store, while the old one has the class %s; nothing has moved%s; if that is meant, add --weaker", store.ErrWeak, had, why)}
	}
	a.hint("the new store is less durable than the old one: its writes have the class %s, not %s%s", has, had, why)
	return nil
}

// openSealed opens a store, with the key ring in an environment variable if it is set.
func (a *app) openSealed(ctx context.Context, url string, create bool, keys string) (store.Store, error) {
	s, err := a.conn.OpenURL(ctx, url, create)
	if err != nil {
		return nil, link.OpenError(url, err)
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
		return nil, link.OpenError(url, err)
	}
	return sealed, nil
}

// emptying says how to remove everything of Perdure from a store.
func emptying(url string) string {
	if file, ok := link.SQLiteFile(url); ok {
		return "remove the file " + safe.Line(file) + " and those beside it that add -wal and -shm to its name"
	}
	if folder := link.Folder(url); folder != "" {
		return "remove the folder " + safe.Line(folder)
	}
	if u, err := neturl.Parse(url); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		return fmt.Sprintf("drop its schema (DROP SCHEMA %q CASCADE)", cmp.Or(u.Query().Get("schema"), "perdure"))
	}
	return "remove what it holds with the tools of its engine"
}
