package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/spf13/cobra"
)

// backupCommand returns the command that copies a store.
func backupCommand(a *app) *cobra.Command {
	var verify bool
	c := &cobra.Command{
		Use:   "backup DIR",
		Short: "copy the whole store into a new folder, while it is in use",
		Long: `Copies a SQLite or file store, with the data of all tenants, into a new folder. The
copy is the store at one moment. It is checked before the command ends: everything in
it is read, and every thread is verified along its hash chain. Servers and workers keep
running meanwhile.

With --server, the server copies its store and sends it; it needs a token of an admin
of the default tenant, and room for the copy in its temporary folder ($TMPDIR). With
--store, this process copies a SQLite store itself. A file store that a server has
open can only be copied by that server.

perdure restore makes a store from a backup. Other stores have tools of their own: see
docs/operations.md.`,
		Example: "  perdure backup monday --store sqlite:perdure.db\n  perdure backup monday --server https://perdure.example\n  perdure backup monday --verify",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if verify {
				m, err := backup.Verify(c.Context(), args[0])
				if errors.Is(err, perdure.ErrInvalid) { // what the folder is, not how it was named
					return &exit.Error{Code: exit.Failed, Err: err}
				}
				if err != nil {
					return err
				}
				return a.showBackup(m, args[0], "is as it was written")
			}
			return a.backup(c.Context(), args[0])
		},
	}
	c.Flags().BoolVar(&verify, "verify", false, "check the files of an existing backup instead")
	return c
}

func (a *app) backup(ctx context.Context, dir string) error {
	if err := backup.CheckNew(dir); err != nil { // before a server copies anything
		return exit.Usage(err)
	}
	if a.conn.Store != "" && a.conn.Server == "" {
		return a.backupStore(ctx, dir) // also one that is sealed
	}
	return a.linked(ctx, func(ctx context.Context, l *link.Link) (err error) {
		var m *backup.Manifest
		if l.Runtime != nil {
			m, err = backup.Take(ctx, threads.Behind(l.Runtime).All.Store, dir)
		} else {
			m, err = a.download(ctx, l, dir)
		}
		if err != nil {
			return err
		}
		return a.showBackup(m, dir, "is complete")
	})
}

// backupStore copies the store that --store names.
func (a *app) backupStore(ctx context.Context, dir string) error {
	if err := a.conn.Exists(a.conn.Store); err != nil {
		return err
	}
	s, err := a.conn.OpenURL(ctx, a.conn.Store, false)
	if err != nil {
		e := link.OpenError(a.conn.Store, err)
		if errors.Is(err, store.ErrLocked) {
			e.Next = "a server that has it open can copy it: perdure backup DIR --server ADDRESS"
		}
		return e
	}
	m, err := backup.Take(ctx, s, dir)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	return a.showBackup(m, dir, "is complete")
}

// download gets a backup from a server.
func (a *app) download(ctx context.Context, l *link.Link, dir string) (*backup.Manifest, error) {
	body, err := client.Open(ctx, l.Client, api.BackupTake, api.Nothing{}, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return backup.Receive(ctx, body, dir)
}

func (a *app) showBackup(m *backup.Manifest, dir, what string) error {
	if a.term.JSON {
		return a.term.PrintJSON(m)
	}
	held := fmt.Sprintf("%s, %d entries, %d cells", terminal.Count(m.Threads, "thread", "threads"), m.Entries, m.Cells)
	if m.Sealed {
		held = fmt.Sprintf("sealed, %s, %d entries, %d cells", terminal.Count(m.Journals, "journal", "journals"), m.Entries, m.Cells)
	}
	a.term.Printf("The backup in %s %s: %s (%d bytes), from %s.\n", safe.Line(dir), what, held, m.Bytes, m.Taken.Format(time.RFC3339))
	return nil
}

// restoreCommand returns the command that makes a store of a backup.
func restoreCommand(a *app) *cobra.Command {
	var mark bool
	c := &cobra.Command{
		Use:   "restore [DIR]",
		Short: "make a new store from a backup",
		Long: `Copies the store in a backup to the place that --store names, which must be new, and
marks it as restored. The backup is not changed. If the store is sealed, set
PERDURE_TO_KEYS to its key ring.

The restored store is as it was when the backup was made. Later work is not in it:
runs continue from the last step that it has, and repeat later ones, with the same
idempotency keys; questions that were answered later are asked again. Event ids from
before are refused (410, restored), so that readers start over instead of missing events.
Stop all servers and workers of the old store first: see docs/operations.md.

If a store was restored with the tools of its engine, run this command with --mark and
without a folder before anything uses the store.`,
		Example: "  perdure restore monday --store sqlite:restored.db\n  perdure restore --mark --store postgres://app@db.example/app",
		Args:    arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case a.conn.Server != "" || a.conn.Store == "":
				return exit.Usage(errors.New("name the store with --store; no server may have it open"))
			case mark && len(args) == 0:
				return a.markRestored(c.Context())
			case mark || len(args) == 0:
				return exit.Usage(errors.New("usage: perdure restore DIR --store URL, or perdure restore --mark --store URL"))
			}
			return a.restore(c.Context(), args[0], a.conn.Store)
		},
	}
	c.Flags().BoolVar(&mark, "mark", false, "mark a store that was restored by the tools of its engine")
	return c
}

func (a *app) restore(ctx context.Context, dir, url string) error {
	path, ok := link.SQLiteFile(url)
	if !ok {
		path = link.Folder(url)
	}
	m, err := backup.Restore(ctx, dir, url, path, func(ctx context.Context, url string) (store.Store, error) {
		return a.openSealed(ctx, url, false, "PERDURE_TO_KEYS")
	})
	if err != nil {
		return err
	}
	return a.showBackup(m, dir, "is restored to "+safe.Line(link.StoreName(url)))
}

func (a *app) markRestored(ctx context.Context) error {
	if err := a.conn.Exists(a.conn.Store); err != nil {
		return err
	}
	s, err := a.openSealed(ctx, a.conn.Store, false, "PERDURE_TO_KEYS")
	if err != nil {
		return err
	}
	if err := errors.Join(threads.MarkRestored(ctx, s, time.Time{}), s.Close()); err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(struct{}{})
	}
	a.term.Printf("The store %s is marked as restored.\n", safe.Line(link.StoreName(a.conn.Store)))
	return nil
}
