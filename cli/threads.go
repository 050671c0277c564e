package cli

import (
	"fmt"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func init() {
	register(func(a *app) *cobra.Command {
		c := operation(a, "threads", api.ThreadsList, (*app).threads)
		c.Example = "  perdure threads\n  perdure threads --status suspended --asks\n  perdure threads --user ada --flow research --limit 20"
		return c
	})
}

// threads prints a page of threads.
func (a *app) threads(page *api.ThreadPage) error {
	defer a.damage(page.Damage)
	if len(page.Threads) == 0 {
		a.hint("there are no such threads; start one with perdure run FLOW INPUT")
		return nil
	}
	rows := [][]string{{"ID", "FLOW", "STATUS", "ASKS", "UPDATED", "TITLE"}}
	for _, t := range page.Threads {
		status, asks := string(t.Status), ""
		if status == "" {
			status = "idle"
		}
		if t.Asks > 0 {
			asks = fmt.Sprint(t.Asks)
		}
		if t.Import {
			status += ", imported"
		}
		rows = append(rows, []string{safe.Name(t.ID), t.Flow, status, asks, a.term.When(t.Updated), t.Title})
	}
	if err := a.term.Table(rows, render.StatusStyle); err != nil {
		return err
	}
	a.more(page.Next)
	return nil
}
