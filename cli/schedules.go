package cli

import (
	"cmp"
	"context"
	"strings"
	"time"
	_ "time/tzdata" // time zones, also where the system has none

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	_ "github.com/perdure/perdure/cron" // cron expressions
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

func schedulesCommand(a *app) *cobra.Command {
	show := func(a *app, s *api.Schedule) error { return a.schedule(s) }
	return group(&cobra.Command{
		Use:   "schedules",
		Short: "start flows at given times",
		Long: `Start flows at given times: by a cron expression in a time zone, or at an interval.
Workers make each firing once. --catch-up says what happens to firings that were missed
because no worker ran, --overlap to those that are due before the last run has ended.`,
		Example: "  perdure schedules add digest research '\"what is new?\"' --cron '0 9 * * MON-FRI' --zone Europe/Berlin\n  perdure schedules list\n  perdure schedules next digest",
	},
		operation(a, "list", "  perdure schedules list", api.SchedulesList, (*app).schedules),
		operation(a, "show SCHEDULE", "  perdure schedules show digest", api.SchedulesGet, show),
		operation(a, "add SCHEDULE FLOW [INPUT]", "  perdure schedules add digest research '\"what is new?\"' --cron '0 9 * * MON-FRI' --zone Europe/Berlin\n  perdure schedules add sync sync --every 15m --overlap skip --catch-up skip",
			api.SchedulesPut, show),
		operation(a, "next SCHEDULE", "  perdure schedules next digest --limit 20", api.SchedulesNext, (*app).firings),
		operation(a, "pause SCHEDULE", "  perdure schedules pause digest", api.SchedulesPause, show),
		operation(a, "resume SCHEDULE", "  perdure schedules resume digest", api.SchedulesResume, show),
		operation(a, "remove SCHEDULE", "  perdure schedules remove digest", api.SchedulesDelete, hinted("removed; its threads and runs stay")),
		operate(a, "run SCHEDULE", "  perdure schedules run digest\n  perdure schedules run digest --key once", api.SchedulesTrigger, func(ctx context.Context, l *link.Link, run *perdure.Run) error {
			if a.term.JSON {
				return a.term.PrintJSON(run)
			}
			a.term.PrintName(run.Thread)
			a.hint("follow it with %s", a.command("events", "", run.Thread))
			a.idle(ctx, l)
			return nil
		}))
}

// times says when a schedule fires.
func times(s *api.Schedule) string {
	if s.Every != "" {
		return "every " + safe.Label(s.Every)
	}
	return safe.Line(s.Cron) + " " + safe.Label(cmp.Or(s.Zone, "UTC"))
}

// state says what a schedule is doing.
func stateOf(s *api.Schedule) string {
	switch {
	case s.Paused:
		return "paused"
	case s.Error != "":
		return "failing"
	case len(s.Next) == 0 && len(s.Queued) == 0:
		return "ended"
	}
	return "active"
}

// schedules lists schedules.
func (a *app) schedules(list *api.ScheduleList) error {
	if len(list.Schedules) == 0 {
		a.hint("there are no schedules; %s makes one", a.command("schedules add --help", ""))
		return nil
	}
	rows := [][]string{{"SCHEDULE", "FLOW", "TIMES", "STATE", "NEXT", "LAST", "OWNER"}}
	for _, s := range list.Schedules {
		next, last := "", ""
		if len(s.Next) > 0 && !s.Paused {
			next = a.stamp(s, s.Next[0])
		}
		if len(s.Recent) > 0 {
			last = s.Recent[0].Outcome + " " + a.term.When(s.Recent[0].Made)
		}
		rows = append(rows, []string{safe.Name(s.ID), s.Flow, times(s), stateOf(s), next, last, s.User})
	}
	return a.term.Table(rows, render.StatusStyle)
}

// stamp returns a time in the zone of a schedule.
func (a *app) stamp(s *api.Schedule, at time.Time) string {
	if loc, err := time.LoadLocation(s.Zone); err == nil {
		at = at.In(loc)
	}
	return at.Format("2006-01-02 15:04:05 MST")
}

// schedule prints a schedule.
func (a *app) schedule(s *api.Schedule) error {
	a.term.Printf("schedule %s: flow %s, %s, %s\n", safe.Label(s.ID), safe.Label(s.Flow), times(s), stateOf(s))
	where := "a new thread for each firing"
	if s.Thread != "" {
		where = "thread " + safe.Label(s.Thread)
	}
	a.term.Printf("  %s; missed firings: %s; overlapping ones: %s; started so far: %d\n", where, safe.Label(string(s.CatchUp)), safe.Label(string(s.Overlap)), s.Fired)
	if s.Error != "" {
		a.term.Printf("  failing since %s: %s\n", a.term.When(s.Since), safe.Cut(safe.Line(s.Error), a.term.Room(40)))
	}
	if len(s.Next) > 0 {
		var next []string
		for _, at := range s.Next {
			next = append(next, a.stamp(s, at))
		}
		a.term.Printf("  next:\n    %s\n", strings.Join(next, "\n    "))
	}
	if n := len(s.Queued); n > 0 {
		a.term.Printf("  waiting for the end of the last run: %d\n", n)
	}
	if len(s.Recent) > 0 {
		a.term.Printf("  last:\n")
		for _, f := range s.Recent[:min(len(s.Recent), 5)] {
			text := a.stamp(s, f.At)
			if !f.Until.IsZero() {
				text += " to " + a.stamp(s, f.Until)
			}
			text += " " + safe.Label(f.Outcome)
			if f.Manual {
				text += " by hand"
			}
			if f.Thread != "" {
				text += ", thread " + safe.Label(f.Thread)
			}
			if f.Error != "" {
				text += ": " + safe.Line(f.Error)
			}
			a.term.Printf("    %s\n", safe.Cut(text, a.term.Room(4)))
		}
	}
	if s.Paused {
		a.hint("continue it with %s", a.command("schedules resume", "", s.ID))
	}
	return nil
}

// firings prints times.
func (a *app) firings(f *api.Firings) error {
	if len(f.Next) == 0 {
		a.hint("there are none")
	}
	for _, at := range f.Next {
		a.term.Printf("%s\n", at.Format(time.RFC3339))
	}
	return nil
}
