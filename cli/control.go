package cli

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func init() {
	register(
		control("pause", api.RunsPause, "  perdure pause trip-7\n  perdure pause trip-7 --reason \"wait for the audit\""),
		control("cancel", api.RunsCancel, "  perdure cancel trip-7\n  perdure cancel trip-7 RUN --reason \"not needed\""),
		control("retry", api.RunsRetry, "  perdure retry trip-7"),
		func(a *app) *cobra.Command {
			c := operation(a, "resume THREAD [RUN]", api.RunsResume, func(a *app, r *api.Resumed) error {
				if !r.Resumed {
					a.term.Printf("nothing to do: %s\n", safe.Cut(safe.Line(r.Note), a.term.Room(15)))
					a.askHints(r.Run)
					return nil
				}
				return a.changed(r.Run)
			})
			c.Example = "  perdure resume trip-7"
			return c
		},
		func(a *app) *cobra.Command {
			c := operation(a, "signal THREAD NAME [VALUE]", api.SignalsSend, func(a *app, _ *api.None) error {
				a.hint("sent")
				return nil
			})
			c.Long += "\n\nThe value is JSON or text; - reads it from the standard input."
			c.Example = "  perdure signal trip-7 paid\n  perdure signal trip-7 paid '{\"amount\": 42}' --key payment-9"
			return c
		},
	)
}

// control makes a command that changes what becomes of a run.
func control(name string, op api.Op[api.ControlRun, perdure.Run], example string) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		c := operation(a, name+" THREAD [RUN]", op, (*app).changed)
		c.Long += "\n\nWithout RUN, it works on the thread's newest run."
		c.Example = example
		return c
	}
}

// changed tells how a run is now.
func (a *app) changed(r *perdure.Run) error {
	status := string(r.Status)
	a.term.Printf("run %s of thread %s is %s\n", safe.Label(r.ID), safe.Label(r.Thread), a.term.Style(render.StatusStyle(status), safe.Label(status)))
	return nil
}

// askHints says how what a run waits for is answered.
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
