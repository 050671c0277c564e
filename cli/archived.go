package cli

import (
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func archiveCommand(a *app) *cobra.Command {
	c := operation(a, "archive THREAD", "  perdure archive trip-7\n  perdure archive trip-7 --reason \"closed last year\"", api.ThreadsArchive, func(a *app, t *perdure.ArchivedThread) error {
		a.term.Printf("thread %s is archived: %d bytes in %s\n", safe.Label(t.ID), t.Size, safe.Label(t.Where))
		a.hint("%s brings it back", a.command("unarchive", "", t.ID))
		return nil
	})
	c.Long += "\n\nWith --store, --archive or $PERDURE_ARCHIVE names the archive; a server has its own\n(perdure serve --archive URL)."
	return c
}

func unarchiveCommand(a *app) *cobra.Command {
	c := operation(a, "unarchive THREAD", "  perdure unarchive trip-7\n  perdure unarchive trip-7 --remove", api.ThreadsRestore, func(a *app, t *perdure.Thread) error {
		a.term.Printf("thread %s is back, at sequence %d\n", safe.Label(t.ID), t.Seq)
		a.hint("%s shows it", a.command("show", "", t.ID))
		return nil
	})
	c.Long += "\n\nThe object stays in the archive, unless --remove deletes it."
	return c
}

func archivedCommand(a *app) *cobra.Command {
	return operation(a, "archived", "  perdure archived\n  perdure archived --user ada --before 2026-01-01T00:00:00Z", api.ArchivedList, func(a *app, page *api.ArchivedPage) error {
		if len(page.Threads) == 0 {
			a.hint("there are no such threads; perdure archive THREAD archives one")
			return nil
		}
		rows := [][]string{{"ID", "USER", "FLOW", "STATUS", "ARCHIVED", "BYTES", "TITLE"}}
		for _, t := range page.Threads {
			rows = append(rows, []string{safe.Name(t.ID), safe.Line(t.User), t.Flow, string(t.Status), a.term.When(t.Archived), fmt.Sprint(t.Size), t.Title})
		}
		return a.printPage(rows, page.Next)
	})
}
