package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func threadsCommand(a *app) *cobra.Command {
	return operation(a, "threads", "  perdure threads\n  perdure threads --status suspended --asks\n  perdure threads --user ada --flow research --limit 20", api.ThreadsList, (*app).threads)
}

// threads prints a page of threads.
func (a *app) threads(page *api.ThreadPage) error {
	defer a.damage(page.Damage)
	if len(page.Threads) == 0 {
		a.hint("there are no such threads; start one with perdure run FLOW INPUT")
		return nil
	}
	rows := [][]string{{"ID", "FLOW", "STATUS", "ASKS", "UPDATED", "TITLE"}}
	why := slices.ContainsFunc(page.Threads, func(t perdure.Summary) bool { return t.Why != nil })
	if why {
		rows[0] = append(rows[0], "WHY")
	}
	moved := ""
	for _, t := range page.Threads {
		status, asks := cmp.Or(string(t.Status), "idle"), ""
		if t.Asks > 0 {
			asks = fmt.Sprint(t.Asks)
		}
		if t.Import {
			status += ", imported"
		}
		if t.Moved != "" {
			status, asks, moved = "moved", "", t.Moved
		}
		rows = append(rows, []string{safe.Name(t.ID), t.Flow, status, asks, a.term.When(t.Updated), t.Title})
		if why {
			text := ""
			if t.Why != nil {
				text = string(t.Why.State) + ": " + t.Why.Text + a.whyUntil(t.Why)
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], text)
		}
	}
	if moved != "" {
		defer a.hint("what has moved continues in %s; connect to that store", safe.Line(moved))
	}
	return a.printPage(rows, page.Next)
}

// controlCommand returns a command that controls a run.
func controlCommand(name, example string, op api.Op[api.ControlRun, perdure.Run]) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		show := (*app).changed
		if name == "pause" {
			show = (*app).paused
		}
		c := operation(a, name+" THREAD [RUN]", example, op, show)
		c.Long += "\n\nWithout RUN, it works on the thread's newest run."
		return c
	}
}

func resumeCommand(a *app) *cobra.Command {
	return operate(a, "resume THREAD [RUN]", "  perdure resume trip-7", api.RunsResume, func(_ context.Context, _ *link.Link, r *api.Resumed) error {
		var err error
		switch {
		case a.term.JSON:
			err = a.term.PrintJSON(r)
		case r.Resumed:
			err = a.changed(r.Run)
		default:
			a.term.Printf("nothing to do: %s\n", safe.Cut(safe.Line(r.Note), a.term.Room(15)))
			a.askHints(r.Run)
		}
		if err == nil && !r.Resumed {
			err = exit.Quiet(exit.Conflict)
		}
		return err
	})
}

func signalCommand(a *app) *cobra.Command {
	c := operation(a, "signal THREAD NAME [VALUE]", "  perdure signal trip-7 paid\n  perdure signal trip-7 paid '{\"amount\": 42}' --key payment-9", api.SignalsSend, hinted("sent"))
	c.Long += "\n\nThe value is JSON or text; - reads it from the standard input."
	return c
}

// changed prints the status of a run.
func (a *app) changed(r *perdure.Run) error {
	status := string(r.Status)
	a.term.Printf("run %s of thread %s is %s\n", safe.Label(r.ID), safe.Label(r.Thread), a.term.Style(render.StatusStyle(status), safe.Label(status)))
	return nil
}

// paused prints what becomes of a run that was paused: one that is within a step goes on
// until the next.
func (a *app) paused(r *perdure.Run) error {
	if r.Status != perdure.Running {
		return a.changed(r)
	}
	a.term.Printf("run %s of thread %s pauses before its next step, or ends if it has none\n", safe.Label(r.ID), safe.Label(r.Thread))
	return nil
}

// askHints says how to provide what a run waits for.
func (a *app) askHints(r *perdure.Run) {
	for _, f := range r.Failed {
		a.hint("branch %s of run %s failed, and the run waits for the others: %s", safe.Text(f.Branch), safe.Text(r.ID), safe.Cut(safe.Line(f.Error), 200))
	}
	for i := range r.Asks {
		what, how := a.waitsFor(&r.Asks[i])
		a.hint("%s; %s", what, how)
	}
	for _, w := range r.Waits {
		if w.Kind == "signal" && w.Signal != "" {
			a.hint("run %s waits for a signal: %s", safe.Label(r.ID), a.command("signal", "", r.Thread, w.Signal))
		}
	}
}
